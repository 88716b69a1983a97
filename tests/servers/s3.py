"""What the three S3 servers have in common: an endpoint, a key pair, and boto3 set up for them."""

import contextlib
import functools
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config

from tests.servers.process import ServerProcess


@dataclass(frozen=True, slots=True)
class S3Server:
    """An S3 server on loopback."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    process: ServerProcess
    region: str = "us-east-1"

    def client(self) -> Any:
        """A boto3 client; the caller closes it."""
        return _session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(
                s3={"addressing_style": "path"},
                retries={"total_max_attempts": 1},
                # Servers that are only compatible know no checksum trailers.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def make_bucket(self, name: str) -> str:
        """Make a bucket and give back its name."""
        with contextlib.closing(self.client()) as client:
            client.create_bucket(Bucket=name)
        return name


@functools.lru_cache(maxsize=1)
def _session() -> Any:
    """One session for all: loading the service's model takes longer than most tests."""
    return boto3.session.Session()
