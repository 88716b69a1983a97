"""A bucket on each kind of store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers import Provider, open_provider
from tests.connector.store import FileStore, GCSStore, MemoryStore, OSSStore, S3Store, Store

if TYPE_CHECKING:
    from pathlib import Path

CLOUDS = ("juicefs", "moto", "gcs", "oss")


def _open(kind: str, request: pytest.FixtureRequest, bucket: str, path: Path) -> Store:
    if kind == "memory":
        return MemoryStore(f"memory://{bucket}/")
    if kind == "file":
        return FileStore(f"file://{path}/")
    if kind == "gcs":
        server = request.getfixturevalue("fake_gcs")
        return GCSStore.on(server, server.make_bucket(bucket))
    if kind == "oss":
        server = request.getfixturevalue("oss_server")
        return OSSStore.on(server, server.make_bucket(bucket))
    server = request.getfixturevalue(kind)
    return S3Store.on(server, server.make_bucket(bucket))


@pytest.fixture(params=["memory", "file", *CLOUDS])
def store(request: pytest.FixtureRequest, bucket_name: str, tmp_path: Path) -> Store:
    """A fresh bucket, on every kind of store in turn."""
    return _open(request.param, request, bucket_name, tmp_path)


@pytest.fixture(params=["file", *CLOUDS])
def shared_store(request: pytest.FixtureRequest, bucket_name: str, tmp_path: Path) -> Store:
    """A fresh bucket that other processes see too."""
    return _open(request.param, request, bucket_name, tmp_path)


@pytest.fixture(params=CLOUDS)
def cloud_store(request: pytest.FixtureRequest, bucket_name: str, tmp_path: Path) -> Store:
    """A fresh bucket on every server in turn."""
    return _open(request.param, request, bucket_name, tmp_path)


@pytest.fixture
def bucket(bucket_name: str) -> Provider:
    """A fresh bucket in this process's memory."""
    return open_provider(f"memory://{bucket_name}")
