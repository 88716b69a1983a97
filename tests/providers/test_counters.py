import dataclasses
import logging
import os
import threading
import typing
from collections.abc import Iterator

import pytest

from providers import counters
from providers.counters import Counts, count, on_count, snapshot


@pytest.fixture(autouse=True)
def _zero() -> Iterator[None]:
    """Begin at zero, and give back what the tests before have counted."""
    before = dict(counters._totals)
    counters._totals.update(dataclasses.asdict(Counts()))
    yield
    counters._totals.update(before)


def test_totals_add_up() -> None:
    """Each amount is added to the total of its name, and no other moves."""
    count(requests=1, bytes_read=10)
    count(requests=2, seconds_waited=0.5)
    count(seconds_waited=0.25)
    assert snapshot() == Counts(requests=3, bytes_read=10, seconds_waited=0.75)


@pytest.mark.parametrize("field", dataclasses.fields(Counts), ids=lambda field: str(field.name))
def test_every_field_can_be_counted(field: "dataclasses.Field[float]") -> None:
    """All that a snapshot names can be added to."""
    count(**typing.cast("typing.Any", {field.name: 7}))
    assert dataclasses.asdict(snapshot()) == {
        **dataclasses.asdict(Counts()),
        field.name: 7,
    }


def test_an_unknown_name_is_an_error() -> None:
    """A misspelt total is not counted in silence."""
    with pytest.raises(KeyError, match="request"):
        count(request=1)  # type: ignore[call-arg]


def test_a_snapshot_stands_still() -> None:
    """What was taken before does not change with what comes after."""
    count(requests=1)
    before = snapshot()
    count(requests=1)
    assert (before.requests, snapshot().requests) == (1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.requests = 0  # type: ignore[misc]


def test_no_count_of_any_thread_is_lost() -> None:
    """Threads that count at once make the sum of all."""
    begin = threading.Barrier(8)

    def work() -> None:
        begin.wait()
        for _ in range(2000):
            count(requests=1, bytes_read=3)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert snapshot() == Counts(requests=16_000, bytes_read=48_000)


def test_a_signal_may_interrupt_a_count() -> None:
    """A handler that reads or saves, and so counts, can't hang on the lock of its own thread."""
    with counters._lock:
        count(requests=1)
    assert snapshot().requests == 1


class TestHooks:
    def test_a_hook_hears_each_amount(self) -> None:
        """A hook gets names and amounts until it is unsubscribed, which may be done twice."""
        heard: list[tuple[str, float]] = []
        unsubscribe = on_count(lambda name, amount: heard.append((name, amount)))
        count(requests=1, bytes_read=5)
        count(requests=0, retries=0)
        unsubscribe()
        unsubscribe()
        count(requests=1)
        assert heard == [("requests", 1), ("bytes_read", 5)]

    def test_each_subscription_ends_for_itself(self) -> None:
        """The same function subscribed twice hears twice, and once after one has ended."""
        heard: list[str] = []

        def hook(name: str, _: float) -> None:
            heard.append(name)

        first, second = on_count(hook), on_count(hook)
        count(requests=1)
        first()
        count(retries=1)
        second()
        assert heard == ["requests", "requests", "retries"]

    def test_a_hook_runs_without_the_lock(self) -> None:
        """Other threads count while a hook takes its time, and it sees the new totals."""
        seen: list[int] = []

        def hook(name: str, _: float) -> None:
            if name == "requests":
                other = threading.Thread(target=count, kwargs={"retries": 1})
                other.start()
                other.join(timeout=30)
                seen.append(snapshot().requests + snapshot().retries)

        unsubscribe = on_count(hook)
        count(requests=1)
        unsubscribe()
        assert seen == [2]

    def test_a_failing_hook_stops_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """What a hook raises is logged once; the count stands and other hooks hear of it."""
        heard: list[float] = []

        def broken(name: str, _: float) -> None:
            raise ValueError(f"no room for {name}")

        stop = on_count(broken), on_count(lambda _, amount: heard.append(amount))
        with caplog.at_level(logging.ERROR, "providers.counters"):
            count(requests=1, retries=2)
            count(requests=3)
        for unsubscribe in stop:
            unsubscribe()
        assert heard == [1, 2, 3]
        assert snapshot() == Counts(requests=4, retries=2)
        (record,) = caplog.records
        assert "requests" in record.getMessage()
        assert record.exc_text is not None
        assert "no room for requests" in record.exc_text


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # on purpose
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_starts_at_zero() -> None:
    """A child counts for itself from zero, with a lock of its own, reentrant like the first."""
    count(requests=5)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with counters._lock:
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with counters._lock:
            count(requests=1)
        os.write(write, repr(snapshot()).encode())
        os._exit(0)
    release.set()
    holder.join()
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read() == repr(Counts(requests=1))
    assert os.waitpid(child, 0)[1] == 0
    assert snapshot().requests == 5
