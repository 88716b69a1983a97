"""A great many reads from many threads or processes, off a server that drops connections."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

GETS = 20_000
SEED = 15


@pytest.fixture
def dropping() -> Iterator["subprocess.Popen[str]"]:
    """The server, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.plane_dropping", str(SEED)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        yield server


@pytest.mark.parametrize("workers", [["--threads", "32"], ["--processes", "4"]])
def test_every_body_is_right(dropping: "subprocess.Popen[str]", workers: list[str]) -> None:
    """20,000 GETs, of which hundreds are dropped on the way: every SHA-256 is right."""
    assert dropping.stdout is not None
    endpoint = dropping.stdout.readline().strip()
    module = "tests.fakes.plane_many"
    reading = subprocess.run(
        [sys.executable, "-m", module, endpoint, str(SEED), *workers, "--count", str(GETS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert (reading.returncode, reading.stderr) == (0, "")
    assert int(reading.stdout) == GETS
    said, _ = dropping.communicate()
    requests, dropped = map(int, said.split())
    assert dropped > GETS * 0.02
    # Each drop costs one more request; libcurl sends some of them again by itself.
    assert GETS + dropped - 100 <= requests <= GETS + dropped + 100
