"""A bucket of each cloud behind a front that can misbehave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.fakes.front import Front
from tests.providers.gcs.access import provider as gcs_provider
from tests.providers.oss.stores import opened as oss_provider
from tests.providers.s3.stores import made as s3_provider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from providers.http_provider import HttpProvider


class Fronted(NamedTuple):
    """A fresh bucket on a server, reached through a front.

    Attributes:
        front: passes everything on until told otherwise.
        opened: returns a provider of the bucket, with some options or timeouts changed.
    """

    front: Front
    opened: Callable[..., HttpProvider]


def fronted_by(front: Front, kind: str, server: Any, bucket: str) -> Fronted:
    """Reach a bucket of a server through a front."""

    def opened(**changes: Any) -> HttpProvider:
        if kind == "fake_gcs":
            return gcs_provider(front.endpoint, bucket, **changes)
        secret = "access_key_secret" if kind == "oss_server" else "secret_access_key"
        keys = {"access_key_id": server.access_key, secret: server.secret_key}
        fields = {"region": server.region, **keys, **changes}
        if kind == "oss_server":
            return oss_provider(front.endpoint, bucket, **fields)
        return s3_provider(bucket, endpoint=front.endpoint, equal_parts=False, **fields)

    return Fronted(front, opened)


@pytest.fixture(params=["juicefs", "fake_gcs", "oss_server"])
def fronted(request: pytest.FixtureRequest, bucket_name: str) -> Iterator[Fronted]:
    """A bucket of each cloud in turn."""
    server: Any = request.getfixturevalue(request.param)
    server.make_bucket(bucket_name)
    with Front(server.endpoint) as front:
        yield fronted_by(front, request.param, server, bucket_name)
