"""Contestants that save a state to S3, or load it: tensors of 16 MiB in one object."""

from __future__ import annotations

import asyncio
import io
import os
import uuid
from typing import TYPE_CHECKING, Any

import torch

from tests.benchmarks.cases import KINDS, STATE
from tests.benchmarks.measure import Totals
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.measure import Job, Read

    State = dict[str, torch.Tensor]

__all__ = ["make_state", "prepare"]

_PART_BYTES = 16 << 20
_IN_FLIGHT = 16
_REGION = "us-east-1"


def make_state(tensors: int) -> State:
    """Return tensors of one dimension, float32, 16 MiB each."""
    generator = torch.Generator().manual_seed(20260102)
    length = KINDS[STATE] // 4
    return {f"layer{n}": torch.randn(length, generator=generator) for n in range(tensors)}


def prepare(job: Job) -> Read:
    """Return the client's save or load."""
    os.environ.update(
        AWS_ACCESS_KEY_ID="benchmark",
        AWS_SECRET_ACCESS_KEY="benchmark-secret",
        AWS_EC2_METADATA_DISABLED="true",
    )
    package, _, way = job.client.partition("/")
    save, load = _PACKAGES[package](job)
    if way == "torch-save":
        state = make_state(job.objects)
        save({"step": torch.zeros(1)}, _fresh_key())
        return lambda: _saved(save, state)
    return lambda: _loaded(load, f"{STATE}/1/0000000.bin")


def _fresh_key() -> str:
    return f"saved/{uuid.uuid4().hex}.pt"


def _saved(save: Callable[[State, str], None], state: State) -> Totals:
    save(state, _fresh_key())
    return Totals(len(state), sum(tensor.nbytes for tensor in state.values()))


def _loaded(load: Callable[[str], State], key: str) -> Totals:
    state = load(key)
    size_bytes = sum(tensor.nbytes for tensor in state.values())
    return Totals(len(state), size_bytes, held_bytes=size_bytes)


def _ours(job: Job) -> Any:
    from connector import Checkpoint
    from tests.benchmarks.ours import options

    checkpoint = Checkpoint(f"s3://{BUCKET}/", options=options(job))

    def of(key: str) -> str:
        return f"s3://{BUCKET}/{key}"

    return (
        lambda state, key: checkpoint.save(state, of(key)),
        lambda key: checkpoint.load(of(key)),
    )


def _aws(job: Job) -> Any:
    from s3torchconnector import S3Checkpoint, S3ClientConfig

    checkpoint = S3Checkpoint(
        _REGION,
        s3client_config=S3ClientConfig(force_path_style=True, part_size=_PART_BYTES),
        endpoint=job.endpoint,
    )

    def save(state: State, key: str) -> None:
        with checkpoint.writer(f"s3://{BUCKET}/{key}") as file:
            torch.save(state, file)

    def load(key: str) -> Any:
        with checkpoint.reader(f"s3://{BUCKET}/{key}") as file:
            return torch.load(file, weights_only=True)

    return save, load


def _boto3(job: Job) -> Any:
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=job.endpoint,
        region_name=_REGION,
        config=Config(max_pool_connections=_IN_FLIGHT, s3={"addressing_style": "path"}),
    )
    transfer = TransferConfig(multipart_chunksize=_PART_BYTES, max_concurrency=_IN_FLIGHT)

    def save(state: State, key: str) -> None:
        client.upload_fileobj(_bytes_of(state), BUCKET, key, Config=transfer)

    def load(key: str) -> Any:
        file = io.BytesIO()
        client.download_fileobj(BUCKET, key, file, Config=transfer)
        file.seek(0)
        return torch.load(file, weights_only=True)

    return save, load


def _bytes_of(state: State) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def _obstore(job: Job) -> Any:
    from tests.benchmarks.s3_peers import open_obstore

    store = open_obstore(job)

    def save(state: State, key: str) -> None:
        store.put(key, _bytes_of(state), chunk_size=_PART_BYTES, max_concurrency=_IN_FLIGHT)

    async def fill(buffer: bytearray, key: str) -> None:
        starts = iter(range(0, len(buffer), _PART_BYTES))

        async def fill_some() -> None:
            for start in starts:
                end = min(start + _PART_BYTES, len(buffer))
                body = await store.get_range_async(key, start=start, end=end)
                buffer[start:end] = memoryview(body)

        await asyncio.gather(*(fill_some() for _ in range(_IN_FLIGHT)))

    def load(key: str) -> Any:
        buffer = bytearray(store.head(key)["size"])
        asyncio.run(fill(buffer, key))
        return torch.load(io.BytesIO(buffer), weights_only=True)

    return save, load


def _msc(job: Job) -> Any:
    from tests.benchmarks.s3_loops import open_client

    client = open_client(job, in_rust=True)

    def save(state: State, key: str) -> None:
        with client.open(key, "wb") as file:
            torch.save(state, file)

    def load(key: str) -> Any:
        with client.open(key, "rb") as file:
            return torch.load(file, weights_only=True)

    return save, load


_PACKAGES: dict[str, Callable[[Job], Any]] = {
    "connector": _ours,
    "s3torchconnector": _aws,
    "boto3": _boto3,
    "obstore": _obstore,
    "multi-storage-client": _msc,
}
