"""Second requests for late answers: when one is due, and whether it is paid for."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Generic

from providers.gets import W

if TYPE_CHECKING:
    from providers.exchange import Transfer
    from providers.pacing import Pace

__all__ = ["FirstBytes", "Hedges", "first_bytes_of"]

_ENOUGH = 100
"""Answers without which nothing is known of an endpoint."""
_REMEMBERED = 400
_RECKONED_EVERY = 20
_LATE = 0.95
_EARNED = 0.05
"""Hedges that one answer pays for."""
_MOST_SAVED = 5.0


class FirstBytes:
    """How soon an endpoint answers, over all streams of the process.

    Attributes:
        late_seconds: 95 of 100 answers begin sooner; infinite until enough have been seen.
    """

    __slots__ = ("_count", "_savings", "_seconds", "late_seconds")

    def __init__(self) -> None:
        self.late_seconds = math.inf
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._count = 0
        self._savings = 0.0

    def learn(self, seconds: float) -> None:
        """Take note of one answer; it pays for a part of a hedge."""
        with _lock:
            self._seconds.append(seconds)
            self._count += 1
            self._savings = min(_MOST_SAVED, self._savings + _EARNED)
            if self._count >= _ENOUGH and self._count % _RECKONED_EVERY == 0:
                self.late_seconds = sorted(self._seconds)[int(len(self._seconds) * _LATE)]

    def pay(self) -> bool:
        """Take one hedge from the savings, if there is one."""
        with _lock:
            if self._savings < 1:
                return False
            self._savings -= 1
            return True


class Hedges(Generic[W]):
    """The hedged reads of one stream.

    Attributes:
        primaries: the first request of each second one under way.
        twins: the second request of each first one under way.
        parting: requests that lost and whose short rest is let in, with the place each holds.
        late_in: seconds until the next answer is late, as far as is known.
    """

    __slots__ = ("late_in", "parting", "primaries", "twins")

    def __init__(self) -> None:
        self.primaries: dict[Transfer[W], Transfer[W]] = {}
        self.twins: dict[Transfer[W], Transfer[W]] = {}
        self.parting: dict[Transfer[W], Pace | None] = {}
        self.late_in = math.inf

    def may_hedge(self, transfer: Transfer[W]) -> bool:
        """Whether a second request could stand in for this one.

        Two requests cannot fill one buffer, and the rest of a broken body has no equal.
        """
        return not (
            transfer.get.into is not None
            or transfer.reached
            or transfer.answered()
            or transfer in self.twins
            or transfer in self.primaries
        )

    def pair(self, primary: Transfer[W], twin: Transfer[W]) -> None:
        """Take note that a second request was sent."""
        self.twins[primary] = twin
        self.primaries[twin] = primary

    def unpair(self, twin: Transfer[W]) -> None:
        """Forget a second request."""
        self.twins.pop(self.primaries.pop(twin), None)


_lock = threading.Lock()
_first_bytes: dict[str, FirstBytes] = {}


def first_bytes_of(endpoint: str) -> FirstBytes:
    """Return what this process knows of ``scheme://host:port``."""
    with _lock:
        return _first_bytes.setdefault(endpoint, FirstBytes())


def _start_afresh() -> None:
    """Give a forked child a lock of its own; the old one may be held for ever."""
    global _lock, _first_bytes
    _lock, _first_bytes = threading.Lock(), {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
