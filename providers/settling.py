"""The finishing side of a stream: results, failures, and what is sent again."""

from __future__ import annotations

import heapq
import math
import time
from itertools import count as numbers
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from providers import tracing
from providers.errors import ProviderError, ThrottledError, TimedOutError
from providers.gets import W, size_of
from providers.retry import Failures, RetryPolicy, pauses
from providers.starting import StartingStream
from providers.watching import trace_attempt
from providers.whole import Finisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.exchange import Transfer
    from providers.gets import Body, Pieces
    from providers.options import TransferOptions

__all__ = ["SettlingStream"]

_BUSY = 503
_HARDLY = 0.1


class SettlingStream(StartingStream[W]):
    """Takes the outcome of each attempt, and keeps results until they are handed over.

    Args:
        gets: what to read.
        options: limits, timeouts and the retry policy.
        ordered: hand over in the order of ``gets``; false: as they finish.
    """

    def __init__(self, gets: Iterator[W], options: TransferOptions, *, ordered: bool) -> None:
        super().__init__(gets, options, ordered=ordered)
        self._finisher = Finisher(options)
        self._policy = RetryPolicy(options.max_attempts, options.give_up_after_seconds)
        self._sequence = numbers()
        self._paused_at = -math.inf

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

    def _outcome(self, transfer: Transfer[W], code: int, message: str) -> Pieces | ProviderError:
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

    def _succeeded(self, transfer: Transfer[W], body: Pieces, now: float) -> None:
        """Give a place back, and tell the endpoint's pace how long the read took."""
        pace, size = transfer.pace, size_of(body)
        if pace is not None:
            seconds = now - transfer.sent_at
            away = self.suspended - (transfer.sent_at - transfer.sent)
            # Where the consumer was away meanwhile, it tells nothing.
            taken = seconds if away < seconds * _HARDLY else None
            pace.succeed(size, taken, paid=transfer.paid)
            transfer.pace = None
            self._places -= 1
        self._settle(transfer, body, size)

    @override
    def _take_verb(self, transfer: Transfer[W], outcome: Body | ProviderError) -> None:
        """Take what the provider's own verb gave, after its own retries."""
        if isinstance(outcome, ProviderError):
            self._give_up(transfer, outcome)
        else:
            pieces = [outcome] if isinstance(outcome, bytes) else outcome
            self._succeeded(transfer, pieces, time.monotonic())

    def _settle(self, transfer: Transfer[W], result: Pieces | ProviderError, size: int) -> None:
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

    @override
    def _failed(self, transfer: Transfer[W], error: ProviderError) -> None:
        """Send again later what may succeed then; a throttled transfer keeps its place."""
        pace, failures = transfer.pace, transfer.failures
        if failures is None:
            failures = Failures(self._policy, transfer.get.provider.recover)
            transfer.failures = failures
        pushed = pace is not None and _pushes_back(error)
        if pushed and pace is not None:
            pace.push_back(transfer.epoch)
        transfer.owes = error.retryable and pauses()
        try:
            pause = failures.pause_after(error, self.clock() - transfer.began)
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


def _pushes_back(error: ProviderError) -> bool:
    """Whether an error asks for less pressure."""
    return isinstance(error, ThrottledError | TimedOutError) or error.status == _BUSY
