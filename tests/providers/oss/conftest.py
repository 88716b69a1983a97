"""An OSS server of each test's own, a front before it, and a provider that goes through both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.retry import without_waiting
from tests.fakes.front import Front
from tests.fakes.oss import OSSServer
from tests.fakes.oss.clients import ACCESS_KEY_ID, SECRET
from tests.providers.oss.stores import BUCKET, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.oss import OSSProvider


@pytest.fixture
def server() -> Iterator[OSSServer]:
    """A server with one bucket."""
    with OSSServer({ACCESS_KEY_ID: SECRET}) as running:
        running.create_bucket(BUCKET)
        yield running


@pytest.fixture
def front(server: OSSServer) -> Iterator[Front]:
    """What stands before it; pauses between attempts are zero."""
    with Front(server.endpoint) as running, without_waiting():
        yield running


@pytest.fixture
def provider(front: Front) -> OSSProvider:
    """A provider that goes through the front and tries three times."""
    return opened(front.endpoint)
