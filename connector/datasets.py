"""Datasets over objects: one that reads any of them, one that streams a share of them."""

from __future__ import annotations

import logging
import operator
import os
from typing import TYPE_CHECKING, Any, Generic, TypedDict, overload

import torch
from torch.utils import data
from typing_extensions import Self, TypeVar, Unpack, override

from connector.finding import Filters, list_prefix, named_rows, pack
from connector.manifest import manifest_rows
from connector.ranks import current_ranks, current_worker, in_worker
from connector.reader import ObjectReader
from connector.samples import SampleMaker
from connector.sampling import Ranks, Share, deal
from connector.stores import Stores
from providers import TransferOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from connector.finding import Progress
    from connector.manifest import Parser
    from connector.samples import OnError, Transform
    from connector.sampling import Even
    from connector.stores import OptionsByStore
    from connector.table import ObjectRow, ObjectTable

__all__ = ["IterableDataset", "MapDataset", "Settings"]

T = TypeVar("T", default=ObjectReader)

_log = logging.getLogger(__name__)


class Settings(TypedDict, total=False):
    """Keywords that the three constructors share.

    Attributes:
        include: one ``fnmatch`` pattern or several on the whole key, of which an object must
            match one; case matters, ``*`` crosses ``/``. Default: all objects.
        exclude: the same for objects to leave out; wins over ``include``.
        skip_directories: leave out zero-byte keys that end in ``/``. Default: True.
        on_error: what becomes of a sample that fails, be it while its object is read (after
            retries) or in ``transform``. ``raise`` (default); ``skip``: the next good sample
            of the same share takes its place, so that lengths never change; or a callable
            (uri, error) that returns the sample to use. Refused access, throttling and an
            unavailable store always raise.
        max_skipped: the share of samples read that ``skip`` may skip. Default: 0.01.
        allow_empty: permit a dataset without objects. Default: False.
        options: of the scheme (``S3Options``, say); or a mapping from scheme (``s3``) or bucket
            (``s3://bucket``) to such, a bucket's winning field by field.
        transfer: timeouts, sizes and concurrency.
        progress: None: a line in the log, once a second at most; True: a line on stderr; or a
            callable that is given the count so far.
        shard: (IterableDataset only, as all that follow) split the objects by rank and by
            DataLoader worker; False: every one reads all. Default: True.
        rank: of this process, with ``world_size``. Default: torch.distributed's, else the
            variables ``RANK`` and ``WORLD_SIZE``, else one process alone.
        world_size: how many ranks there are.
        even: ``pad`` (default): every rank gets ceil(N / world_size) samples, some of them
            twice; ``drop``: floor(N / world_size), the rest left out; ``exact``: none twice,
            none lost, ranks may differ by one.
        batch_size: the loader's: whole batches are then dealt to the workers in turn, so that
            ``len(loader)`` is right, ``drop_last`` loses less than one batch, and the order is
            the same for any number of workers. Default: single samples are.
        ordered: give samples in the order of the objects (default); False: as they arrive,
            which a slow one does not hold up. ``drop_last`` and resuming then go by counts.
    """

    include: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    skip_directories: bool
    on_error: OnError
    max_skipped: float
    allow_empty: bool
    options: OptionsByStore | None
    transfer: TransferOptions | None
    progress: Progress
    shard: bool
    rank: int | None
    world_size: int | None
    even: Even
    batch_size: int | None
    ordered: bool


class _ObjectDataset(Generic[T]):
    """What both datasets share: how they find objects, and what makes samples of them.

    Args:
        maker: makes samples of the rows of its table.
    """

    def __init__(self, maker: SampleMaker[T]) -> None:
        self._maker = maker

    @classmethod
    def from_prefix(
        cls, uri: str, *, transform: Transform[T] | None = None, **settings: Unpack[Settings]
    ) -> Self:
        """Make a dataset of all objects whose URI begins with ``uri``, in order of their keys.

        They are listed before this returns, in this process; DataLoader workers never list.

        Args:
            uri: a raw string: ``s3://bucket/train`` also matches ``s3://bucket/train2/``.
            transform: makes a sample of an open object; without it, the object is the sample.
            **settings: as in ``Settings``.

        Raises:
            NotFoundError: there is no object, or none is left; or there is no such bucket.
            AccessDeniedError: listing is not allowed.
        """
        return cls._find(lambda stores: list_prefix(stores, uri), uri, transform, **settings)

    @classmethod
    def from_objects(
        cls,
        uris: Iterable[str],
        *,
        transform: Transform[T] | None = None,
        **settings: Unpack[Settings],
    ) -> Self:
        """Make a dataset of the objects named, in that order; nothing is asked of their stores.

        Args:
            uris: any iterable, generators included; several buckets and clouds may be mixed.
            transform: as for ``from_prefix``.
            **settings: as in ``Settings``.

        Raises:
            NotFoundError: none is left.
            SettingsError: one is no URI of an object.
        """
        return cls._find(lambda _: named_rows(uris), "from_objects", transform, **settings)

    @classmethod
    def from_manifest_file(
        cls,
        uri: str,
        parser: Parser | None = None,
        base: str | None = None,
        *,
        transform: Transform[T] | None = None,
        **settings: Unpack[Settings],
    ) -> Self:
        """Make a dataset of the objects that a manifest names, in that order.

        Args:
            uri: the manifest, on any store: JSON Lines, CSV or tab-separated, gzipped or not
                (``connector.manifest`` describes the forms).
            parser: for any other form: takes an open binary file, gives (key, label) pairs.
            base: goes before every ``key``, as it is. Without it, a key that is no URI belongs
                to the manifest's own directory.
            transform: as for ``from_prefix``.
            **settings: as in ``Settings``.

        Raises:
            ManifestError: a row is not what it should be; the message has file and line.
            NotFoundError: there is no manifest, or none of its objects is left.
        """
        return cls._find(
            lambda stores: manifest_rows(stores, uri, parser, base), uri, transform, **settings
        )

    @classmethod
    def _find(
        cls,
        rows: Callable[[Stores], Iterable[ObjectRow]],
        where: str,
        transform: Transform[T] | None,
        *,
        include: str | Iterable[str] | None = None,
        exclude: str | Iterable[str] | None = None,
        skip_directories: bool = True,
        on_error: OnError = "raise",
        max_skipped: float = 0.01,
        allow_empty: bool = False,
        options: OptionsByStore | None = None,
        transfer: TransferOptions | None = None,
        progress: Progress = None,
        **own: Any,
    ) -> Self:
        # Everything is checked before anything is listed, which may take minutes.
        transfer = transfer or TransferOptions()
        maker = SampleMaker(transform, on_error, max_skipped, transfer)
        dataset = cls(maker, **own)
        filters = Filters(
            include, exclude, skip_directories=skip_directories, allow_empty=allow_empty
        )
        stores = Stores(options, transfer)
        table = pack(rows(stores), where, filters, progress)
        maker.fill(table, stores.open_all(table))
        return dataset

    def __repr__(self) -> str:
        transform = self._maker.transform
        name = getattr(transform, "__name__", repr(transform))
        return f"{type(self).__name__}({self.table.summary}, transform={name})"

    @property
    def table(self) -> ObjectTable:
        """The objects: ``len``, rows by index, slices."""
        return self._maker.table

    @property
    def samples_skipped(self) -> int:
        """How many bad samples this process has skipped; workers count their own."""
        return self._maker.skips.skipped

    @property
    def labels(self) -> list[Any]:
        """The labels of all objects, in the table's order; None where there is none."""
        return self.table.labels


class MapDataset(_ObjectDataset[T], data.Dataset[T]):
    """A dataset that reads any of its objects; made by one of its three constructors.

    Works with every sampler, DistributedSampler included; DataLoader reads a whole batch at
    once. A slice is a dataset of its own.
    """

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    @override
    def __getitem__(self, index: int | slice) -> T | Self:
        if isinstance(index, slice):
            return type(self)(self._maker.over(self.table[index]))
        return self._maker.sample(self._position(index), self._share())

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        """Return the samples of a whole batch, read at once, in this order."""
        positions = [self._position(index) for index in indices]
        return list(self._maker.stream(positions, self._share()))

    def __iter__(self) -> Iterator[T]:
        """Stream all samples; without it, an IndexError in ``transform`` would end the loop."""
        return self._maker.stream(range(len(self)), self._share())

    def _position(self, index: int) -> int:
        count, position = len(self), operator.index(index)
        if not -count <= position < count:
            raise IndexError(f"index {position} is out of range for {count} objects")
        return position % count

    def _share(self) -> Share:
        return Share(len(self), Ranks())


class IterableDataset(_ObjectDataset[T], data.IterableDataset[T]):
    """A dataset that streams its objects, split by rank and by DataLoader worker.

    Made by one of its three constructors. ``len`` is the number of samples of this rank.
    """

    def __init__(
        self,
        maker: SampleMaker[T],
        *,
        shard: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "pad",
        batch_size: int | None = None,
        ordered: bool = True,
    ) -> None:
        super().__init__(maker)
        self._ordered = ordered
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank={rank} and world_size={world_size}: pass both or neither")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: it is 1 or more")
        self._shard = shard
        self._given = None if rank is None or world_size is None else Ranks(rank, world_size)
        self._even = Share(0, Ranks(), even).even
        self._batch_size = batch_size
        self._recorded: Ranks | None = None
        self._unpickled_in: int | None = None
        # In shared memory, since each worker of each epoch may be a process of its own.
        self._warned: Any = torch.zeros(1, dtype=torch.uint8)
        self._warned.share_memory_()

    def __getstate__(self) -> dict[str, Any]:
        """Record the rank: a spawned worker sees no process group."""
        return {**self.__dict__, "_recorded": self._ranks()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _unpickled_in=os.getpid())

    def __len__(self) -> int:
        return len(self._share())

    @override
    def __iter__(self) -> Iterator[T]:
        share, (worker, workers) = self._share(), current_worker()
        positions: Iterable[int] = range(len(share))
        if self._shard:
            if workers > 1 and self._batch_size is None:
                self._warn(workers)
            positions = deal(len(share), worker, workers, self._batch_size)
        return self._maker.prefetched(positions, share, ordered=self._ordered)

    def _share(self) -> Share:
        return Share(len(self.table), self._ranks(), self._even)

    def _ranks(self) -> Ranks:
        """Return the rank of the process that holds the DataLoader."""
        if not self._shard:
            return Ranks()
        if self._given is not None:
            return self._given
        # What came by pickle counts only in the worker that it came to: a rank's own process
        # knows better, and so do the workers that it forks.
        if self._recorded is not None and in_worker() and self._unpickled_in == os.getpid():
            return self._recorded
        return current_ranks()

    def _warn(self, workers: int) -> None:
        if self._warned[0]:
            return
        self._warned[0] = 1
        _log.warning(
            "%d workers and no batch_size= on the dataset: samples are dealt to the workers one "
            "by one, so that up to %d batches of this rank come short (lost with drop_last) and "
            "len(loader) may be too low; pass the loader's batch_size to the dataset too",
            workers,
            workers,
        )
