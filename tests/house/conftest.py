"""One bucket on each cloud's server, reachable as a user would reach his own."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.servers.environment import gcs_environment, oss_environment, s3_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.servers.fake_gcs import GCSServer
    from tests.servers.oss import OSSServer
    from tests.servers.s3 import S3Server

_BUCKET = "my-bucket"
_OBJECTS = {
    "train/1.txt": b"one",
    "train/2.txt": b"two",
    "train/manifest.jsonl": b"""{"key": "1.txt", "label": "first"}
{"key": "2.txt", "label": "second"}
""",
}


@pytest.fixture(scope="module")
def environment(
    juicefs: S3Server, fake_gcs: GCSServer, oss_server: OSSServer
) -> Iterator[Mapping[str, str]]:
    """Variables that the clouds' SDKs read, with `my-bucket` filled on each store."""
    with closing(juicefs.client()) as s3:
        s3.create_bucket(Bucket=_BUCKET)
        fake_gcs.make_bucket(_BUCKET)
        oss_server.make_bucket(_BUCKET)
        with closing(fake_gcs.client()) as gcs:
            for key, body in _OBJECTS.items():
                s3.put_object(Bucket=_BUCKET, Key=key, Body=body)
                gcs.bucket(_BUCKET).blob(key).upload_from_string(body)
                oss_server.bucket(_BUCKET).put_object(key, body)
        yield {
            **s3_environment(juicefs),
            **gcs_environment(fake_gcs.endpoint),
            **oss_environment(oss_server),
        }
