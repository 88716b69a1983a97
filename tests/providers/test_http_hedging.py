"""Second requests for late answers: sent when they are worth it, and no more than are paid for."""

import threading
from collections.abc import Iterator

import pytest

import providers.hedging
from providers.counters import snapshot
from providers.hedging import FirstBytes, Hedges, first_bytes_of
from providers.http import fetch
from providers.retry import without_waiting
from tests.fakes.plane_provider import PlaneProvider, Read, plane, read_all, steady
from tests.fakes.plane_server import (
    Exchange,
    PlaneServer,
    after,
    answer,
    cut_after,
    stall_after,
)

OBJECTS = {f"n{number}": bytes([number % 250]) * 1000 for number in range(400)}
ONCE = steady(hedge=True, max_attempts=1, max_in_flight=8, first_byte_timeout_seconds=50)


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server of many objects, whose answers are not known yet."""
    providers.hedging._start_afresh()
    with plane(dict(OBJECTS)) as server, without_waiting():
        yield server


def warm(server: PlaneServer, *, late_seconds: float = 0.05) -> PlaneProvider:
    """Let the engine have seen enough answers, and forget the requests."""
    provider = PlaneProvider(server.endpoint)
    # What is late is known with the last of a hundred answers, so none of them is hedged.
    known = list(OBJECTS)[:100]
    reads = [Read(provider, key, size_bytes=1000) for key in known]
    assert read_all(reads, ONCE) == [OBJECTS[key] for key in known]
    first_bytes = first_bytes_of(server.endpoint)
    assert 0 < first_bytes.late_seconds < 10
    # What loopback calls late is nothing; a busy machine is to hedge no more than it is told.
    first_bytes.late_seconds = late_seconds
    first_bytes._seconds.extend([late_seconds] * 400)
    first_bytes._savings = 5.0
    server.seen.clear()
    return provider


@pytest.mark.parametrize("ordered", [True, False])
def test_single_requests_that_stall_are_sent_again(server: PlaneServer, ordered: bool) -> None:
    """The second answer stands in for the first, which never comes; no attempt fails."""
    provider = warm(server)
    stalled = ["n20", "n60", "n100"]
    for key in stalled:
        server.fault(stall_after(None), key=key)
    before = snapshot()
    reads = [Read(provider, f"n{number}", size_bytes=1000) for number in range(120)]
    found = read_all(reads, ONCE, ordered=ordered)
    right = [OBJECTS[read.key] for read in reads]
    assert found == right if ordered else sorted(map(repr, found)) == sorted(map(repr, right))
    assert [len(server.asked(key)) for key in stalled] == [2, 2, 2]
    hedges = snapshot().hedges - before.hedges
    assert len(server.seen) == 120 + hedges
    assert 3 <= hedges <= 5 + 120 // 20
    assert snapshot().requests - before.requests == len(server.seen)
    assert snapshot().retries == before.retries


def test_no_more_than_are_paid_for(server: PlaneServer) -> None:
    """However many answers are late, one hedge is sent for twenty answers."""
    provider = warm(server)
    go = threading.Event()
    seen: set[str] = set()

    def late(exchange: Exchange) -> None:
        if exchange.key not in seen:
            seen.add(exchange.key)
            go.wait(0.2)
        exchange.answer(*exchange.properly())

    server.fault(late, times=None)
    before = snapshot()
    found = read_all([Read(provider, f"n{number}", size_bytes=1000) for number in range(100)], ONCE)
    assert found == list(OBJECTS.values())[:100]
    hedges = snapshot().hedges - before.hedges
    assert 1 <= hedges <= 5 + 100 // 20


def test_nothing_is_hedged_before_enough_is_known(server: PlaneServer) -> None:
    """Without a hundred answers there is no saying what is late."""
    provider = PlaneProvider(server.endpoint)
    server.fault(stall_after(None), key="n20")
    transfer = steady(hedge=True, max_attempts=2, first_byte_timeout_seconds=0.3)
    before = snapshot()
    reads = [Read(provider, f"n{number}", size_bytes=1000) for number in range(50)]
    assert read_all(reads, transfer) == list(OBJECTS.values())[:50]
    assert snapshot().hedges == before.hedges
    assert snapshot().retries == before.retries + 1


@pytest.mark.parametrize("hedge", [True, False])
def test_only_where_asked_and_without_a_buffer(server: PlaneServer, hedge: bool) -> None:
    """Two requests cannot fill one buffer; and unasked, nothing is sent twice."""
    provider = warm(server)
    server.fault(stall_after(None), key="n1")
    into = memoryview(bytearray(1000)) if hedge else None
    transfer = steady(hedge=hedge, max_attempts=2, first_byte_timeout_seconds=0.3)
    before = snapshot()
    assert read_all([Read(provider, "n1", into=into)], transfer) == [OBJECTS["n1"]]
    assert snapshot().hedges == before.hedges


def test_limits_hold_for_hedges_too(server: PlaneServer) -> None:
    """Where a stream has as much under way as it may, nothing is added."""
    provider = warm(server)
    server.fault(stall_after(None), key="n1")
    transfer = ONCE.model_copy(
        update={"max_in_flight": 1, "max_attempts": 2, "first_byte_timeout_seconds": 0.3}
    )
    before = snapshot()
    assert read_all([Read(provider, "n1", size_bytes=1000)], transfer) == [OBJECTS["n1"]]
    assert snapshot().hedges == before.hedges


@pytest.mark.parametrize("failing", ["first", "second", "both"])
def test_one_of_two_is_enough(server: PlaneServer, failing: str) -> None:
    """A read fails only if both of its requests do, and that counts as one attempt."""
    provider = warm(server)
    second, third = threading.Event(), threading.Event()

    def first_late(exchange: Exchange) -> None:
        second.wait(10)
        if failing == "second":
            third.wait(0.3)  # six times as long as it takes to be late
        fault = cut_after(10) if failing in {"first", "both"} else after(second)
        fault(exchange)

    def second_at_once(exchange: Exchange) -> None:
        second.set()
        fault = answer(500) if failing in {"second", "both"} else after(second)
        fault(exchange)

    def third_if_ever(exchange: Exchange) -> None:
        third.set()
        exchange.answer(*exchange.properly())

    for fault in (first_late, second_at_once, third_if_ever):
        server.fault(fault, key="n1")
    before = snapshot()
    transfer = ONCE.model_copy(update={"max_attempts": 2})
    assert read_all([Read(provider, "n1", size_bytes=1000)], transfer) == [OBJECTS["n1"]]
    assert snapshot().retries - before.retries == (failing == "both")
    assert len(server.asked("n1")) == (3 if failing == "both" else 2)


def test_a_late_first_that_still_wins(server: PlaneServer) -> None:
    """The first request's answer counts too if it comes before the second's."""
    provider = warm(server)
    second = threading.Event()
    server.fault(after(second), key="n1")

    def tell(exchange: Exchange) -> None:
        second.set()
        stall_after(None)(exchange)

    server.fault(tell, key="n1")
    assert read_all([Read(provider, "n1", size_bytes=1000)], ONCE) == [OBJECTS["n1"]]
    assert len(server.asked("n1")) == 2


def test_an_early_end_amid_hedges(server: PlaneServer) -> None:
    """Both requests of a read are given up with the stream."""
    provider = warm(server)
    asked = threading.Event()

    def tell(exchange: Exchange) -> None:
        asked.set()
        stall_after(None)(exchange)

    server.fault(stall_after(None), key="n1")
    server.fault(tell, key="n1")
    server.fault(after(asked), key="n2")
    stream = fetch(
        [Read(provider, "n1", size_bytes=1000), Read(provider, "n2", size_bytes=1000)],
        ONCE,
        ordered=False,
    )
    read, body = next(stream)
    assert (read.key, body) == ("n2", OBJECTS["n2"])
    stream.close()


def test_the_rest_of_a_loser_is_let_in_if_it_is_short(server: PlaneServer) -> None:
    """Its connection serves other reads."""
    provider = warm(server)
    made = server.connections
    begun, half, done = threading.Event(), threading.Event(), threading.Event()

    def slowly(exchange: Exchange) -> None:
        status, headers, body = exchange.properly()
        begun.wait(10)
        exchange.answer(status, {**headers, "Content-Length": str(len(body))}, body[:-10])
        half.set()
        done.wait(10)
        exchange.link.sendall(body[-10:])

    def at_once(exchange: Exchange) -> None:
        begun.set()
        half.wait(10)
        exchange.answer(*exchange.properly())
        done.set()

    server.fault(slowly, key="n1")
    server.fault(at_once, key="n1")
    reads = [Read(provider, f"n{number}", size_bytes=1000) for number in (1, *range(100, 200))]
    assert read_all(reads, ONCE) == [OBJECTS[read.key] for read in reads]
    assert server.connections == made


def test_late_is_what_95_of_100_are_not() -> None:
    """The time is that of the latest of the usual, reckoned again as answers come."""
    first_bytes = FirstBytes()
    for _ in range(99):
        first_bytes.learn(1.0)
    assert first_bytes.late_seconds > 1e9
    first_bytes.learn(1.0)
    assert first_bytes.late_seconds == 1.0
    for _ in range(40):
        first_bytes.learn(9.0)
    assert first_bytes.late_seconds == 9.0
    for _ in range(400):
        first_bytes.learn(2.0)
    assert first_bytes.late_seconds == 2.0
    assert [first_bytes.pay() for _ in range(6)] == [True] * 5 + [False]
    for _ in range(19):
        first_bytes.learn(2.0)
    assert not first_bytes.pay()
    first_bytes.learn(2.0)
    first_bytes.learn(2.0)
    assert first_bytes.pay()
    assert Hedges[Read]().late_in > 1e9
