"""What this process has asked of object stores, counted where requests are sent."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace

__all__ = ["Counts", "count", "snapshot"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of this process since it started; a forked child starts at zero.

    Attributes:
        requests: attempts sent, failed ones included.
        bytes_read: bytes of bodies read.
        bytes_written: bytes of bodies sent, each counted once however often it was retried.
        retries: attempts that failed and were repeated.
    """

    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    retries: int = 0


_lock = threading.Lock()
_counts = Counts()


def _start_at_zero() -> None:
    """Give a forked child totals and a lock of its own; the old one may be held for ever."""
    global _lock, _counts
    _lock, _counts = threading.Lock(), Counts()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_at_zero)


def count(
    *, requests: int = 0, bytes_read: int = 0, bytes_written: int = 0, retries: int = 0
) -> None:
    """Add to the totals."""
    global _counts  # noqa: PLW0603 the same
    with _lock:
        _counts = replace(
            _counts,
            requests=_counts.requests + requests,
            bytes_read=_counts.bytes_read + bytes_read,
            bytes_written=_counts.bytes_written + bytes_written,
            retries=_counts.retries + retries,
        )


def snapshot() -> Counts:
    """Return the totals so far."""
    return _counts
