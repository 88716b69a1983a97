"""A bucket, a front before it, and a provider behind that front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.retry import without_waiting
from tests.fakes.front import Front
from tests.providers.gcs.access import RawBucket, provider, raw_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.gcs import GCSProvider
    from tests.servers.fake_gcs import GCSServer


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    with without_waiting():
        yield


@pytest.fixture
def raw(fake_gcs: GCSServer, fake_gcs_bucket: str) -> Iterator[RawBucket]:
    """Access around the front."""
    with raw_bucket(fake_gcs, fake_gcs_bucket) as raw:
        yield raw


@pytest.fixture
def front(fake_gcs: GCSServer) -> Iterator[Front]:
    """What stands between the provider and the server."""
    with Front(fake_gcs.endpoint) as front:
        yield front


@pytest.fixture
def gcs(front: Front, fake_gcs_bucket: str) -> GCSProvider:
    """A provider behind the front."""
    return provider(front.endpoint, fake_gcs_bucket)
