"""Reads in a process that has more descriptors open than ``select`` can tell of."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.plane_certificate import make_certificate
from tests.fakes.plane_descriptors import DESCRIPTORS, KEYS, body_of
from tests.fakes.plane_server import PlaneServer


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for the descriptors")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_reads_beyond_descriptor_1024(tmp_path: Path, scheme: str) -> None:
    """Streams begun before and after they were opened bring every body."""
    certificate = make_certificate(tmp_path, "plane.test")
    objects = {key: body_of(key) for key in KEYS}
    with PlaneServer(objects, certificate if scheme == "https" else None) as server:
        module = "tests.fakes.plane_descriptors"
        done = subprocess.run(
            [sys.executable, "-m", module, server.endpoint, str(certificate)],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert (done.returncode, done.stderr) == (0, "")
        if done.stdout.startswith("capped"):
            pytest.skip(f"the hard limit of open files is too low: {done.stdout.split()[1]}")
        highest, held = map(int, done.stdout.split())
        assert held == DESCRIPTORS
        assert highest > DESCRIPTORS
        assert len(server.seen) == 3 * len(KEYS)
