"""A stream that runs ahead in a thread: its order, its bounds, its end, a fork in the middle."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from connector.prefetch import Prefetch
from providers.counters import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

PATIENCE_SECONDS = 30.0


def sized(item: bytes) -> int:
    """Return how many bytes an item holds."""
    return len(item)


class Stream:
    """Items of a given size that notes how far it was read, and may be held up or fail."""

    def __init__(self, count: int, size: int = 1) -> None:
        self.count = count
        self.size = size
        self.made = 0
        self.closed = threading.Event()
        self.reached: dict[int, threading.Event] = {n: threading.Event() for n in range(count + 1)}
        self.before: Callable[[int], None] = lambda _: None

    def begin(self, stop: threading.Event) -> Generator[bytes, None, None]:
        """Yield the items."""
        try:
            for number in range(self.count):
                self.before(number)
                if stop.is_set():
                    return
                self.made = number + 1
                self.reached[self.made].set()
                yield bytes([number]) * self.size
        finally:
            self.closed.set()

    def wait_for(self, made: int) -> None:
        """Return once so many items were made."""
        assert self.reached[made].wait(PATIENCE_SECONDS)


def test_items_come_in_order() -> None:
    """All items arrive, in the stream's order, and the thread ends."""
    stream = Stream(100)
    items = list(Prefetch(stream.begin, sized, 7, 1000).items())
    assert items == [bytes([number]) for number in range(100)]
    assert stream.closed.wait(PATIENCE_SECONDS)


def test_nothing_runs_before_the_first_item_is_wanted() -> None:
    """A stream that nobody reads from is not begun."""
    stream = Stream(3)
    Prefetch(stream.begin, sized, 7, 1000).items()
    assert stream.made == 0


@pytest.mark.parametrize(
    ("max_items", "max_bytes", "held"), [(4, 1000, 4), (1, 1000, 1), (100, 30, 3), (100, 1, 1)]
)
def test_no_more_is_held_than_allowed(max_items: int, max_bytes: int, held: int) -> None:
    """While the consumer works, items and bytes held stay within both limits."""
    stream = Stream(50, size=10)
    items = Prefetch(stream.begin, sized, max_items, max_bytes).items()
    for taken in range(1, 40):
        assert next(items) == bytes([taken - 1]) * 10
        # The thread goes on to the limit, and then waits with one more in its hands.
        stream.wait_for(min(50, taken + held))
        assert stream.made <= taken + held + 1
    items.close()


def test_a_failure_comes_after_the_items_before_it() -> None:
    """What the thread raised is raised by the consumer, in its place."""
    stream = Stream(10)

    def fail(number: int) -> None:
        if number == 3:
            raise ValueError("the fourth is bad")

    stream.before = fail
    items = Prefetch(stream.begin, sized, 5, 1000).items()
    assert [next(items) for _ in range(3)] == [b"\0", b"\1", b"\2"]
    with pytest.raises(ValueError, match="the fourth is bad"):
        next(items)
    assert stream.closed.is_set()


@pytest.mark.parametrize("taken", [1, 5])
def test_breaking_off_ends_the_thread(taken: int) -> None:
    """When the consumer stops, the stream is closed by the thread that drove it."""
    stream = Stream(255)
    items = Prefetch(stream.begin, sized, 3, 1000).items()
    for _ in range(taken):
        next(items)
    items.close()
    assert stream.closed.wait(PATIENCE_SECONDS)
    assert stream.made <= taken + 3 + 1


def test_breaking_off_tells_a_thread_that_waits() -> None:
    """A stream that is waiting for its store hears that it shall stop."""
    stream = Stream(255)
    told = threading.Event()
    begun = threading.Event()

    def begin(stop: threading.Event) -> Generator[bytes, None, None]:
        yield b"x"
        begun.set()
        if stop.wait(PATIENCE_SECONDS):
            told.set()

    items = Prefetch(begin, sized, 3, 1000).items()
    next(items)
    assert begun.wait(PATIENCE_SECONDS)
    items.close()
    assert told.wait(PATIENCE_SECONDS)
    assert stream.made == 0


def test_waiting_is_counted() -> None:
    """Time without an item at hand is counted; time in which one is, is not."""
    stream = Stream(3)
    gate = threading.Event()
    stream.before = lambda number: None if number != 1 else _pass(gate)
    items = Prefetch(stream.begin, sized, 5, 1000).items()
    next(items)
    before = snapshot().seconds_waited
    threading.Timer(0.05, gate.set).start()
    next(items)
    assert snapshot().seconds_waited > before
    stream.wait_for(3)
    assert stream.closed.wait(PATIENCE_SECONDS)
    at_hand = snapshot().seconds_waited
    assert next(items) == b"\2"
    assert snapshot().seconds_waited == at_hand


def _pass(gate: threading.Event) -> None:
    assert gate.wait(PATIENCE_SECONDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_drops_what_it_inherited() -> None:
    """In a child there is no thread, and a lock may be held for ever: closing waits for neither."""
    stream = Stream(200)
    prefetch = Prefetch(stream.begin, sized, 3, 1000)
    items = prefetch.items()
    next(items)
    with prefetch._changed:
        pid = os.fork()
        if pid == 0:
            items.close()
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert next(items) == b"\1"
    items.close()
