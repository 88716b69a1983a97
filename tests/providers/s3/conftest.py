"""A bucket on each S3 server, a front before it, and a provider that goes through both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.retry import without_waiting
from tests.fakes.front import Front
from tests.providers.s3.stores import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.s3 import S3Provider
    from tests.servers.s3 import S3Server


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Pauses between attempts are zero."""
    with without_waiting():
        yield


@pytest.fixture
def store(juicefs: S3Server, juicefs_bucket: str) -> Iterator[Store]:
    """A bucket of a server that checks signatures."""
    with Store.on(juicefs, juicefs_bucket) as bucket:
        yield bucket


@pytest.fixture
def front(store: Store) -> Iterator[Front]:
    """What stands before it."""
    with Front(store.server.endpoint) as running:
        yield running


@pytest.fixture
def provider(store: Store, front: Front) -> S3Provider:
    """A provider that goes through the front and tries three times."""
    return store.opened(front.endpoint)


@pytest.fixture
def strict(moto: S3Server, moto_bucket: str) -> Iterator[Store]:
    """A bucket of a server that keeps Amazon's finer rules."""
    with Store.on(moto, moto_bucket) as bucket:
        yield bucket


@pytest.fixture
def strict_front(strict: Store) -> Iterator[Front]:
    """What stands before it."""
    with Front(strict.server.endpoint) as running:
        yield running
