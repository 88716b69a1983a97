"""Runs the benchmarks: `bash tests/benchmarks/run.sh [--quick] [--case NAME ...] [--fresh]`."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.cases import CASES
from tests.benchmarks.report import write_report
from tests.benchmarks.results import Results
from tests.benchmarks.rig import HOST, running
from tests.benchmarks.sizes import SIZES

if TYPE_CHECKING:
    from tests.benchmarks.cases import Case, Client
    from tests.benchmarks.rig import Rig

_ROOT = Path(__file__).resolve().parents[2]
_RESULTS = Path(__file__).with_name("results.json")
_REPEATS, _QUICK_REPEATS, _QUICK_SHARE = 5, 3, 4
_PATIENCE_SECONDS = 300
_WRK_SECONDS = 3
_PEERS = (
    "obstore", "s3torchconnector", "gcs-torch-dataflux", "osstorchconnector",
    "multi-storage-client", "boto3", "google-cloud-storage", "torch",
)  # fmt: skip
_TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
# In a mount namespace of its own the client knows the server's name and trusts its certificate.
_NAMED = f'mount --bind "$0" /etc/hosts && mount --bind "$1" {_TRUSTED} && shift 1 && exec "$@"'


def main() -> None:
    """Measure what is not measured yet, then write the report."""
    parser = argparse.ArgumentParser(prog="tests/benchmarks/run.sh")
    parser.add_argument("--quick", action="store_true", help="three repeats of fewer objects")
    parser.add_argument("--case", nargs="*", choices=[case.name for case in CASES])
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--peers", type=Path, default=_ROOT / ".venv-peers", help="their venv")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    chosen = parser.parse_args()
    results = Results(chosen.results)
    cases = [case for case in CASES if not chosen.case or case.name in chosen.case]
    if chosen.fresh:
        for case in cases:
            results.drop(case.name)
    results.describe(_about(chosen.peers, quick=chosen.quick))
    with running() as rig, tempfile.TemporaryDirectory() as name:
        bench = _Bench(rig, chosen.peers, results, Path(name), quick=chosen.quick)
        for case in cases:
            bench.run(case)
    write_report(results)


def _about(peers: Path, *, quick: bool) -> dict[str, Any]:
    code = f"from importlib import metadata as m; print([m.version(n) for n in {_PEERS!r}])"
    told = subprocess.run(
        [peers / "bin/python", "-c", code], capture_output=True, text=True, check=True
    )
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    server = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=False)
    return {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "quick": quick,
        "cpu": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "server": server.stderr.strip().partition(": ")[2],
        "pycurl": metadata.version("pycurl"),
        "peers": dict(zip(_PEERS, json.loads(told.stdout.replace("'", '"')), strict=True)),
    }


class _Bench:
    """Runs cases against one server."""

    def __init__(
        self, rig: Rig, peers: Path, results: Results, place: Path, *, quick: bool
    ) -> None:
        self._rig = rig
        self._peers = peers
        self._results = results
        self._quick = quick
        self._hosts, self._trusted = place / "hosts", place / "trusted.pem"
        self._hosts.write_text(f"127.0.0.1 localhost {HOST} obench.{HOST}\n")
        own = rig.certificate.read_text()
        self._trusted.write_text(Path(_TRUSTED).read_text() + own[own.index("-----BEGIN CERT") :])

    def run(self, case: Case) -> None:
        """Measure all clients of a case in turn, and that as often as asked."""
        for repeat in range(_QUICK_REPEATS if self._quick else _REPEATS):
            for client in case.clients:
                if self._results.has(case.name, client.name, repeat):
                    continue
                began = time.monotonic()
                outcome = self._wrk(case) if client.name == "wrk" else self._client(case, client)
                self._results.add(case.name, client.name, repeat, outcome)
                told = self._results.values(case.name, client.name, case.metric)
                shown = f"{told[-1]:.6g}" if "figures" in outcome else outcome["error"][:200]
                sys.stdout.write(
                    f"{case.name:24} {client.name:28} {shown} ({time.monotonic() - began:.0f} s)\n"
                )
                sys.stdout.flush()

    def _client(self, case: Case, client: Client) -> dict[str, Any]:
        python = sys.executable if client.module == "ours" else str(self._peers / "bin/python")
        spec = {
            "module": client.module,
            "cloud": case.cloud,
            "endpoint": self._rig.endpoint(case.profile, HOST if case.by_name else "127.0.0.1"),
            "kind": case.kind,
            "objects": max(1, client.objects // (_QUICK_SHARE if self._quick else 1)),
            **case.more,
        }
        run = [*_pinned(case), python, "-m", "tests.benchmarks.run_one"]
        command = [*self._named(), *run, client.name, json.dumps(spec)]
        before = self._rig.requests()
        try:
            done = subprocess.run(
                command,
                env=_environment(),
                cwd=_ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PATIENCE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no end within {_PATIENCE_SECONDS} s"}
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            return {"error": lines[-1]}
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        return {"figures": {**figures, "requests": self._rig.requests() - before - 1}}

    def _named(self) -> list[str]:
        """Return what goes before a command that shall know the server's name."""
        namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
        return [*namespace, "sh", "-c", _NAMED, str(self._hosts), str(self._trusted)]

    def _wrk(self, case: Case) -> dict[str, Any]:
        """Measure what the server itself can do."""
        url = f"{self._rig.endpoint(case.profile)}/bench/{case.kind}/0"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*_pinned(case), "wrk", "-t1", "-c64", f"-d{_WRK_SECONDS}", url],
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = re.search(r"(\d+) requests in ([\d.]+)s", done.stdout)
        if found is None:
            return {"error": done.stderr.strip() or "wrk said nothing"}
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        objects = int(found[1])
        return {
            "figures": {
                "objects": objects,
                "seconds": float(found[2]),
                "cpu_seconds": spent,
                "bytes": objects * SIZES[case.kind],
                "requests": objects,
            }
        }


def _pinned(case: Case) -> list[str]:
    """Keep a client of one process off the server's core."""
    cores = os.cpu_count() or 1
    alone = not case.more.get("workers")
    return ["taskset", "-c", str(cores - 1)] if cores > 1 and alone else []


def _environment() -> dict[str, str]:
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("AWS_", "GOOGLE_", "OSS_")) and "proxy" not in name.lower()
        and name not in {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"}
    }  # fmt: skip
    trusted = {"SSL_CERT_FILE": _TRUSTED, "REQUESTS_CA_BUNDLE": _TRUSTED}
    return {**kept, **trusted, "PYTHONPATH": str(_ROOT), "NO_PROXY": "*"}


if __name__ == "__main__":
    main()
