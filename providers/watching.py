"""What this process waits for: a list to look at, and a warning where nothing moves."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from providers import tracing
from providers.errors import ProviderError
from providers.gets import W
from providers.headers import Headers

if TYPE_CHECKING:
    from providers.exchange import Transfer

__all__ = ["InFlight", "Watch", "in_flight", "trace_attempt"]

_log = logging.getLogger(__name__)

_STALLED_SECONDS = 30.0
_REMIND_SECONDS = 60.0
_REQUEST_IDS = ("x-amz-request-id", "x-oss-request-id", "x-guploader-uploadid")


@dataclass(frozen=True, slots=True)
class InFlight:
    """One read that is not finished.

    Attributes:
        uri: the object.
        attempt: number of the current attempt.
        bytes_read: of its body, so far.
        waited_seconds: since the first attempt was sent, without the consumer's absences.
        stalled_seconds: since the last byte came.
        last_status: of the last answer, if there was one.
        request_id: of the last answer.
    """

    uri: str
    attempt: int
    bytes_read: int
    waited_seconds: float
    stalled_seconds: float
    last_status: int | None
    request_id: str | None


class Watch(Generic[W]):
    """The watched side of a stream.

    Attributes:
        outstanding: reads begun and not handed over.
        suspended: seconds for which the consumer stayed away.
    """

    def __init__(self) -> None:
        self.outstanding: set[Transfer[W]] = set()
        self.suspended = 0.0

    def clock(self) -> float:
        """Return the seconds that count: those in which somebody drove the stream."""
        return time.monotonic() - self.suspended

    def watch(self) -> None:
        """Show in ``in_flight`` from now on."""
        _streams[id(self)] = self

    def unwatch(self) -> None:
        """Show no more."""
        _streams.pop(id(self), None)

    def waiting(self) -> list[InFlight]:
        """Describe what is not finished."""
        now = self.clock()
        return [_describe(t, now) for t in list(self.outstanding) if t.result is None]

    def warn_of_stalls(self, now: float) -> None:
        """Log the reads of which nothing has come for long."""
        for transfer in self.outstanding:
            if transfer.result is not None:
                continue
            here = transfer.bytes_here()
            if here > transfer.most_seen:
                transfer.most_seen = here
                transfer.progressed = transfer.warned = now
                continue
            reminded = transfer.warned > transfer.progressed
            if now - transfer.warned >= (_REMIND_SECONDS if reminded else _STALLED_SECONDS):
                transfer.warned = now
                _warn(_describe(transfer, now))


def _describe(transfer: Transfer[Any], now: float) -> InFlight:
    status, request_id = _last_answer(transfer)
    return InFlight(
        uri=transfer.uri,
        attempt=transfer.attempt,
        bytes_read=transfer.most_seen,
        waited_seconds=now - transfer.began,
        stalled_seconds=now - transfer.progressed,
        last_status=status,
        request_id=request_id,
    )


def trace_attempt(transfer: Transfer[Any], now: float, outcome: object) -> None:
    """Write one finished attempt to the trace."""
    status, request_id = _last_answer(transfer)
    tracing.trace(
        "GET",
        transfer.url,
        status=status,
        seconds=now - transfer.sent,
        body_bytes=transfer.received,
        attempt=transfer.attempt,
        request_id=request_id,
        error=outcome if isinstance(outcome, ProviderError) else None,
    )


def _last_answer(transfer: Transfer[Any]) -> tuple[int | None, str | None]:
    slot = transfer.slot
    if slot is not None and slot.lines:
        lines = list(slot.lines)
        headers = Headers.parse(lines)
        status = lines[0].split(None, 2)[1:2]
        return (
            int(status[0]) if status and status[0].isdigit() else None,
            next((headers[name] for name in _REQUEST_IDS if name in headers), None),
        )
    failures = transfer.failures
    if failures is None or not failures.causes:
        return None, None
    error = failures.causes[-1].error
    return error.status, error.request_id


def _warn(stalled: InFlight) -> None:
    _log.warning(
        "reading %s: nothing came for %.0f s (attempt %d, last status %s, request id %s, "
        "waited %.0f s in all)",
        stalled.uri,
        stalled.stalled_seconds,
        stalled.attempt,
        stalled.last_status,
        stalled.request_id,
        stalled.waited_seconds,
    )


_streams: dict[int, Watch[Any]] = {}


def in_flight() -> list[InFlight]:
    """Return the reads of this process that are not finished, longest waiting first."""
    found = [read for stream in list(_streams.values()) for read in stream.waiting()]
    return sorted(found, key=lambda read: -read.waited_seconds)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_streams.clear)
