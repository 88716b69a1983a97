"""What datasets find, where, and what they refuse."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import connector
from connector import IterableDataset, MapDataset, bytes_of
from providers import (
    AccessDeniedError,
    ByteRange,
    NotFoundError,
    ObjectInfo,
    Provider,
    S3Options,
    SettingsError,
    UnavailableError,
    open_provider,
)
from providers.retry import without_waiting
from tests.connector.small import KINDS, Kind, fill
from tests.connector.store import FileStore, S3Store
from tests.fakes.front import Front

if TYPE_CHECKING:
    from connector.reader import ObjectReader
    from tests.connector.store import Store
    from tests.servers.s3 import S3Server


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_left_is_an_error(kind: Kind, bucket: Provider) -> None:
    """A dataset without objects raises with both counts, unless it is permitted."""
    uri = fill(bucket, 3)
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
    fill(bucket, 3)
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


def test_a_local_manifest_of_objects_elsewhere(tmp_path: Path) -> None:
    """Options for the objects' scheme do not hinder a manifest in a file."""
    (tmp_path / "m.csv").write_text("s3://bucket/1.jpg,a\n")
    options = S3Options(anonymous=True, region="eu-central-1")
    dataset = MapDataset.from_manifest_file(f"file://{tmp_path}/m.csv", options=options)
    (provider,) = dataset._maker.providers.values()
    assert provider.options == options


def test_options_for_none_of_the_stores(tmp_path: Path) -> None:
    """Options that fit no store of the dataset are a mistake, not ignored."""
    (tmp_path / "1.jpg").write_bytes(b"x")
    with pytest.raises(SettingsError, match="S3Options belong to none of file:///"):
        MapDataset.from_prefix(f"file://{tmp_path}/", options=S3Options())


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
    uri, counts = fill(bucket, 5), list[int]()
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
    for kind in KINDS:
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
    dataset = MapDataset.from_prefix(fill(bucket, 2), transform=bytes_of)
    row = dataset.table[1]
    pin = ObjectInfo(row.key, row.size or 0, row.etag, row.version)
    assert open_provider(row.uri).get(row.key, ByteRange(0, 1), if_match=pin) == b"1"
    assert row._replace(label=5).label == 5
