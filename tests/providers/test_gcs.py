"""Google Cloud Storage against the suite, on fake-gcs-server behind a front that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from providers.gcs import GCSProvider
from providers.testing import ProviderSuite
from tests.fakes.front import Front
from tests.providers.gcs.access import options, raw_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.servers.fake_gcs import GCSServer

TOKEN = "ya29.literal-token"


class TestGCS(ProviderSuite):
    """Raw access through google-cloud-storage."""

    many_objects = 503
    model_examples = 8
    secrets = (TOKEN,)

    @pytest.fixture(autouse=True)
    def _bucket(
        self, fake_gcs: GCSServer, fake_gcs_bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        # Pages of 5,000 would make every listing one page.
        monkeypatch.setattr(GCSProvider, "page_size", 200)
        self.server, self.bucket = fake_gcs, fake_gcs_bucket
        with raw_bucket(fake_gcs, fake_gcs_bucket) as raw, Front(fake_gcs.endpoint) as front:
            # The server takes any credentials; this front takes none.
            front.answer(401, times=None)
            self.raw, self.refusing = raw, front
            yield

    @override
    def make_provider(self) -> GCSProvider:
        return GCSProvider(self.bucket, options(self.server.endpoint))

    @override
    def make_missing_bucket_provider(self) -> GCSProvider:
        return GCSProvider(f"{self.bucket}-missing", options(self.server.endpoint))

    @override
    def make_denied_provider(self) -> GCSProvider:
        return GCSProvider(self.bucket, options(self.refusing.endpoint, access_token=TOKEN))

    @override
    def raw_put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        self.raw.put(key, data, metadata)

    @override
    def raw_put_many(self, keys: Iterable[str]) -> None:
        self.raw.put_many(keys)

    @override
    def raw_get(self, key: str) -> bytes:
        return self.raw.get(key)

    @override
    def raw_keys(self) -> set[str]:
        return self.raw.keys()

    @override
    def raw_unfinished_uploads(self) -> list[str]:
        return self.raw.uploads()
