"""Forks, TLS and interrupts, through a host name that a resolver has to look up."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.plane_certificate import make_certificate
from tests.fakes.plane_fork import body_of, keys
from tests.fakes.plane_server import PlaneServer, after

HOST = "plane.test"
OLDEST = Path(sys.prefix) / "pycurl-oldest"
"""The oldest pycurl that the package allows; the set-up of the tests puts it there."""
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs a mount namespace to give loopback another name"
)


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlaneServer]:
    """A server that the programs under test reach by its name."""
    certificate = make_certificate(tmp_path, HOST)
    objects = {key: body_of(key) for key in keys()}
    with PlaneServer(objects, certificate if request.param == "https" else None, HOST) as server:
        yield server


@pytest.fixture(params=["newest", "oldest"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Variables by which a program runs with the newest pycurl or with the oldest allowed."""
    if request.param == "newest":
        return dict(os.environ)
    assert (OLDEST / "pycurl-7.46.0.dist-info").exists()
    return {**os.environ, "PYTHONPATH": str(OLDEST)}


def run_named(
    tmp_path: Path, environment: dict[str, str], *words: str
) -> "subprocess.CompletedProcess[str]":
    """Run a module where the host's name means loopback, to its end."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "util-linux's unshare is needed to name a host"
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {HOST}\n")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    namespace = [] if os.geteuid() == 0 else ["-r"]
    return subprocess.run(
        [unshare, *namespace, "-m", "sh", "-c", script, str(hosts), sys.executable, "-m", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )


@pytest.mark.parametrize("ending", ["os._exit", "sys.exit"])
def test_forks_amid_reads(
    server: PlaneServer, tmp_path: Path, environment: dict[str, str], ending: str
) -> None:
    """Children read on their own whatever the parent is doing; the parent never notices them."""
    ca = str(tmp_path / f"{HOST}.pem")
    words = "tests.fakes.plane_fork", server.endpoint, ca, "--ending", ending, "--forks", "6"
    done = run_named(tmp_path, environment, *words)
    assert (done.returncode, done.stderr) == (0, "")
    # The parent's two streams, with 8 connections each, and those of six children; not one more.
    assert server.connections <= 2 * 8 + 6 * 8


def test_interrupt_ends_a_read_and_leaves_nothing(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Ctrl-C comes through a waiting stream, frees what it held, and reading works afterwards."""
    never = threading.Event()
    with PlaneServer({"first": b"first", "second": b"second"}) as server:
        server.fault(after(never), key="second")
        with subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.plane_interrupt", server.endpoint],
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "SSL_CERT_FILE": str(make_certificate(tmp_path, HOST))},
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "reading\n"
            program.send_signal(signal.SIGINT)
            said = program.stdout.read()
            assert program.wait(timeout=60) == 0, said
        never.set()
