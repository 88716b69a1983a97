"""JuiceFS gateway: a real S3 server that checks signatures, on a file system of its own."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import ServerCommand, ServerError, running, script, server_directory
from tests.servers.s3 import S3Server

ACCESS_KEY = "juicefs-access-key"
SECRET_KEY = "juicefs-secret-key"


@contextlib.contextmanager
def juicefs() -> Iterator[S3Server]:
    """Run a JuiceFS gateway on a fresh volume."""
    # SQLite syncs on every request, so its file belongs in memory; the data may be large.
    with server_directory(in_memory=True) as metadata, server_directory() as data:
        uri = f"sqlite3://{metadata}/meta.db"
        _format(uri, data)
        command = ServerCommand(
            name="juicefs gateway",
            arguments=lambda port: [*_gateway(data), uri, f"127.0.0.1:{port}"],
            health_path="/minio/health/live",
            environment={"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY},
        )
        with running(command) as process:
            yield S3Server(process.endpoint, ACCESS_KEY, SECRET_KEY, process)


def _format(uri: str, directory: Path) -> None:
    options = ["--storage", "file", "--bucket", f"{directory}/data", "--trash-days", "0"]
    done = subprocess.run(
        [script("juicefs"), "format", *options, uri, "volume"],
        check=False,
        capture_output=True,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory)},
        text=True,
        timeout=60,
    )
    if done.returncode != 0:
        msg = f"juicefs format ended with {done.returncode}\n{done.stdout}{done.stderr}"
        raise ServerError(msg)


def _gateway(directory: Path) -> list[str]:
    return [
        *[script("juicefs"), "gateway", "--multi-buckets", "--keep-etag", "--object-meta"],
        *["--no-banner", "--no-usage-report", "--no-bgjob", "--backup-meta", "0"],
        *["--log", f"{directory}/gateway.log", "--cache-dir", "memory"],
        # The default port for metrics is fixed and may belong to another test run.
        *["--metrics", "127.0.0.1:0"],
    ]
