"""A contestant on S3: multi-storage-client, with threads over its ``read``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.benchmarks.pooling import pooled
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from tests.benchmarks.measure import Job, Read

__all__ = ["open_client", "prepare"]

_THREADS = 32


def prepare(job: Job) -> Read:
    """Return the client's read."""
    client = open_client(job, in_rust=job.way == "rust-threads")
    return pooled(job, lambda key: len(client.read(key)), _THREADS)


def open_client(job: Job, *, in_rust: bool) -> Any:
    """Return a client of the rig."""
    from multistorageclient import StorageClient, StorageClientConfig

    options: dict[str, Any] = {
        "base_path": BUCKET,
        "endpoint_url": job.endpoint,
        "region_name": "us-east-1",
        "max_pool_connections": _THREADS,
    }
    if in_rust:
        options["rust_client"] = {"allow_http": True}
    credentials = {"access_key": "benchmark", "secret_key": "benchmark-secret"}
    profile = {
        "storage_provider": {"type": "s3", "options": options},
        "credentials_provider": {"type": "S3Credentials", "options": credentials},
    }
    config = StorageClientConfig.from_dict({"profiles": {"rig": profile}}, profile="rig")
    return StorageClient(config)
