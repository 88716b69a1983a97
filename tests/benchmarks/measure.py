"""One run in a process of its own: prints a line of JSON with what it took.

python -m tests.benchmarks.measure RIG CASE CLIENT OBJECTS
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.cases import CASES, KINDS, STATE, Case
from tests.benchmarks.rig import BUCKET, Rig

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

__all__ = ["Job", "Measured", "Read", "Totals", "main"]

_MODULES = {
    "connector": "ours",
    "pycurl": "bare",
    "obstore": "s3_peers",
    "s3torchconnector": "s3_peers",
    "boto3": "s3_peers",
    "multi-storage-client": "s3_loops",
    "dataflux": "gcs_peers",
    "google-cloud-storage": "gcs_peers",
    "osstorchconnector": "oss_peers",
    "wrk": "server_limit",
}
_MIB = 1 << 20
_GIGABYTE = 1_000_000_000


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        rig: the server.
        case: says what is read, and how.
        client: of that case.
        objects: how many to read.
    """

    rig: Rig
    case: Case
    client: str
    objects: int

    @property
    def way(self) -> str:
        """The client's name without its package."""
        return self.client.partition("/")[2]

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        return self.rig.endpoint(self.case.cloud, self.case.profile)

    @property
    def size_bytes(self) -> int:
        """The size of each object."""
        return KINDS[self.case.kind]

    @property
    def prefix(self) -> str:
        """Below it are exactly as many objects as are to be read."""
        return f"{self.case.kind}/{self.objects}/"

    @property
    def uri(self) -> str:
        """The prefix's."""
        return f"{self.case.cloud}://{BUCKET}/{self.prefix}"

    @property
    def keys(self) -> list[str]:
        """The objects'."""
        return [f"{self.prefix}{number:07d}.bin" for number in range(self.objects)]

    @property
    def warm_up_prefix(self) -> str:
        """Of other objects, to be read before the clock starts; few for slow clients."""
        return f"{self.case.kind}/{self._warm_up_objects}/"

    @property
    def warm_up_keys(self) -> list[str]:
        """Those objects."""
        return [f"{self.warm_up_prefix}{number:07d}.bin" for number in range(self._warm_up_objects)]

    @property
    def _warm_up_objects(self) -> int:
        return max(1, min(64, self.objects // 8))


@dataclass(frozen=True)
class Totals:
    """What a client says it has read.

    Attributes:
        objects: how many.
        size_bytes: of their bodies together.
        held_bytes: of them in memory that the client took while the clock ran, where the
            bodies are kept; what goes into a buffer made before is not counted.
        seconds: where the client's own clock goes, in place of ours.
    """

    objects: int
    size_bytes: int
    held_bytes: int = 0
    seconds: float | None = None


if TYPE_CHECKING:
    Read: TypeAlias = Callable[[], Totals]


@dataclass(frozen=True)
class Measured:
    """What a run took.

    Attributes:
        objects: read.
        bytes_read: of bodies.
        wall_seconds: from the first request to the last byte, workers' start included.
        cpu_seconds: user and system, of the process and its children.
        server_cpu_seconds: of the server's one worker; near ``wall_seconds``: it is the limit.
        peak_mebibytes: most memory of the process above what it had before, without the bodies.
        requests: that the server counted.
        bytes_sent: by the server, headers included.
        connections: that the server saw opened.
        bytes_received: by the server, headers included.
    """

    objects: int
    bytes_read: int
    wall_seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    peak_mebibytes: float
    requests: int
    bytes_sent: int
    connections: int
    bytes_received: int = 0

    @property
    def cpu_microseconds_per_object(self) -> float:
        """Of the client."""
        return self.cpu_seconds / self.objects * 1e6

    @property
    def samples_per_second(self) -> float:
        """By the clock."""
        return self.objects / self.wall_seconds

    @property
    def megabytes_per_second(self) -> float:
        """By the clock."""
        return self.bytes_read / self.wall_seconds / 1e6

    @property
    def cpu_seconds_per_gigabyte(self) -> float:
        """Of the client."""
        return self.cpu_seconds / self.bytes_read * _GIGABYTE

    @classmethod
    def of(cls, values: dict[str, float]) -> Measured:
        """Return what ``asdict`` was given, other keys left out."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})  # type: ignore[arg-type]


def _cpu_seconds() -> float:
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _cpu_seconds_of(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def _measure(job: Job, read: Read) -> Measured:
    before = job.rig.counters()
    worker = before["worker"]
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    resident, server, cpu = _resident("VmRSS"), _cpu_seconds_of(worker), _cpu_seconds()
    start = time.perf_counter()
    totals = read()
    seconds = time.perf_counter() - start
    cpu = _cpu_seconds() - cpu
    peak = _resident("VmHWM") - resident - totals.held_bytes
    after = job.rig.counters()
    if totals.size_bytes != totals.objects * job.size_bytes or totals.objects == 0:
        raise RuntimeError(f"{totals} is not {job.objects} objects of {job.size_bytes} bytes")
    return Measured(
        totals.objects,
        totals.size_bytes,
        totals.seconds or seconds,
        cpu,
        _cpu_seconds_of(worker) - server,
        peak / _MIB,
        after["requests"] - before["requests"],
        after["bytes"] - before["bytes"],
        after["connections"] - before["connections"],
        after["received"] - before["received"],
    )


def _module(job: Job) -> str:
    return "states" if job.case.kind == STATE else _MODULES[job.client.partition("/")[0]]


def main(arguments: list[str]) -> None:
    """Run the job that the arguments name."""
    rig, name, client, objects = arguments
    case = next(case for case in CASES if case.name == name)
    job = Job(Rig.from_json(rig), case, client, int(objects))
    module = importlib.import_module(f"tests.benchmarks.{_module(job)}")
    read: Read = module.prepare(job)
    measured = asdict(_measure(job, read))
    sys.stdout.write(f"\n{json.dumps(measured)}\n")
    sys.stdout.flush()
    # Some clients never end their threads, or crash in their own end: all has been said.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
