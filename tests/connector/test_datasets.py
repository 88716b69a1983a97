"""What datasets find, what their samples are, and what becomes of those that fail."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader, DistributedSampler

import connector
from connector import IterableDataset, MapDataset, TransferOptions, bytes_of
from connector.reader import ObjectReader
from providers import (
    AccessDeniedError,
    ByteRange,
    IntegrityError,
    NotFoundError,
    ObjectInfo,
    Provider,
    ProviderError,
    S3Options,
    ServiceError,
    SettingsError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
    open_provider,
)
from providers.retry import without_waiting
from providers.testing import Fault, FaultyProvider
from tests.connector.store import FileStore, S3Store
from tests.fakes.front import Front

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connector.store import Store
    from tests.servers.s3 import S3Server

_PATIENCE_SECONDS = 30.0
_KINDS = (MapDataset, IterableDataset)
Kind = type[MapDataset[Any]] | type[IterableDataset[Any]]


@pytest.fixture
def bucket(bucket_name: str) -> Provider:
    """A bucket in this process's memory."""
    return open_provider(f"memory://{bucket_name}")


def _fill(bucket: Provider, count: int, prefix: str = "train/") -> str:
    for number in range(count):
        bucket.put(f"{prefix}{number:04}", str(number).encode())
    return bucket.uri(prefix)


def _behind(dataset: MapDataset[Any] | IterableDataset[Any], *plan: Fault) -> FaultyProvider:
    """Put a provider that records and fails by plan in front of a dataset's only one."""
    maker = dataset._maker
    ((root, provider),) = maker.providers.items()
    faulty = FaultyProvider(provider, plan)
    maker.providers = {root: faulty}
    return faulty


def _gets(faulty: FaultyProvider) -> list[str]:
    return [call.key for call in faulty.calls if call.operation == "get"]


# ---- Finding objects ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", _KINDS)
def test_a_prefix_is_listed_in_order(kind: Kind, store: Store) -> None:
    """On every store: all objects below a prefix, by key, with sizes, but no directory marks."""
    for name in ("train/b", "train/a/2", "train/a/10", "train/ü", "valid/x"):
        store.raw_put(name, name.encode())
    if not isinstance(store, FileStore):
        store.raw_put("train/empty/", b"")
    dataset = kind.from_prefix(f"{store.uri}train/", options=store.options, transform=bytes_of)
    names = ["train/a/10", "train/a/2", "train/b", "train/ü"]
    assert [row.key for row in dataset.table] == [store.key(name) for name in names]
    assert [row.uri for row in dataset.table] == [store.uri + name for name in names]
    assert [row.size for row in dataset.table] == [len(name.encode()) for name in names]
    assert list(dataset) == [name.encode() for name in names]


def test_directory_marks_on_request(bucket: Provider) -> None:
    """``skip_directories=False`` keeps zero-byte keys that end in a slash."""
    bucket.put("a/", b"")
    bucket.put("b/", b"full")
    bucket.put("c", b"")
    assert [row.key for row in MapDataset.from_prefix(bucket.uri()).table] == ["b/", "c"]
    everything = MapDataset.from_prefix(bucket.uri(), skip_directories=False)
    assert [row.key for row in everything.table] == ["a/", "b/", "c"]


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        ("*.jpg", None, ["train/a.jpg", "train/x/b.jpg"]),
        (["*.jpg", "*.txt"], "*/x/*", ["train/a.jpg", "train/c.txt"]),
        (None, ["*.jpg"], ["train/D.JPG", "train/c.txt"]),
        ("train/?.txt", None, ["train/c.txt"]),
        ("*.[tj][xp][tg]", "*a*", []),
        ([], None, []),
        (None, (pattern for pattern in ("*.jpg", "*.JPG")), ["train/c.txt"]),
    ],
)
def test_filters(bucket: Provider, include: Any, exclude: Any, left: list[str]) -> None:
    """Patterns are matched against the whole key, case counts, ``exclude`` wins."""
    for key in ("train/D.JPG", "train/a.jpg", "train/c.txt", "train/x/b.jpg"):
        bucket.put(key, b"x")
    dataset = MapDataset.from_prefix(
        bucket.uri("train/"), include=include, exclude=exclude, allow_empty=True
    )
    assert [row.key for row in dataset.table] == left


@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_left_is_an_error(kind: Kind, bucket: Provider) -> None:
    """A dataset without objects raises with both counts, unless it is permitted."""
    uri = _fill(bucket, 3)
    with pytest.raises(NotFoundError, match=f"{uri}: no object: 3 found, 3 filtered out"):
        kind.from_prefix(uri, include="*.jpg")
    with pytest.raises(NotFoundError, match="0 found"):
        kind.from_prefix(bucket.uri("none/"))
    with pytest.raises(NotFoundError, match="0 found"):
        kind.from_objects([])
    for empty in (kind.from_objects([], allow_empty=True),
                  kind.from_prefix(uri, include="*.jpg", allow_empty=True)):  # fmt: skip
        assert len(empty) == 0
        assert list(empty) == []
        assert pickle.loads(pickle.dumps(empty)).labels == []  # noqa: S301 our own


def test_objects_keep_their_order_and_are_remembered(bucket: Provider) -> None:
    """A generator of URIs is read once, and the dataset outlives it, epoch after epoch."""
    _fill(bucket, 3)
    uris = [bucket.uri(f"train/{number:04}") for number in (2, 0, 1, 2)]
    dataset = IterableDataset.from_objects((uri for uri in uris), transform=bytes_of)
    for _ in range(2):
        assert list(dataset) == [b"2", b"0", b"1", b"2"]


def test_several_stores_in_one_dataset(
    moto: S3Server, bucket_name: str, tmp_path: Path, bucket: Provider
) -> None:
    """Buckets and clouds may be mixed; each has its own options, a bucket's over its scheme's."""
    s3 = [S3Store.on(moto, moto.make_bucket(f"{bucket_name}-{n}")) for n in (1, 2)]
    file = FileStore(f"file://{tmp_path}/")
    names = ("a/1", "b/2")
    for store in (*s3, file):
        for name in names:
            store.raw_put(name, store.uri.encode())
    for name in names:
        bucket.put(name, b"memory")
    of_bucket = s3[1].options
    assert isinstance(of_bucket, S3Options)
    options = {
        "s3": S3Options(endpoint="http://127.0.0.1:1", region="elsewhere",
                        access_key_id=of_bucket.access_key_id,
                        secret_access_key=of_bucket.secret_access_key),
        s3[0].uri: S3Options(endpoint=moto.endpoint),
        s3[1].uri.replace("s3://", "s3a://"): of_bucket,
    }  # fmt: skip
    uris = [uri + name for name in names for uri in (*(s.uri for s in (*s3, file)), bucket.uri())]
    dataset = MapDataset.from_objects(uris, options=options, transform=bytes_of)
    contents = [*(store.uri.encode() for store in (*s3, file)), b"memory"]
    assert list(dataset) == contents * 2
    assert [row.uri for row in dataset.table] == uris
    assert len(dataset._maker.providers) == 4
    first = dataset._maker.providers[s3[0].uri].options
    assert isinstance(first, S3Options)
    assert (first.endpoint, first.region) == (moto.endpoint, "elsewhere")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"s3": None}, "s3.*NoneType"),
        ({"s3://b/key": S3Options()}, "belong to a bucket"),
        ({"s3://": S3Options()}, "names no bucket"),
    ],
)
def test_options_that_belong_nowhere(options: Any, said: str) -> None:
    """A mapping of options is checked before anything is opened."""
    with pytest.raises(SettingsError, match=said):
        MapDataset.from_objects(["memory://b/k"], options=options)


def test_files_of_several_directories(tmp_path: Path) -> None:
    """Files anywhere make one dataset; their provider's root is the directory they share."""
    names = ["a/x/1", "a/xy/2", "a/x/3"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    dataset = MapDataset.from_objects([f"file://{tmp_path}/{name}" for name in names])
    assert [sample.read() for sample in dataset] == [name.encode() for name in names]
    ((root, provider),) = dataset._maker.providers.items()
    assert (root, repr(provider)) == ("file:///", f"LocalProvider('file://{tmp_path}/a/')")


@pytest.mark.parametrize(
    ("uris", "error", "said"),
    [
        ("memory://b/k", TypeError, "from_prefix"),
        ([Path("/a/b")], TypeError, "PosixPath"),
        (["/a/b"], SettingsError, "file:///a/b"),
        (["memory://b/"], SettingsError, "names a bucket"),
        (["memory://b/\ud800"], SettingsError, "UTF-8"),
        (["nosuch://b/k"], SettingsError, "nosuch"),
    ],
)
def test_what_is_no_uri_of_an_object(uris: Any, error: type[Exception], said: str) -> None:
    """What cannot be read is refused when the dataset is made."""
    with pytest.raises(error, match=said):
        MapDataset.from_objects(uris)


def test_keywords_are_checked_before_anything_is_listed() -> None:
    """A misspelt or senseless keyword raises at once, not after a listing of an hour."""
    nowhere = "nosuch://bucket/"
    wrong: list[tuple[Kind, dict[str, Any], type[Exception], str]] = [
        (MapDataset, {"includes": "*"}, TypeError, "includes"),
        (MapDataset, {"shard": True}, TypeError, "shard"),
        (MapDataset, {"on_error": "ignore"}, ValueError, "'raise', 'skip' or a callable"),
        (MapDataset, {"max_skipped": 5}, ValueError, "0 to 1"),
        (IterableDataset, {"even": "padded"}, ValueError, "pad, drop, exact"),
        (IterableDataset, {"batch_size": 0}, ValueError, "batch_size=0"),
        (IterableDataset, {"rank": 1}, ValueError, "both or neither"),
        (IterableDataset, {"rank": 2, "world_size": 2}, ValueError, "rank 2 of world size 2"),
    ]
    for kind, keywords, error, said in wrong:
        with pytest.raises(error, match=said):
            kind.from_prefix(nowhere, **keywords)


def test_a_raw_prefix_that_matches_siblings(
    bucket: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """``train`` also finds ``train2/``; a log line says so, and only then."""
    for key in ("train/1", "train/2", "train2/3"):
        bucket.put(key, b"x")
    assert len(MapDataset.from_prefix(bucket.uri("train"))) == 3
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{bucket.uri('train')} is a raw prefix" in record.message
    assert "train2/3" in record.message
    caplog.clear()
    for prefix in ("train/", "train2", "tra", ""):
        MapDataset.from_prefix(bucket.uri(prefix))
    assert all(record.levelno < logging.WARNING for record in caplog.records)


class _Clock:
    """Stands in for the clock: half a second passes whenever it is looked at."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.5
        return self.seconds


@pytest.fixture
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.finding.time", SimpleNamespace(monotonic=_Clock()))


@pytest.mark.usefixtures("_slow")
def test_progress_is_told_once_a_second(
    bucket: Provider, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """A callable gets the count once a second and at the end; True writes a line on stderr."""
    uri, counts = _fill(bucket, 5), list[int]()
    MapDataset.from_prefix(uri, progress=counts.append)
    assert counts == [2, 4, 5]
    MapDataset.from_prefix(uri, progress=True)
    line = f"\r{uri}: {{}} objects"
    assert capsys.readouterr().err == "".join(map(line.format, (2, 4, 5))) + "\n"
    caplog.clear()
    MapDataset.from_prefix(uri)
    assert [record.getMessage() for record in caplog.records] == [
        f"{uri}: 2 objects so far",
        f"{uri}: 4 objects so far",
        f"{uri}: 5 objects found, 0 filtered out",
    ]


def test_a_listing_error_never_reads_as_empty(moto: S3Server, bucket_name: str) -> None:
    """A store that answers 503, then 403, raises, ``allow_empty`` or not, on any page."""
    store = S3Store.on(moto, moto.make_bucket(bucket_name))
    store.raw_put("train/1", b"x")
    with Front(moto.endpoint) as front, without_waiting():
        options = store.at(front.endpoint).options
        front.answer(503)
        front.answer(403, times=None)
        for empty in (False, True):
            with pytest.raises(AccessDeniedError, match=f"{store.uri}train/"):
                MapDataset.from_prefix(f"{store.uri}train/", options=options, allow_empty=empty)
        front.clear()
        front.answer(503, times=None)
        with pytest.raises(UnavailableError):
            MapDataset.from_prefix(store.uri, options=options, allow_empty=True)
        front.clear()
        assert len(MapDataset.from_prefix(store.uri, options=options)) == 1


def test_a_missing_bucket_never_reads_as_empty(cloud_store: Store) -> None:
    """A bucket that does not exist raises, even where an empty dataset is permitted."""
    uri = cloud_store.uri.replace("://", "://no-such-")
    with pytest.raises(NotFoundError, match="no-such-"):
        MapDataset.from_prefix(uri, options=cloud_store.options, allow_empty=True)


# ---- Samples -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", _KINDS)
def test_without_a_transform_the_sample_is_the_object(kind: Kind, store: Store) -> None:
    """On every store: a sample is an open file that knows its object; pickling keeps its bytes."""
    store.raw_put("train/1.txt", b"line\nrest")
    uri = f"{store.uri}train/1.txt"
    (sample,) = kind.from_prefix(f"{store.uri}train/", options=store.options)
    for reader in (sample, pickle.loads(pickle.dumps(sample))):  # noqa: S301 our own
        assert isinstance(reader, ObjectReader)
        assert (reader.uri, reader.key, reader.size) == (uri, store.key("train/1.txt"), 9)
        assert (reader.label, dict(reader.fields)) == (None, {})
        assert reader.etag == sample.etag is not None
        assert reader.readline() + reader.read() == b"line\nrest"


def test_indices(bucket: Provider) -> None:
    """Indices count from either end; a slice is a dataset; out of range is an IndexError."""
    dataset = MapDataset.from_prefix(_fill(bucket, 5), transform=bytes_of)
    assert (len(dataset), dataset[0], dataset[-1]) == (5, b"0", b"4")
    part = dataset[3:0:-1]
    assert (len(part), list(part), part[-1]) == (3, [b"3", b"2", b"1"], b"1")
    assert part[1:].__getitems__([1, 0, -1]) == [b"1", b"2", b"1"]
    for index in (5, -6):
        with pytest.raises(IndexError, match="5 objects"):
            dataset[index]
        with pytest.raises(IndexError, match="5 objects"):
            dataset.__getitems__([0, index])


def test_a_batch_is_read_at_once_and_in_order(bucket: Provider) -> None:
    """All objects of a batch are asked for before the first has arrived."""
    dataset = MapDataset.from_prefix(_fill(bucket, 8), transform=bytes_of)
    together = threading.Barrier(8)

    class Meeting(FaultyProvider):
        def around(self, operation: str, key: str, call: Callable[[], Any]) -> Any:
            together.wait(_PATIENCE_SECONDS)
            return super().around(operation, key, call)

    maker = dataset._maker
    maker.providers = {root: Meeting(inner) for root, inner in maker.providers.items()}
    assert dataset.__getitems__([7, 0, 3, 1, 2, 6, 5, 4]) == [b"7", b"0", b"3", b"1", b"2", b"6",
                                                             b"5", b"4"]  # fmt: skip


def test_one_get_for_each_sample(bucket: Provider) -> None:
    """Whatever way it is read, a sample costs one GET and nothing else."""
    dataset = MapDataset.from_prefix(_fill(bucket, 4), transform=bytes_of)
    faulty = _behind(dataset)
    assert [dataset[0], *dataset.__getitems__([1, 2]), *dataset[3:]] == [b"0", b"1", b"2", b"3"]
    assert [call.operation for call in faulty.calls] == ["get"] * 4


@pytest.mark.parametrize("kind", _KINDS)
def test_unknown_sizes_cost_one_request_too(kind: Kind, bucket: Provider) -> None:
    """Objects of unknown size, empty ones too, are read by one ranged GET each, without a HEAD."""
    contents = {"a": b"", "b": b"x", "c": b"12345678", "d": b"123456789"}
    for key, body in contents.items():
        bucket.put(key, body)
    transfer = TransferOptions(lazy_above_bytes=8)
    dataset = kind.from_objects([bucket.uri(key) for key in "abc"], transfer=transfer)
    faulty = _behind(dataset)
    samples = list(dataset)
    assert [sample.read() for sample in samples] == [b"", b"x", b"12345678"]
    assert [sample.size for sample in samples] == [0, 1, 8]
    assert [call.operation for call in faulty.calls] == ["get"] * 3


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("sizes_known", [False, True])
def test_large_objects_are_read_on_demand(kind: Kind, sizes_known: bool, bucket: Provider) -> None:
    """Above ``lazy_above_bytes`` nothing is read before it is asked for; order is kept."""
    contents = [b"1", b"2" * 100, b"3" * 100, b"4", b"5" * 100]
    for number, body in enumerate(contents):
        bucket.put(f"train/{number}", body)
    transfer = TransferOptions(lazy_above_bytes=10)
    if sizes_known:
        dataset = kind.from_prefix(bucket.uri("train/"), transfer=transfer)
    else:
        uris = [bucket.uri(f"train/{number}") for number in range(5)]
        dataset = kind.from_objects(uris, transfer=transfer)
    faulty = _behind(dataset)
    samples = list(dataset)
    assert [sample.size for sample in samples] == [len(body) for body in contents]
    if sizes_known:
        assert _gets(faulty) == ["train/0", "train/3"]
    with pytest.raises(TypeError, match="lazy_above_bytes"):
        pickle.dumps(samples[1])
    assert [sample.read() for sample in samples] == contents


def test_nothing_is_read_far_ahead(bucket: Provider) -> None:
    """A stream reads no more objects ahead of its consumer than ``prefetch_objects``."""
    transfer = TransferOptions(prefetch_objects=3, max_in_flight=2)
    dataset = IterableDataset.from_prefix(_fill(bucket, 50), transform=bytes_of, transfer=transfer)
    faulty = _behind(dataset)
    with closing(_generator(dataset)) as stream:
        assert next(stream) == b"0"
        assert next(stream) == b"1"
        assert len(_gets(faulty)) <= 2 + 3


def _generator(dataset: IterableDataset[bytes]) -> Any:
    return iter(dataset)


def test_a_stream_that_is_given_up_leaves_no_thread(bucket: Provider) -> None:
    """When the consumer breaks off, reads ahead end, and no thread survives them."""
    before = set(threading.enumerate())
    dataset = IterableDataset.from_prefix(_fill(bucket, 300), transform=bytes_of)
    faulty = _behind(dataset)
    for sample in dataset:
        assert sample == b"0"
        break
    for thread in set(threading.enumerate()) - before:
        thread.join(_PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert len(_gets(faulty)) < 300


def test_a_changed_object_is_no_sample(store: Store) -> None:
    """On every store: an object written again after it was listed raises IntegrityError."""
    store.raw_put("train/1", b"old")
    dataset = MapDataset.from_prefix(
        f"{store.uri}train/", options=store.options, transform=bytes_of
    )
    assert dataset[0] == b"old"
    store.raw_put("train/1", b"newer")
    for read in (lambda: dataset[0], lambda: dataset.__getitems__([0]), lambda: list(dataset)):
        with pytest.raises(IntegrityError, match=f"{store.uri}train/1: the object changed since"):
            read()


def test_a_size_that_is_wrong_in_the_manifest(bucket: Provider) -> None:
    """A manifest that gives another size than the object has is an error, not a short read."""
    bucket.put("k", b"12345")
    bucket.put("m.jsonl", b'{"key": "k", "size": 4}')
    dataset = MapDataset.from_manifest_file(bucket.uri("m.jsonl"))
    with pytest.raises(IntegrityError, match=r"memory://.*/k: .*has 5 bytes, its row says 4"):
        dataset[0]


def test_a_stock_sampler_works(bucket: Provider) -> None:
    """A map dataset takes torch's DistributedSampler, and its ranks read everything."""
    dataset = MapDataset.from_prefix(_fill(bucket, 7), transform=bytes_of)
    read = []
    for rank in range(2):
        sampler: DistributedSampler[bytes] = DistributedSampler(dataset, 2, rank, shuffle=True)
        read += [sample for batch in DataLoader(dataset, 2, sampler=sampler) for sample in batch]
    assert len(read) == 8
    assert set(read) == {str(number).encode() for number in range(7)}


def test_repr_says_what_and_where(bucket: Provider) -> None:
    """A dataset shows its size, its buckets and its transform, and no option."""
    dataset = MapDataset.from_prefix(_fill(bucket, 3), transform=bytes_of)
    assert repr(dataset) == f"MapDataset(3 objects in {bucket.uri()}, transform=bytes_of)"


# ---- Samples that fail -------------------------------------------------------------------


class _Decoding(Exception):  # noqa: N818 as users name theirs
    def __init__(self, path: str, reason: int) -> None:
        super().__init__(path, reason)


def _raise_value_error(_: ObjectReader) -> bytes:
    raise ValueError("broken image")


def _raise_key_error(sample: ObjectReader) -> bytes:
    return {b"": b""}[sample.read()]


def _raise_own(sample: ObjectReader) -> bytes:
    raise _Decoding(sample.key, 5)


def _raise_unicode_error(_: ObjectReader) -> str:
    return b"\xff".decode()


def _raise_os_error(_: ObjectReader) -> bytes:
    return Path("/no/such/file").read_bytes()


def _raise_stop(_: ObjectReader) -> Any:
    return next(iter(()))


def _raise_nothing_said(_: ObjectReader) -> bytes:
    raise RuntimeError


def _raise_unpicklable(_: ObjectReader) -> bytes:
    class Local(Exception):  # noqa: N818 as users name theirs
        pass

    raise Local("broken")


_FAILING: list[tuple[Any, type[Exception], type[Exception]]] = [
    (_raise_value_error, ValueError, ValueError),
    (_raise_key_error, KeyError, KeyError),
    # torch makes RuntimeErrors of types that take more than a message.
    (_raise_own, _Decoding, RuntimeError),
    (_raise_unicode_error, UnicodeDecodeError, RuntimeError),
    (_raise_os_error, FileNotFoundError, FileNotFoundError),
    (_raise_stop, RuntimeError, RuntimeError),
    (_raise_nothing_said, RuntimeError, RuntimeError),
    (_raise_unpicklable, Exception, RuntimeError),
]


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(("transform", "error", "in_parent"), _FAILING)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_an_error_says_which_sample(
    kind: Kind, transform: Any, error: type[Exception], in_parent: type[Exception], bucket: Provider
) -> None:
    """Whatever a transform raises keeps its type and carries the URI, here and from a worker."""
    dataset = kind.from_prefix(_fill(bucket, 3), transform=transform)
    uri = bucket.uri("train/0000")
    with pytest.raises(error) as caught:
        next(iter(DataLoader(dataset)))
    assert uri in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    with pytest.raises(in_parent) as from_worker:
        next(iter(DataLoader(dataset, num_workers=1)))
    assert uri in str(from_worker.value)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_missing_object_raises_by_default(kind: Kind, bucket: Provider) -> None:
    """An object that is gone raises NotFoundError with its URI, here and from a worker."""
    dataset = kind.from_prefix(_fill(bucket, 3), transform=bytes_of)
    bucket.delete(["train/0001"])
    for workers in (0, 1):
        with pytest.raises(NotFoundError, match=bucket.uri("train/0001")):
            list(DataLoader(dataset, batch_size=3, num_workers=workers))


def test_an_index_error_of_a_transform_does_not_end_the_epoch(bucket: Provider) -> None:
    """Iterating a map dataset raises what its transform raises, IndexError too."""

    def first_byte(sample: ObjectReader) -> int:
        return sample.read()[0]

    _fill(bucket, 3)
    bucket.put("train/0001", b"")
    dataset = MapDataset.from_prefix(bucket.uri("train/"), transform=first_byte)
    with pytest.raises(IndexError, match=bucket.uri("train/0001")):
        list(dataset)


def _only_even(sample: ObjectReader) -> bytes:
    body = sample.read()
    if int(body) % 2:
        raise ValueError(f"{body!r} is odd")
    return body


@pytest.mark.parametrize("kind", _KINDS)
def test_skipping_takes_the_next_good_sample(kind: Kind, bucket: Provider) -> None:
    """A bad sample's place is taken by the next good one, wrapping; lengths stay."""
    dataset = kind.from_prefix(
        _fill(bucket, 6), transform=_only_even, on_error="skip", max_skipped=1.0
    )
    assert list(dataset) == [b"0", b"2", b"2", b"4", b"4", b"0"]
    if isinstance(dataset, MapDataset):
        assert dataset.__getitems__([5, 1, 0]) == [b"0", b"2", b"0"]
        assert dataset[-1] == b"0"


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_skipping_keeps_ranks_even(batch_size: int | None, bucket: Provider) -> None:
    """Bad samples change no rank's length; what takes their place is of the same rank."""
    uri = _fill(bucket, 10)
    bucket.delete(["train/0000", "train/0005", "train/0009"])
    for number in (0, 5, 9):  # Listed, then gone.
        bucket.put(f"train/{number:04}", b"x")
    for rank in range(2):
        dataset = IterableDataset.from_prefix(
            uri, transform=bytes_of, on_error="skip", max_skipped=1.0,
            rank=rank, world_size=2, batch_size=batch_size,
        )  # fmt: skip
        gone = [key for number in (0, 5, 9) if number % 2 == rank for key in [f"train/{number:04}"]]
        bodies = {key: bucket.get(key) for key in gone}
        bucket.delete(gone)
        mine = {str(number).encode() for number in range(10) if number % 2 == rank}
        for workers in (0, 2):
            loader = DataLoader(dataset, batch_size=2, num_workers=workers)
            samples = [sample for batch in loader for sample in batch]
            assert len(samples) == len(dataset) == 5
            assert set(samples) == mine - {b"0", b"5", b"9"}
        for key, body in bodies.items():
            bucket.put(key, body)


def test_skips_are_counted_and_logged_once_a_minute(
    bucket: Provider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first skip is logged with its URI and error, the next ones once a minute, with counts."""
    seconds = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: seconds[0])
    monkeypatch.setattr("connector.failures.time", clock)
    dataset = MapDataset.from_prefix(
        _fill(bucket, 8), transform=_only_even, on_error="skip", max_skipped=1.0
    )
    caplog.clear()
    assert [dataset[1], dataset[3]] == [b"2", b"4"]
    seconds[0] += 59
    assert dataset[5] == b"6"
    seconds[0] += 1
    assert dataset[7] == b"0"
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(f"skipped 1 of 1 samples read, the last being {bucket.uri()}train/0001")
    assert "is odd" in first
    assert second.startswith("skipped 4 of 7 samples read")
    assert dataset.samples_skipped == 4


@pytest.mark.parametrize("kind", _KINDS)
def test_too_many_skips_raise(kind: Kind, bucket: Provider) -> None:
    """The sample that takes the skipped past ``max_skipped`` raises, and says so."""
    uri = _fill(bucket, 100)
    bad = {f"train/{number:04}" for number in (0, 30, 50)}

    def decode(sample: ObjectReader) -> bytes:
        if sample.key in bad:
            raise ValueError("broken image")
        return sample.read()

    tolerant = kind.from_prefix(uri, transform=decode, on_error="skip", max_skipped=0.03)
    assert len(list(tolerant)) == 100
    strict = kind.from_prefix(uri, transform=decode, on_error="skip", max_skipped=0.02)
    with pytest.raises(ValueError, match=rf"broken image \({uri}0050\)") as caught:
        list(strict)
    assert "3 of 53 samples read are bad, more than max_skipped=0.02" in str(caught.value)
    for few in (0.0, 0.01):
        with pytest.raises(ValueError, match="broken image"):
            list(kind.from_prefix(uri, transform=decode, on_error="skip", max_skipped=few))


def test_a_transform_that_never_works_is_given_up_soon(bucket: Provider) -> None:
    """When every sample is bad, 1 % of a million objects is not tried first."""
    _fill(bucket, 1)
    dataset = MapDataset.from_objects(
        [bucket.uri("train/0000")] * 5000, transform=_raise_value_error, on_error="skip"
    )
    faulty = _behind(dataset)
    with pytest.raises(ValueError, match="broken image"):
        dataset[0]
    assert len(_gets(faulty)) == 11


def test_no_good_sample_at_all(bucket: Provider) -> None:
    """A share without any good sample raises, rather than look for one for ever."""
    dataset = MapDataset.from_prefix(
        _fill(bucket, 3), transform=_raise_value_error, on_error="skip", max_skipped=1.0
    )
    with pytest.raises(ValueError, match="no other sample of the share is good"):
        dataset[1]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_callable_gives_the_sample_to_use(kind: Kind, bucket: Provider) -> None:
    """``on_error`` may be a function of URI and error; what it returns is the sample."""
    seen: list[tuple[str, str]] = []

    def instead(uri: str, error: Exception) -> bytes:
        seen.append((uri, type(error).__name__))
        return b"instead"

    uri = _fill(bucket, 4)
    dataset = kind.from_prefix(uri, transform=_only_even, on_error=instead)
    bucket.delete(["train/0002"])
    assert list(dataset) == [b"0", b"instead", b"instead", b"instead"]
    assert seen == [
        (f"{uri}0001", "ValueError"),
        (f"{uri}0002", "NotFoundError"),
        (f"{uri}0003", "ValueError"),
    ]


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("on_error", ["skip", lambda _uri, _error: b"instead"])
@pytest.mark.parametrize("where", ["fetch", "transform"])
@pytest.mark.parametrize(
    "error", [AccessDeniedError, ThrottledError, UnavailableError, TimedOutError, SettingsError]
)
def test_failures_of_the_store_always_raise(
    kind: Kind, on_error: Any, where: str, error: type[ProviderError], bucket: Provider
) -> None:
    """Refused access, throttling and unavailability are no fault of a sample."""

    def decode(sample: ObjectReader) -> bytes:
        if where == "transform" and sample.key == "train/0001":
            raise error("not now", uri=sample.uri)
        return sample.read()

    dataset = kind.from_prefix(
        _fill(bucket, 3),
        transform=decode,
        on_error=on_error,
        max_skipped=1.0,
        transfer=TransferOptions(max_attempts=1),
    )
    if where == "fetch":
        failure = error("not now", uri=bucket.uri("train/0001"), operation="get")
        _behind(dataset, Fault("get", failure, None, "train/0001"))
    with pytest.raises(error, match=f"{bucket.uri()}train/0001: not now"):
        list(dataset)


@pytest.mark.parametrize("error", [ServiceError, NotFoundError, IntegrityError])
def test_failures_of_one_object_can_be_skipped(
    error: type[ProviderError], bucket: Provider
) -> None:
    """What concerns one object alone is the sample's fault, though the store says it."""
    dataset = MapDataset.from_prefix(
        _fill(bucket, 3), transform=bytes_of, on_error="skip", max_skipped=1.0
    )
    _behind(dataset, Fault("get", error("this one"), None, "train/0001"))
    assert list(dataset) == [b"0", b"2", b"2"]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_changed_object_can_be_skipped(kind: Kind, bucket: Provider) -> None:
    """An object that changed since it was listed is a bad sample as any other."""
    dataset = kind.from_prefix(
        _fill(bucket, 3), transform=bytes_of, on_error="skip", max_skipped=1.0
    )
    bucket.put("train/0000", b"changed")
    assert list(dataset) == [b"1", b"1", b"2"]


# ---- The packages ------------------------------------------------------------------------


def test_what_the_package_exports() -> None:
    """The names a script may use, and no other."""
    assert set(connector.__all__) >= {
        "Checkpoint",
        "IterableDataset",
        "MapDataset",
        "TransferOptions",
        "bytes_of",
    }
    assert all(hasattr(connector, name) for name in connector.__all__)


@pytest.mark.parametrize("shadow", ["providers.py", "providers/__init__.py"])
def test_a_shadowed_package_is_named(tmp_path: Path, shadow: str) -> None:
    """When another ``providers`` comes first on the path, importing says which file it is."""
    path = tmp_path / shadow
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    root = Path(connector.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", "import connector"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: connector needs the package 'providers' beside it")
    assert f"finds {path}, which shadows it" in last


@dataclass(frozen=True)
class _Double:
    """A transform that a user would write; it must pickle."""

    times: int

    def __call__(self, sample: ObjectReader) -> bytes:
        return sample.read() * self.times


def test_datasets_pickle(store: Store) -> None:
    """On every store: a dataset used before goes anywhere with its transform and its objects."""
    for number in range(3):
        store.raw_put(f"train/{number}", str(number).encode())
    for kind in _KINDS:
        dataset = kind.from_prefix(
            f"{store.uri}train/",
            options=None if store.options is None else replace_secrets(store.options),
            transform=_Double(2),
            on_error="skip",
        )
        expected = [b"00", b"11", b"22"]
        assert list(dataset) == expected
        assert list(pickle.loads(pickle.dumps(dataset))) == expected  # noqa: S301 our own


def replace_secrets(options: Any) -> Any:
    """Return options whose secrets travel in every pickle."""
    return options.model_copy(update={"pickle_secrets": True})


def test_reading_a_range_of_the_table(bucket: Provider) -> None:
    """Rows know enough for a script to read objects itself."""
    dataset = MapDataset.from_prefix(_fill(bucket, 2), transform=bytes_of)
    row = dataset.table[1]
    pin = ObjectInfo(row.key, row.size or 0, row.etag, row.version)
    assert open_provider(row.uri).get(row.key, ByteRange(0, 1), if_match=pin) == b"1"
    assert replace(row, label=5).label == 5
