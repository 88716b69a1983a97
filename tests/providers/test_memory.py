"""The reference backend against the suite."""

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from providers.memory import MemoryProvider
from providers.testing import ProviderSuite


class TestMemory(ProviderSuite):
    """Objects in this process's memory."""

    shared_storage = False

    @pytest.fixture(autouse=True)
    def _bucket(self, bucket_name: str) -> None:
        self.bucket = bucket_name

    @override
    def make_provider(self) -> MemoryProvider:
        return MemoryProvider(self.bucket)

    @override
    def make_missing_bucket_provider(self) -> None:
        return None

    @override
    def make_denied_provider(self) -> None:
        return None

    @override
    def raw_put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        self.make_provider().store(key, data, if_absent=False, metadata=metadata or {})

    @override
    def raw_get(self, key: str) -> bytes:
        return self.make_provider()._bucket.objects[key][1]

    @override
    def raw_keys(self) -> set[str]:
        return set(self.make_provider()._bucket.objects)

    @override
    def raw_unfinished_uploads(self) -> list[Any]:
        return self.make_provider().unfinished_uploads()
