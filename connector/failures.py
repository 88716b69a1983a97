"""What becomes of a sample that fails: the error says which one it was, skips are counted."""

from __future__ import annotations

import logging
import pickle
import sys
import time
from typing import Any

from connector.ranks import in_worker
from providers import AccessDeniedError, ProviderError, SettingsError
from providers.counters import count as tally

__all__ = ["Skips", "always_raised", "told"]

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 60.0
_JUDGED_OVER = 1000
"""A share of fewer samples says little: one bad among the first ten is not a tenth."""


def always_raised(error: Exception) -> bool:
    """Whether it is the store's failure, which no other sample of it would survive."""
    if isinstance(error, ProviderError) and error.retryable:
        return True
    return isinstance(error, AccessDeniedError | SettingsError)


def told(error: Exception, text: str) -> Exception:
    """Return the error to raise: the same, with ``text`` in what it says.

    A StopIteration would end the loop that reads the samples, and a type that cannot be
    pickled would never reach the process that waits for this worker: both become RuntimeError.
    """
    if isinstance(error, StopIteration) or (in_worker() and not _travels(type(error))):
        replaced = RuntimeError(f"{type(error).__name__}: {error} ({text})")
        replaced.__cause__ = error
        return replaced
    if text not in str(error) and not _said(error, text):
        _note(error, text)
    return error


def _said(error: Exception, text: str) -> bool:
    """Add to the message of an error that is nothing but its message."""
    args = error.args
    if args and (len(args) > 1 or str(error) != args[0]):
        return False
    error.args = (f"{error} ({text})" if args else text,)
    if text in str(error):
        return True
    error.args = args
    return False


if sys.version_info >= (3, 11):

    def _note(error: Exception, text: str) -> None:
        error.add_note(text)

else:

    def _note(error: Exception, text: str) -> None:
        """Put the text where every traceback shows it, above the error."""
        note = RuntimeError(text)
        note.__cause__ = error.__cause__
        error.__cause__ = note


def _travels(kind: type[Exception]) -> bool:
    try:
        pickle.dumps(kind)
    except Exception:  # noqa: BLE001 pickle raises many types, all saying no
        return False
    return True


class Skips:
    """Counts the samples that this process read and skipped.

    Args:
        max_skipped: share of those read that may be skipped, 0 to 1.

    Raises:
        ValueError: it is not.
    """

    def __init__(self, max_skipped: float) -> None:
        if not 0 <= max_skipped <= 1:
            raise ValueError(f"max_skipped={max_skipped!r}: it is a share, 0 to 1")
        self.max_skipped = max_skipped
        self.read = 0
        self.skipped = 0
        self._next_line = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.max_skipped,)

    def skip(self, uri: str, error: Exception, count: int) -> None:
        """Count one, and say so in the log once a minute at most.

        Args:
            uri: the sample's.
            error: why it is skipped.
            count: samples of the share.

        Raises:
            Exception: ``error``, when it takes the skipped past ``max_skipped`` of the
                samples read, of which there count as many as the share has, up to 1,000.
        """
        self.skipped += 1
        judged = max(self.read, min(count, _JUDGED_OVER))
        if self.skipped > self.max_skipped * judged:
            raise told(
                error,
                f"{self.skipped} of {self.read} samples read are bad, more than "
                f"max_skipped={self.max_skipped} allows",
            )
        tally(samples_skipped=1)
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + _SECONDS_BETWEEN_LINES
            _log.warning(
                "skipped %d of %d samples read, the last being %s: %s",
                self.skipped,
                self.read,
                uri,
                error,
            )
