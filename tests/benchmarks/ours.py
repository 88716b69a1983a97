"""This package as a contestant."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from providers import ByteRange, GCSOptions, OSSOptions, S3Options, TransferOptions, open_provider
from providers.transfer import Get, get_many, read_into
from tests.benchmarks.measure import Totals
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from providers import Options
    from tests.benchmarks.measure import Job, Read

__all__ = ["options", "prepare", "touched"]


def prepare(job: Job) -> Read:
    """Return the client's read."""
    return _WAYS[job.way](job)


def options(job: Job) -> Options:
    """Return what points a provider at the rig."""
    ca_file = job.rig.ca_file if job.case.profile == "tls" else None
    if job.case.cloud == "gs":
        return GCSOptions(endpoint=job.endpoint, ca_file=ca_file)
    if job.case.cloud == "oss":
        return OSSOptions(
            endpoint=job.endpoint,
            region="cn-test",
            access_key_id="benchmark",
            access_key_secret="benchmark-secret",
            ca_file=ca_file,
        )
    return S3Options(
        endpoint=job.endpoint,
        region="us-east-1",
        access_key_id="benchmark",
        secret_access_key="benchmark-secret",
        ca_file=ca_file,
    )


def _get_many(job: Job) -> Read:
    provider = open_provider(f"{job.case.cloud}://{BUCKET}", options=options(job))
    transfer = TransferOptions()

    def read(keys: list[str]) -> Totals:
        gets = (Get(provider, key, size_bytes=job.size_bytes) for key in keys)
        objects = size_bytes = 0
        with closing(get_many(gets, transfer)) as bodies:
            for _, body in bodies:
                if isinstance(body, Exception):
                    raise body
                objects += 1
                size_bytes += len(body)
        return Totals(objects, size_bytes)

    read(job.warm_up_keys)
    return lambda: read(job.keys)


def _map_batches(job: Job) -> Read:
    from connector import MapDataset, bytes_of

    def make(prefix: str) -> MapDataset[bytes]:
        uri = f"{job.case.cloud}://{BUCKET}/{prefix}"
        return MapDataset.from_prefix(uri, transform=bytes_of, options=options(job))

    def read(dataset: MapDataset[bytes]) -> Totals:
        size_bytes, batch = 0, job.case.batch_size
        for start in range(0, len(dataset), batch):
            indices = range(start, min(start + batch, len(dataset)))
            size_bytes += sum(map(len, dataset.__getitems__(indices)))
        return Totals(len(dataset), size_bytes)

    read(make(job.warm_up_prefix))
    dataset = make(job.prefix)
    return lambda: read(dataset)


def _map(job: Job) -> Read:
    from connector import MapDataset
    from tests.benchmarks.loading import epoch

    return epoch(job, lambda prefix: _dataset(job, MapDataset, prefix), shuffle=True)


def _iterable(job: Job) -> Read:
    from connector import IterableDataset
    from tests.benchmarks.loading import epoch

    def make(prefix: str) -> Any:
        return _dataset(job, IterableDataset, prefix, batch_size=job.case.batch_size)

    return epoch(job, make, shuffle=False)


def _dataset(job: Job, kind: Any, prefix: str, **settings: Any) -> Any:
    from connector import bytes_of

    uri = f"{job.case.cloud}://{BUCKET}/{prefix}"
    return kind.from_prefix(uri, transform=bytes_of, options=options(job), **settings)


def _read_into(job: Job) -> Read:
    provider = open_provider(f"{job.case.cloud}://{BUCKET}", options=options(job))
    provider.get(job.keys[0], ByteRange(0, 1))
    info = provider.head(job.keys[0])
    buffer = touched(job.size_bytes)
    return lambda: Totals(1, read_into(provider, info, buffer))


def _reader(job: Job) -> Read:
    from connector import Checkpoint

    name = job.keys[0].removeprefix(job.prefix)
    checkpoint = Checkpoint(job.uri, options=options(job))
    buffer = memoryview(touched(job.size_bytes))

    def read() -> Totals:
        filled = 0
        with checkpoint.reader(name) as reader:
            while count := reader.readinto(buffer[filled:]):
                filled += count
        return Totals(1, filled)

    return read


def touched(size_bytes: int) -> bytearray:
    """Return a buffer whose memory is there, and counts as had before."""
    buffer = bytearray(size_bytes)
    buffer[:: 1 << 12] = b"\1" * len(range(0, size_bytes, 1 << 12))
    return buffer


_WAYS: dict[str, Callable[[Job], Read]] = {
    "get_many": _get_many,
    "map-batches": _map_batches,
    "map": _map,
    "iterable": _iterable,
    "read_into": _read_into,
    "reader": _reader,
}
