"""What samples are, and what reading them costs."""

from __future__ import annotations

import pickle
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader, DistributedSampler

from connector import IterableDataset, MapDataset, TransferOptions, bytes_of
from connector.reader import ObjectReader
from providers import (
    IntegrityError,
    Provider,
)
from providers.testing import FaultyProvider
from tests.connector.small import KINDS, Kind, behind, fill, gets

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connector.store import Store

_PATIENCE_SECONDS = 30.0


@pytest.mark.parametrize("kind", KINDS)
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
    dataset = MapDataset.from_prefix(fill(bucket, 5), transform=bytes_of)
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
    dataset = MapDataset.from_prefix(fill(bucket, 8), transform=bytes_of)
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
    dataset = MapDataset.from_prefix(fill(bucket, 4), transform=bytes_of)
    faulty = behind(dataset)
    assert [dataset[0], *dataset.__getitems__([1, 2]), *dataset[3:]] == [b"0", b"1", b"2", b"3"]
    assert [call.operation for call in faulty.calls] == ["get"] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_sizes_cost_one_request_too(kind: Kind, bucket: Provider) -> None:
    """Objects of unknown size, empty ones too, are read by one ranged GET each, without a HEAD."""
    contents = {"a": b"", "b": b"x", "c": b"12345678", "d": b"123456789"}
    for key, body in contents.items():
        bucket.put(key, body)
    transfer = TransferOptions(lazy_above_bytes=8)
    dataset = kind.from_objects([bucket.uri(key) for key in "abc"], transfer=transfer)
    faulty = behind(dataset)
    samples = list(dataset)
    assert [sample.read() for sample in samples] == [b"", b"x", b"12345678"]
    assert [sample.size for sample in samples] == [0, 1, 8]
    assert [call.operation for call in faulty.calls] == ["get"] * 3


@pytest.mark.parametrize("kind", KINDS)
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
    faulty = behind(dataset)
    samples = list(dataset)
    assert [sample.size for sample in samples] == [len(body) for body in contents]
    if sizes_known:
        assert gets(faulty) == ["train/0", "train/3"]
    with pytest.raises(TypeError, match="lazy_above_bytes"):
        pickle.dumps(samples[1])
    assert [sample.read() for sample in samples] == contents


def test_nothing_is_read_far_ahead(bucket: Provider) -> None:
    """A stream reads no more objects ahead of its consumer than ``prefetch_objects``."""
    transfer = TransferOptions(prefetch_objects=3, max_in_flight=2)
    dataset = IterableDataset.from_prefix(fill(bucket, 50), transform=bytes_of, transfer=transfer)
    faulty = behind(dataset)
    with closing(_generator(dataset)) as stream:
        assert next(stream) == b"0"
        assert next(stream) == b"1"
        assert len(gets(faulty)) <= 2 + 3


def _generator(dataset: IterableDataset[bytes]) -> Any:
    return iter(dataset)


def test_a_stream_that_is_given_up_leaves_no_thread(bucket: Provider) -> None:
    """When the consumer breaks off, reads ahead end, and no thread survives them."""
    before = set(threading.enumerate())
    few = TransferOptions(prefetch_objects=16)
    dataset = IterableDataset.from_prefix(fill(bucket, 300), transfer=few, transform=bytes_of)
    faulty = behind(dataset)
    for sample in dataset:
        assert sample == b"0"
        break
    for thread in set(threading.enumerate()) - before:
        # A pool's thread may be about to start.
        while thread.ident is None:
            pass
        thread.join(_PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert len(gets(faulty)) <= 32


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
    dataset = MapDataset.from_prefix(fill(bucket, 7), transform=bytes_of)
    read = []
    for rank in range(2):
        sampler: DistributedSampler[bytes] = DistributedSampler(dataset, 2, rank, shuffle=True)
        read += [sample for batch in DataLoader(dataset, 2, sampler=sampler) for sample in batch]
    assert len(read) == 8
    assert set(read) == {str(number).encode() for number in range(7)}


def test_repr_says_what_and_where(bucket: Provider) -> None:
    """A dataset shows its size, its buckets and its transform, and no option."""
    dataset = MapDataset.from_prefix(fill(bucket, 3), transform=bytes_of)
    assert repr(dataset) == f"MapDataset(3 objects in {bucket.uri()}, transform=bytes_of)"
