"""The body of a request, sent piece by piece without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Body"]

_PIECE_BYTES = 256 << 10


class Body:
    """A buffer that an HTTP client sends in pieces.

    A socket gives each piece its time limit anew; a whole part at once would have to leave
    within the few seconds that a connection may take.

    Args:
        data: sent as it lies in memory.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[memoryview]:
        for start in range(0, len(self._data), _PIECE_BYTES):
            yield self._data[start : start + _PIECE_BYTES]
