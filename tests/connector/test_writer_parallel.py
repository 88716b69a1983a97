"""Parts travel together while the caller goes on, and end together."""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from connector.part_threads import PartThreads
from connector.writer import ObjectWriter
from providers import UnavailableError
from providers.retry import on_retry
from tests.connector.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator


_PATIENCE_SECONDS = 60.0
PART = 10


def _part_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "connector-part"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert _part_threads() == []


def _provider(at_once: int, **transfer: Any) -> Recorder:
    return Recorder(
        part_size_bytes=PART,
        multipart_threshold_bytes=PART,
        max_parts_in_flight=at_once,
        **transfer,
    )


class Gate:
    """Holds parts where they are until it is opened."""

    def __init__(self, provider: Recorder, *numbers: int) -> None:
        self._numbers = numbers
        self.opened = threading.Event()
        self.held = threading.Semaphore(0)
        provider.part_fault = self._hold

    def _hold(self, number: int) -> None:
        if number in self._numbers:
            self.held.release()
            assert self.opened.wait(_PATIENCE_SECONDS)

    def wait(self, parts: int) -> None:
        """Wait until so many parts are held."""
        for _ in range(parts):
            assert self.held.acquire(timeout=_PATIENCE_SECONDS)


@contextmanager
def _opening_at_stop(gate: Gate) -> Iterator[None]:
    """Open a gate no sooner than a writer begins to end its threads because it gives up."""
    original = PartThreads.stop

    def stop(threads: PartThreads) -> Any:
        gate.opened.set()
        return original(threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartThreads, "stop", stop)
        yield


# ---- How many, and in how much memory --------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_so_many_parts_are_under_way_at_once(at_once: int) -> None:
    """As many parts as allowed are sent at once, and never one more."""
    provider = _provider(at_once)
    together = threading.Barrier(at_once)
    most, under_way, lock = [0], [0], threading.Lock()

    def meet(number: int) -> None:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        if number <= at_once:
            together.wait(_PATIENCE_SECONDS)
        with lock:
            under_way[0] -= 1

    provider.part_fault = meet
    data = bytes(range(200))
    with ObjectWriter(provider, "k") as file:
        file.write(data)
    assert provider.held("k") == data
    assert most == [at_once]


def test_the_caller_goes_on() -> None:
    """``write`` returns while all parts are still under way, and the source may change then."""
    provider = _provider(3)
    gate = Gate(provider, 1, 2, 3)
    data = bytearray(range(40))
    expected = bytes(data)
    with ObjectWriter(provider, "k") as file:
        file.write(data)
        gate.wait(3)
        data[:] = bytes(40)
        gate.opened.set()
    assert provider.held("k") == expected


def test_no_more_threads_than_it_takes() -> None:
    """Threads start as parts need them: a second part that finds a free thread takes that one."""
    provider = _provider(8)
    done = threading.Semaphore(0)
    provider.part_fault = lambda _: done.release()
    with ObjectWriter(provider, "k") as file:
        file.write(bytes(PART + 1))
        assert done.acquire(timeout=_PATIENCE_SECONDS)
        assert len(_part_threads()) == 1
    assert provider.parts == [PART, 1]


def test_buffers_are_used_again() -> None:
    """However many parts there are, they lie in as many buffers as are under way, and one more."""
    provider = _provider(3)
    places = set()
    file = ObjectWriter(provider, "k")
    send = file._parts._threads.send

    def watched(number: int, buffer: Any, data: memoryview) -> None:
        places.add(np.frombuffer(buffer.memory, np.uint8).ctypes.data)
        send(number, buffer, data)

    with pytest.MonkeyPatch.context() as patch, file:
        patch.setattr(file._parts._threads, "send", watched)
        file.write(bytes(100 * PART))
    assert len(places) <= 4


def test_a_buffer_of_several_parts_counts_once() -> None:
    """What the first buffer holds comes back when all its parts are sent, as one buffer."""
    provider = Recorder(
        part_size_bytes=PART, multipart_threshold_bytes=3 * PART, max_parts_in_flight=3
    )
    gate = Gate(provider, 4, 5, 6)
    file = ObjectWriter(provider, "k")
    file.write(bytes(3 * PART + 1))
    threads = file._parts._threads
    first = [threads._ended.get(timeout=_PATIENCE_SECONDS) for _ in range(3)]
    for buffer in first:
        threads._ended.put(buffer)
    sent_before_waiting: list[int] = []
    ended = threads.ended

    def watched(*, wait: bool) -> Any:
        if wait:
            sent_before_waiting.append(file._parts._sent)
            gate.opened.set()
        return ended(wait=wait)

    with pytest.MonkeyPatch.context() as patch, file:
        patch.setattr(threads, "ended", watched)
        file.write(bytes(20 * PART))
    assert sent_before_waiting[0] == 3 + 4


# ---- Failures --------------------------------------------------------------------------------


def _write_bytewise(file: ObjectWriter, size: int) -> None:
    for _ in range(size):
        file.write(b"x")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_part_that_fails_ends_the_others(number: int) -> None:
    """Its error comes out of a later write or the close, as it is; the upload is aborted once."""
    provider = _provider(3)
    error = UnavailableError("down")

    def fail(failing: int) -> None:
        if failing == number:
            raise error

    provider.part_fault = fail
    with pytest.raises(UnavailableError) as caught, ObjectWriter(provider, "k") as file:
        _write_bytewise(file, 35)
    assert caught.value is error
    assert provider.held("k") is None
    assert provider.unfinished_uploads() == []
    assert provider.steps.count(("abort", 0)) == 1


def test_the_cause_is_told_not_what_came_of_it() -> None:
    """Of several parts that fail, the error is the one of the first."""
    provider = _provider(3, max_attempts=9)
    first, others = threading.Event(), threading.Barrier(3)

    def fail(number: int) -> None:
        others.wait(_PATIENCE_SECONDS)
        if number == 2:
            first.set()
            raise ValueError("the cause")
        raise UnavailableError("comes of it", retry_after_seconds=250)

    provider.part_fault = fail
    file = ObjectWriter(provider, "k")
    with pytest.raises(ValueError, match="the cause"):
        file.write(bytes(100))
    assert provider.unfinished_uploads() == []


def test_an_abort_waits_for_parts_under_way() -> None:
    """A part that arrived after the abort would stay: each has ended before it."""
    provider = _provider(3)
    gate = Gate(provider, 1, 2)
    file = ObjectWriter(provider, "k")
    file.write(bytes(25))
    gate.wait(2)
    under_way: list[int] = []
    provider.fault = lambda step: (
        under_way.append(len(_part_threads())) if step == "abort" else None
    )
    with _opening_at_stop(gate):
        file.abort()
    assert under_way == [0]
    assert provider.unfinished_uploads() == []


def test_an_abort_does_not_wait_for_the_next_attempt() -> None:
    """A part that pauses between two attempts is not tried again, nor waited for."""
    provider = _provider(3, max_attempts=9)

    def fail(_: int) -> None:
        raise UnavailableError("busy", retry_after_seconds=250)

    provider.part_fault = fail
    paused = threading.Event()
    forget = on_retry(lambda _: paused.set())
    try:
        file = ObjectWriter(provider, "k")
        file.write(bytes(PART + 1))
        assert paused.wait(_PATIENCE_SECONDS)
        file.abort()
    finally:
        forget()
    assert provider.parts == [PART]
    assert provider.unfinished_uploads() == []


def test_an_upload_that_cannot_begin_is_begun_once() -> None:
    """What the first part's thread fails with stands for all."""
    provider = _provider(4)

    def fail(step: str) -> None:
        if step == "start":
            raise UnavailableError("down")

    provider.fault = fail
    with pytest.raises(UnavailableError, match=r"^down$"), ObjectWriter(provider, "k") as file:
        file.write(bytes(100))
    assert provider.steps == [("start", 0)]


def test_without_threads_the_caller_sends() -> None:
    """Where the system gives no thread, parts are sent all the same."""
    provider = _provider(4)
    data = bytes(range(100))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch, ObjectWriter(provider, "k") as file:
        patch.setattr(threading.Thread, "start", refuse)
        file.write(data)
    assert provider.held("k") == data


# ---- Dropped ---------------------------------------------------------------------------------


def test_a_writer_dropped_while_parts_travel() -> None:
    """Its threads do not keep it alive: it is collected, and nothing is left."""
    provider = _provider(3)
    gate = Gate(provider, 1, 2)
    file = ObjectWriter(provider, "k")
    file.write(bytes(25))
    gate.wait(2)
    with _opening_at_stop(gate):
        del file
    assert provider.unfinished_uploads() == []
    assert provider.held("k") is None


def test_a_writer_collected_in_a_thread_of_its_own() -> None:
    """A collector that runs in the thread of a part waits for nothing that waits for that part."""
    provider = _provider(2)
    dropped, collected = threading.Event(), threading.Event()

    def collect(_: int) -> None:
        assert dropped.wait(_PATIENCE_SECONDS)
        gc.collect()
        collected.set()

    provider.part_fault = collect
    gc.collect()
    gc.disable()
    try:
        file = ObjectWriter(provider, "k")
        file.me = file  # type: ignore[attr-defined]
        file.write(bytes(2 * PART))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("connector.writer._FINALISER_WAIT_SECONDS", 10 * _PATIENCE_SECONDS)
            del file
            dropped.set()
            assert collected.wait(_PATIENCE_SECONDS)
    finally:
        gc.enable()
    for thread in threading.enumerate():
        if thread.name == "connector-abort":
            thread.join()
    assert provider.unfinished_uploads() == []
