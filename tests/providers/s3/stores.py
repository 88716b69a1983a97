"""S3 servers as the tests of the provider use them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from providers.options import S3Options, TransferOptions
from providers.s3 import S3Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.fakes.front import Request
    from tests.servers.s3 import S3Server

PART_BYTES = 5 << 20
THROTTLED = b"<Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>"
FAILED = b"<Error><Code>InternalError</Code><Message>Try again.</Message></Error>"
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@dataclass(frozen=True, slots=True)
class Store:
    """One bucket of a server, and the way around any front and provider."""

    server: S3Server
    bucket: str
    client: Any

    @classmethod
    @contextlib.contextmanager
    def on(cls, server: S3Server, bucket: str) -> Iterator[Store]:
        """Reach a bucket for the length of a test."""
        with contextlib.closing(server.client()) as client:
            yield cls(server, bucket, client)

    def put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """Write an object."""
        named = dict(metadata or {})
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data, Metadata=named)

    def get(self, key: str) -> bytes:
        """Read an object."""
        body: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return body

    def keys(self) -> list[str]:
        """List all keys."""
        answer = self.client.list_objects_v2(Bucket=self.bucket)
        return [found["Key"] for found in answer.get("Contents", ())]

    def unfinished(self) -> list[Any]:
        """List the uploads neither completed nor aborted."""
        answer = self.client.list_multipart_uploads(Bucket=self.bucket)
        return list(answer.get("Uploads", ()))

    def opened(self, endpoint: str | None = None, **changes: Any) -> S3Provider:
        """Return a provider, through a front or straight, with some settings changed."""
        fields = {
            "endpoint": endpoint or self.server.endpoint,
            "region": self.server.region,
            "access_key_id": self.server.access_key,
            "secret_access_key": self.server.secret_key,
            "equal_parts": False,
            **changes,
        }
        return made(self.bucket, **fields)


def made(bucket: str, *, max_attempts: int = 3, **fields: Any) -> S3Provider:
    """Return a provider with some options and timeouts."""
    of_transfer = {n: fields.pop(n) for n in list(fields) if n in TransferOptions.model_fields}
    transfer = TransferOptions(max_attempts=max_attempts, **of_transfer)
    return S3Provider(bucket, S3Options(**fields), transfer)


def completing(request: Request) -> bool:
    """Whether a request publishes a multipart upload."""
    return request.method == "POST" and request.query.startswith("uploadId=")


def copying(request: Request) -> bool:
    """Whether a request copies an object or a part."""
    return "x-amz-copy-source" in request.headers


def verbs(provider: S3Provider) -> dict[str, Callable[[], Any]]:
    """Return verbs of one request each, all of which an object named ``key`` satisfies."""
    return {
        "get": lambda: provider.get("key"),
        "put": lambda: provider.put("key", b"body"),
        "head": lambda: provider.head("key"),
        "list": lambda: list(provider.list_objects()),
        "delete": lambda: provider.delete(["key", "other"]),
        "start": lambda: provider.start_multipart("other").abort,
    }
