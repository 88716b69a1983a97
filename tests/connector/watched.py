"""A memory bucket that notes what is read, and files on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from connector.reader import ObjectReader
from providers import ByteRange, ObjectInfo, TransferOptions
from providers.memory import MemoryProvider

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Watched", "held"]

_numbers = itertools.count()


class Watched(MemoryProvider):
    """A bucket of its own that notes every read, and can be made to misbehave."""

    def __init__(self, **transfer: Any) -> None:
        super().__init__(f"watched-{next(_numbers)}", None, TransferOptions(**transfer))
        self.reads: list[tuple[int, int]] = []
        self.heads = 0
        self.before_get: Callable[[], None] = lambda: None
        self.change: Callable[[bytes], bytes] = lambda body: body

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        assert byte_range is not None
        assert byte_range.stop is not None
        self.reads.append((byte_range.start, byte_range.stop))
        self.before_get()
        return self.change(super()._get(key, byte_range, if_match))

    @override
    def _head(self, key: str) -> ObjectInfo:
        self.heads += 1
        return super()._head(key)

    def open(self, data: bytes, **arguments: Any) -> ObjectReader:  # type: ignore[override]
        """Write an object and open it, to be read on demand."""
        return ObjectReader(self, self.put("dir/key", data), **arguments)

    def fetched(self) -> int:
        """Return how many bytes were asked for."""
        return sum(stop - start for start, stop in self.reads)


def held(data: bytes, **arguments: Any) -> ObjectReader:
    """Open an object whose bytes are in memory already."""
    provider = Watched()
    return ObjectReader(provider, provider.put("dir/key", data), data=data, **arguments)
