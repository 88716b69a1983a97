"""Reads the parts of a distributed checkpoint: each byte once, into the tensors where possible."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from providers import ByteRange, IntegrityError, NotFoundError, PreconditionError, ProviderError
from providers import RangeError as OutOfRangeError
from providers.planning import coalesce_ranges, split_range
from providers.transfer import get_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from connector.dcp.commit import Part
    from connector.dcp.place import Place
    from providers import ObjectInfo, Provider, TransferOptions
    from providers.checksums import Checksum

    Take = Callable[[memoryview], None]

__all__ = ["Span", "read_spans"]


class Span(NamedTuple):
    """Bytes of one part that somebody wants.

    Attributes:
        part: which.
        start: the first.
        stop: one past the last.
        into: a writable flat view that takes them; None: they are handed over.
        take: is given them when all are there.
    """

    part: Part
    start: int
    stop: int
    into: memoryview | None
    take: Take


class _Job:
    """One stretch of a part, read in one or several pieces, for one or several spans."""

    __slots__ = ("buffer", "missing", "part", "spans", "start", "stop")

    def __init__(self, part: Part, start: int, stop: int, spans: list[Span]) -> None:
        self.part, self.start, self.stop, self.spans = part, start, stop, spans
        self.missing = 0
        self.buffer: memoryview | None = None

    def pieces(self, place: Place, size_bytes: int) -> Iterator[_Piece]:
        """Yield the reads of the stretch, and make room for them."""
        first = self.spans[0]
        whole = (first.start, first.stop) == (self.start, self.stop)
        room = first.into if whole else None
        self.buffer = room if room is not None else memoryview(bytearray(self.stop - self.start))
        cuts = list(split_range(self.start, self.stop, size_bytes))
        self.missing = len(cuts)
        info = self.part.info(place.key(self.part.name))
        pin = info if info.etag is not None or info.version is not None else None
        for cut in cuts:
            length = cut.length_in(self.stop)
            view = self.buffer[cut.start - self.start : cut.start - self.start + length]
            yield _Piece(place.provider, info.key, cut, pin, length, view, None, self)

    def finish(self) -> None:
        """Hand the bytes to all who want some of them."""
        if self.buffer is None:
            return
        for span in self.spans:
            view = self.buffer[span.start - self.start : span.stop - self.start]
            if span.into is not None and span.into.obj is not self.buffer.obj:
                span.into[:] = view
                view = span.into
            span.take(view)
        self.buffer = None


class _Piece(NamedTuple):
    """One read, as ``providers.gets.Wanted`` has it."""

    provider: Provider
    key: str
    byte_range: ByteRange
    if_match: ObjectInfo | None
    size_bytes: int
    into: memoryview
    told: list[Checksum] | None
    job: _Job


def read_spans(place: Place, spans: Iterable[Span], transfer: TransferOptions) -> None:
    """Read spans of any parts, many at once, and hand each over as it is complete.

    Neighbours are read together, with gaps of up to ``max_gap_bytes``; what several want is
    read once. What is under way is bounded by ``max_bytes_in_flight``, shared by the ranks of
    one machine.

    Args:
        place: of the checkpoint.
        spans: in any order.
        transfer: sizes and concurrency.

    Raises:
        IntegrityError: a part is missing, shorter than it should be, or was written again.
        ProviderError: a part could not be read.
    """
    limits = _shared(transfer)
    jobs = _jobs(spans, limits)
    pieces = (piece for job in jobs for piece in job.pieces(place, limits.range_size_bytes))
    with closing(get_many(pieces, limits, ordered=False)) as bodies:
        for piece, body in bodies:
            _check(place, piece, body)
            piece.job.missing -= 1
            if not piece.job.missing:
                piece.job.finish()


def _shared(transfer: TransferOptions) -> TransferOptions:
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    ranks = max(1, int(local) if local.isdigit() else 1)
    most = max(transfer.range_size_bytes, transfer.max_bytes_in_flight // ranks)
    return transfer.model_copy(update={"max_bytes_in_flight": most})


def _jobs(spans: Iterable[Span], transfer: TransferOptions) -> list[_Job]:
    """Join what lies together, unless it is large enough to go straight into its tensor."""
    by_part: dict[str, list[Span]] = {}
    for span in spans:
        if span.start == span.stop:
            span.take(memoryview(b""))
            continue
        by_part.setdefault(span.part.name, []).append(span)
    jobs: list[_Job] = []
    for wanted in by_part.values():
        exact: dict[tuple[int, int], list[Span]] = {}
        for span in wanted:
            exact.setdefault((span.start, span.stop), []).append(span)
        small = [s for s in exact if s[1] - s[0] < transfer.max_gap_bytes]
        jobs += [
            _Job(group[0].part, start, stop, group)
            for (start, stop), group in exact.items()
            if stop - start >= transfer.max_gap_bytes
        ]
        for start, stop, members in coalesce_ranges(small, transfer.max_gap_bytes):
            joined = [span for member in members for span in exact[small[member]]]
            jobs.append(_Job(joined[0].part, start, stop, joined))
    return sorted(jobs, key=lambda job: (job.part.name, job.start))


def _check(place: Place, piece: _Piece, body: object) -> None:
    changed = NotFoundError | PreconditionError | OutOfRangeError
    name = piece.job.part.name
    if isinstance(body, changed):
        raise IntegrityError(
            f"this part of the checkpoint is not what was saved: {body}",
            uri=place.uri_of(name),
            operation="load",
        ) from body
    if isinstance(body, ProviderError):
        raise body
    if isinstance(body, memoryview) and len(body) != piece.size_bytes:
        raise IntegrityError(
            f"this part of the checkpoint ends early: {len(body)} of {piece.size_bytes} bytes came",
            uri=place.uri_of(name),
            operation="load",
        )
