"""The results file: what was measured, on what, and what follows from it."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.cases import ANY_PEER
from tests.benchmarks.measure import Measured

if TYPE_CHECKING:
    from tests.benchmarks.cases import Case, Metric, Target

__all__ = ["Results", "Run", "Summary", "machine", "ratio", "summarize", "versions"]

_PACKAGES = (
    "torch-cloud-connector",
    "torch",
    "pycurl",
    "obstore",
    "s3torchconnector",
    "boto3",
    "multi-storage-client",
    "gcs-torch-dataflux",
    "google-cloud-storage",
    "osstorchconnector",
)


@dataclass(frozen=True)
class Run:
    """One run of a client in a case.

    Attributes:
        case: its name.
        client: its name.
        repeat: from 0.
        measured: what it took; None: it failed.
        error: why it failed; empty: it did not.
    """

    case: str
    client: str
    repeat: int
    measured: Measured | None = None
    error: str = ""


@dataclass
class Results:
    """All runs of one machine and one set of versions.

    Attributes:
        mode: ``quick`` or ``full``.
        repeats: of each client in each case.
        machine: what it ran on.
        versions: of what was measured.
        dates: on which runs were added.
        runs: in the order in which they ran.
    """

    mode: str
    repeats: int
    machine: dict[str, str]
    versions: dict[str, str]
    dates: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read a file that ``save`` wrote."""
        values = json.loads(path.read_text())
        runs = [
            Run(**{**run, "measured": run["measured"] and Measured.of(run["measured"])})
            for run in values.pop("runs")
        ]
        return cls(**values, runs=runs)

    def save(self, path: Path) -> None:
        """Write a file, whole or not at all; one run a line, for those who read differences."""
        values = asdict(self)
        lines = ",\n".join(f"  {json.dumps(run)}" for run in values.pop("runs"))
        head = json.dumps(values, indent=1).removesuffix("\n}")
        fresh = path.with_suffix(".new")
        fresh.write_text(f'{head},\n "runs": [\n{lines}\n ]\n}}\n')
        fresh.replace(path)

    def done(self, case: str, client: str, repeat: int) -> bool:
        """Whether this run is there, and good."""
        return any(
            (run.case, run.client, run.repeat) == (case, client, repeat) and run.measured
            for run in self.runs
        )

    def add(self, run: Run, date: str) -> None:
        """Add a run in place of an older one."""
        key = run.case, run.client, run.repeat
        self.runs = [one for one in self.runs if (one.case, one.client, one.repeat) != key]
        self.runs.append(run)
        self.dates = sorted({*self.dates, date})

    def differs_from(self, other: Results) -> str:
        """Say in what two files differ that must not be mixed; empty: in nothing."""
        mine, others = asdict(self), asdict(other)
        for name in ("mode", "repeats", "machine", "versions"):
            if mine[name] != others[name]:
                return f"{name}: {others[name]} there, {mine[name]} here"
        return ""


def machine() -> dict[str, str]:
    """Say what this machine is."""
    cpu = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": memory[0].partition(":")[2].strip() if memory else "unknown",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def versions() -> dict[str, str]:
    """Return the versions of the contestants and of what they stand on."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "from the sources" if name == "torch-cloud-connector" else "missing"
    return found


# ---- What follows --------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """One client in one case.

    Attributes:
        client: its name.
        runs: that succeeded.
        error: of the last that failed.
    """

    client: str
    runs: list[Measured]
    error: str

    def values(self, metric: Metric) -> list[float]:
        """Return that of each run."""
        values: list[float] = [getattr(run, metric) for run in self.runs]
        return values

    def median(self, metric: Metric) -> float:
        """Return that of the runs."""
        return statistics.median(self.values(metric))

    def per_object(self, name: str) -> float:
        """Return the median of any field by the number of objects."""
        values: list[float] = [getattr(run, name) / run.objects for run in self.runs]
        return statistics.median(values)

    @property
    def client_load(self) -> float:
        """The CPU time of the client's processes by the clock's; they share one core."""
        return statistics.median(run.cpu_seconds / run.wall_seconds for run in self.runs)

    @property
    def server_load(self) -> float:
        """The share of the time that the server's worker was busy."""
        return statistics.median(run.server_cpu_seconds / run.wall_seconds for run in self.runs)


def summarize(results: Results, case: Case) -> list[Summary]:
    """Return one summary for each client of a case, in its order."""
    return [
        Summary(
            client.name,
            [run.measured for run in runs if run.measured],
            next((run.error for run in reversed(runs) if run.error), ""),
        )
        for client in case.clients
        for runs in [[r for r in results.runs if (r.case, r.client) == (case.name, client.name)]]
    ]


@dataclass(frozen=True)
class Ratio:
    """How a target came out.

    Attributes:
        value: ours by theirs; with an absolute target, ours.
        reached: whether it is good enough.
        ours: our client that counts.
        theirs: the peer's that counts: its best in this metric.
    """

    value: float
    reached: bool
    ours: str
    theirs: str


def _is_peer(one: Summary, target: Target) -> bool:
    package = one.client.partition("/")[0]
    return package == target.peer or (target.peer == ANY_PEER and package != "connector")


def ratio(summaries: list[Summary], target: Target) -> Ratio | None:
    """Return how a target came out; None: one of the two has no run.

    Ours is the first client of the case: a row has one claim. The peer counts by its best way.
    """
    ours = summaries[0]
    theirs = [one for one in summaries[1:] if one.runs and _is_peer(one, target)]
    if not ours.runs or (target.peer and not theirs):
        return None
    value, peer = ours.median(target.metric), ""
    if theirs:
        pick = max if target.more_is_better else min
        best = pick(theirs, key=lambda one: one.median(target.metric))
        value, peer = value / best.median(target.metric), best.client
    reached = value >= target.ratio if target.more_is_better else value <= target.ratio
    return Ratio(value, reached, ours.client, peer)
