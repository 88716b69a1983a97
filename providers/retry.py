"""The one retry policy: full jitter, ``Retry-After``, a limit on attempts and on time.

Exactly one layer retries, this one; every SDK is set to a single attempt.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from providers.counters import count
from providers.errors import ProviderError, ThrottledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Attempt",
    "Failures",
    "RetryPolicy",
    "on_retry",
    "pauses",
    "stopping_at",
    "without_waiting",
]

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt, as hooks and final errors tell it.

    Attributes:
        number: 1 for the first.
        error: what went wrong.
        waited_seconds: the pause that follows; 0 after the last.
        elapsed_seconds: since the operation began.
    """

    number: int
    error: ProviderError
    waited_seconds: float
    elapsed_seconds: float


_hooks: list[Callable[[Attempt], None]] = []
_waiting = True
_thread = threading.local()


def on_retry(hook: Callable[[Attempt], None]) -> Callable[[], None]:
    """Call ``hook`` after every attempt that will be repeated; return what unsubscribes it."""
    _hooks.append(hook)
    return lambda: _hooks.remove(hook)


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Make pauses between attempts zero, for tests."""
    global _waiting  # noqa: PLW0603 the one test switch
    before, _waiting = _waiting, False
    try:
        yield
    finally:
        _waiting = before


def pauses() -> bool:
    """Whether anything waits before it is tried again."""
    return _waiting


@contextlib.contextmanager
def stopping_at(stop: threading.Event) -> Iterator[None]:
    """Let operations of this thread end once ``stop`` is set: no pause, no further attempt."""
    _thread.stop = stop
    try:
        yield
    finally:
        _thread.stop = None


def _stopped_within(seconds: float) -> bool:
    """Pause before the next attempt; true: there shall be none."""
    stop: threading.Event | None = getattr(_thread, "stop", None)
    if stop is None:
        time.sleep(seconds)
        return False
    return stop.wait(seconds)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long an operation is tried.

    Attributes:
        max_attempts: the first included.
        give_up_after_seconds: for all attempts and pauses together.
        base_seconds: the first pause is drawn from [0, base); each next bound doubles.
        max_pause_seconds: the bound's own bound.
    """

    max_attempts: int = 10
    give_up_after_seconds: float = 300.0
    base_seconds: float = 0.1
    max_pause_seconds: float = 20.0

    def call(
        self,
        attempt: Callable[[], T],
        explain: Callable[[Exception], ProviderError],
        recover: Callable[[ProviderError], bool],
    ) -> T:
        """Run ``attempt`` until it succeeds, fails for good or the policy is exhausted.

        Args:
            attempt: sends one request.
            explain: makes a ``ProviderError`` of whatever ``attempt`` raised.
            recover: may mend the cause once (credentials, region, clock); true: try again.

        Raises:
            ProviderError: the last cause, with the count of attempts in its message, or
                that it was stopped (``stopping_at``).
        """
        started = time.monotonic()
        failures = Failures(self, recover)
        try:
            while True:
                try:
                    return attempt()
                except Exception as raised:  # noqa: BLE001 the one translation point
                    pause = failures.pause_after(explain(raised), time.monotonic() - started)
                if _stopped_within(pause):
                    raise ProviderError("stopped before the next attempt: nobody wants it any more")
        finally:
            # What is raised holds this frame: were it held here, both would stay, and with
            # them the callers' frames and all their tensors.
            failures.causes.clear()

    def pause_seconds(self, failures: int, error: ProviderError) -> float:
        """Draw the pause after ``failures`` earlier failures; never shorter than asked for."""
        bound = min(self.max_pause_seconds, self.base_seconds * 2**failures)
        drawn = random.uniform(0, bound)  # noqa: S311 jitter is no secret
        return max(drawn, error.retry_after_seconds or 0.0)


@dataclass(slots=True)
class Failures:
    """The failed attempts of one operation, and what becomes of it.

    ``RetryPolicy.call`` sleeps between attempts; a loop that serves others meanwhile asks here.

    Attributes:
        policy: says how often and how long.
        recover: may mend the cause once (credentials, region, clock); true: try again.
        causes: the failures that counted, oldest first.
        recovered: whether ``recover`` has helped already.
    """

    policy: RetryPolicy
    recover: Callable[[ProviderError], bool]
    causes: list[Attempt] = field(default_factory=list)
    recovered: bool = False

    def pause_after(self, error: ProviderError, elapsed_seconds: float) -> float:
        """Return how long to wait before the next attempt.

        Args:
            error: what the last attempt ended with.
            elapsed_seconds: since the operation began.

        Raises:
            ProviderError: there is no next attempt; the message tells all causes.
        """
        if not error.retryable:
            if not self.recovered and self.recover(error):
                self.recovered = True
                return 0.0
            try:
                raise error
            finally:
                del error  # Its traceback holds this frame.
        policy, number = self.policy, len(self.causes) + 1
        pause = policy.pause_seconds(number - 1, error)
        exhausted = (
            number >= policy.max_attempts or elapsed_seconds + pause > policy.give_up_after_seconds
        )
        self.causes.append(Attempt(number, error, 0 if exhausted else pause, elapsed_seconds))
        if exhausted:
            raise _final(error, self.causes) from error
        _report(self.causes[-1])
        return pause if _waiting else 0.0


def _report(attempt: Attempt) -> None:
    # Text, since a handler may keep what it is given, and an error keeps its frames.
    text = str(attempt.error)
    _log.info("attempt %d failed, next in %.2f s: %s", attempt.number, attempt.waited_seconds, text)
    count(retries=1, throttles=int(isinstance(attempt.error, ThrottledError)))
    for hook in tuple(_hooks):
        hook(attempt)


def _final(error: ProviderError, causes: list[Attempt]) -> ProviderError:
    """Return the last error again, telling every attempt's cause and time."""
    if len(causes) == 1:
        return error
    history = "; ".join(
        f"{c.number}: {type(c.error).__name__}{f' {c.error.status}' if c.error.status else ''}"
        f" at {c.elapsed_seconds:.1f} s"
        for c in causes
    )
    final = type(error)(f"{error} - gave up after {len(causes)} attempts ({history})")
    for name in ("uri", "operation", "status", "code", "request_id", "retry_after_seconds"):
        setattr(final, name, getattr(error, name))
    return final
