"""Large arrays reach a spawned process as a file that it maps, not as bytes that it copies."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import weakref
from multiprocessing import context, reduction
from typing import Any

__all__ = ["MappedFile", "can_map"]

_ALIGNMENT_BYTES = 64


def can_map() -> bool:
    """Whether a process is being spawned that can inherit an open file."""
    return context.get_spawning_popen() is not None and hasattr(reduction, "DupFd")


class MappedFile:
    """Something picklable whose buffers lie in an unnamed file; unpickles as that thing.

    Only for processes being spawned (``can_map``), all of which share the file's pages.

    Args:
        thing: pickled at once; its buffers come out read-only.
    """

    def __init__(self, thing: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        self._rest = pickle.dumps(thing, 5, buffer_callback=buffers.append)
        self._spans: list[tuple[int, int]] = []
        with tempfile.TemporaryFile() as file:
            for buffer in buffers:
                start = -(-file.tell() // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
                file.seek(start)
                self._spans.append((start, start + file.write(buffer.raw())))
            file.flush()
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (reduction.DupFd(self._descriptor), self._rest, self._spans)


def _read(inherited: Any, rest: bytes, spans: list[tuple[int, int]]) -> Any:
    """Map the file that came with this process."""
    descriptor = inherited.detach()
    try:
        mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)
    return pickle.loads(rest, buffers=[mapped[start:stop] for start, stop in spans])  # noqa: S301 our own bytes, from our parent
