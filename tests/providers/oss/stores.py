"""OSS servers as the tests of the provider use them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from providers.options import OSSOptions, TransferOptions
from providers.oss import OSSProvider
from providers.testing import Harness
from tests.fakes.oss.clients import ACCESS_KEY_ID, SECRET, Access, first_sdk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.fakes.front import Request
    from tests.fakes.oss import OSSServer as InProcessServer
    from tests.servers.oss import OSSServer

BUCKET = "the-bucket"
PART_BYTES = 100 * 1024
THROTTLED = b"<Error><Code>QpsLimitExceeded</Code><Message>Too fast</Message></Error>"
FAILED = b"<Error><Code>InternalError</Code><Message>Sorry</Message></Error>"
DENIED = b"<Error><Code>AccessDenied</Code><Message>Not yours</Message></Error>"


def opened(
    endpoint: str | None, bucket: str = BUCKET, *, max_attempts: int = 3, **changes: Any
) -> OSSProvider:
    """Return a provider of a loopback bucket, with some options or timeouts changed."""
    fields: dict[str, Any] = {
        "endpoint": endpoint,
        "region": "cn-test",
        "access_key_id": ACCESS_KEY_ID,
        "access_key_secret": SECRET,
        "conditional_put": True,
        "equal_parts": False,
        **changes,
    }
    of_transfer = {n: fields.pop(n) for n in list(fields) if n in TransferOptions.model_fields}
    transfer = TransferOptions(max_attempts=max_attempts, **of_transfer)
    return OSSProvider(bucket, OSSOptions(**fields), transfer)


def store(server: InProcessServer, key: str, data: bytes, **headers: str) -> None:
    """Write an object around any front and provider."""
    with first_sdk(Access(server.endpoint), BUCKET) as bucket:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        bucket.put_object(key, data, headers=named)


def completing(request: Request) -> bool:
    """Whether a request publishes a multipart upload."""
    return request.method == "POST" and request.query.startswith("uploadId=")


def hours_from_now(hours: int) -> datetime:
    """A moment relative to now."""
    return datetime.now(timezone.utc) + timedelta(hours=hours)


class OSSHarness(Harness):
    """A fresh bucket of the server for each test, and oss2 as the way around the provider."""

    secrets = ("oss-secret-key",)
    signature_version = "v4"

    @pytest.fixture(autouse=True)
    def _bucket(self, oss_server: OSSServer, oss_bucket: str) -> None:
        self.server, self.bucket = oss_server, oss_bucket
        self.raw = oss_server.bucket(oss_bucket)

    def provider_of(self, bucket: str, **changes: Any) -> OSSProvider:
        """Return a provider of a bucket of the server."""
        fields: dict[str, Any] = {
            "access_key_id": self.server.access_key,
            "access_key_secret": self.server.secret_key,
            "signature_version": self.signature_version,
            **changes,
        }
        return opened(self.server.endpoint, bucket, **fields)

    @override
    def make_provider(self) -> OSSProvider:
        return self.provider_of(self.bucket)

    @override
    def make_missing_bucket_provider(self) -> OSSProvider:
        return self.provider_of(f"no-{self.bucket}")

    @override
    def make_denied_provider(self) -> OSSProvider:
        return self.provider_of(self.bucket, access_key_secret="wrong")

    @override
    def raw_put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        headers = {f"x-oss-meta-{name}": value for name, value in (metadata or {}).items()}
        self.raw.put_object(key, data, headers=headers)

    @override
    def raw_put_many(self, keys: Iterable[str]) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda key: self.raw.put_object(key, b"x"), keys))

    @override
    def raw_get(self, key: str) -> bytes:
        return bytes(self.raw.get_object(key).read())

    @override
    def raw_keys(self) -> set[str]:
        keys: set[str] = set()
        token = ""
        while True:
            page = self.raw.list_objects_v2(continuation_token=token, max_keys=1000)
            keys.update(entry.key for entry in page.object_list)
            if not page.is_truncated:
                return keys
            token = page.next_continuation_token

    @override
    def raw_unfinished_uploads(self) -> list[Any]:
        return list(self.raw.list_multipart_uploads().upload_list)
