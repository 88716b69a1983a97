"""Second requests for late answers: when one is due, and whether it is paid for."""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic

from providers.errors import ProviderError
from providers.exchange import Transfer
from providers.gets import W
from providers.watching import Watch

if TYPE_CHECKING:
    from providers.base import Provider
    from providers.counters import Amounts
    from providers.options import TransferOptions
    from providers.pacing import Bytes, Pace
    from providers.routes import Route
    from providers.values import HttpRequest

__all__ = ["SHORT_BYTES", "FirstBytes", "HedgedStream", "Hedges", "first_bytes_of"]

SHORT_BYTES = 64 << 10
"""Bodies no longer than this are rather let in than cut off with their connection."""

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
        twins: the second request of each hedged read; None: it failed, and there is no third.
        parting: requests that lost and whose short rest is let in, with the place each holds.
        late_in: seconds until the next answer is late, as far as is known.
    """

    __slots__ = ("late_in", "parting", "primaries", "twins")

    def __init__(self) -> None:
        self.primaries: dict[Transfer[W], Transfer[W]] = {}
        self.twins: dict[Transfer[W], Transfer[W] | None] = {}
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

    def unpair(self, twin: Transfer[W], *, spent: bool = False) -> None:
        """Forget a second request; a spent one is not replaced."""
        primary = self.primaries.pop(twin)
        if spent:
            self.twins[primary] = None
        else:
            self.twins.pop(primary, None)


class HedgedStream(Watch[W], ABC):
    """The hedging side of a stream."""

    _options: TransferOptions
    _active: dict[Any, Transfer[W]]
    _routes: dict[Provider, Route]
    _bytes: Bytes
    _hedges: Hedges[W] | None
    _counts: Amounts

    @abstractmethod
    def _enter(self, provider: Provider) -> Pace | None: ...

    @abstractmethod
    def _leave(self, transfer: Transfer[W]) -> None: ...

    @abstractmethod
    def _send(self, transfer: Transfer[W], request: HttpRequest) -> None: ...

    @abstractmethod
    def _cut(self, easy: Any) -> None: ...

    def _hedge_late(self, hedges: Hedges[W], now: float) -> None:
        """Send again what other reads say should have been answered by now."""
        hedges.late_in = math.inf
        for transfer in tuple(self._active.values()):
            if not hedges.may_hedge(transfer):
                continue
            first_bytes = self._routes[transfer.get.provider].first_bytes
            left = first_bytes.late_seconds - (now - transfer.sent)
            if left > 0:
                hedges.late_in = min(hedges.late_in, left)
            elif len(self._active) < self._options.max_in_flight:
                self._hedge(hedges, transfer, first_bytes)

    def _hedge(self, hedges: Hedges[W], primary: Transfer[W], first_bytes: FirstBytes) -> None:
        """Send a second request for a read if there is a place, room and budget for it."""
        pace = self._enter(primary.get.provider)
        if pace is None:
            return
        twin = Transfer(primary.get, primary.charge, pace, self.clock())
        if self._bytes.take(twin.charge, self._options.max_bytes_in_flight, always=False):
            request = _sign_quietly(twin) if first_bytes.pay() else None
            if request is not None:
                hedges.pair(primary, twin)
                self._send(twin, request)
                self._counts["hedges"] += 1
                return
            self._bytes.give(twin.charge)
        self._leave(twin)

    def _decide(self, hedges: Hedges[W], ended: Transfer[W], *, failed: bool) -> Transfer[W] | None:
        """Return the read whose outcome this is; None: its other request is still under way."""
        primary, twin = hedges.primaries.get(ended), hedges.twins.get(ended)
        if primary is not None:
            under_way = primary.slot is not None
            hedges.unpair(ended, spent=failed and under_way)
            self._bytes.give(ended.charge)
            if failed and under_way:
                self._leave(ended)
                return None
            if under_way:
                self._part(hedges, primary)
            primary.pace, ended.pace = ended.pace, None
            return primary
        if twin is None:
            hedges.twins.pop(ended, None)
            return ended
        if failed:
            self._leave(ended)
            return None
        hedges.unpair(twin)
        self._bytes.give(twin.charge)
        self._part(hedges, twin)
        return ended

    def _part(self, hedges: Hedges[W], loser: Transfer[W]) -> None:
        """Let a short rest in, so that the connection stays usable; give up a long one."""
        left = loser.bytes_left() if loser.answered() else None
        if left is not None and left <= SHORT_BYTES:
            hedges.parting[loser], loser.pace = loser.pace, None
        elif loser.slot is not None:
            self._cut(loser.slot.easy)
            self._leave(loser)


def _sign_quietly(twin: Transfer[Any]) -> HttpRequest | None:
    """Sign a second request; where that fails, the first will tell."""
    try:
        return twin.sign()
    except ProviderError:
        return None


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
