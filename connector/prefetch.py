"""A stream that runs ahead of its consumer, in a thread of its own and within bounds."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Generic, TypeVar

from providers.counters import count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["Prefetch", "waited"]

T = TypeVar("T")


def waited(began: float) -> None:
    """Count the time since ``began``, on ``time.perf_counter``, as waited for by the consumer."""
    count(seconds_waited=time.perf_counter() - began)


class _End:
    """Stands after the last item; holds what the thread failed with."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Prefetch(Generic[T]):
    """Hands over the items of a stream in its order, while the thread goes on with the next.

    The consumer sees the stream's failures where they happened in the order of its items. When
    it breaks off, the thread ends by itself at its next turn, and nothing waits for that.

    Args:
        begin: begins the stream in the thread; the event is set when it shall end.
        size_of: bytes that an item holds in memory.
        max_items: most items held; one is handed straight to a consumer that waits.
        max_bytes: most bytes held, unless a single item is larger.
    """

    def __init__(
        self,
        begin: Callable[[threading.Event], Generator[T, None, None]],
        size_of: Callable[[T], int],
        max_items: int,
        max_bytes: int,
    ) -> None:
        self._begin = begin
        self._size_of = size_of
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._ready: deque[tuple[T, int] | _End] = deque()
        self._held_bytes = 0
        self._changed = threading.Condition()
        self._hungry = False
        self._full = False
        self._stop = threading.Event()
        self._pid = os.getpid()

    def items(self) -> Generator[T, None, None]:
        """Start the thread and yield what it reads."""
        threading.Thread(target=self._run, name="connector-prefetch", daemon=True).start()
        try:
            while True:
                taken = self._take()
                if isinstance(taken, _End):
                    if taken.error is not None:
                        raise taken.error
                    return
                yield taken[0]
                # A suspended generator would hold the item while the consumer waits for the next.
                del taken
        finally:
            self._end()

    def _take(self) -> tuple[T, int] | _End:
        with self._changed:
            if not self._ready:
                self._hungry = True
                began = time.perf_counter()
                self._changed.notify()
                while not self._ready:
                    self._changed.wait()
                self._hungry = False
                waited(began)
            taken = self._ready.popleft()
            if not isinstance(taken, _End):
                self._held_bytes -= taken[1]
            if self._full:
                self._changed.notify()
            return taken

    def _end(self) -> None:
        # In a child that was forked meanwhile there is no thread, and its lock may be held.
        if self._pid == os.getpid():
            self._stop.set()
            with self._changed:
                self._ready.clear()
                self._changed.notify()

    # ---- The thread ----------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with closing(self._begin(self._stop)) as stream:
                for item in stream:
                    self._hold(item)
                    if self._stop.is_set():
                        break
        except BaseException as raised:  # noqa: BLE001 raised again by the consumer
            error = raised
        with self._changed:
            self._ready.append(_End(error))
            self._changed.notify()

    def _hold(self, item: T) -> None:
        size = self._size_of(item)
        with self._changed:
            while not self._has_room(size):
                self._full = True
                self._changed.wait()
            self._full = False
            self._ready.append((item, size))
            self._held_bytes += size
            if self._hungry:
                self._changed.notify()

    def _has_room(self, size: int) -> bool:
        if self._stop.is_set() or not self._ready:
            return self._hungry or self._max_items > 0 or self._stop.is_set()
        fits = self._held_bytes + size <= self._max_bytes
        return fits and len(self._ready) < self._max_items
