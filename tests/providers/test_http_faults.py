"""Answers that break, fail or never come: the right bytes or the right error, attempts counted."""

import hashlib
import random
from collections.abc import Iterator

import pytest

from providers.errors import (
    AccessDeniedError,
    NotFoundError,
    ProviderError,
    RangeError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.options import TransferOptions
from providers.retry import Attempt, on_retry, without_waiting
from providers.values import ByteRange
from tests.fakes.plane_provider import PlaneProvider, Read, plane, read_all, read_one
from tests.fakes.plane_server import (
    Fault,
    PlaneServer,
    answer,
    cut_after,
    drip_after,
    reset_at_once,
    stall_after,
    then_close,
)

BODY = random.Random(1).randbytes(200_000)  # noqa: S311 no secret
SHORT_LIMITS = TransferOptions(
    first_byte_timeout_seconds=0.2, low_speed_seconds=1, low_speed_bytes_per_second=100_000_000
)
EXPIRED = answer(403, {}, b"<Error><Code>ExpiredToken</Code></Error>")

FAULTS: dict[str, Fault] = {
    "closed after all bytes but one": cut_after(-1),
    "closed in mid-body": cut_after(50_000),
    "closed after the head": cut_after(0),
    "reset in mid-body": cut_after(50_000, reset=True),
    "stalled before the head": stall_after(None),
    "stalled in mid-body": stall_after(50_000),
    "slow in mid-body": drip_after(50_000),
    "500": answer(500),
    "503": answer(503),
    "429": answer(429),
    "503 with Retry-After": answer(503, {"Retry-After": "7"}),
    "reset on connect": reset_at_once,
}


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server with a large object and a few small ones, without pauses between attempts."""
    objects = {"large": BODY, "empty": b"", "a": b"A" * 100, "b": b"B" * 100}
    with plane(objects) as server, without_waiting():
        yield server


def reads_of(provider: PlaneProvider) -> dict[str, tuple[Read, bytes]]:
    """The kinds of reads, with what each must give."""
    pinned = provider.describe("large", {"etag": '"' + md5(BODY) + '"'})
    span = ByteRange(1_000, 150_000)
    return {
        "whole": (Read(provider, "large"), BODY),
        "pinned": (Read(provider, "large", if_match=pinned), BODY),
        "range": (Read(provider, "large", span), BODY[1_000:150_000]),
        "to the end": (Read(provider, "large", ByteRange(1_000)), BODY[1_000:]),
        "whole into": (Read(provider, "large", into=memoryview(bytearray(300_000))), BODY),
        "range into": (
            Read(provider, "large", span, into=memoryview(bytearray(149_000))),
            BODY[1_000:150_000],
        ),
    }


def md5(data: bytes) -> str:
    """The etag that the server gives."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    "kind", ["whole", "pinned", "range", "to the end", "whole into", "range into"]
)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_is_mended(server: PlaneServer, fault: str, kind: str) -> None:
    """Whatever befalls the first attempt, the second brings the right bytes."""
    provider = PlaneProvider(server.endpoint)
    read, right = reads_of(provider)[kind]
    server.fault(FAULTS[fault])
    transfer = SHORT_LIMITS if fault.startswith(("slow", "stalled")) else None
    assert read_one(read, transfer) == right
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("closed in mid-body", UnavailableError),
        ("closed after the head", UnavailableError),
        ("reset in mid-body", UnavailableError),
        ("stalled before the head", TimedOutError),
        ("stalled in mid-body", TimedOutError),
        ("slow in mid-body", TimedOutError),
        ("500", UnavailableError),
        ("503", UnavailableError),
        ("429", ThrottledError),
        ("503 with Retry-After", UnavailableError),
        ("reset on connect", UnavailableError),
    ],
)
@pytest.mark.parametrize("kind", ["whole", "range into"])
def test_a_fault_that_stays_is_an_error(
    server: PlaneServer, fault: str, error: type[ProviderError], kind: str
) -> None:
    """After the attempts allowed, a read gives its error, which tells what was read and why."""
    provider = PlaneProvider(server.endpoint)
    read, _ = reads_of(provider)[kind]
    server.fault(FAULTS[fault], times=None)
    limits = SHORT_LIMITS if fault.startswith(("slow", "stalled")) else TransferOptions()
    found = read_one(read, limits.model_copy(update={"max_attempts": 2}))
    assert isinstance(found, error)
    assert len(server.seen) == 2
    assert str(found).startswith("get plane://bucket/large: ")
    assert "gave up after 2 attempts" in str(found)
    assert (found.uri, found.operation) == ("plane://bucket/large", "get")


@pytest.mark.parametrize("size", [-1, 50_000])
@pytest.mark.parametrize(
    "kind", ["whole", "pinned", "range", "to the end", "whole into", "range into"]
)
def test_a_broken_body_goes_on_where_it_broke(server: PlaneServer, size: int, kind: str) -> None:
    """The second attempt asks for nothing but the rest, of the same version."""
    provider = PlaneProvider(server.endpoint)
    read, right = reads_of(provider)[kind]
    server.fault(cut_after(size))
    assert read_one(read) == right
    second = server.seen[1].headers
    start = (read.byte_range.start if read.byte_range else 0) + len(right[:size])
    stop = read.byte_range.stop if read.byte_range else None
    assert second["range"] == ByteRange(start, stop).header
    assert second["if-match"] == f'"{md5(BODY)}"'


@pytest.mark.parametrize("kind", ["whole", "range", "whole into"])
def test_a_body_that_breaks_again_and_again_arrives(server: PlaneServer, kind: str) -> None:
    """Each attempt brings a piece, and all pieces make the whole."""
    provider = PlaneProvider(server.endpoint)
    read, right = reads_of(provider)[kind]
    server.fault(cut_after(60_000), times=3)
    assert read_one(read) == right
    assert len(server.seen) == -(-len(right) // 60_000)


def test_without_an_etag_a_broken_body_is_read_anew(server: PlaneServer) -> None:
    """What cannot be pinned is not continued."""
    provider = PlaneProvider(server.endpoint)
    provider.pins = False
    for kind in ("whole", "range", "whole into", "range into"):
        server.seen.clear()
        server.fault(cut_after(50_000))
        read, right = reads_of(provider)[kind]
        assert read_one(read) == right
        asked = read.byte_range.header if read.byte_range else None
        assert [seen.headers.get("range") for seen in server.seen] == [asked, asked]


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(server: PlaneServer, status: int) -> None:
    """The pause is never shorter than the service asked for."""
    attempts: list[Attempt] = []
    unsubscribe = on_retry(attempts.append)
    try:
        server.fault(answer(status, {"Retry-After": "7"}), times=2)
        assert read_one(Read(PlaneProvider(server.endpoint), "a")) == b"A" * 100
    finally:
        unsubscribe()
    assert [attempt.waited_seconds >= 7 for attempt in attempts] == [True, True]


def test_a_failing_read_leaves_the_others_alone(server: PlaneServer) -> None:
    """One stream gives bodies and errors side by side, in order."""
    provider = PlaneProvider(server.endpoint)
    server.fault(answer(500), times=None, key="b")
    reads = [Read(provider, key) for key in ("a", "b", "nothing", "large")]
    found = read_all(reads, TransferOptions(max_attempts=3))
    assert [found[0], found[3]] == [b"A" * 100, BODY]
    assert isinstance(found[1], UnavailableError)
    assert isinstance(found[2], NotFoundError)
    assert [len(server.asked(key)) for key in ("a", "b", "nothing", "large")] == [1, 3, 1, 1]


def test_expired_credentials_are_refreshed_once(server: PlaneServer) -> None:
    """The request is signed again and sent again; it counts as no failure."""
    provider = PlaneProvider(server.endpoint)
    server.fault(EXPIRED)
    assert read_one(Read(provider, "a"), TransferOptions(max_attempts=1)) == b"A" * 100
    assert provider.recoveries == 1
    tokens = [seen.headers["authorization"] for seen in server.seen]
    assert tokens == ["token-1", "token-2"]


def test_credentials_that_stay_expired_are_an_error(server: PlaneServer) -> None:
    """A refresh that does not help is not repeated."""
    provider = PlaneProvider(server.endpoint)
    server.fault(EXPIRED, times=None)
    found = read_one(Read(provider, "a"))
    assert isinstance(found, AccessDeniedError)
    assert (found.code, found.status, provider.recoveries) == ("ExpiredToken", 403, 1)
    assert len(server.seen) == 2


def test_credentials_that_expire_in_mid_body(server: PlaneServer) -> None:
    """What was read before is kept."""
    provider = PlaneProvider(server.endpoint)
    server.fault(cut_after(50_000))
    server.fault(EXPIRED)
    assert read_one(Read(provider, "large")) == BODY
    assert [seen.headers.get("range") for seen in server.seen] == [None] + ["bytes=50000-"] * 2


@pytest.mark.parametrize("ordered", [True, False])
def test_each_answer_ends_its_connection(server: PlaneServer, ordered: bool) -> None:
    """A server that hangs up after every answer costs connections, but no read and no attempt."""
    provider = PlaneProvider(server.endpoint)
    keys = ["a", "b"] * 20
    server.fault(then_close, times=None)
    transfer = TransferOptions(max_in_flight=4, max_attempts=1)
    found = read_all([Read(provider, key) for key in keys], transfer, ordered=ordered)
    right = [server.objects[key] for key in keys]
    assert found == right if ordered else sorted(map(repr, found)) == sorted(map(repr, right))
    assert len(server.seen) == len(keys)


def test_connections_closed_while_idle_cost_no_attempt(server: PlaneServer) -> None:
    """Kept-alive connections that the server closed between two batches are not relied upon."""
    provider = PlaneProvider(server.endpoint)
    once = TransferOptions(max_in_flight=4, max_attempts=1)
    for _ in range(5):
        assert read_all([Read(provider, "a")] * 8, once) == [b"A" * 100] * 8
        server.hang_up()
    assert len(server.seen) == 40


def test_nobody_listens() -> None:
    """A refused connection is an error like any other, which says what was refused."""
    with PlaneServer({}) as server:
        endpoint = server.endpoint
    with without_waiting():
        found = read_one(Read(PlaneProvider(endpoint), "a"), TransferOptions(max_attempts=2))
    assert isinstance(found, UnavailableError)
    assert "connect" in str(found)
    assert endpoint.rpartition(":")[2] in str(found)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("into", [True, False])
def test_an_empty_object(server: PlaneServer, ordered: bool, into: bool) -> None:
    """Its body is empty; any range of it lies past the end."""
    provider = PlaneProvider(server.endpoint)
    buffer = memoryview(bytearray(10)) if into else None
    whole = Read(provider, "empty", into=buffer)
    assert read_all([whole], ordered=ordered) == [b""]
    (past,) = read_all([Read(provider, "empty", ByteRange(0, 5), into=buffer)], ordered=ordered)
    assert isinstance(past, RangeError)


def test_a_range_past_the_end(server: PlaneServer) -> None:
    """It is refused, and one that only ends past it is clipped."""
    provider = PlaneProvider(server.endpoint)
    assert isinstance(read_one(Read(provider, "a", ByteRange(100))), RangeError)
    assert read_one(Read(provider, "a", ByteRange(90, 500))) == b"A" * 10
    assert len(server.seen) == 2


@pytest.mark.parametrize("ordered", [True, False])
def test_streams_under_fire(server: PlaneServer, ordered: bool) -> None:
    """Many reads with faults among them all arrive, in order if asked."""
    provider = PlaneProvider(server.endpoint)
    server.objects |= {f"n{number}": BODY[number : number + 30_000] for number in range(60)}
    for number in range(0, 60, 5):
        server.fault(cut_after(20_000), key=f"n{number}")
        server.fault(answer(500), key=f"n{number + 1}")
        server.fault(reset_at_once, key=f"n{number + 2}")
    reads = [Read(provider, f"n{number}") for number in range(60)]
    found = read_all(reads, TransferOptions(max_in_flight=8), ordered=ordered)
    right = [server.objects[read.key] for read in reads]
    assert found == right if ordered else sorted(map(repr, found)) == sorted(map(repr, right))
    assert len(server.seen) == 60 + 36
