"""One bucket on each kind of store, and what lies in it as seen around the providers."""

from __future__ import annotations

import contextlib
import http.client
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import google.cloud.exceptions
import oss2
from botocore.exceptions import ClientError
from typing_extensions import override

from connector.checkpoint import Checkpoint
from providers import (
    GCSOptions,
    Options,
    OSSOptions,
    Provider,
    S3Options,
    TransferOptions,
    open_provider,
)
from providers.memory import MemoryProvider

if TYPE_CHECKING:
    from typing_extensions import Self

    from tests.servers.fake_gcs import GCSServer
    from tests.servers.oss import OSSServer
    from tests.servers.s3 import S3Server

__all__ = ["FileStore", "GCSStore", "MemoryStore", "OSSStore", "S3Store", "Store"]

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Store(ABC):
    """A bucket, empty at first.

    Attributes:
        uri: of the bucket, with a slash at its end.
        options: by which a script reaches it; None: the scheme's defaults.
        part_bytes: a small part that the store takes.
        endpoint: of its server; empty where there is none.
        keeps_metadata: whether users' own metadata stay with an object.
    """

    uri: str
    options: Options | None = None
    part_bytes: int = KIB
    endpoint: str = ""
    keeps_metadata: bool = True

    @property
    def transfer(self) -> TransferOptions:
        """Small sizes, so that small objects take many requests; three attempts."""
        return TransferOptions(
            part_size_bytes=self.part_bytes,
            multipart_threshold_bytes=self.part_bytes,
            range_size_bytes=self.part_bytes,
            max_attempts=3,
        )

    def provider(self) -> Provider:
        """Open the bucket as a script would."""
        return open_provider(self.uri, options=self.options, transfer=self.transfer)

    def key(self, name: str) -> str:
        """Return the key of an object of the bucket."""
        return name

    def checkpoint(self, path: str = "runs/42/") -> Checkpoint:
        """Return the checkpoints below a path of the bucket."""
        return Checkpoint(self.uri + path, options=self.options, transfer=self.transfer)

    def at(self, endpoint: str) -> Self:
        """Return the same bucket, reached by another address."""
        assert self.options is not None
        return replace(
            self, options=self.options.model_copy(update={"endpoint": endpoint}), endpoint=endpoint
        )

    @abstractmethod
    def raw_get(self, name: str) -> bytes | None:
        """Return an object's bytes; None where there is none."""

    @abstractmethod
    def raw_put(self, name: str, data: bytes) -> None:
        """Write an object."""

    @abstractmethod
    def unfinished(self, name: str) -> list[Any]:
        """Return the unfinished uploads of an object."""


@dataclass(frozen=True)
class MemoryStore(Store):
    """Objects of this process."""

    @property
    def _provider(self) -> MemoryProvider:
        return MemoryProvider(urlsplit(self.uri).netloc)

    @override
    def raw_get(self, name: str) -> bytes | None:
        found = self._provider._bucket.objects.get(name)
        return None if found is None else found[1]

    @override
    def raw_put(self, name: str, data: bytes) -> None:
        self._provider.store(name, data, if_absent=False, metadata={})

    @override
    def unfinished(self, name: str) -> list[Any]:
        return [upload for upload in self._provider.unfinished_uploads() if upload.startswith(name)]


@dataclass(frozen=True)
class FileStore(Store):
    """A directory."""

    keeps_metadata: bool = False

    @property
    def _root(self) -> Path:
        return Path(self.uri.removeprefix("file://"))

    @override
    def key(self, name: str) -> str:
        return str(self._root / name).lstrip("/")

    @override
    def raw_get(self, name: str) -> bytes | None:
        path = self._root / name
        return path.read_bytes() if path.is_file() else None

    @override
    def raw_put(self, name: str, data: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    @override
    def unfinished(self, name: str) -> list[Any]:
        return [
            file
            for _, _, files in os.walk(self._root)
            for file in files
            if file.startswith(".connector-temporary-")
        ]


@dataclass(frozen=True)
class S3Store(Store):
    """A bucket on an S3 server."""

    server: S3Server = field(kw_only=True)

    @classmethod
    def on(cls, server: S3Server, bucket: str) -> S3Store:
        """Return the store of a bucket."""
        options = S3Options(
            endpoint=server.endpoint,
            region=server.region,
            access_key_id=server.access_key,
            secret_access_key=server.secret_key,
        )
        return cls(f"s3://{bucket}/", options, 5 * MIB, server.endpoint, server=server)

    @property
    def _bucket(self) -> str:
        return urlsplit(self.uri).netloc

    @override
    def raw_get(self, name: str) -> bytes | None:
        with contextlib.closing(self.server.client()) as client:
            try:
                answer = client.get_object(Bucket=self._bucket, Key=name)
            except ClientError as error:
                if error.response["Error"]["Code"] == "NoSuchKey":
                    return None
                raise
            data: bytes = answer["Body"].read()
            return data

    @override
    def raw_put(self, name: str, data: bytes) -> None:
        with contextlib.closing(self.server.client()) as client:
            client.put_object(Bucket=self._bucket, Key=name, Body=data)

    @override
    def unfinished(self, name: str) -> list[Any]:
        with contextlib.closing(self.server.client()) as client:
            answer = client.list_multipart_uploads(Bucket=self._bucket, Prefix=name)
            return list(answer.get("Uploads", []))


@dataclass(frozen=True)
class GCSStore(Store):
    """A bucket on a Google Cloud Storage server."""

    server: GCSServer = field(kw_only=True)

    @classmethod
    def on(cls, server: GCSServer, bucket: str) -> GCSStore:
        """Return the store of a bucket."""
        options = GCSOptions(endpoint=server.endpoint, project=server.project, anonymous=True)
        return cls(f"gs://{bucket}/", options, 5 * MIB, server.endpoint, server=server)

    @property
    def _bucket(self) -> str:
        return urlsplit(self.uri).netloc

    @override
    def raw_get(self, name: str) -> bytes | None:
        with contextlib.closing(self.server.client()) as client:
            try:
                data: bytes = client.bucket(self._bucket).blob(name).download_as_bytes()
            except google.cloud.exceptions.NotFound:
                return None
            return data

    @override
    def raw_put(self, name: str, data: bytes) -> None:
        with contextlib.closing(self.server.client()) as client:
            client.bucket(self._bucket).blob(name).upload_from_string(data)

    @override
    def unfinished(self, name: str) -> list[Any]:
        address = urlsplit(self.server.endpoint).netloc
        with contextlib.closing(http.client.HTTPConnection(address)) as connection:
            connection.request("GET", f"/{self._bucket}?uploads&prefix={name}")
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == http.HTTPStatus.OK, body
            return body.split(b"<Upload>")[1:]


@dataclass(frozen=True)
class OSSStore(Store):
    """A bucket on an OSS server."""

    server: OSSServer = field(kw_only=True)

    @classmethod
    def on(cls, server: OSSServer, bucket: str) -> OSSStore:
        """Return the store of a bucket."""
        options = OSSOptions(
            endpoint=server.endpoint,
            region=server.region,
            access_key_id=server.access_key,
            access_key_secret=server.secret_key,
        )
        return cls(f"oss://{bucket}/", options, 100 * KIB, server.endpoint, server=server)

    @property
    def _bucket(self) -> Any:
        return self.server.bucket(urlsplit(self.uri).netloc)

    @override
    def raw_get(self, name: str) -> bytes | None:
        try:
            data: bytes = self._bucket.get_object(name).read()
        except oss2.exceptions.NoSuchKey:
            return None
        return data

    @override
    def raw_put(self, name: str, data: bytes) -> None:
        self._bucket.put_object(name, data)

    @override
    def unfinished(self, name: str) -> list[Any]:
        return list(self._bucket.list_multipart_uploads(prefix=name).upload_list)
