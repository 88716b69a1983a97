"""Contestants on S3: obstore, s3torchconnector, boto3."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measure import Totals
from tests.benchmarks.ours import touched
from tests.benchmarks.pooling import pooled
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.measure import Job, Read

__all__ = ["open_obstore", "prepare"]

_IN_FLIGHT = 32
_RANGE_BYTES = 8 << 20
_REGION = "us-east-1"


def prepare(job: Job) -> Read:
    """Return the client's read."""
    os.environ.update(
        AWS_ACCESS_KEY_ID="benchmark",
        AWS_SECRET_ACCESS_KEY="benchmark-secret",
        AWS_EC2_METADATA_DISABLED="true",
    )
    return _WAYS[job.client](job)


# ---- obstore -------------------------------------------------------------------------------


def open_obstore(job: Job) -> Any:
    """Return a store that is the rig's bucket."""
    from obstore.store import S3Store

    options: dict[str, Any] = {"allow_http": True}
    if job.case.profile == "tls":
        options = {"root_certificate": Path(job.rig.ca_file).read_text()}
    return S3Store(
        BUCKET,
        endpoint=job.endpoint,
        region=_REGION,
        access_key_id="benchmark",
        secret_access_key="benchmark-secret",
        virtual_hosted_style_request=False,
        client_options=options,
    )


def _obstore_async(job: Job) -> Read:
    store = open_obstore(job)

    async def get_all(keys: list[str]) -> Totals:
        left, lengths = iter(keys), list[int]()

        async def get_some() -> None:
            for key in left:
                answer = await store.get_async(key)
                lengths.append(len(await answer.bytes_async()))

        await asyncio.gather(*(get_some() for _ in range(_IN_FLIGHT)))
        return Totals(len(lengths), sum(lengths))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(get_all(job.warm_up_keys))
    return lambda: loop.run_until_complete(get_all(job.keys))


def _obstore_threads(job: Job) -> Read:
    store = open_obstore(job)
    return pooled(job, lambda key: len(store.get(key).bytes()), _IN_FLIGHT)


def _obstore_get(job: Job) -> Read:
    """One request; the body is obstore's own buffer."""
    store = open_obstore(job)
    store.get_range(job.keys[0], start=0, length=1)

    def read() -> Totals:
        body = store.get(job.keys[0]).bytes()
        return Totals(1, len(body), len(body))

    return read


def _obstore_ranges(job: Job) -> Read:
    """Parallel ranges, copied into the caller's buffer as they come."""
    store = open_obstore(job)
    store.get_range(job.keys[0], start=0, length=1)
    buffer = memoryview(touched(job.size_bytes))

    async def fill() -> int:
        starts = iter(range(0, job.size_bytes, _RANGE_BYTES))

        async def fill_some() -> int:
            filled = 0
            for start in starts:
                stop = min(start + _RANGE_BYTES, job.size_bytes)
                body = memoryview(await store.get_range_async(job.keys[0], start=start, end=stop))
                buffer[start:stop] = body
                filled += len(body)
            return filled

        return sum(await asyncio.gather(*(fill_some() for _ in range(8))))

    return lambda: Totals(1, asyncio.run(fill()))


# ---- s3torchconnector ----------------------------------------------------------------------


def _read_all(reader: Any) -> bytes:
    body: bytes = reader.read()
    return body


def _aws_dataset(job: Job, kind: str, prefix: str, transform: Any = _read_all) -> Any:
    import s3torchconnector

    return getattr(s3torchconnector, kind).from_prefix(
        f"s3://{BUCKET}/{prefix}",
        region=_REGION,
        endpoint=job.endpoint,
        transform=transform,
        s3client_config=s3torchconnector.S3ClientConfig(force_path_style=True),
    )


def _aws_map(job: Job) -> Read:
    """Through a DataLoader where there is latency; one object after another where there is none."""
    if job.case.profile == "slow":
        from tests.benchmarks.loading import epoch

        return epoch(job, lambda prefix: _aws_dataset(job, "S3MapDataset", prefix), shuffle=True)
    dataset = _aws_dataset(job, "S3MapDataset", job.prefix)
    dataset[0]

    def read() -> Totals:
        lengths = [len(dataset[index]) for index in range(len(dataset))]
        return Totals(len(lengths), sum(lengths))

    return read


def _aws_iterable(job: Job) -> Read:
    import s3torchconnector

    from tests.benchmarks.loading import epoch

    def make(prefix: str) -> Any:
        return s3torchconnector.S3IterableDataset.from_prefix(
            f"s3://{BUCKET}/{prefix}",
            region=_REGION,
            endpoint=job.endpoint,
            transform=_read_all,
            s3client_config=s3torchconnector.S3ClientConfig(force_path_style=True),
            enable_sharding=True,
        )

    return epoch(job, make, shuffle=False)


def _aws_threads(job: Job) -> Read:
    dataset = _aws_dataset(job, "S3MapDataset", job.prefix)
    positions = {key: index for index, key in enumerate(job.keys)}
    # A map dataset has no other objects to warm up with than its own first ones.
    warm = dict.fromkeys(job.warm_up_keys, 0)
    return pooled(job, lambda key: len(dataset[(positions | warm)[key]]), _IN_FLIGHT)


def _aws_read(job: Job) -> Read:
    from s3torchconnector import S3ReaderConstructor

    client, _ = _aws_client(job)
    reader = S3ReaderConstructor.sequential()

    def read() -> Totals:
        body = client.get_object(BUCKET, job.keys[0], reader_constructor=reader).read()
        return Totals(1, len(body), len(body))

    return read


def _aws_readinto(job: Job) -> Read:
    from s3torchconnector import S3ReaderConstructor

    client, _ = _aws_client(job)
    constructor = S3ReaderConstructor.range_based(buffer_size=0)
    buffer = memoryview(touched(job.size_bytes))

    def read() -> Totals:
        reader = client.get_object(BUCKET, job.keys[0], reader_constructor=constructor)
        filled = 0
        while count := reader.readinto(buffer[filled:]):
            filled += count
        return Totals(1, filled)

    return read


def _aws_client(job: Job) -> tuple[Any, Any]:
    """Return the client below its checkpoint reader, which takes no path style."""
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client

    client = S3Client(
        _REGION,
        endpoint=job.endpoint,
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    small = client.get_object(BUCKET, "100k/64/0000000.bin").read()
    return client, small


# ---- boto3 ---------------------------------------------------------------------------------


def _boto3(job: Job) -> Read:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=job.endpoint,
        region_name=_REGION,
        verify=job.rig.ca_file if job.case.profile == "tls" else None,
        config=Config(max_pool_connections=_IN_FLIGHT, s3={"addressing_style": "path"}),
    )
    return pooled(
        job,
        lambda key: len(client.get_object(Bucket=BUCKET, Key=key)["Body"].read()),
        _IN_FLIGHT,
    )


_WAYS: dict[str, Callable[[Job], Read]] = {
    "obstore/async": _obstore_async,
    "obstore/threads": _obstore_threads,
    "obstore/get": _obstore_get,
    "obstore/ranges": _obstore_ranges,
    "s3torchconnector/map": _aws_map,
    "s3torchconnector/iterable": _aws_iterable,
    "s3torchconnector/threads": _aws_threads,
    "s3torchconnector/read": _aws_read,
    "s3torchconnector/readinto": _aws_readinto,
    "boto3/threads": _boto3,
}
