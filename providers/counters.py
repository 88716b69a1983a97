"""What this process has asked of object stores, counted where requests are sent."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import TypedDict, Unpack

    class Amounts(TypedDict, total=False):
        """What ``count`` takes: the fields of ``Counts``."""

        requests: int
        answers: int
        bytes_read: int
        bytes_written: int
        retries: int
        throttles: int
        refreshes: int
        hedges: int
        samples_skipped: int
        unverified_reads: int
        seconds_waited: float
        first_byte_seconds: float


__all__ = ["Counts", "count", "on_count", "snapshot"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of this process since it started; a forked child starts at zero.

    Attributes:
        requests: attempts sent, failed ones included.
        answers: attempts of which a first byte came back.
        bytes_read: bytes of bodies read.
        bytes_written: bytes of bodies sent, each counted once however often it was retried.
        retries: attempts that failed and were repeated.
        throttles: answers by which a service asked for fewer requests.
        refreshes: credentials renewed, early or after a refusal; regions and clocks corrected.
        hedges: second requests sent because the first was slow; ``requests`` has them too.
        samples_skipped: samples left out because they could not be read or transformed.
        unverified_reads: whole objects read with no checksum to compare them with.
        seconds_waited: time for which consumers had nothing to work on.
        first_byte_seconds: time from sending to the first byte, summed over ``answers``.
    """

    requests: int = 0
    answers: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    retries: int = 0
    throttles: int = 0
    refreshes: int = 0
    hedges: int = 0
    samples_skipped: int = 0
    unverified_reads: int = 0
    seconds_waited: float = 0.0
    first_byte_seconds: float = 0.0


class _Hook:
    """One subscription, apart from any other of the same function."""

    __slots__ = ("_call", "_failed")

    def __init__(self, call: Callable[[str, float], None]) -> None:
        self._call = call
        self._failed = False

    def tell(self, amounts: Mapping[str, object]) -> None:
        """Pass on what was counted; its failures are its own."""
        for name, amount in amounts.items():
            try:
                self._call(name, amount)  # type: ignore[arg-type]  # a TypedDict's values
            except Exception:  # noqa: BLE001 a hook may raise anything, and must stop nothing
                if not self._failed:
                    self._failed = True
                    _log.exception(
                        "a hook on counts failed at %s; further failures stay silent", name
                    )


# Reentrant, since a signal handler or a finaliser that saves or reads may interrupt ``count``.
_lock = threading.RLock()
_totals = asdict(Counts())
_hooks: tuple[_Hook, ...] = ()


def _start_at_zero() -> None:
    """Give a forked child totals and a lock of its own; the old one may be held for ever."""
    global _lock, _totals
    _lock, _totals = threading.RLock(), asdict(Counts())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_at_zero)


def count(**amounts: Unpack[Amounts]) -> None:
    """Add to the totals and tell the hooks.

    Args:
        **amounts: by the names of ``Counts``; zeros are no news and reach no hook.
    """
    with _lock:
        for name, amount in amounts.items():
            _totals[name] += amount
    for hook in _hooks:
        hook.tell({name: amount for name, amount in amounts.items() if amount})


def on_count(hook: Callable[[str, float], None]) -> Callable[[], None]:
    """Call ``hook(name, amount)`` for everything counted from now on.

    It is called in the thread that counted, which is about to wait for the network or to hand
    a sample over: it should be quick, and must not read or write objects itself. What it
    raises is logged once and stops nothing. A forked child keeps the hooks of its parent, a
    spawned one begins with none.

    Args:
        hook: takes a field of ``Counts`` and what was added to it.

    Returns:
        What unsubscribes it; calling that again does nothing.
    """
    global _hooks  # noqa: PLW0603 the one list of hooks
    mine = _Hook(hook)
    with _lock:
        _hooks = (*_hooks, mine)

    def unsubscribe() -> None:
        global _hooks  # noqa: PLW0603 the same
        with _lock:
            _hooks = tuple(other for other in _hooks if other is not mine)

    return unsubscribe


def snapshot() -> Counts:
    """Return the totals so far."""
    with _lock:
        return Counts(**_totals)
