"""The README's commands do what it says, against real servers."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.gcs_multipart import GCSMultipartFront
from tests.servers.environment import gcs_environment, oss_environment, s3_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.servers.fake_gcs import GCSServer
    from tests.servers.oss import OSSServer
    from tests.servers.s3 import S3Server

_README = (Path(__file__).parents[2] / "README.md").read_text()
_BUCKET = "my-bucket"
_OBJECTS = {
    "train/1.txt": b"one",
    "train/2.txt": b"two",
    "train/manifest.jsonl": b"""{"key": "1.txt", "label": "first"}
{"key": "2.txt", "label": "second"}
""",
}
_ONE_LINERS = re.findall(r"^python -c .*$", _README, re.MULTILINE)
_ANSWERS = (
    "b'one'",
    "b'two'",
    "['first', 'second']",
    "[b'one', b'two']",
    "['s3://my-bucket/train/1.txt']",
    "[('first', b'one'), ('second', b'two')]",
    "{'weight': tensor([1., 1.])}",
)


@pytest.fixture(scope="module")
def environment(
    juicefs: S3Server, fake_gcs: GCSServer, oss_server: OSSServer
) -> Iterator[Mapping[str, str]]:
    """Variables that the clouds' SDKs read, with `my-bucket` filled on each store."""
    with GCSMultipartFront(fake_gcs.endpoint) as front, closing(juicefs.client()) as s3:
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
            **gcs_environment(front.endpoint),
            **oss_environment(oss_server),
        }


def test_every_constructor_has_a_one_liner() -> None:
    """Each constructor of each dataset, and `Checkpoint`, is shown."""
    text = "\n".join(_ONE_LINERS)
    for kind in ("MapDataset", "IterableDataset"):
        for constructor in ("from_prefix", "from_objects", "from_manifest_file"):
            assert f"{kind}.{constructor}(" in text
    assert "Checkpoint(" in text


@pytest.mark.parametrize(("line", "answer"), zip(_ONE_LINERS, _ANSWERS, strict=True))
def test_one_liner(line: str, answer: str, environment: Mapping[str, str]) -> None:
    """The line runs as it stands and prints what it should."""
    words = shlex.split(line)
    done = subprocess.run(
        [sys.executable, *words[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == answer
