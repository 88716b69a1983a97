"""Start a server as a child process, ask it over HTTP whether it is up, and stop it for good."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.02
_STOP_SECONDS = 10.0
_PORT_ATTEMPTS = 3


class ServerError(RuntimeError):
    """A server did not come up; the message quotes the end of its log."""


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How one server is started.

    Args:
        name: Shown in errors.
        arguments: Gives the command line for a port; the first word is an absolute path.
        health_path: Any answer below 500 to a GET of this path means that the server is up.
        environment: Added to a minimal environment; nothing else is inherited.
        start_seconds: How long to wait for the first answer. Generous, because a loaded machine
            needs seconds to import a Python server.
    """

    name: str
    arguments: Callable[[int], Sequence[str]]
    health_path: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that answers on loopback."""

    endpoint: str
    port: int
    pid: int
    log: Path


@contextlib.contextmanager
def server_directory(*, in_memory: bool = False) -> Iterator[Path]:
    """A directory for a server's files, removed afterwards.

    Args:
        in_memory: Prefer the memory file system where there is one, for small files that are
            synced often.
    """
    memory = Path("/dev/shm")  # noqa: S108 (a unique directory is made below it)
    parent = memory if in_memory and os.access(memory, os.W_OK) else None
    # A server that was just stopped may leave files half removed; that is no reason to fail.
    with tempfile.TemporaryDirectory(
        prefix="connector-test-server-", dir=parent, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


@contextlib.contextmanager
def running(command: ServerCommand) -> Iterator[ServerProcess]:
    """Run a server for the length of the block.

    Call it from a thread that outlives the block: the kernel takes the end of the starting thread
    for the end of the parent.

    Raises:
        ServerError: The server ended or did not answer in time.
    """
    with server_directory() as directory:
        process, server = _start(command, directory / "server.log")
        try:
            yield server
        finally:
            _stop(process)


def script(name: str) -> str:
    """The path of a program that was installed next to this Python."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        msg = f"{name} is missing next to {sys.executable}: install tests/requirements.txt"
        raise ServerError(msg)
    return str(path)


def _start(
    command: ServerCommand, log: Path, attempts: int = _PORT_ATTEMPTS
) -> tuple[subprocess.Popen[bytes], ServerProcess]:
    port = _free_port()
    process = _spawn(command, port, log)
    try:
        _wait_until_up(command, process, port, log)
    except BaseException as error:
        _stop(process)
        # Between asking for a free port and using it somebody else may take it.
        taken = isinstance(error, ServerError) and "address already in use" in str(error).lower()
        if taken and attempts > 1:
            return _start(command, log, attempts - 1)
        raise
    return process, ServerProcess(f"http://127.0.0.1:{port}", port, process.pid, log)


def _spawn(command: ServerCommand, port: int, log: Path) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(log.parent),
        "TMPDIR": str(log.parent),
        **command.environment,
    }
    guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid())]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*guard, *command.arguments(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            # An interrupt typed at the terminal is for the test run, which then stops the server.
            start_new_session=True,
        )


def _wait_until_up(
    command: ServerCommand, process: subprocess.Popen[bytes], port: int, log: Path
) -> None:
    deadline = time.monotonic() + command.start_seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_POLL_SECONDS)
            msg = f"{command.name} ended with {code} instead of starting\n{_tail(log)}"
            raise ServerError(msg)
        # Should the port belong to somebody else, our process is about to end.
        if _answers(port, command.health_path) and process.poll() is None:
            return
    msg = f"{command.name} gave no answer in {command.start_seconds} s\n{_tail(log)}"
    raise ServerError(msg)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _tail(log: Path, max_bytes: int = 4000) -> str:
    return log.read_bytes()[-max_bytes:].decode(errors="replace")
