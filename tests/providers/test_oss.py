"""Alibaba OSS against the suite, on a server that checks signatures and sizes itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from providers.oss import OSSProvider
from providers.options import OSSOptions
from providers.testing import ProviderSuite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.servers.oss import OSSServer


class TestOSS(ProviderSuite):
    """The whole suite, signed with V4."""

    secrets = ("oss-secret-key",)
    signature_version = "v4"

    @pytest.fixture(autouse=True)
    def _bucket(self, oss_server: OSSServer, oss_bucket: str) -> None:
        self.server, self.bucket = oss_server, oss_bucket
        self.raw = oss_server.bucket(oss_bucket)

    def provider_of(self, bucket: str, **changes: Any) -> OSSProvider:
        """Return a provider of a bucket of the server."""
        fields: dict[str, Any] = {
            "endpoint": self.server.endpoint,
            "region": self.server.region,
            "access_key_id": self.server.access_key,
            "access_key_secret": self.server.secret_key,
            "signature_version": self.signature_version,
            "conditional_put": True,
            "equal_parts": False,
        }
        return OSSProvider(bucket, OSSOptions(**{**fields, **changes}))

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
