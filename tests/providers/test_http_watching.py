"""What a person sees at night: what is waited for, warnings where nothing moves, counts."""

import logging
import threading
from collections.abc import Iterator

import pytest

import providers.watching
from providers.counters import snapshot
from providers.exchange import Transfer
from providers.pacing import Pace
from providers.retry import without_waiting
from providers.watching import Watch, in_flight
from tests.fakes.plane_provider import PlaneProvider, Read, plane, read_all, steady
from tests.fakes.plane_server import Exchange, Fault, PlaneServer, after, answer, cut_after, in_turn

BODY = b"x" * 100_000


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server with a few objects."""
    with plane({"a": BODY, "b": BODY, "empty": b""}) as server, without_waiting():
        yield server


def part_then(event: threading.Event, size: int, held: threading.Event) -> Fault:
    """Send so many bytes, say that they are held, and send the rest after an event."""

    def fault(exchange: Exchange) -> None:
        status, headers, body = exchange.properly()
        exchange.answer(status, {**headers, "Content-Length": str(len(body))}, body[:size])
        held.set()
        event.wait(10)
        exchange.link.sendall(body[size:])

    return fault


def test_what_is_waited_for_is_listed(server: PlaneServer) -> None:
    """Each read that is not finished, with its attempt and the last answer."""
    go, held = threading.Event(), threading.Event()
    server.fault(answer(503, {"x-amz-request-id": "ID-7"}), key="a")

    def hold(exchange: Exchange) -> None:
        held.set()
        after(go)(exchange)

    server.fault(hold, key="a")
    reader = threading.Thread(
        target=lambda: read_all([Read(PlaneProvider(server.endpoint), "a")], steady())
    )
    reader.start()
    assert held.wait(10)
    (found,) = in_flight()
    go.set()
    reader.join()
    assert (found.uri, found.attempt) == ("plane://bucket/a", 2)
    assert (found.last_status, found.request_id) == (503, "ID-7")
    assert found.waited_seconds >= found.stalled_seconds >= 0
    assert in_flight() == []


def test_a_read_that_does_not_move_is_warned_of(
    server: PlaneServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the object, the attempt, the last answer and the time."""
    monkeypatch.setattr(providers.watching, "_STALLED_SECONDS", 0.2)
    warned = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 as logging calls it
            warned.set()

    handler = Told()
    logging.getLogger("providers.watching").addHandler(handler)
    try:
        server.fault(part_then(warned, 60_000, threading.Event()), key="a")
        transfer = steady(first_byte_timeout_seconds=0.2, low_speed_seconds=30)
        reads = [Read(PlaneProvider(server.endpoint), key) for key in ("a", "b")]
        assert read_all(reads, transfer) == [BODY] * 2
    finally:
        logging.getLogger("providers.watching").removeHandler(handler)
    lines = [r.getMessage() for r in caplog.records if r.name == "providers.watching"]
    assert len(lines) == 1
    assert lines[0].startswith("reading plane://bucket/a: nothing came for ")
    assert "(attempt 1, last status 200, request id R" in lines[0]


def test_a_reminder_comes_less_often_than_the_first_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After half a minute, then each minute; bytes that come start the count anew."""
    watch: Watch[Read] = Watch()
    transfer = Transfer(Read(PlaneProvider("http://nowhere"), "a"), 0, Pace(), 0.0)
    watch.outstanding.add(transfer)
    warned = []
    for seconds in (29.0, 30.5, 31.0, 89.0, 91.0, 150.0, 151.0):
        caplog.clear()
        watch.warn_of_stalls(seconds)
        warned.append(len(caplog.records))
    assert warned == [0, 1, 0, 0, 1, 0, 1]
    assert "nothing came for 151 s" in caplog.text
    transfer.reached = 100
    caplog.clear()
    for seconds in (152.0, 181.0):
        watch.warn_of_stalls(seconds)
    assert caplog.records == []
    watch.warn_of_stalls(182.0)
    assert "nothing came for 30 s" in caplog.text


def test_everything_is_counted(server: PlaneServer) -> None:
    """Requests, answers, bytes, retries and throttles, and the time to the first byte."""
    faults = in_turn(answer(503), answer(429), answer(500), cut_after(40_000), cut_after(0))
    server.fault(faults, times=5, key="a")
    before = snapshot()
    provider = PlaneProvider(server.endpoint)
    assert read_all([Read(provider, key) for key in ("a", "b")], steady()) == [BODY] * 2
    now = snapshot()
    assert now.requests - before.requests == len(server.seen) == 7
    assert now.answers - before.answers == 7
    assert now.bytes_read - before.bytes_read == 2 * len(BODY)
    assert now.retries - before.retries == 5
    assert now.throttles - before.throttles == 1
    assert now.hedges == before.hedges
    assert 0 < now.first_byte_seconds - before.first_byte_seconds < 60
