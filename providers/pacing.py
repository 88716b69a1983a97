"""How hard this process leans on each endpoint: concurrency, retries, bytes under way.

Concurrency grows by one for each round of successes and halves when the service pushes back
or stays silent. Retries are paid from a budget that successes fill, so that an outage never
turns into a storm; one that succeeds gets its price back, so that the end of an outage is not
the beginning of a long wait. Whatever the limits, each stream may have one request under way: two
streams in one thread cannot wait for each other.
"""

from __future__ import annotations

import math
import os
import threading
import time

from providers.demand import Demand

__all__ = ["Bytes", "Pace", "bytes_under_way", "pace_of"]

_EARNED = 0.2
"""Retries that one success pays for."""
_EARNED_PER_SECOND = 10.0
"""Retries that time pays for, so that an outage is noticed to be over."""
_MOST_SAVED = 100.0
"""Retries that can be saved up."""


class Pace:
    """The state of one endpoint, shared by all streams of the process.

    Attributes:
        limit: most requests under way at once; infinite until the service first pushes back.
        in_flight: requests under way, and throttled ones that wait to be sent again: those
            keep their place, so that nothing else takes it meanwhile.
        demand: requests worth having under way.
        epoch: counts the cuts of ``limit``; a request's failure cuts once at most what it
            was sent under.
    """

    __slots__ = ("_filled_at", "_savings", "demand", "epoch", "in_flight", "limit")

    def __init__(self) -> None:
        self.limit = math.inf
        self.demand = Demand()
        self.in_flight = 0
        self.epoch = 0
        self._savings = _MOST_SAVED
        self._filled_at = time.monotonic()

    def enter(self, most: int, *, always: bool) -> bool:
        """Take a place if there is one among ``most`` and ``limit``, or in any case."""
        with _lock:
            if always or (self.in_flight < most and self.in_flight < self.limit):
                self.in_flight += 1
                return True
            return False

    def leave(self) -> None:
        """Give a place back."""
        with _lock:
            self.in_flight -= 1

    def succeed(self, size_bytes: int, seconds: float | None, *, paid: bool) -> None:
        """Give a place back after a success.

        Args:
            size_bytes: of the body.
            seconds: that the last attempt took; None: that tells nothing.
            paid: whether it was a retry out of the budget.
        """
        with _lock:
            if seconds is not None:
                self.demand.learn(size_bytes, seconds, self.in_flight)
            self.in_flight -= 1
            self.limit += 1 / self.limit
            self._savings = min(_MOST_SAVED, self._savings + _EARNED + paid)

    def push_back(self, epoch: int) -> None:
        """Halve the concurrency, unless it was halved since the request was sent."""
        with _lock:
            if epoch == self.epoch:
                self.epoch += 1
                self.limit = max(1.0, min(self.limit, self.in_flight) / 2)

    def pay_retry(self) -> bool:
        """Take one retry from the budget, if there is one."""
        with _lock:
            now = time.monotonic()
            earned = (now - self._filled_at) * _EARNED_PER_SECOND
            self._savings = min(_MOST_SAVED, self._savings + earned)
            self._filled_at = now
            if self._savings < 1:
                return False
            self._savings -= 1
            return True


class Bytes:
    """Bytes asked for and not yet consumed, over all streams of the process."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0

    def take(self, size: int, most: int, *, always: bool) -> bool:
        """Take ``size`` bytes if they fit below ``most``, or in any case."""
        with _lock:
            if not always and self.taken + size > most:
                return False
            self.taken += size
            return True

    def give(self, size: int) -> None:
        """Give bytes back."""
        with _lock:
            self.taken -= size


_lock = threading.Lock()
_paces: dict[str, Pace] = {}
_bytes = Bytes()


def pace_of(endpoint: str) -> Pace:
    """Return the one pace of ``scheme://host:port`` in this process."""
    with _lock:
        return _paces.setdefault(endpoint, Pace())


def bytes_under_way() -> Bytes:
    """Return the one account of bytes of this process."""
    return _bytes


def _start_afresh() -> None:
    """Give a forked child a state and a lock of its own; the old one may be held for ever."""
    global _lock, _paces, _bytes
    _lock, _paces, _bytes = threading.Lock(), {}, Bytes()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
