"""What the tests of Google Cloud Storage share: raw access, and a provider behind a front."""

from __future__ import annotations

import contextlib
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from providers.gcs import GCSProvider
from providers.options import GCSOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from providers.values import ObjectInfo
    from tests.fakes.front import Record
    from tests.fakes.wire import Request
    from tests.servers.fake_gcs import GCSServer


class RawBucket:
    """One bucket through the vendor's SDK, around any provider and any front."""

    def __init__(self, server: GCSServer, name: str) -> None:
        self.endpoint, self.name = server.endpoint, name
        self.client = server.client()
        self.bucket = self.client.bucket(name)

    def put(
        self,
        key: str,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
        encoding: str | None = None,
    ) -> None:
        """Write an object; `encoding` is what it claims as `Content-Encoding`."""
        blob = self.bucket.blob(key)
        blob.metadata = dict(metadata or {})
        blob.content_encoding = encoding
        blob.upload_from_string(data, retry=None)

    def put_many(self, keys: Iterable[str]) -> None:
        """Write one-byte objects."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: self.put(key, b"x"), keys))

    def get(self, key: str) -> bytes:
        """Read an object as it is stored."""
        data: bytes = self.bucket.blob(key).download_as_bytes(raw_download=True, retry=None)
        return data

    def keys(self) -> set[str]:
        """List the bucket."""
        return {blob.name for blob in self.client.list_blobs(self.name, retry=None)}

    def uploads(self) -> list[str]:
        """List unfinished multipart uploads, which the SDK cannot."""
        url = f"{self.endpoint}/{self.name}?uploads"
        with urllib.request.urlopen(url) as answer:  # noqa: S310 our own loopback server
            return re.findall("<UploadId>(.*?)</UploadId>", answer.read().decode())


@contextlib.contextmanager
def raw_bucket(server: GCSServer, name: str) -> Iterator[RawBucket]:
    """Open raw access and close it."""
    bucket = RawBucket(server, name)
    with contextlib.closing(bucket.client):
        yield bucket


def options(endpoint: str, **changes: Any) -> GCSOptions:
    """Options for an emulator that keeps Google's rules."""
    known = {"endpoint": endpoint, "conditional_put": True, "equal_parts": False}
    return GCSOptions(**{**known, **changes})


def provider(endpoint: str, bucket: str, **changes: Any) -> GCSProvider:
    """A provider of a bucket on that emulator."""
    return GCSProvider(bucket, options(endpoint, **changes))


def is_complete(request: Request | Record) -> bool:
    """Whether a request completes an upload."""
    return request.method == "POST" and "uploadId=" in request.query


def is_compose(request: Request | Record) -> bool:
    """Whether a request composes."""
    return request.path.endswith("/compose")


def is_method(method: str) -> Callable[[Request], bool]:
    """Whether a request has a method."""
    return lambda request: request.method == method


def upload(gcs: GCSProvider, key: str, *parts: bytes) -> ObjectInfo:
    """Write an object by an upload in parts."""
    with gcs.start_multipart(key) as unfinished:
        for number, part in enumerate(parts, 1):
            unfinished.put_part(number, part)
        return unfinished.complete()
