"""The suite's own OSS server, run as a process like the others."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oss2

from tests.servers.process import ServerCommand, ServerProcess, running

ACCESS_KEY = "oss-access-key"
SECRET_KEY = "oss-secret-key"
REGION = "cn-test"
FIRST_BUCKET = "first-bucket"
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class OSSServer:
    """An OSS server on loopback; it starts with one bucket, `first_bucket`."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    process: ServerProcess
    region: str = REGION
    first_bucket: str = FIRST_BUCKET

    def bucket(self, name: str) -> Any:
        """The bucket through oss2, signed with V4."""
        return oss2.Bucket(
            oss2.AuthV4(self.access_key, self.secret_key),
            self.endpoint,
            name,
            region=self.region,
        )

    def make_bucket(self, name: str) -> str:
        """Make a bucket and give back its name."""
        self.bucket(name).create_bucket()
        return name


@contextlib.contextmanager
def oss() -> Iterator[OSSServer]:
    """Run the OSS server with one bucket."""
    command = ServerCommand(
        name="tests.fakes.oss",
        arguments=lambda port: [
            *[sys.executable, "-m", "tests.fakes.oss", "--port", str(port)],
            *["--access-key-id", ACCESS_KEY, "--access-key-secret", SECRET_KEY],
            *["--region", REGION, "--bucket", FIRST_BUCKET],
        ],
        environment={"PYTHONPATH": str(_ROOT)},
    )
    with running(command) as process:
        yield OSSServer(process.endpoint, ACCESS_KEY, SECRET_KEY, process)
