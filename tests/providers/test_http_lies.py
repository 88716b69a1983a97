"""Answers that are not what was asked for: wrong lengths, ranges, versions and heads."""

import hashlib
import random
from collections.abc import Iterator

import pytest

from providers.errors import (
    IntegrityError,
    PreconditionError,
    ProviderError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.options import TransferOptions
from providers.retry import Attempt, on_retry, without_waiting
from providers.values import ByteRange, ObjectInfo
from tests.fakes.plane_provider import PlaneProvider, Read, plane, read_all, read_one
from tests.fakes.plane_server import (
    Exchange,
    Fault,
    PlaneServer,
    amended,
    answer,
    cut_after,
    endless,
    in_turn,
    raw,
    replacing,
    stall_after,
    unpinned,
    whole_object,
)

BODY = random.Random(2).randbytes(200_000)  # noqa: S311 no secret
NEWER = random.Random(3).randbytes(200_000)  # noqa: S311 no secret
SPAN = ByteRange(1_000, 150_000)
ETAG = hashlib.md5(BODY, usedforsecurity=False).hexdigest()
PINNED = ObjectInfo("large", size=len(BODY), etag=ETAG)


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server with a large object and a small one, without pauses between attempts."""
    with plane({"large": BODY, "a": b"A" * 100}) as server, without_waiting():
        yield server


def closing(fault: Fault) -> Fault:
    """Do what a fault says, then close."""

    def both(exchange: Exchange) -> None:
        fault(exchange)
        exchange.close()

    return both


# ---- Lengths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [None, SPAN])
@pytest.mark.parametrize("into", [False, True])
def test_a_length_that_is_too_long(server: PlaneServer, span: ByteRange | None, into: bool) -> None:
    """Bytes that never come are missed, once is mended, for good is an error."""
    right = BODY if span is None else BODY[span.start : span.stop]
    buffer = memoryview(bytearray(300_000)) if into else None
    read = Read(PlaneProvider(server.endpoint), "large", span, into=buffer)
    longer = closing(amended({"Content-Length": str(len(right) + 5)}))
    server.fault(longer)
    assert read_one(read) == right
    server.seen.clear()
    server.fault(longer, times=None)
    found = read_one(read, TransferOptions(max_attempts=4))
    assert isinstance(found, UnavailableError)
    assert len(server.seen) == 4


def test_a_length_that_is_too_short(server: PlaneServer) -> None:
    """A pinned size shows it, a range goes on with the rest, and no later answer is mixed up."""
    provider = PlaneProvider(server.endpoint)
    shorter = amended({"Content-Length": "199995"})
    server.fault(closing(shorter))
    pinned = read_one(Read(provider, "large", if_match=PINNED))
    assert isinstance(pinned, IntegrityError)
    assert "199995 bytes instead of 200000" in str(pinned)
    server.fault(shorter)
    one = TransferOptions(max_in_flight=1)
    found = read_all([Read(provider, key) for key in ("large", "large", "a")], one)
    assert found == [BODY[:-5], BODY, b"A" * 100]
    server.fault(amended({"Content-Length": "148995"}))
    assert read_one(Read(provider, "large", SPAN)) == BODY[1_000:150_000]
    assert server.seen[-1].headers["range"] == "bytes=149995-149999"


@pytest.mark.parametrize("size", [0, 100, 199_999])
@pytest.mark.parametrize("span", [None, SPAN])
def test_a_buffer_that_is_too_short(server: PlaneServer, size: int, span: ByteRange | None) -> None:
    """Nothing is written past the caller's view, and the error says how long it is."""
    memory = bytearray(b"x" * 300_000)
    size = min(size, 148_000) if span else size
    with memoryview(memory) as view:
        found = read_one(Read(PlaneProvider(server.endpoint), "large", span, into=view[:size]))
    assert isinstance(found, IntegrityError)
    assert f"buffer of {size} bytes" in str(found)
    assert memory[size:] == b"x" * (300_000 - size)
    assert len(server.seen) == 1


# ---- Ranges ----------------------------------------------------------------------------------


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        whole_object,
        amended({"Content-Range": ""}),
        amended({"Content-Range": "bytes"}),
        amended({"Content-Range": "bytes 0-148999/200000"}),
        amended({"Content-Range": "bytes 1001-149999/200000"}),
        amended({"Content-Range": "bytes 1000-150000/200000"}),
        amended({"Content-Range": "bytes 1000-999/200000"}),
        amended({"Content-Range": "bytes 1000-50999/200000"}),
        amended({"Content-Range": f"bytes 1000-{'9' * 5000}/200000"}),
        amended({"Content-Range": "bytes 1000-149999/200000"}, status=203),
    ],
)
def test_another_range_than_was_asked_for(server: PlaneServer, fault: Fault, into: bool) -> None:
    """It is an error at once: bytes from elsewhere never pass for those asked for."""
    buffer = memoryview(bytearray(300_000)) if into else None
    server.fault(fault, times=None)
    found = read_one(Read(PlaneProvider(server.endpoint), "large", SPAN, into=buffer))
    assert isinstance(found, ProviderError)
    assert not found.retryable
    assert str(found).startswith("get plane://bucket/large: ")
    assert len(server.seen) == 1


@pytest.mark.parametrize("into", [False, True])
def test_a_range_that_was_not_asked_for(server: PlaneServer, into: bool) -> None:
    """A part never passes for the whole."""
    buffer = memoryview(bytearray(300_000)) if into else None
    part = answer(206, {"Content-Range": "bytes 0-99/200000"}, BODY[:100])
    server.fault(part, times=None)
    found = read_one(Read(PlaneProvider(server.endpoint), "large", into=buffer))
    assert isinstance(found, IntegrityError)
    assert len(server.seen) == 1


def test_a_range_answered_with_status_200(server: PlaneServer) -> None:
    """Some stores do that: the Content-Range says that it is the range."""
    server.fault(amended({}, status=200))
    found = read_one(Read(PlaneProvider(server.endpoint), "large", SPAN))
    assert found == BODY[1_000:150_000]


def test_a_shorter_range_than_was_asked_for(server: PlaneServer) -> None:
    """A server may answer a part of a range; the rest is asked for."""

    def half(exchange: Exchange) -> None:
        etag = {"ETag": f'"{ETAG}"', "Content-Range": "bytes 1000-50999/200000"}
        exchange.answer(206, etag, BODY[1_000:51_000])

    server.fault(half)
    found = read_one(Read(PlaneProvider(server.endpoint), "large", SPAN))
    assert found == BODY[1_000:150_000]
    assert server.seen[-1].headers["range"] == "bytes=51000-149999"


@pytest.mark.parametrize("into", [False, True])
def test_far_more_bytes_than_were_asked_for(server: PlaneServer, into: bool) -> None:
    """An answer without end is cut off, whatever its head claims."""
    memory = bytearray(200)
    read = Read(
        PlaneProvider(server.endpoint),
        "large",
        ByteRange(0, 100),
        into=memoryview(memory)[:100] if into else None,
    )
    for fields in ({"Content-Range": "bytes 0-99/200000", "ETag": '"x"'}, {}):
        server.fault(endless(fields))
        assert isinstance(read_one(read), IntegrityError)
    assert memory[100:] == bytes(100)
    assert len(server.seen) == 2


def test_a_server_that_knows_no_ranges(server: PlaneServer) -> None:
    """A whole object that breaks is read anew, in one piece, whatever was to be continued."""
    server.fault(cut_after(50_000))
    server.fault(whole_object, times=None)
    assert read_one(Read(PlaneProvider(server.endpoint), "large")) == BODY
    assert [seen.headers.get("range") for seen in server.seen] == [None, "bytes=50000-", None]


# ---- Versions --------------------------------------------------------------------------------


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("then", [None, unpinned])
@pytest.mark.parametrize("newer", [NEWER, NEWER[:120_000], NEWER + b"more", NEWER[:30_000]])
@pytest.mark.parametrize("span", [None, ByteRange(0, 90_000), ByteRange(10)])
def test_an_object_that_changes_before_its_rest_is_read(
    server: PlaneServer, newer: bytes, then: Fault | None, span: ByteRange | None, into: bool
) -> None:
    """All of the newer version comes, never a mixture, whether or not the store honours pins."""
    buffer = memoryview(bytearray(300_000)) if into else None
    server.fault(replacing("large", newer, cut_after(50_000)))
    if then is not None:
        server.fault(then, times=None)
    found = read_one(Read(PlaneProvider(server.endpoint), "large", span, into=buffer))
    start, stop = (0, None) if span is None else (span.start, span.stop)
    assert found == newer[start:stop]
    assert len(server.seen) >= 3


def test_an_object_that_changes_at_each_attempt(server: PlaneServer) -> None:
    """It is read in one piece from then on, and gives up after the attempts allowed."""
    faults = [replacing("large", NEWER[n:], cut_after(50_000)) for n in range(10)]
    server.fault(in_turn(*faults), times=None)
    found = read_one(Read(PlaneProvider(server.endpoint), "large"), TransferOptions(max_attempts=6))
    assert isinstance(found, UnavailableError)
    assert len(server.seen) == 6


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("span", [None, SPAN])
@pytest.mark.parametrize("then", [None, unpinned])
@pytest.mark.parametrize("broken", [False, True])
def test_a_pinned_object_that_changed(
    server: PlaneServer, span: ByteRange | None, then: Fault | None, broken: bool, into: bool
) -> None:
    """The change is told, whether the store honours pins or not, in mid-body too."""
    buffer = memoryview(bytearray(300_000)) if into else None
    if broken:
        server.fault(replacing("large", NEWER, cut_after(50_000)))
    else:
        server.objects["large"] = NEWER
    if then is not None:
        server.fault(then, times=None)
    read = Read(PlaneProvider(server.endpoint), "large", span, if_match=PINNED, into=buffer)
    found = read_one(read)
    assert isinstance(found, PreconditionError)
    assert "plane://bucket/large" in str(found)
    assert len(server.seen) == 1 + broken


def test_an_integrity_error_that_recovers_begins_anew(server: PlaneServer) -> None:
    """Nothing of an answer that was found wrong is kept."""

    class Forgiving(PlaneProvider):
        def recover(self, error: ProviderError) -> bool:
            return isinstance(error, IntegrityError)

    memory = memoryview(bytearray(200_000))
    longer = {"Content-Length": "200100", "ETag": '"x"'}
    server.fault(lambda exchange: exchange.answer(200, longer, bytes(200_100)))
    assert read_one(Read(Forgiving(server.endpoint), "large", into=memory)) == BODY
    assert [seen.headers.get("range") for seen in server.seen] == [None, None]


# ---- Heads -----------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\n"
HOSTILE = {
    "no HTTP": b"hello\r\n\r\n",
    "nothing but an end of line": b"\r\n",
    "no number for a status": b"HTTP/1.1 abc OK\r\nContent-Length: 100\r\n\r\n" + b"A" * 100,
    "a header without a colon": OK + b"no colon\r\nContent-Length: 100\r\n\r\n" + b"A" * 100,
    "a length in words": OK + b"Content-Length: many\r\n\r\n" + b"A" * 100,
    "a length below zero": OK + b"Content-Length: -100\r\n\r\n" + b"A" * 100,
    "a length beyond all": OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + b"A" * 100,
    "a length with an underscore": OK + b"Content-Length: 1_00\r\n\r\n" + b"A" * 100,
    "two lengths": OK + b"Content-Length: 100\r\nContent-Length: 99\r\n\r\n" + b"A" * 100,
    "no length": OK + b"\r\n" + b"A" * 100,
    "chunks without end": OK + b"Transfer-Encoding: chunked\r\n\r\n64\r\n" + b"A" * 100 + b"\r\n",
    "chunks of no size": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + b"A" * 100,
    "an endless header": OK + b"X: " + b"x" * 500_000 + b"\r\n\r\n",
    "headers without end": OK + b"X: x\r\n" * 100_000 + b"\r\n",
    "a zero byte": OK + b"X: a\0b\r\nContent-Length: 100\r\n\r\n" + b"A" * 100,
    "interim answers only": b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
    "a redirect": b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "another success": b"HTTP/1.1 203 Changed\r\nContent-Length: 100\r\n\r\n" + b"A" * 100,
}


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("head", HOSTILE)
def test_a_hostile_head(server: PlaneServer, head: str, into: bool) -> None:
    """It is an error that names the object, and the stream goes on."""
    provider = PlaneProvider(server.endpoint)
    buffer = memoryview(bytearray(300)) if into else None
    server.fault(raw(HOSTILE[head]), times=None, key="a")
    found = read_all(
        [Read(provider, "a", into=buffer), Read(provider, "large")],
        TransferOptions(max_attempts=2, first_byte_timeout_seconds=1),
    )
    assert isinstance(found[0], ProviderError)
    assert str(found[0]).startswith("get plane://bucket/")
    assert found[1] == BODY


@pytest.mark.parametrize(
    "head",
    [
        OK + b"content-LENGTH:100\r\n\r\n",
        OK + "X: \xff\xfe ü\r\nContent-Length:  100 \r\n\r\n".encode("latin-1"),
        b"HTTP/1.1 100 Continue\r\nContent-Length: 7\r\n\r\n" + OK + b"Content-Length: 100\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n",
    ],
)
def test_an_odd_head(server: PlaneServer, head: bytes) -> None:
    """What is odd but clear is understood."""
    for buffer in (None, memoryview(bytearray(300))):
        server.fault(raw(head + b"A" * 100))
        found = read_one(Read(PlaneProvider(server.endpoint), "a", into=buffer))
        assert found == b"A" * 100
    assert len(server.seen) == 2


def test_chunked_bodies(server: PlaneServer) -> None:
    """A body without a length is whole when its last chunk says so."""
    chunked = {"Content-Length": "", "Transfer-Encoding": "chunked"}
    whole = b"64\r\n" + b"A" * 100 + b"\r\n0\r\n\r\n"
    provider = PlaneProvider(server.endpoint)
    for buffer in (None, memoryview(bytearray(300))):
        server.fault(answer(200, chunked, whole))
        assert read_one(Read(provider, "a", into=buffer)) == b"A" * 100
    assert len(server.seen) == 2


@pytest.mark.parametrize("value", ["x\r\nHost: evil", "x\n", "x\r", "x\0y"])
def test_a_header_that_would_smuggle_another(server: PlaneServer, value: str) -> None:
    """It is refused before anything is sent, by a message that keeps the value to itself."""
    provider = PlaneProvider(server.endpoint)
    provider.more_headers = {"X-Token": value}
    found = read_one(Read(provider, "a"))
    assert isinstance(found, SettingsError)
    assert "X-Token" in str(found)
    assert "evil" not in str(found)
    assert server.seen == []
    provider.more_headers = {"X-Token\r\nEvil: 1": "x"}
    assert isinstance(read_one(Read(provider, "a")), SettingsError)
    provider.more_headers = {"X-Empty": "", "X-Words": "some words"}
    assert read_one(Read(provider, "a")) == b"A" * 100
    assert (server.seen[0].headers["x-empty"], server.seen[0].headers["x-words"]) == (
        "",
        "some words",
    )


def test_a_body_slower_than_allowed_is_resumed(server: PlaneServer) -> None:
    """No bytes at all is too slow even where no least speed is asked for."""
    server.fault(stall_after(50_000))
    transfer = TransferOptions(
        first_byte_timeout_seconds=0.5, low_speed_seconds=1, low_speed_bytes_per_second=0
    )
    attempts: list[Attempt] = []
    unsubscribe = on_retry(attempts.append)
    try:
        assert read_one(Read(PlaneProvider(server.endpoint), "large"), transfer) == BODY
    finally:
        unsubscribe()
    assert [type(attempt.error) for attempt in attempts] == [TimedOutError]
    assert [seen.headers.get("range") for seen in server.seen] == [None, "bytes=50000-"]
