"""moto: S3's finer rules (smallest part, conditional writes), without signature checks."""

import contextlib
import sys
from collections.abc import Iterator

from tests.servers.process import ServerCommand, running
from tests.servers.s3 import S3Server


@contextlib.contextmanager
def moto() -> Iterator[S3Server]:
    """Run moto's server; it serves each request in a thread of its own."""
    command = ServerCommand(
        name="moto_server",
        arguments=lambda port: [
            *[sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        ],
        health_path="/moto-api/",
    )
    with running(command) as process:
        yield S3Server(process.endpoint, "moto-access-key", "moto-secret-key", process)
