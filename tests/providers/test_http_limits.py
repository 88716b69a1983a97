"""How much a stream has under way at once, told by counts at the server."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from providers.http import fetch
from providers.options import TransferOptions
from providers.retry import without_waiting
from providers.values import ByteRange
from tests.fakes.plane_crowds import Crowd
from tests.fakes.plane_provider import PlaneProvider, Read, plane, read_all, steady
from tests.fakes.plane_server import Exchange, Fault, PlaneServer, stall_after

OBJECTS = {f"n{number}": bytes([number]) * 1000 for number in range(60)}


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server with many small objects and a large one."""
    with plane({**OBJECTS, "large": b"L" * 3_000_000}) as server, without_waiting():
        yield server


def reads_of(server: PlaneServer, count: int = len(OBJECTS)) -> list[Read]:
    """Reads of the first objects."""
    provider = PlaneProvider(server.endpoint)
    return [Read(provider, key, size_bytes=1000) for key in list(OBJECTS)[:count]]


def right(count: int = len(OBJECTS)) -> list[bytes]:
    """What those give."""
    return list(OBJECTS.values())[:count]


# ---- At once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    ("transfer", "most"),
    [
        (steady(max_in_flight=5), 5),
        (steady(max_in_flight=1), 1),
        (steady(max_in_flight=20, max_connections=6), 6),
        (steady(prefetch_objects=4), 4),
        (steady(max_bytes_in_flight=7_999), 7),
        (steady(max_bytes_in_flight=10), 1),
    ],
)
def test_as_many_as_allowed_and_no_more(
    server: PlaneServer, transfer: TransferOptions, most: int, ordered: bool
) -> None:
    """A stream has as much under way as its limits allow, all the time, and never more."""
    crowd = Crowd(most, len(OBJECTS))
    server.fault(crowd, times=None)
    found = read_all(reads_of(server), transfer, ordered=ordered)
    assert crowd.most == most
    assert found == right() if ordered else sorted(map(bytes, found)) == right()  # type: ignore[arg-type]


def test_ranges_count_by_their_length(server: PlaneServer) -> None:
    """The bytes of a range are known before it is asked for."""
    provider = PlaneProvider(server.endpoint)
    crowd = Crowd(3, 30)
    server.fault(crowd, times=None)
    spans = [ByteRange(start, start + 100_000) for start in range(0, 3_000_000, 100_000)]
    reads = [Read(provider, "large", span) for span in spans]
    found = read_all(reads, steady(max_bytes_in_flight=399_999))
    assert found == [b"L" * 100_000] * 30
    assert crowd.most == 3


def test_connections_are_the_process_s(server: PlaneServer) -> None:
    """Streams share them; each may have one request under way even where there is no room."""
    crowd = Crowd(6, 3 * len(OBJECTS))
    server.fault(crowd, times=None)
    transfer = steady(max_in_flight=6, max_connections=6)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(read_all(reads_of(server), transfer)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [right()] * 3
    assert 6 <= crowd.most <= 6 + 2


# ---- Ahead of the consumer -------------------------------------------------------------------


@pytest.mark.parametrize(
    "transfer",
    [
        steady(prefetch_objects=6),
        steady(max_in_flight=3, prefetch_objects=6),
        steady(max_bytes_in_flight=6_000),
    ],
)
def test_no_further_ahead_than_allowed(server: PlaneServer, transfer: TransferOptions) -> None:
    """What is asked for and not yet taken stays within the limits, however slow the consumer."""
    pulled = 0

    def pull() -> Iterator[Read]:
        nonlocal pulled
        for read in reads_of(server):
            pulled += 1
            yield read

    for taken, (_, body) in enumerate(fetch(pull(), transfer), 1):
        assert body == right()[taken - 1]
        assert len(server.seen) <= taken + 6
        # One more is looked at, to learn its size.
        assert pulled <= taken + 7
    assert len(server.seen) == len(OBJECTS)


def test_nothing_happens_before_the_first_body_is_wanted(server: PlaneServer) -> None:
    """A stream that nobody takes from asks for nothing and holds nothing."""
    stream = fetch(reads_of(server), steady())
    assert server.seen == []
    del stream


def test_sizes_that_were_not_known_are_learnt(server: PlaneServer) -> None:
    """Once heads tell the sizes, they count; the objects still arrive."""
    provider = PlaneProvider(server.endpoint)
    reads = [Read(provider, key) for key in OBJECTS]
    transfer = steady(max_in_flight=4, max_bytes_in_flight=2_000)
    for taken, (_, body) in enumerate(fetch(reads, transfer), 1):
        assert body == right()[taken - 1]
        assert len(server.seen) <= taken + 2 + 4


# ---- Endings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
def test_an_early_end_keeps_the_connections(server: PlaneServer, ordered: bool) -> None:
    """Short bodies still under way are drained: again and again, no new connection is made."""
    transfer = steady(max_in_flight=8)
    for _ in range(5):
        stream = fetch(reads_of(server), transfer, ordered=ordered)
        with contextlib.closing(stream):
            assert next(stream)[1] in right()
    assert read_all(reads_of(server), transfer) == right()
    assert server.connections <= 8


@pytest.mark.parametrize(("key", "size"), [("large", 50_000), ("n1", 500), ("n1", None)])
def test_an_early_end_waits_for_nothing_long(
    server: PlaneServer, key: str, size: int | None
) -> None:
    """What is long, or does not come, is cut: its connection is closed."""
    cut = threading.Event()
    begun = threading.Event()
    stall = stall_after(size)

    def tell(exchange: Exchange) -> None:
        begun.set()
        try:
            stall(exchange)
        finally:
            cut.set()

    server.fault(tell, key=key)
    provider = PlaneProvider(server.endpoint)
    stream = fetch([Read(provider, "n0"), Read(provider, key)], steady())
    assert next(stream)[1] == OBJECTS["n0"]
    assert begun.wait(10)
    stream.close()
    assert cut.wait(10)


def test_a_reading_loop_that_fails_leaves_nothing(server: PlaneServer) -> None:
    """Whatever the source of reads raises comes out as it is."""

    def pull() -> Iterator[Read]:
        yield from reads_of(server, 5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(fetch(pull(), steady()))


# ---- Several streams -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transfer",
    [
        steady(),
        steady(max_connections=1),
        steady(max_bytes_in_flight=1),
        steady(max_in_flight=1, prefetch_objects=1),
    ],
)
def test_streams_within_streams(server: PlaneServer, transfer: TransferOptions) -> None:
    """A consumer may read within its reading loop, three deep, whatever the limits."""
    found = 0
    for _, outer in fetch(reads_of(server, 4), transfer):
        assert outer == right(4)[found]
        for place, (_, inner) in enumerate(fetch(reads_of(server, 4), transfer)):
            assert inner == right(4)[place]
            assert read_all(reads_of(server, 4), transfer) == right(4)
        found += 1
    assert found == 4


def test_a_stream_handed_round(server: PlaneServer) -> None:
    """Threads may take turns at one stream: each body comes once."""
    stream = fetch(reads_of(server), steady(max_in_flight=4))
    lock = threading.Lock()
    found: list[object] = []

    def take() -> None:
        while True:
            with lock:
                item = next(stream, None)
                if item is None:
                    return
                found.append(item[1])

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == right()


def test_a_stream_used_by_two_threads_at_once(server: PlaneServer) -> None:
    """The second one is refused, and the first reads on as if nothing had been."""
    inside, go = threading.Event(), threading.Event()

    def pull() -> Iterator[Read]:
        inside.set()
        go.wait(10)
        yield from reads_of(server)

    stream = fetch(pull(), steady())
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(body for _, body in stream))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(ValueError, match="already executing"):
        next(stream)
    go.set()
    thread.join()
    assert found == right()


# ---- A consumer that stays away --------------------------------------------------------------


@pytest.mark.parametrize("hang_up", [False, True])
@pytest.mark.parametrize("fault", [None, stall_after(500_000), stall_after(None)])
def test_a_consumer_that_stays_away_loses_nothing(
    server: PlaneServer, fault: Fault | None, hang_up: bool
) -> None:
    """Longer than every time limit, even if the server gives up meanwhile: no attempt counts."""
    server.objects |= {f"big{number}": bytes([number]) * 2_000_000 for number in range(6)}
    provider = PlaneProvider(server.endpoint)
    keys = ["n1", *(f"big{number}" for number in range(6)), "n2"]
    begun = threading.Event()
    if fault is not None:
        server.fault(told(begun, fault), key="big1")
    transfer = steady(
        first_byte_timeout_seconds=0.5,
        connect_timeout_seconds=0.5,
        low_speed_seconds=1,
        max_attempts=1,
        max_in_flight=4,
    )
    stream = fetch([Read(provider, key) for key in keys], transfer)
    found = [next(stream)[1]]
    assert fault is None or begun.wait(10)
    threading.Event().wait(2.2)  # libcurl's limits go by the clock, in whole seconds
    if hang_up or fault is not None:
        server.hang_up()
    found += [body for _, body in stream]
    assert found == [server.objects[key] for key in keys]


def told(event: threading.Event, fault: Fault) -> Fault:
    """Set an event, then do what a fault says."""

    def both(exchange: Exchange) -> None:
        event.set()
        fault(exchange)

    return both
