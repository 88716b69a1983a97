"""The one retry policy: full jitter, ``Retry-After``, a limit on attempts and on time.

Exactly one layer retries, this one; every SDK is set to a single attempt.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from providers.counters import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from providers.errors import ProviderError

__all__ = ["Attempt", "RetryPolicy", "on_retry", "without_waiting"]

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
            ProviderError: the last cause, with the count of attempts in its message.
        """
        started = time.monotonic()
        recovered = False
        causes: list[Attempt] = []
        while True:
            try:
                return attempt()
            except Exception as raised:  # noqa: BLE001 the one translation point
                error = explain(raised)
            if not error.retryable:
                if not recovered and recover(error):
                    recovered = True
                    continue
                raise error
            elapsed = time.monotonic() - started
            pause = self.pause_seconds(len(causes), error)
            exhausted = (
                len(causes) + 1 >= self.max_attempts or elapsed + pause > self.give_up_after_seconds
            )
            causes.append(Attempt(len(causes) + 1, error, 0 if exhausted else pause, elapsed))
            if exhausted:
                raise _final(error, causes) from error
            _report(causes[-1])
            if _waiting:
                time.sleep(pause)

    def pause_seconds(self, failures: int, error: ProviderError) -> float:
        """Draw the pause after ``failures`` earlier failures; never shorter than asked for."""
        bound = min(self.max_pause_seconds, self.base_seconds * 2**failures)
        drawn = random.uniform(0, bound)  # noqa: S311 jitter is no secret
        return max(drawn, error.retry_after_seconds or 0.0)


def _report(attempt: Attempt) -> None:
    _log.info("attempt %d failed, next in %.2f s: %s", attempt.number, attempt.waited_seconds,
              attempt.error)  # fmt: skip
    count(retries=1)
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
