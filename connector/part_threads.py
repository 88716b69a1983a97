"""Threads that send the parts of one object while its writer goes on."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from typing_extensions import override

from providers import ProviderError
from providers.retry import stopping_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.part_buffers import PartBuffer
    from providers import MultipartUpload

__all__ = ["PartThreads", "in_part_thread"]


@dataclass(frozen=True, slots=True)
class _Part:
    """One part on its way.

    Attributes:
        number: 1 for the first.
        buffer: where it lies.
        data: its bytes, in there.
    """

    number: int
    buffer: PartBuffer
    data: memoryview


class _PartThread(threading.Thread):
    """Sends parts until there is None."""

    def __init__(self, run: Callable[[], None]) -> None:
        # Its writer ends it at the interpreter's exit; Python itself would wait for ever.
        super().__init__(name="connector-part", daemon=True)
        self._work = run

    @override
    def run(self) -> None:
        self._work()


def in_part_thread() -> bool:
    """Whether this thread is one that sends parts, which nothing run in it may wait for."""
    return isinstance(threading.current_thread(), _PartThread)


class PartThreads:
    """Sends parts of one object, some at a time; its methods belong to the writer's thread.

    Threads start as they are needed, and end with ``finish`` or ``stop``. What they report comes
    through a queue that takes no lock of Python's: a finaliser may run anywhere.

    Args:
        start: begins the upload; called once, when the first part is sent, in its thread.
        max_threads: most parts sent at once.
    """

    def __init__(self, start: Callable[[], MultipartUpload], max_threads: int) -> None:
        self._start = start
        self._max_threads = max_threads
        self._upload: MultipartUpload | None = None
        self._starting = threading.Lock()
        self._stop = threading.Event()
        self._parts: SimpleQueue[_Part | None] = SimpleQueue()
        self._ended: SimpleQueue[PartBuffer | BaseException] = SimpleQueue()
        self._under_way = 0
        self._threads: list[_PartThread] = []

    def send(self, number: int, buffer: PartBuffer, data: memoryview) -> None:
        """Send a part as soon as a thread is free; ``data`` must not change until it ended."""
        self._under_way += 1
        part = _Part(number, buffer, data)
        if len(self._threads) < min(self._under_way, self._max_threads):
            self._add_thread()
        if self._threads:
            self._parts.put(part)
        else:
            self._try(part)

    def ended(self, *, wait: bool) -> PartBuffer | None:
        """Return the buffer of a part that has been sent; None: there is none at the moment.

        Args:
            wait: for the next one, if there is none yet.

        Raises:
            BaseException: what a part failed with.
        """
        try:
            ended = self._ended.get(block=wait)
        except Empty:
            return None
        self._under_way -= 1
        if isinstance(ended, BaseException):
            try:
                raise ended
            finally:
                del ended  # Its traceback holds this frame.
        return ended

    def finish(self) -> MultipartUpload:
        """Wait until all parts are sent, end the threads and return the upload.

        Raises:
            BaseException: what a part failed with.
        """
        while self._under_way:
            self.ended(wait=True)
        self._end_threads()
        return self._begun()

    def stop(self) -> MultipartUpload | None:
        """Send no further part, wait for those under way, and return the upload, if begun.

        What is under way is not tried again. An upload may be dropped only after this: a part
        that arrives later would stay.
        """
        self._stop.set()
        self._end_threads()
        upload, self._upload = self._upload, None
        return upload

    def _end_threads(self) -> None:
        for _ in self._threads:
            self._parts.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _add_thread(self) -> None:
        thread = _PartThread(self._run)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more, or the interpreter is ending: those there are must do.
            self._max_threads = len(self._threads)
        else:
            self._threads.append(thread)

    # ---- In the threads ------------------------------------------------------------------

    def _run(self) -> None:
        while (part := self._parts.get()) is not None:
            if not self._stop.is_set():
                self._try(part)
            del part

    def _try(self, part: _Part) -> None:
        try:
            with stopping_at(self._stop):
                self._begun().put_part(part.number, part.data)
        except BaseException as error:  # noqa: BLE001 raised again in the writer's thread
            self._fail(error)
        else:
            self._ended.put(part.buffer)

    def _begun(self) -> MultipartUpload:
        with self._starting:
            if self._upload is None and self._stop.is_set():
                raise ProviderError("the upload could not be begun, or nobody wants it any more")
            if self._upload is None:
                try:
                    self._upload = self._start()
                except BaseException as error:
                    # While no other thread can begin a second one.
                    self._fail(error)
                    raise
            return self._upload

    def _fail(self, error: BaseException) -> None:
        # Reported first: what others break off with, once they shall stop, is not the cause.
        self._ended.put(error)
        self._stop.set()
