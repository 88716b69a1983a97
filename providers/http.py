"""Streams of reads over HTTP: many requests under way, driven by whoever takes the bodies.

No thread and no event loop of its own: each turn of a stream starts what limits allow, lets
libcurl work, and hands over what is finished. All that a stream holds ends with it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from providers.counters import count
from providers.gets import W
from providers.handles import leased
from providers.hedging import SHORT_BYTES
from providers.settling import SettlingStream
from providers.starting import nothing_counted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from threading import Event

    from providers.errors import ProviderError
    from providers.exchange import Transfer
    from providers.gets import Body
    from providers.options import TransferOptions

__all__ = ["fetch"]

_PAUSE_SECONDS = 0.5
"""A consumer that stays away for longer may find what it left behind timed out."""
_TICK_SECONDS = 1.0
_RECHECK_SECONDS = 0.02
"""How soon a stream looks again whether others have given back what it waits for."""
_SPIN_SECONDS = 0.002
_SELECTABLE = 960
"""``select`` sees no descriptor from 1,024 on; from here on it is not relied upon."""
_DRAIN_SECONDS = 0.25


def fetch(
    gets: Iterable[W],
    transfer: TransferOptions,
    *,
    ordered: bool = True,
    stop: Event | None = None,
) -> Generator[tuple[W, Body | ProviderError], None, None]:
    """Read many objects or ranges at once and yield each with its body.

    Pull-based: the next read is taken from ``gets`` only when fewer than
    ``transfer.max_in_flight`` requests of this stream and ``transfer.max_connections`` of the
    process are under way (fewer where the service pushes back), and fewer than
    ``transfer.prefetch_objects`` bodies and ``transfer.max_bytes_in_flight`` bytes are asked
    for and not yet taken. One request may always be under way.

    Nothing happens while nobody takes bodies, and that time counts against no limit. The
    thread that iterates must be the one that closes. A process forked meanwhile can't go on
    with its copy.

    Args:
        gets: what to read; a provider whose ``signed_get`` answers None is asked by its verb.
        transfer: limits, timeouts and the retry policy.
        ordered: yield in the order of ``gets``; false: as they finish.
        stop: ends the stream at its next turn once it is set, by another thread say.

    Yields:
        The read, and its body: bytes, or the filled part of its ``into``. A read that failed
        for good gives its error in place of a body.

    Raises:
        RuntimeError: the stream was begun before a fork.
    """
    return _Stream(iter(gets), transfer, ordered, stop).run()


class _Stream(SettlingStream[W]):
    """One call of ``fetch``."""

    def __init__(
        self, gets: Iterator[W], options: TransferOptions, ordered: bool, stop: Event | None
    ) -> None:
        super().__init__(gets, options, ordered=ordered)
        self._stop = stop
        self._tick_at = 0.0
        self._tick_seconds = min(_TICK_SECONDS, options.first_byte_timeout_seconds / 4)

    # ---- The loop ------------------------------------------------------------------------

    def run(self) -> Generator[tuple[W, Body | ProviderError], None, None]:
        """Drive the stream from the consumer's thread."""
        options = self._options
        with leased() as self._lease:
            self._lease.make_room(max(options.max_in_flight, options.max_connections))
            self.watch()
            try:
                while self._stop is None or not self._stop.is_set():
                    self._fill()
                    if not self.outstanding:
                        return
                    if self._drive():
                        # New requests travel while the consumer works.
                        self._fill()
                        self._lease.multi.perform()
                    elif not self._queue or self._queue[0].result is None:
                        self._wait()
                    yield from self._hand_over()
            except GeneratorExit:
                if not self._lease.inherited:
                    self._drain()
                raise
            finally:
                if not self._lease.inherited:
                    self._end()

    def _hand_over(self) -> Iterator[tuple[W, Body | ProviderError]]:
        """Yield what is ready; the time for which the consumer stays away does not count."""
        queue = self._queue
        while queue and queue[0].result is not None:
            transfer = queue.popleft()
            self.outstanding.discard(transfer)
            self._bytes.give(transfer.charge)
            left = time.monotonic()
            yield transfer.get, transfer.take()
            if self._lease.inherited:
                raise RuntimeError(
                    "this stream of reads was begun before a fork; begin a new one in the child"
                )
            away = time.monotonic() - left
            self.suspended += away
            if away > _PAUSE_SECONDS:
                self._paused_at = left

    def _drive(self) -> bool:
        """Let libcurl work, and deal with what is finished; false: nothing is."""
        multi = self._lease.multi
        multi.perform()
        _, finished, failed = multi.info_read()
        wall = time.monotonic()
        for easy in finished:
            # One that finished beside its twin may have been given up already.
            if easy in self._active:
                self._finish(easy, 0, "", wall)
        for easy, code, message in failed:
            if easy in self._active:
                self._finish(easy, code, message, wall)
        if self._unsized:
            self._learn_sizes()
        now = wall - self.suspended
        if self._hedges is not None:
            self._hedge_late(self._hedges, now)
        if now >= self._tick_at:
            self._tick_at = now + self._tick_seconds
            self._tick(now)
        if finished or failed:
            self._tell_counts()
            return True
        return False

    def _wait(self) -> None:
        """Sleep until libcurl, a retry or the clock wants something."""
        began = time.monotonic()
        seconds = max(0.0, self._tick_at - self.clock())
        if self._hedges is not None:
            seconds = min(seconds, self._hedges.late_in)
        if self._blocked:
            seconds = min(seconds, _RECHECK_SECONDS)
        if self._retries and len(self._active) < self._options.max_in_flight:
            due = self._retries[0][0] - began
            later = self._blocked or self._unpaid
            seconds = min(seconds, max(due, _RECHECK_SECONDS if later else 0.0))
        if not self._active:
            time.sleep(seconds)
            return
        multi = self._lease.multi
        timer = multi.timeout()
        if timer >= 0:
            seconds = min(seconds, timer / 1000)
        if self._lease.beyond_select:
            seconds = min(seconds, _SPIN_SECONDS)
        # It returns at once where libcurl has no descriptor, or none that select can see.
        if seconds > 0 and multi.select(seconds) <= 0:
            missing = seconds - (time.monotonic() - began)
            time.sleep(min(max(missing, 0.0), _SPIN_SECONDS))

    def _tick(self, now: float) -> None:
        """Look after what no event tells."""
        limit = self._options.first_byte_timeout_seconds
        for easy, transfer in tuple(self._active.items()):
            if now - transfer.sent > limit and not transfer.answered():
                self._cut(easy)
                owner: Transfer[W] | None = transfer
                if self._hedges is not None:
                    owner = self._decide(self._hedges, transfer, failed=True)
                if owner is not None:
                    self._failed(owner, owner.timed_out(f"no answer within {limit:g} s"))
        self.warn_of_stalls(now)
        if not self._lease.beyond_select:
            self._lease.beyond_select = _next_descriptor() >= _SELECTABLE

    # ---- Ending --------------------------------------------------------------------------

    def _cut(self, easy: Any) -> None:
        """Break off one attempt; costs its connection."""
        self._lease.multi.remove_handle(easy)
        self._active.pop(easy).unload()

    def _drain(self) -> None:
        """Let short bodies come to their end, so that their connections stay usable."""
        multi, until = self._lease.multi, time.monotonic() + _DRAIN_SECONDS
        for easy, transfer in tuple(self._active.items()):
            left = transfer.bytes_left()
            if left is None or left > SHORT_BYTES:
                self._cut(easy)
        while self._active and time.monotonic() < until:
            multi.perform()
            _, finished, failed = multi.info_read()
            for easy in (*finished, *(failure[0] for failure in failed)):
                self._cut(easy)
            if self._active and multi.select(_RECHECK_SECONDS) <= 0:
                time.sleep(_SPIN_SECONDS)

    def _end(self) -> None:
        """Give everything back."""
        for easy in tuple(self._active):
            self._cut(easy)
        for transfer in self.outstanding:
            self._leave(transfer)
            self._bytes.give(transfer.charge)
        if self._hedges is not None:
            for twin in self._hedges.primaries:
                self._leave(twin)
                self._bytes.give(twin.charge)
            for pace in self._hedges.parting.values():
                self._give_place(pace)
        self._tell_counts()
        self.unwatch()

    def _tell_counts(self) -> None:
        self._counts["unverified_reads"] = self._finisher.unverified
        self._finisher.unverified = 0
        count(**self._counts)
        self._counts = nothing_counted()


def _next_descriptor() -> int:
    """Return the number that the next open descriptor gets."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor
