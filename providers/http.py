"""Streams of reads over HTTP: many requests under way, driven by whoever takes the bodies.

No thread and no event loop of its own: each turn of a stream starts what limits allow, lets
libcurl work, and hands over what is finished. All that a stream holds ends with it.
"""

from __future__ import annotations

import heapq
import math
import os
import time
from collections import deque
from itertools import count as numbers
from typing import TYPE_CHECKING, Any

from providers import tracing
from providers.counters import count
from providers.errors import ProviderError, ThrottledError, TimedOutError
from providers.exchange import Transfer
from providers.gets import W
from providers.handles import leased
from providers.hedging import SHORT_BYTES, HedgedStream, Hedges
from providers.pacing import Pace, bytes_under_way
from providers.retry import Failures, RetryPolicy
from providers.routes import Route
from providers.watching import trace_attempt
from providers.whole import Finisher

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from threading import Event

    from providers.base import Provider
    from providers.counters import Amounts
    from providers.gets import Body
    from providers.handles import Lease
    from providers.options import TransferOptions
    from providers.values import HttpRequest

__all__ = ["fetch"]

_PAUSE_SECONDS = 0.5
"""A consumer that stays away for longer may find what it left behind timed out."""
_TICK_SECONDS = 1.0
_RECHECK_SECONDS = 0.02
"""How soon a stream looks again whether others have given back what it waits for."""
_SPIN_SECONDS = 0.002
_SELECTABLE = 960
"""``select`` sees no descriptor from 1,024 on; from here on it is not relied upon."""
_BUSY = 503
_DRAIN_SECONDS = 0.25
_HARDLY = 0.1


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


class _Stream(HedgedStream[W]):
    """One call of ``fetch``."""

    def __init__(
        self, gets: Iterator[W], options: TransferOptions, ordered: bool, stop: Event | None
    ) -> None:
        super().__init__()
        self._stop = stop
        self._gets = gets
        self._options = options
        self._finisher = Finisher(options)
        self._ordered = ordered
        self._policy = RetryPolicy(options.max_attempts, options.give_up_after_seconds)
        self._next: W | None = None
        self._bytes = bytes_under_way()
        self._routes: dict[Provider, Route] = {}
        # Reads in the order in which they are handed over, and those finished out of order.
        self._queue: deque[Transfer[W]] = deque()
        self._active: dict[Any, Transfer[W]] = {}
        self._unsized: set[Transfer[W]] = set()
        self._retries: list[tuple[float, int, Transfer[W]]] = []
        self._sequence = numbers()
        self._places = 0
        self._blocked = False
        self._paused_at = -math.inf
        self._tick_at = 0.0
        self._tick_seconds = min(_TICK_SECONDS, options.first_byte_timeout_seconds / 4)
        self._hedges: Hedges[W] | None = Hedges() if options.hedge else None
        self._counts = _zeros()
        self._lease: Lease

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
                    elif self._ready() is None:
                        self._wait()
                    yield from self._hand_over()
            except GeneratorExit:
                if not self._lease.inherited:
                    self._drain()
                raise
            finally:
                if not self._lease.inherited:
                    self._end()

    def _ready(self) -> Transfer[W] | None:
        """Return the next transfer to hand over, if its result is there."""
        queue = self._queue
        return queue[0] if queue and queue[0].result is not None else None

    def _hand_over(self) -> Iterator[tuple[W, Body | ProviderError]]:
        """Yield what is ready; the time for which the consumer stays away does not count."""
        while (transfer := self._ready()) is not None and transfer.result is not None:
            self._queue.popleft()
            self.outstanding.discard(transfer)
            self._bytes.give(transfer.charge)
            left = time.monotonic()
            yield transfer.get, transfer.result
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
            seconds = min(seconds, max(due, _RECHECK_SECONDS) if self._blocked else max(due, 0.0))
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

    # ---- Starting ------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start what is due and what the limits allow."""
        options = self._options
        self._blocked = False
        if self._retries:
            self._start_due()
        while (
            not self._blocked
            and len(self._active) < options.max_in_flight
            and len(self.outstanding) < options.prefetch_objects
            and (get := self._peek()) is not None
            and (transfer := self._admit(get)) is not None
        ):
            self._next = None
            self.outstanding.add(transfer)
            if self._ordered:
                self._queue.append(transfer)
            self._start(transfer)

    def _start_due(self) -> None:
        now = time.monotonic()
        while (
            self._retries
            and self._retries[0][0] <= now
            and len(self._active) < self._options.max_in_flight
        ):
            transfer = self._retries[0][2]
            if transfer.pace is None:
                transfer.pace = self._enter(transfer.get.provider)
                if transfer.pace is None:
                    return
            heapq.heappop(self._retries)
            self._start(transfer)

    def _peek(self) -> W | None:
        """Return the next read without taking it; None: there is no more."""
        if self._next is None:
            self._next = next(self._gets, None)
        return self._next

    def _admit(self, get: W) -> Transfer[W] | None:
        """Make a transfer if there is a place for it and for its bytes."""
        pace = self._enter(get.provider)
        if pace is None:
            return None
        size, asked = get.size_bytes, get.byte_range
        if not size and asked is not None and asked.stop is not None:
            size = asked.stop - asked.start
        if self._bytes.take(size, self._options.max_bytes_in_flight, always=not self.outstanding):
            transfer = Transfer(get, size, pace, self.clock())
            if not size:
                self._unsized.add(transfer)
            return transfer
        self._give_place(pace)
        self._blocked = True
        return None

    def _enter(self, provider: Provider) -> Pace | None:
        """Take a place at the provider's endpoint; one is always free for each stream."""
        route = self._routes.get(provider)
        if route is None:
            route = self._routes[provider] = Route(provider, self._lease)
        pace, options = route.pace, self._options
        most = options.max_connections
        if options.adaptive and pace.demand.wanted < most:
            most = pace.demand.wanted
        if pace.enter(most, always=not self._places):
            self._places += 1
            return pace
        self._blocked = True
        return None

    def _leave(self, transfer: Transfer[W]) -> None:
        self._give_place(transfer.pace)
        transfer.pace = None

    def _give_place(self, pace: Pace | None) -> None:
        if pace is not None:
            pace.leave()
            self._places -= 1

    def _start(self, transfer: Transfer[W]) -> None:
        """Sign and send one attempt."""
        try:
            request = transfer.sign()
        except ProviderError as error:
            self._failed(transfer, error)
            return
        if request is None:
            self._take_verb(transfer, transfer.call_verb())
            return
        self._send(transfer, request)

    def _take_verb(self, transfer: Transfer[W], outcome: Body | ProviderError) -> None:
        """Take what the provider's own verb gave, after its own retries."""
        if isinstance(outcome, ProviderError):
            self._give_up(transfer, outcome)
        else:
            self._succeeded(transfer, outcome, time.monotonic())

    def _send(self, transfer: Transfer[W], request: HttpRequest) -> None:
        """Send one signed attempt."""
        route, url = self._routes[transfer.get.provider], request.url
        path = url.find("/", 8)
        endpoint = url if path < 0 else url[:path]
        if endpoint != route.endpoint:
            route.turn_to(endpoint, self._options)
        pace = route.pace
        if transfer.pace is not pace:
            self._leave(transfer)
            pace.enter(0, always=True)
            self._places += 1
            transfer.pace = pace
        slot = route.take_slot()
        transfer.load(slot, request)
        transfer.epoch = pace.epoch
        transfer.sent_at = now = time.monotonic()
        transfer.sent = now - self.suspended
        self._active[slot.easy] = transfer
        self._lease.multi.add_handle(slot.easy)
        self._counts["requests"] += 1

    # ---- Finishing -----------------------------------------------------------------------

    def _finish(self, easy: Any, code: int, message: str, now: float) -> None:
        """Take one attempt's outcome, at a time of the wall's clock."""
        transfer = self._active.pop(easy)
        self._lease.multi.remove_handle(easy)
        if self._hedges is not None and transfer in self._hedges.parting:
            transfer.unload()
            self._give_place(self._hedges.parting.pop(transfer))
            return
        outcome = self._outcome(transfer, code, message)
        self._count_answer(transfer)
        if tracing.enabled:
            trace_attempt(transfer, self.clock(), outcome)
        transfer.unload()
        failed = isinstance(outcome, ProviderError)
        if self._hedges is not None:
            owner = self._decide(self._hedges, transfer, failed=failed)
            if owner is None:
                return
            transfer = owner
        if not isinstance(outcome, ProviderError):
            self._succeeded(transfer, outcome, now)
        elif (
            transfer.sent_at <= self._paused_at
            and outcome.retryable
            and (code or isinstance(outcome, TimedOutError))
        ):
            # What the consumer left behind and broke is nobody's failure.
            transfer.attempt -= 1
            self._send_again(transfer, 0.0)
        else:
            self._failed(transfer, outcome)

    def _outcome(self, transfer: Transfer[W], code: int, message: str) -> Body | ProviderError:
        """Return the body as it may be handed over, or what went wrong."""
        outcome, slot = transfer.conclude(code, message), transfer.slot
        if isinstance(outcome, ProviderError) or slot is None:
            return outcome
        outcome = self._finisher.finish(transfer.get, transfer.told, slot, outcome)
        if isinstance(outcome, ProviderError):
            transfer.forget()
        return outcome

    def _count_answer(self, transfer: Transfer[W]) -> None:
        counts = self._counts
        counts["bytes_read"] += transfer.received
        if transfer.answered():
            seconds = transfer.first_byte_seconds()
            counts["answers"] += 1
            counts["first_byte_seconds"] += seconds
            if self._hedges is not None and transfer.sent_at > self._paused_at:
                self._routes[transfer.get.provider].first_bytes.learn(seconds)

    def _succeeded(self, transfer: Transfer[W], body: Body, now: float) -> None:
        """Give a place back, and tell the endpoint's pace how long the read took."""
        pace, size = transfer.pace, len(body)
        if pace is not None:
            seconds = now - transfer.sent_at
            away = self.suspended - (transfer.sent_at - transfer.sent)
            # Where the consumer was away meanwhile, it tells nothing.
            pace.succeed(size, seconds if away < seconds * _HARDLY else None)
            transfer.pace = None
            self._places -= 1
        self._settle(transfer, body, size)

    def _settle(self, transfer: Transfer[W], result: Body | ProviderError, size: int) -> None:
        """Keep a result of so many bytes until it is handed over."""
        if transfer.charge != size:
            self._charge(transfer, size)
        if self._unsized:
            self._unsized.discard(transfer)
        transfer.result = result
        if not self._ordered:
            self._queue.append(transfer)

    def _give_up(self, transfer: Transfer[W], error: ProviderError) -> None:
        self._leave(transfer)
        self._settle(transfer, error, 0)

    def _charge(self, transfer: Transfer[W], size: int) -> None:
        """Correct what was taken for a transfer from the account of bytes."""
        self._bytes.take(size - transfer.charge, 0, always=True)
        transfer.charge = size

    def _failed(self, transfer: Transfer[W], error: ProviderError) -> None:
        """Send again later what may succeed then; a throttled transfer keeps its place."""
        pace, failures = transfer.pace, transfer.failures
        if failures is None:
            failures = Failures(self._policy, transfer.get.provider.recover)
            transfer.failures = failures
        pushed = pace is not None and _pushes_back(error)
        if pushed and pace is not None:
            pace.push_back(transfer.epoch)
        least = pace.pay_retry() if pace is not None and error.retryable else 0.0
        try:
            pause = failures.pause_after(error, self.clock() - transfer.began, least)
        except ProviderError as final:
            self._give_up(transfer, final)
            return
        if not pushed:
            self._leave(transfer)
        self._send_again(transfer, pause)

    def _send_again(self, transfer: Transfer[W], pause_seconds: float) -> None:
        due = time.monotonic() + pause_seconds
        heapq.heappush(self._retries, (due, next(self._sequence), transfer))

    def _learn_sizes(self) -> None:
        for transfer in tuple(self._unsized):
            size = transfer.declared_bytes()
            if size is not None:
                self._unsized.discard(transfer)
                self._charge(transfer, size)

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
        self._counts = _zeros()


def _zeros() -> Amounts:
    """Return what a stream counts, before there is anything to count."""
    return {
        "requests": 0,
        "answers": 0,
        "bytes_read": 0,
        "hedges": 0,
        "unverified_reads": 0,
        "first_byte_seconds": 0.0,
    }


def _pushes_back(error: ProviderError) -> bool:
    """Whether an error asks for less pressure."""
    return isinstance(error, ThrottledError | TimedOutError) or error.status == _BUSY


def _next_descriptor() -> int:
    """Return the number that the next open descriptor gets."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor
