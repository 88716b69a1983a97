"""Servers for the whole suite, each started on first use, and a wall to keep real clouds out."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.gcs_multipart import GCSMultipartFront
from tests.servers import fake_gcs as fake_gcs_server
from tests.servers import juicefs as juicefs_server
from tests.servers import moto as moto_server
from tests.servers import oss as oss_process
from tests.servers import rclone as rclone_server
from tests.servers.fake_gcs import GCSServer
from tests.servers.oss import OSSServer
from tests.servers.s3 import S3Server

_CLOUD_PREFIXES = ("AWS_", "GOOGLE_", "CLOUDSDK_", "OSS_", "ALIBABA_")
_CLOUD_NAMES = {"STORAGE_EMULATOR_HOST", "CONNECTOR_CONFIG", "CONNECTOR_TRACE"}
_PROXY_NAMES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
_bucket_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def _no_clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the developer's credentials, profiles and proxies, and never ask a metadata server."""
    nowhere = tmp_path_factory.mktemp("nowhere")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_CLOUD_PREFIXES) or name.upper() in _CLOUD_NAMES | _PROXY_NAMES:
                patch.delenv(name)
        for name, value in _harmless(nowhere).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def juicefs() -> Iterator[S3Server]:
    """An S3 server that checks signatures."""
    with juicefs_server.juicefs() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """An S3 server with the finer rules: smallest part, conditional writes."""
    with moto_server.moto() as server:
        yield server


@pytest.fixture(scope="session")
def rclone() -> Iterator[S3Server]:
    """An S3 server with habits of its own."""
    with rclone_server.rclone() as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[GCSServer]:
    """A Google Cloud Storage server, multipart uploads included."""
    with fake_gcs_server.fake_gcs() as server, GCSMultipartFront(server.endpoint) as front:
        yield replace(server, endpoint=front.endpoint)


@pytest.fixture(scope="session")
def oss_server() -> Iterator[OSSServer]:
    """An OSS server."""
    with oss_process.oss() as server:
        yield server


@pytest.fixture
def bucket_name() -> str:
    """A bucket name that no other test of this run has."""
    return f"bucket-{next(_bucket_numbers)}"


@pytest.fixture
def juicefs_bucket(juicefs: S3Server, bucket_name: str) -> str:
    """A fresh bucket on `juicefs`."""
    return juicefs.make_bucket(bucket_name)


@pytest.fixture
def moto_bucket(moto: S3Server, bucket_name: str) -> str:
    """A fresh bucket on `moto`."""
    return moto.make_bucket(bucket_name)


@pytest.fixture
def rclone_bucket(rclone: S3Server, bucket_name: str) -> str:
    """A fresh bucket on `rclone`."""
    return rclone.make_bucket(bucket_name)


@pytest.fixture
def fake_gcs_bucket(fake_gcs: GCSServer, bucket_name: str) -> str:
    """A fresh bucket on `fake_gcs`."""
    return fake_gcs.make_bucket(bucket_name)


@pytest.fixture
def oss_bucket(oss_server: OSSServer, bucket_name: str) -> str:
    """A fresh bucket on `oss_server`."""
    return oss_server.make_bucket(bucket_name)


def _harmless(nowhere: Path) -> dict[str, str]:
    return {
        "AWS_CONFIG_FILE": str(nowhere / "aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(nowhere / "aws-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "CLOUDSDK_CONFIG": str(nowhere / "gcloud"),
        "NO_GCE_CHECK": "true",
        "ALIBABA_CLOUD_CREDENTIALS_FILE": str(nowhere / "alibaba-credentials"),
        "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
        "XDG_CONFIG_HOME": str(nowhere / "config"),
    }
