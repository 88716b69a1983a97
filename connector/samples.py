"""From rows of a table to samples: fetched ahead, opened, transformed, replaced where they fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from typing_extensions import TypeVar

from connector.ahead import Ahead, Expectation, info_of
from connector.failures import Skips, always_raised, told
from connector.reader import ObjectReader
from connector.table import TableBuilder
from providers import (
    IntegrityError,
    PreconditionError,
    RangeError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from connector.ahead import Fetched
    from connector.sampling import Share
    from connector.table import ObjectRow, ObjectTable
    from providers import Provider, TransferOptions

__all__ = ["OnError", "SampleMaker", "Transform", "bytes_of"]

T = TypeVar("T", default=ObjectReader)

Transform = Callable[[ObjectReader], T]
OnError = Literal["raise", "skip"] | Callable[[str, Exception], Any]


def bytes_of(sample: ObjectReader) -> bytes:
    """Return the bytes of a sample; the simplest ``transform``."""
    return sample.read()


class SampleMaker(Generic[T]):
    """Makes samples of a table's rows; pickles with the table.

    Args:
        transform: makes a sample of an open object; None: the object is the sample.
        on_error: ``raise``, ``skip``, or a callable (uri, error) that returns a sample.
        max_skipped: share of the samples read that ``skip`` may skip.
        transfer: sizes and concurrency.

    Raises:
        ValueError: ``on_error`` or ``max_skipped`` is none of these.
    """

    def __init__(
        self,
        transform: Transform[T] | None,
        on_error: OnError,
        max_skipped: float,
        transfer: TransferOptions,
    ) -> None:
        if on_error not in {"raise", "skip"} and not callable(on_error):
            raise ValueError(f"on_error={on_error!r}: it is 'raise', 'skip' or a callable")
        self.transform = transform
        self.on_error = on_error
        self.skips = Skips(max_skipped)
        self.transfer = transfer
        # Until the first arrives, an object of unknown size counts as one range.
        self._expected = Expectation(transfer.range_size_bytes)
        self.fill(TableBuilder().finish(), {})

    def fill(self, table: ObjectTable, providers: Mapping[str, Provider]) -> None:
        """Say which objects there are, and where they are, by root."""
        self.table = table
        self.providers = providers

    def over(self, table: ObjectTable) -> SampleMaker[T]:
        """Return a maker of the samples of some of the objects, with the same settings."""
        maker = SampleMaker(self.transform, self.on_error, self.skips.max_skipped, self.transfer)
        maker.fill(table, self.providers)
        return maker

    # ---- Samples -------------------------------------------------------------------------

    def sample(self, position: int, share: Share) -> T:
        """Return the sample at a position of a share."""
        row = self._row(position, share)
        return self._sample(position, share, self._fetch(row))

    def _fetch(self, row: ObjectRow) -> Fetched:
        with closing(
            Ahead([(0, row)], self.providers, self.transfer, self._expected).fetched()
        ) as fetched:
            return next(fetched)

    def stream(self, positions: Iterable[int], share: Share) -> Iterator[T]:
        """Yield the samples at positions of a share, in order, all read by this thread."""
        with closing(self._ahead(positions, share).fetched()) as fetched:
            for found in fetched:
                yield self._sample(found.position, share, found)

    def prefetched(self, positions: Iterable[int], share: Share, *, ordered: bool) -> Iterator[T]:
        """Yield the samples at positions of a share while another thread reads the next.

        Args:
            positions: of the share.
            share: gives each position its place in the table.
            ordered: yield them in the order of ``positions``; False: as they arrive.
        """
        with closing(self._ahead(positions, share, ordered=ordered).prefetched()) as fetched:
            for found in fetched:
                yield self._sample(found.position, share, found)

    def _ahead(self, positions: Iterable[int], share: Share, *, ordered: bool = True) -> Ahead:
        rows = ((at, self._row(at, share)) for at in positions)
        return Ahead(rows, self.providers, self.transfer, self._expected, ordered=ordered)

    def _row(self, position: int, share: Share) -> ObjectRow:
        return self.table[share.place(position)]

    def _sample(self, position: int, share: Share, found: Fetched) -> T:
        """Make a sample, or let ``on_error`` decide; a skipped one is replaced by the next."""
        failure: Exception | None = None
        for candidate in self._candidates(position, share, found):
            uri = candidate.row.uri
            try:
                return self._make(candidate)
            except Exception as error:  # noqa: BLE001 a transform may raise anything
                raised = told(error, uri)
            if self.on_error == "raise" or always_raised(raised):
                raise raised
            if self.on_error != "skip":
                return cast("T", self.on_error(uri, raised))
            self.skips.skip(uri, raised, len(share))
            raised.__traceback__ = None  # Its frames hold the body.
            failure = failure or raised
        raise told(cast("Exception", failure), "and no other sample of the share is good")

    def _candidates(self, position: int, share: Share, found: Fetched) -> Iterator[Fetched]:
        """Yield the object of a place, then those that may stand in for it."""
        yield found
        for step in range(1, len(share)):
            yield self._fetch(self._row((position + step) % len(share), share))

    def _make(self, found: Fetched) -> T:
        self.skips.read += 1
        reader = self._open(found)
        return cast("T", reader) if self.transform is None else self.transform(reader)

    def _open(self, found: Fetched) -> ObjectReader:
        _, row, info, body = found
        if isinstance(body, RangeError) and row.size is None:
            body = b""  # No range fits an empty object.
        if isinstance(body, PreconditionError):
            raise IntegrityError(
                "the object changed since it was listed; build the dataset again",
                uri=row.uri,
                operation="get",
            ) from body
        if isinstance(body, Exception):
            raise body
        if body is not None and row.size is None and len(body) > self.transfer.lazy_above_bytes:
            body = None
        # Unpacked, an object has another size than is stored.
        stored = not self.transfer.decode_content
        if body is not None and stored and row.size not in {None, len(body)}:
            raise IntegrityError(
                f"the object has {len(body)} bytes, its row says {row.size}: it changed since, or "
                "the manifest is wrong",
                uri=row.uri,
                operation="get",
            )
        if body is not None and row.size is None:
            info = info_of(row, len(body))
        return ObjectReader(
            self.providers[row.root],
            info,
            uri=row.uri,
            data=body,
            label=row.label,
            fields=row.fields,
            transfer=self.transfer,
        )
