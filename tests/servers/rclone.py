"""rclone serve s3: a second S3 server that checks signatures, with habits of its own."""

import contextlib
from collections.abc import Iterator

from tests.servers.process import ServerCommand, running, script, server_directory
from tests.servers.s3 import S3Server

ACCESS_KEY = "rclone-access-key"  # shorter than 16 characters would be refused as unknown
SECRET_KEY = "rclone-secret-key"


@contextlib.contextmanager
def rclone() -> Iterator[S3Server]:
    """Run `rclone serve s3` on an empty directory."""
    with server_directory() as directory:
        command = ServerCommand(
            name="rclone serve s3",
            arguments=lambda port: [
                *[script("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}"],
                *["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--vfs-cache-mode", "off"],
                # "No such file" is quieter than the notice about a missing configuration.
                *["--config", "", str(directory)],
            ],
        )
        with running(command) as process:
            yield S3Server(process.endpoint, ACCESS_KEY, SECRET_KEY, process)
