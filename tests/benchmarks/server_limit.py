"""The rig's own limit: what ``wrk`` gets out of the same server, throwing bodies away."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from tests.benchmarks.measure import Totals
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from tests.benchmarks.measure import Job, Read

__all__ = ["prepare"]

_CONNECTIONS = {"100k": 64, "1m": 64, "1g": 2}
_SUMMARY = re.compile(r"(\d+) requests in ([\d.]+)s")


def prepare(job: Job) -> Read:
    """Return the client's read; ``objects`` are the seconds it takes."""
    host = {"oss": f"{BUCKET}.oss-local.test"}.get(job.case.cloud)
    endpoint = job.endpoint.replace("oss-local.test", host) if host else f"{job.endpoint}/{BUCKET}"
    url = f"{endpoint}/{job.case.kind}/64/0000000.bin"
    connections = str(_CONNECTIONS[job.case.kind])
    command = ["wrk", "--threads", "1", "--connections", connections]

    def read() -> Totals:
        done = subprocess.run(
            [*command, "--duration", f"{job.objects}s", url],
            check=True,
            capture_output=True,
            text=True,
        )
        found = _SUMMARY.search(done.stdout)
        if found is None:
            raise RuntimeError(f"wrk says no number of requests: {done.stdout}")
        requests = int(found[1])
        return Totals(requests, requests * job.size_bytes, seconds=float(found[2]))

    return read
