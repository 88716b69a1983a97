"""Peers that read S3: obstore, s3torchconnector, boto3, multi-storage-client."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measuring import batches, whole
from tests.benchmarks.sizes import SIZES

if TYPE_CHECKING:
    from tests.benchmarks.measuring import Figures

__all__ = ["CLIENTS"]

_THREADS = 32
_RANGE_BYTES = 8 << 20


def _keys(spec: dict[str, Any], count: int) -> list[str]:
    return [f"{spec['kind']}/{number:06}" for number in range(count)]


def _obstore(spec: dict[str, Any]) -> Any:
    from obstore.store import S3Store

    return S3Store(
        "bench",
        endpoint=spec["endpoint"],
        access_key_id="an-access-key",
        secret_access_key="secret",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def _obstore_async(spec: dict[str, Any]) -> Figures:
    store, size = _obstore(spec), SIZES[spec["kind"]]

    async def read(keys: list[str]) -> int:
        places = asyncio.Semaphore(_THREADS)

        async def one(key: str) -> int:
            async with places:
                return len(await (await store.get_async(key)).bytes_async())

        return sum(await asyncio.gather(*map(one, keys)))

    return whole(lambda count: asyncio.run(read(_keys(spec, count))), spec["objects"], size)


def _obstore_threads(spec: dict[str, Any]) -> Figures:
    store, size = _obstore(spec), SIZES[spec["kind"]]
    with ThreadPoolExecutor(_THREADS) as pool:
        return whole(
            lambda count: sum(pool.map(lambda k: len(store.get(k).bytes()), _keys(spec, count))),
            spec["objects"],
            size,
        )


def _obstore_buffer(spec: dict[str, Any]) -> Figures:
    """Parallel ranges, each copied to its place."""
    store, size = _obstore(spec), SIZES["huge"]
    buffer = memoryview(bytearray(size))

    def fetch(start: int) -> int:
        stop = min(start + _RANGE_BYTES, size)
        data = store.get_range("huge/0", start=start, end=stop)
        buffer[start:stop] = memoryview(data).cast("B")
        return stop - start

    with ThreadPoolExecutor(_THREADS // 4) as pool:
        return whole(
            lambda count: count * sum(pool.map(fetch, range(0, size, _RANGE_BYTES))),
            1,
            size,
            warm=0,
        )


def _obstore_whole(spec: dict[str, Any]) -> Figures:
    """Read by one call, then copied into the buffer."""
    store, size = _obstore(spec), SIZES["huge"]
    buffer = memoryview(bytearray(size))

    def run(count: int) -> int:
        for _ in range(count):
            buffer[:] = memoryview(store.get("huge/0").bytes()).cast("B")
        return count * size

    return whole(run, 1, size, warm=0)


def _amazon(spec: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    os.environ.update(AWS_ACCESS_KEY_ID="an-access-key", AWS_SECRET_ACCESS_KEY="secret")
    from s3torchconnector import S3ClientConfig

    config = S3ClientConfig(force_path_style=True)
    shared = {"region": "us-east-1", "endpoint": spec["endpoint"], "s3client_config": config}
    return shared, config


def _amazon_dataset(spec: dict[str, Any]) -> Figures:
    shared, _ = _amazon(spec)
    from s3torchconnector import S3IterableDataset, S3MapDataset
    from torch.utils.data import DataLoader

    uris = [f"s3://bench/{key}" for key in _keys(spec, spec["objects"])]
    dataset: Any
    if spec["style"] == "map":
        dataset = S3MapDataset.from_objects(uris, transform=_read, **shared)
    else:
        dataset = S3IterableDataset.from_objects(
            uris, transform=_read, enable_sharding=True, **shared
        )
    loader = DataLoader(
        dataset,
        batch_size=spec["batch"],
        shuffle=spec["style"] == "map",
        num_workers=spec["workers"],
        collate_fn=list,
    )
    return batches(loader, SIZES[spec["kind"]])


def _read(item: Any) -> bytes:
    return bytes(item.read())


def _amazon_map(spec: dict[str, Any]) -> Figures:
    """Its map dataset, item by item: what its users have."""
    shared, _ = _amazon(spec)
    from s3torchconnector import S3MapDataset

    size = SIZES[spec["kind"]]
    uris = [f"s3://bench/{key}" for key in _keys(spec, spec["objects"])]
    dataset = S3MapDataset.from_objects(uris, transform=_read, **shared)
    return whole(
        lambda count: sum(len(dataset[number]) for number in range(count)), spec["objects"], size
    )


def _amazon_threads(spec: dict[str, Any]) -> Figures:
    """The same, with a pool of threads over it."""
    shared, _ = _amazon(spec)
    from s3torchconnector import S3MapDataset

    size = SIZES[spec["kind"]]
    uris = [f"s3://bench/{key}" for key in _keys(spec, spec["objects"])]
    dataset = S3MapDataset.from_objects(uris, transform=_read, **shared)
    with ThreadPoolExecutor(_THREADS) as pool:
        return whole(
            lambda count: sum(map(len, pool.map(dataset.__getitem__, range(count)))),
            spec["objects"],
            size,
        )


def _amazon_buffer(spec: dict[str, Any]) -> Figures:
    """Its reader into the caller's buffer."""
    shared, config = _amazon(spec)
    from s3torchconnector import S3Checkpoint

    size = SIZES["huge"]
    buffer = memoryview(bytearray(size))
    checkpoint = S3Checkpoint(
        region=shared["region"], endpoint=shared["endpoint"], s3client_config=config
    )

    def run(count: int) -> int:
        got = 0
        for _ in range(count):
            with checkpoint.reader("s3://bench/huge/0") as reader:
                at = 0
                while read := reader.readinto(buffer[at:]):
                    at += read
                got += at
        return got

    return whole(run, 1, size, warm=0)


def _boto3(spec: dict[str, Any]) -> Figures:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=spec["endpoint"],
        region_name="us-east-1",
        aws_access_key_id="an-access-key",
        aws_secret_access_key="secret",
        config=Config(max_pool_connections=_THREADS, s3={"addressing_style": "path"}),
    )

    def one(key: str) -> int:
        return len(client.get_object(Bucket="bench", Key=key)["Body"].read())

    with ThreadPoolExecutor(_THREADS) as pool:
        return whole(
            lambda count: sum(pool.map(one, _keys(spec, count))),
            spec["objects"],
            SIZES[spec["kind"]],
        )


def _multi_storage(spec: dict[str, Any]) -> Figures:
    import multistorageclient as msc

    provider = {
        "type": "s3",
        "options": {
            "base_path": "bench",
            "endpoint_url": spec["endpoint"],
            "region_name": "us-east-1",
            **({"rust_client": {}} if spec.get("rust") else {}),
        },
    }
    credentials = {
        "type": "S3Credentials",
        "options": {"access_key": "an-access-key", "secret_key": "secret"},
    }
    profiles = {"bench": {"storage_provider": provider, "credentials_provider": credentials}}
    config = msc.StorageClientConfig.from_dict({"profiles": profiles}, profile="bench")
    client = msc.StorageClient(config)
    with ThreadPoolExecutor(_THREADS) as pool:
        return whole(
            lambda count: sum(pool.map(lambda key: len(client.read(key)), _keys(spec, count))),
            spec["objects"],
            SIZES[spec["kind"]],
        )


CLIENTS = {
    "obstore-async": _obstore_async,
    "obstore-threads": _obstore_threads,
    "obstore-ranges": _obstore_buffer,
    "obstore-whole": _obstore_whole,
    "s3torchconnector": _amazon_map,
    "s3torchconnector-threads": _amazon_threads,
    "s3torchconnector-dataset": _amazon_dataset,
    "s3torchconnector-reader": _amazon_buffer,
    "boto3-threads": _boto3,
    "multi-storage-client": _multi_storage,
    "multi-storage-client-rust": lambda spec: _multi_storage({**spec, "rust": True}),
}
