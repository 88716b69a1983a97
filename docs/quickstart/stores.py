"""The four stores of the quickstart, each a real server on loopback, and how to reach them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.fakes.gcs_multipart import GCSMultipartFront
from tests.servers.environment import gcs_environment, oss_environment, s3_environment
from tests.servers.fake_gcs import fake_gcs
from tests.servers.juicefs import juicefs
from tests.servers.oss import oss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BUCKET = "digits-bucket"


@dataclass(frozen=True, slots=True)
class Store:
    """Where to train.

    Attributes:
        base: URI of an empty folder.
        environment: what the cloud's own tools read: endpoint, region, credentials.
    """

    base: str
    environment: Mapping[str, str]

    @property
    def scheme(self) -> str:
        """The scheme, with its slashes."""
        return self.base.partition("://")[0] + "://"


@contextlib.contextmanager
def running_stores(directory: Path) -> Iterator[list[Store]]:
    """Start the servers and make a bucket on each."""
    with juicefs() as s3, fake_gcs() as gcs, GCSMultipartFront(gcs.endpoint) as front, oss() as own:
        s3.make_bucket(BUCKET)
        gcs.make_bucket(BUCKET)
        own.make_bucket(BUCKET)
        yield [
            Store(f"s3://{BUCKET}/", s3_environment(s3)),
            Store(f"gs://{BUCKET}/", gcs_environment(front.endpoint)),
            Store(f"oss://{BUCKET}/", oss_environment(own)),
            Store(f"file://{directory}/", {}),
        ]
