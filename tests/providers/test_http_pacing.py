"""How hard an endpoint is leaned on: concurrency that yields and recovers, retries on a budget."""

import math
from collections.abc import Iterator
from itertools import takewhile
from types import SimpleNamespace

import pytest

import providers.pacing
import providers.settling
from providers.http import fetch
from providers.pacing import Pace, pace_of
from providers.retry import without_waiting
from tests.fakes.plane_crowds import Crowd, RateLimit
from tests.fakes.plane_provider import PlaneProvider, Read, plane, read_all, steady
from tests.fakes.plane_server import (
    Exchange,
    Fault,
    PlaneServer,
    answer,
    reset_at_once,
    stall_after,
)

BODY = b"x" * 100


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server with one small object."""
    with plane({"a": BODY}) as server:
        yield server


# ---- Concurrency -----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [answer(503), answer(429), stall_after(None)])
def test_a_wave_that_is_pushed_back_halves_once(server: PlaneServer, fault: Fault) -> None:
    """Sixteen refusals or silences of one wave halve the concurrency, and no more than once."""
    crowd = Crowd(16, 16, fault)
    server.fault(crowd, times=16)
    transfer = steady(max_in_flight=16, first_byte_timeout_seconds=1)
    provider = PlaneProvider(server.endpoint)
    with without_waiting():
        found = read_all([Read(provider, "a")] * 16, transfer)
    assert found == [BODY] * 16
    pace = pace_of(server.endpoint)
    assert (crowd.most, pace.epoch) == (16, 1)
    # Eight are left; sixteen successes since then have added a little under two.
    assert 8 <= pace.limit < 10


@pytest.mark.parametrize("fault", [answer(500), reset_at_once])
def test_other_failures_change_no_concurrency(server: PlaneServer, fault: Fault) -> None:
    """A crash of one request says nothing of the load."""
    server.fault(fault, times=8)
    with without_waiting():
        found = read_all([Read(PlaneProvider(server.endpoint), "a")] * 16, steady())
    assert found == [BODY] * 16
    assert pace_of(server.endpoint).limit == math.inf


def test_the_concurrency_left_is_kept_to(server: PlaneServer) -> None:
    """After a push back, fewer requests are under way; each round of successes adds one."""
    provider = PlaneProvider(server.endpoint)
    transfer = steady(max_in_flight=32)
    pace = pace_of(server.endpoint)
    pace.limit = 4.0
    crowd = Crowd(4, 20)
    server.fault(crowd, times=20)
    assert read_all([Read(provider, "a")] * 20, transfer) == [BODY] * 20
    assert 4 <= crowd.most <= math.sqrt(4**2 + 2 * 20) + 1
    # To grow from n to m takes about (m² - n²) / 2 successes.
    assert read_all([Read(provider, "a")] * 550, transfer) == [BODY] * 550
    assert 32 <= pace.limit < 36
    crowd = Crowd(32, 100)
    server.fault(crowd, times=100)
    assert read_all([Read(provider, "a")] * 100, transfer) == [BODY] * 100
    assert crowd.most == 32


def test_endpoints_have_a_pace_each(server: PlaneServer) -> None:
    """What one store refuses slows down no other, even within one stream."""
    with PlaneServer({"a": BODY}) as other:
        crowd = Crowd(8, 40)
        other.fault(crowd, times=None)
        slow, fast = PlaneProvider(server.endpoint), PlaneProvider(other.endpoint)
        pace_of(server.endpoint).limit = 1.0
        reads = [Read(fast, "a")] * 40 + [Read(slow, "a")] * 5
        assert read_all(reads, steady(max_in_flight=8)) == [BODY] * 45
        assert crowd.most == 8


def test_a_place_is_given_back_whatever_happens() -> None:
    """The limit never falls below one, and the failures of an old wave cut nothing more."""
    pace = Pace()
    assert pace.enter(2, always=False)
    assert pace.enter(2, always=False)
    assert not pace.enter(2, always=False)
    assert pace.enter(2, always=True)
    for _ in range(3):
        pace.push_back(0)
    assert (pace.limit, pace.epoch) == (1.5, 1)
    for epoch in (1, 2, 3):
        pace.push_back(epoch)
    assert (pace.limit, pace.epoch) == (1.0, 4)
    for _ in range(3):
        pace.leave()
    assert pace.in_flight == 0


# ---- Retries ---------------------------------------------------------------------------------


def test_retries_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred retries are free, then a tenth of a second, or five successes, pay for one."""
    now = 1000.0
    monkeypatch.setattr(providers.pacing, "time", SimpleNamespace(monotonic=lambda: now))
    pace = Pace()

    def retries() -> int:
        return sum(1 for _ in takewhile(bool, iter(pace.pay_retry, None)))

    assert (retries(), retries()) == (100, 0)
    now += 0.31
    assert retries() == 3
    for _ in range(6):
        pace.enter(1, always=True)
        pace.succeed(100, 0.1, paid=False)
    assert retries() == 1
    now += 1e6
    assert retries() == 100
    for _ in range(4):
        pace.enter(1, always=True)
        pace.succeed(100, 0.1, paid=True)
    assert retries() == 4


def test_a_server_with_a_rate_limit_is_not_stormed(server: PlaneServer) -> None:
    """In steady state at most 1.3 requests are sent for each that is let in; all come through."""
    limit = RateLimit(500)
    server.fault(limit, times=None)
    provider = PlaneProvider(server.endpoint)
    reads = (Read(provider, "a") for _ in range(3000))
    settled: tuple[int, int] | None = None
    for taken, (_, body) in enumerate(fetch(reads, steady()), 1):
        assert body == BODY
        if taken == 1000:
            settled = limit.good, limit.refused
    assert settled is not None
    good, refused = limit.good - settled[0], limit.refused - settled[1]
    assert (good + refused) / good <= 1.3
    assert settled[1] > 0


def test_concurrency_recovers_when_the_limit_is_gone(server: PlaneServer) -> None:
    """Once the server lets everything in, requests are under way as before."""
    limit = RateLimit(500)
    server.fault(limit, times=1000)
    provider = PlaneProvider(server.endpoint)
    assert read_all([Read(provider, "a")] * 600, steady()) == [BODY] * 600
    pace = pace_of(server.endpoint)
    assert pace.limit < 16
    limit.per_second = None
    assert read_all([Read(provider, "a")] * 1200, steady()) == [BODY] * 1200
    assert pace.limit >= 32
    crowd = Crowd(32, 100)
    server._rules.clear()
    server.fault(crowd, times=100)
    assert read_all([Read(provider, "a")] * 100, steady()) == [BODY] * 100
    assert crowd.most == 32


def test_an_outage_is_not_stormed(server: PlaneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the budget ten retries a second are sent; one that succeeds lets another follow."""
    clock = Ticking()
    monkeypatch.setattr(providers.pacing, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(providers.settling, "pauses", lambda: True)
    ended: list[float] = []

    def refuse(exchange: Exchange) -> None:
        ended[:] = [clock.now]
        answer(500)(exchange)

    server.fault(refuse, times=150)
    provider, begun = PlaneProvider(server.endpoint), clock.now
    with without_waiting():
        transfer = steady(max_in_flight=16, max_attempts=1000)
        assert read_all([Read(provider, "a")] * 16, transfer) == [BODY] * 16
    # Sixteen came first, a hundred retries were saved up; the other refusals took their time.
    assert ended[0] - begun >= (150 - 16 - 100) / 10 - 0.2
    assert clock.now - ended[0] < 1


class Ticking:
    """A clock that goes on by a hundredth of a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        self.now += 0.01
        return self.now
