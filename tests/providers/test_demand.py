"""Concurrency by Little's law: it grows while latency does not, and stops where it begins to."""

from __future__ import annotations

import pytest

from providers.demand import Demand


def rounds(demand: Demand, count: int, carried: float, latency_seconds: float, most: int) -> None:
    """Let a way carry so many reads a second, each taking at least the latency.

    Args:
        demand: learns.
        count: of rounds.
        carried: reads a second, at most.
        latency_seconds: of a read that is alone.
        most: requests under way at most, for another reason.
    """
    for _ in range(count):
        in_flight = min(demand.wanted, most)
        seconds = max(latency_seconds, in_flight / carried)
        for _ in range(demand.wanted):
            demand.learn(100_000, seconds, in_flight)


def test_it_grows_while_latency_stays() -> None:
    """On a way that carries more than is asked for, what is wanted doubles with each round."""
    demand = Demand()
    seen = []
    for _ in range(4):
        rounds(demand, 1, carried=1e9, latency_seconds=0.2, most=1000)
        seen.append(demand.wanted)
    assert seen == [32, 64, 128, 256]


@pytest.mark.parametrize(("carried", "latency_seconds"), [(1000, 0.1), (5000, 0.02), (100, 0.5)])
def test_it_settles_at_twice_the_product(carried: float, latency_seconds: float) -> None:
    """Rate times latency is enough; twice as much keeps the way full when either changes."""
    demand = Demand()
    demand.learn(100_000, latency_seconds, 1)
    rounds(demand, 30, carried, latency_seconds, most=10_000)
    product = carried * latency_seconds
    assert 1.5 * product <= demand.wanted <= 2.5 * product


def test_what_others_limit_teaches_nothing() -> None:
    """A slow consumer, or a lower limit, neither raises nor lowers what is wanted."""
    demand = Demand()
    rounds(demand, 3, carried=1e9, latency_seconds=0.02, most=1000)
    before = demand.wanted
    rounds(demand, 10, carried=1e9, latency_seconds=0.02, most=before // 2)
    rounds(demand, 10, carried=1e9, latency_seconds=2.0, most=before // 2)
    assert demand.wanted == before


def test_it_never_starves() -> None:
    """However slow the way becomes, some requests stay under way."""
    demand = Demand()
    demand.learn(100_000, 0.001, 1)
    rounds(demand, 20, carried=10, latency_seconds=0.001, most=1000)
    assert demand.wanted == 8


@pytest.mark.parametrize(("size_bytes", "fewest"), [(1000, 48), (100_000, 41), (8_000_000, 8)])
def test_what_is_soon_there_comes_in_large_turns(size_bytes: int, fewest: int) -> None:
    """Where nobody waits for it, a few bodies more are under way: that is less CPU for each."""
    demand = Demand()
    demand.learn(size_bytes, 0.0001, 1)
    for _ in range(20):
        for _ in range(demand.wanted):
            demand.learn(size_bytes, demand.wanted * 0.0001, demand.wanted)
    assert demand.wanted == fewest


def test_sizes_have_latencies_of_their_own() -> None:
    """Large bodies take longer than small ones, and that alone is no queue."""
    demand = Demand()
    for _ in range(3):
        for number in range(demand.wanted):
            large = number % 2
            demand.learn(8_000_000 if large else 1000, 0.2 if large else 0.01, demand.wanted)
    assert demand.wanted == 128


def test_a_way_that_became_longer_is_believed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest latency ages: after a failover to another region it is forgotten."""
    clock = [0.0]
    monkeypatch.setattr("providers.demand.time.monotonic", lambda: clock[0])
    demand = Demand()
    demand.learn(100_000, 0.001, 1)
    for _ in range(100):
        clock[0] += 11.0
        rounds(demand, 1, carried=1e9, latency_seconds=0.1, most=10_000)
    assert demand.wanted > 100
