"""Datasets inside DataLoader: every way to start workers, after every use in the parent."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader

from connector import IterableDataset, MapDataset, bytes_of
from providers import TransferOptions, open_provider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connector.reader import ObjectReader
    from tests.connector.store import Store

_KINDS = (MapDataset, IterableDataset)
_STORES = ("file", "juicefs", "gcs", "oss")
_COUNT = 24
_BODIES = [f"body {number:02}".encode() for number in range(_COUNT)]
_PATIENCE_SECONDS = 60.0
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
Kind = type[MapDataset[Any]] | type[IterableDataset[Any]]
AnyDataset = MapDataset[Any] | IterableDataset[Any]

pytestmark = [
    # From 3.12 on, Python warns of what these tests do on purpose.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    # torch would like no more workers than there are cores.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]
_on_each_store = pytest.mark.parametrize("shared_store", _STORES, indirect=True)


def _fill(store: Store) -> str:
    provider = store.provider()
    for number, body in enumerate(_BODIES):
        provider.put(store.key(f"train/{number:02}"), body)
    return f"{store.uri}train/"


def _dataset(kind: Kind, store: Store) -> AnyDataset:
    """Return a dataset whose provider has been used for everything a parent may do with it."""
    own: Any = {"batch_size": 4} if kind is IterableDataset else {}
    dataset = kind.from_prefix(
        f"{store.uri}train/", options=store.options, transform=bytes_of, **own
    )
    (provider,) = dataset._maker.providers.values()
    assert len(list(provider.list_objects(store.key("train/")))) == _COUNT
    assert provider.get(store.key("train/00")) == _BODIES[0]
    return dataset


def _read(loader: DataLoader[Any]) -> list[bytes]:
    return [sample for batch in loader for sample in batch]


def _loader(dataset: AnyDataset, workers: int, start: str, **keywords: Any) -> DataLoader[Any]:
    context = start if workers else None
    return DataLoader(
        dataset, batch_size=4, num_workers=workers, multiprocessing_context=context, **keywords
    )


@pytest.mark.parametrize("kind", _KINDS)
@_on_each_store
def test_forked_workers_after_use_in_the_parent(kind: Kind, shared_store: Store) -> None:
    """With 0 to 8 forked workers, while a stream of the parent is under way: all, in order."""
    _fill(shared_store)
    dataset = _dataset(kind, shared_store)
    stream: Any = iter(dataset)
    with closing(stream):
        assert next(stream) == _BODIES[0]
        for workers in (0, 1, 4):
            assert _read(_loader(dataset, workers, "fork")) == _BODIES
        loader = _loader(dataset, 8, "fork")
        for _ in range(3):
            assert _read(loader) == _BODIES
        assert list(stream) == _BODIES[1:]


@pytest.mark.parametrize(
    ("start", "kind"), [("spawn", IterableDataset), ("forkserver", MapDataset)]
)
@_on_each_store
def test_spawned_workers_after_use_in_the_parent(
    start: str, kind: Kind, shared_store: Store
) -> None:
    """Workers that share nothing with the parent read all, in order, three epochs long."""
    _fill(shared_store)
    dataset = _dataset(kind, shared_store)
    loader = _loader(dataset, 2, start, persistent_workers=True)
    for _ in range(3):
        assert _read(loader) == _BODIES


@pytest.mark.parametrize(
    ("start", "kind"), [("spawn", MapDataset), ("forkserver", IterableDataset)]
)
@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_four_spawned_workers(start: str, kind: Kind, shared_store: Store) -> None:
    """Four workers that live for two epochs."""
    _fill(shared_store)
    loader = _loader(_dataset(kind, shared_store), 4, start, persistent_workers=True)
    for _ in range(2):
        assert _read(loader) == _BODIES


@pytest.mark.parametrize("kind", _KINDS)
def test_memory_is_forked(kind: Kind, bucket_name: str) -> None:
    """Objects in memory reach forked workers, which see what the parent had."""
    provider = open_provider(f"memory://{bucket_name}")
    for number, body in enumerate(_BODIES):
        provider.put(f"train/{number:02}", body)
    own: Any = {"batch_size": 4} if kind is IterableDataset else {}
    dataset = kind.from_prefix(provider.uri("train/"), transform=bytes_of, **own)
    for workers in (0, 1, 4):
        assert _read(_loader(dataset, workers, "fork")) == _BODIES


@pytest.mark.parametrize("kind", _KINDS)
@_on_each_store
def test_forking_while_every_lock_is_held(kind: Kind, shared_store: Store) -> None:
    """Whatever another thread holds during a fork, the workers wait for none of it."""
    _fill(shared_store)
    dataset = _dataset(kind, shared_store)
    assert _read(_loader(dataset, 0, "fork")) == _BODIES
    locks = _all_locks()
    assert locks
    with _held_elsewhere(locks):
        assert _read(_loader(dataset, 2, "fork")) == _BODIES
    assert _read(_loader(dataset, 0, "fork")) == _BODIES


def _all_locks() -> list[Any]:
    """Find every lock that an object or a module of the two packages holds."""
    holders: list[dict[str, Any]] = [
        vars(module)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in {"connector", "providers"}
    ]
    for thing in gc.get_objects():
        kind = type(thing)
        # Of a class that is under construction, the module is no text.
        if str(kind.__module__).partition(".")[0] in {"connector", "providers"}:
            slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
            holders.append({name: getattr(thing, name, None) for name in slots})
            holders.append(getattr(thing, "__dict__", {}))
    found = {id(value): value for held in holders for value in list(held.values())
             if isinstance(value, (*_LOCKS, threading.Condition))}  # fmt: skip
    return list(found.values())


@contextmanager
def _held_elsewhere(locks: list[Any]) -> Iterator[None]:
    """Have another thread hold the locks."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            release.wait(_PATIENCE_SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(_PATIENCE_SECONDS)
        yield
    finally:
        release.set()
        holder.join()


@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [21, 24])
def test_len_of_a_loader(drop_last: bool, count: int, shared_store: Store) -> None:
    """With ``batch_size=`` the loader delivers ``len(loader)`` batches, the same for any workers.

    ``drop_last`` loses the last, incomplete batch and nothing else.
    """
    _fill(shared_store)
    uris = [f"{shared_store.uri}train/{number:02}" for number in range(count)]
    dataset = IterableDataset.from_objects(uris, transform=bytes_of, batch_size=4)
    whole = count // 4 * 4
    for workers in (0, 1, 3, 4):
        loader = _loader(dataset, workers, "fork", drop_last=drop_last)
        batches = list(loader)
        assert len(batches) == len(loader)
        samples = [sample for batch in batches for sample in batch]
        assert samples == _BODIES[: whole if drop_last else count]


@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_without_batch_size_nothing_is_lost(shared_store: Store) -> None:
    """Samples dealt one by one arrive all, once each, in batches that may come short."""
    _fill(shared_store)
    dataset = IterableDataset.from_prefix(f"{shared_store.uri}train/", transform=bytes_of)
    for workers in (0, 1, 5):
        assert sorted(_read(_loader(dataset, workers, "fork"))) == _BODIES


@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_one_warning_where_batch_size_matters(shared_store: Store, tmp_path: Path) -> None:
    """With several workers and no ``batch_size=`` there is one warning, whatever the epochs."""
    _fill(shared_store)
    log = tmp_path / "log"
    handler = logging.FileHandler(log)  # Forked workers inherit it.
    logger = logging.getLogger("connector.datasets")
    logger.addHandler(handler)
    try:
        for workers, batch_size in ((0, None), (1, None), (4, 4), (4, None)):
            assert log.read_text() == ""
            dataset = IterableDataset.from_prefix(
                f"{shared_store.uri}train/", transform=bytes_of, batch_size=batch_size
            )
            for _ in range(2):
                _read(_loader(dataset, workers, "fork"))
    finally:
        logger.removeHandler(handler)
        handler.close()
    (line,) = log.read_text().splitlines()
    assert line.startswith("4 workers and no batch_size= on the dataset")


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_workers_never_list(kind: Kind, shared_store: Store, monkeypatch: Any) -> None:
    """What appears after a dataset was made is in no epoch of any worker, and nobody looks."""
    _fill(shared_store)
    dataset = _dataset(kind, shared_store)
    shared_store.raw_put("train/99", b"late")
    (provider,) = dataset._maker.providers.values()
    monkeypatch.setattr(type(provider), "list_objects", None)
    assert _read(_loader(dataset, 2, "fork")) == _BODIES


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_readers_arrive_from_workers(kind: Kind, shared_store: Store) -> None:
    """Without a transform, ``collate_fn=list`` gives open files at position 0, with their bytes."""
    _fill(shared_store)
    own: Any = {"batch_size": 4} if kind is IterableDataset else {}
    dataset: AnyDataset = kind.from_prefix(f"{shared_store.uri}train/", **own)
    for workers in (0, 2):
        samples: list[ObjectReader] = _read(  # type: ignore[assignment]
            _loader(dataset, workers, "fork", collate_fn=list)
        )
        assert [sample.tell() for sample in samples] == [0] * _COUNT
        assert [sample.read() for sample in samples] == _BODIES
        assert samples[3].uri == f"{shared_store.uri}train/03"


@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_stock_collation_refuses_readers(shared_store: Store) -> None:
    """The stock collation says that it takes no open files, rather than batch something else."""
    _fill(shared_store)
    with pytest.raises(TypeError, match="ObjectReader"):
        next(iter(DataLoader(MapDataset.from_prefix(f"{shared_store.uri}train/"), batch_size=2)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_a_loader_that_is_given_up(workers: int, shared_store: Store) -> None:
    """Breaking off an epoch ends its workers and its reads; the next epoch is whole."""
    _fill(shared_store)
    loader = _loader(_dataset(IterableDataset, shared_store), workers, "fork")
    for _ in range(2):
        for batch in loader:
            assert batch == _BODIES[:4]
            break
        assert _read(loader) == _BODIES


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shared_store", ["file"], indirect=True)
def test_every_rank_and_worker_reads_all_on_request(workers: int, shared_store: Store) -> None:
    """``shard=False`` splits nothing."""
    _fill(shared_store)
    dataset = IterableDataset.from_prefix(
        f"{shared_store.uri}train/", transform=bytes_of, shard=False, rank=1, world_size=2
    )
    assert len(dataset) == _COUNT
    read = _read(_loader(dataset, workers, "fork"))
    assert sorted(read) == sorted(_BODIES * max(1, workers))


def test_a_worker_that_returns_what_is_read_on_demand(tmp_path: Path) -> None:
    """A sample that cannot travel from its worker raises in the loader, which waits for none."""
    (tmp_path / "large").write_bytes(b"x" * 100)
    transfer = TransferOptions(lazy_above_bytes=10)
    dataset = MapDataset.from_prefix(f"file://{tmp_path}/", transfer=transfer)
    loader = DataLoader(dataset, collate_fn=list, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(TypeError, match="lazy_above_bytes"):
        list(loader)
