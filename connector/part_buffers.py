"""The memory that parts lie in until they are sent: used again and again, shared by writers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from providers import TransferOptions

__all__ = ["PartBuffer", "PartBuffers"]

_sharing: set[int] = set()
"""Which supplies of this process have had more than one buffer. No lock guards it, since a
finaliser may run anywhere; a set's own methods are whole."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_sharing.clear)


class PartBuffer:
    """Room for one part, or for the first few.

    Attributes:
        size: its bytes.
        memory: all of them. A page takes memory once it has been written to.
        unsent: parts that lie in it and are not sent yet.
    """

    __slots__ = ("memory", "size", "unsent")

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = np.empty(size, np.uint8).data
        self.unsent = 0


class PartBuffers:
    """The buffers of one writer; belongs to its thread.

    There is one for each part under way and one that is being filled, or a single one where
    ``max_parts_in_flight`` is 1. The writers of a process share ``max_unsent_bytes`` evenly, as
    they come and go; two buffers are always allowed, so that none of them stands still.

    Args:
        transfer: says how many, and how many bytes.
    """

    def __init__(self, transfer: TransferOptions) -> None:
        parts = transfer.max_parts_in_flight
        self._most = parts + 1 if parts > 1 else 1
        self._most_bytes = transfer.max_unsent_bytes
        self._idle: list[PartBuffer] = []
        self._held = 0

    def take(self, size: int) -> PartBuffer | None:
        """Return a buffer of ``size`` bytes; None: one that is under way has to come back first."""
        while self._idle:
            buffer = self._idle.pop()
            if buffer.size == size:
                return buffer
            self._held -= 1
        if self._held:
            _sharing.add(id(self))
            if self._held >= self._allowed(size):
                return None
        self._held += 1
        return PartBuffer(size)

    def give_back(self, buffer: PartBuffer) -> None:
        """Keep a buffer that has been sent for another part, unless others need the memory."""
        if self._held > self._allowed(buffer.size):
            self._held -= 1
        else:
            self._idle.append(buffer)

    def drop(self) -> None:
        """Free what is idle, and take no share any more."""
        self._idle.clear()
        _sharing.discard(id(self))

    def _allowed(self, size: int) -> int:
        share = self._most_bytes // (max(1, len(_sharing)) * size)
        return min(self._most, max(2, share))
