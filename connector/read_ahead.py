"""What follows in an object that is read in sequence, fetched by a thread meanwhile."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from connector.prefetch import Prefetch
from providers.planning import split_range
from providers.transfer import get_many

if TYPE_CHECKING:
    from collections.abc import Generator

    from connector.ranges import Ranges
    from providers import ByteRange, TransferOptions

__all__ = ["ReadAhead", "piece_bytes"]

_PIECES = 16
"""Ranges that what is read ahead is cut into: clouds cap each connection, at 50 MB/s say."""


def piece_bytes(transfer: TransferOptions) -> int:
    """Return the size of one range that is read ahead."""
    return max(1, min(transfer.range_size_bytes, transfer.read_ahead_bytes // _PIECES))


class ReadAhead:
    """The pieces of an object from one byte on, in order, while its thread fetches the next.

    At most ``read_ahead_bytes`` are under way or wait to be taken. The thread ends when the
    stream is closed or collected, at the object's end, and with the process. It does not exist
    in a process forked meanwhile: ask ``is_mine`` before anything else.

    Args:
        ranges: of the object.
        start: the first byte.

    Attributes:
        position: where the piece that comes next starts.
    """

    __slots__ = ("_finish", "_pid", "_pieces", "position")

    def __init__(self, ranges: Ranges, start: int) -> None:
        self.position = start
        self._pid = os.getpid()
        self._finish = threading.Event()
        # The thread must hold nothing that holds this stream, or nobody would ever collect it.
        begin = partial(_pieces, ranges, start, self._finish)
        waiting = ranges.transfer.read_ahead_bytes // 4
        self._pieces = Prefetch(begin, len, ranges.transfer.prefetch_objects, waiting).items()

    @property
    def is_mine(self) -> bool:
        """Whether this process began it."""
        return self._pid == os.getpid()

    def take(self) -> bytes | None:
        """Return the piece at ``position`` and go on to the next; None: there are no more.

        Raises:
            IntegrityError: the object changed.
            ProviderError: the piece could not be read.
        """
        piece = next(self._pieces, None)
        if piece is not None:
            self.position += len(piece)
        return piece

    def finish(self) -> None:
        """Ask for no more; what is under way can still be taken."""
        self._finish.set()

    def close(self) -> None:
        """Drop what was not taken."""
        self._pieces.close()


def _pieces(
    ranges: Ranges, start: int, finish: threading.Event, stop: threading.Event
) -> Generator[bytes, None, None]:
    transfer = ranges.transfer
    # A quarter of what may be held waits to be taken.
    in_flight = transfer.read_ahead_bytes - transfer.read_ahead_bytes // 4
    limits = transfer.model_copy(
        update={"max_bytes_in_flight": min(in_flight, transfer.max_bytes_in_flight)}
    )
    spans = split_range(start, ranges.size, piece_bytes(transfer))
    gets = (ranges.get(span) for span in takewhile(lambda _: not finish.is_set(), spans))
    with closing(get_many(gets, limits, stop=stop)) as bodies:
        for get, body in bodies:
            # Only what is read into a buffer comes as a view.
            yield ranges.checked(cast("ByteRange", get.byte_range), cast("bytes", body))
