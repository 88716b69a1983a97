"""Runs the benchmarks and adds to the results file: ``python -m tests.benchmarks --help``."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.cases import STATE, Case, Client, named
from tests.benchmarks.measure import Measured
from tests.benchmarks.report import write
from tests.benchmarks.results import Results, Run, machine, versions
from tests.benchmarks.rig import Rig, serve

_log = logging.getLogger("benchmarks")
_ROOT = Path(__file__).parents[2]
_TIMEOUT_SECONDS = 120
_SECONDS = {"quick": 0.8, "full": 2.5}  # that one run should take
_REPEATS = {"quick": 3, "full": 5}
_TENSORS = {"quick": 16, "full": 64}  # 16 MiB each
_LAST_WORDS = 400


def main() -> None:
    """Run what the command line names."""
    arguments = _parse()
    cases = named(arguments.case)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    mode = "quick" if arguments.quick else "full"
    results = Results(mode, arguments.repeats or _REPEATS[mode], machine(), versions())
    path: Path = arguments.results
    if path.exists() and not arguments.fresh:
        earlier = Results.load(path)
        if difference := results.differs_from(earlier):
            raise SystemExit(
                f"{path} is not of this kind of run ({difference}); --fresh starts anew, "
                "--results names another file"
            )
        results = earlier
    start = time.monotonic()
    with serve(_TENSORS[mode] if any(case.kind == STATE for case in cases) else 0) as rig:
        for case in cases:
            _run_case(rig, case, results, path)
    write(results, arguments.docs)
    _log.info("done in %.0f s: %s, %s", time.monotonic() - start, path, arguments.docs)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description="Measures this package and peers.")
    parser.add_argument("--quick", action="store_true", help="3 short repeats in place of 5 long")
    parser.add_argument(
        "--case", nargs="+", default=[], metavar="NAME", help="cases, or beginnings of their names"
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--resume", action="store_true", help="skip runs that are there (default)")
    ways.add_argument("--fresh", action="store_true", help="forget the results that are there")
    parser.add_argument("--repeats", type=int, help="in place of the mode's own number")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).with_name("results.json"), metavar="FILE"
    )
    parser.add_argument(
        "--docs", type=Path, default=_ROOT / "docs", metavar="DIRECTORY", help="of the report"
    )
    return parser.parse_args()


def _run_case(rig: Rig, case: Case, results: Results, path: Path) -> None:
    """Run every client once, then again: what disturbs the machine disturbs all."""
    failed = set[str]()
    _log.info("%s: %s", case.name, case.title)
    for repeat in range(results.repeats):
        for client in case.clients:
            if client.name in failed or results.done(case.name, client.name, repeat):
                continue
            run = _run(rig, case, client, repeat, results.mode)
            # What cannot be pointed at the rig fails each time: once is enough.
            if run.error:
                failed.add(client.name)
            results.add(run, dt.datetime.now(dt.timezone.utc).date().isoformat())
            results.save(path)
            _log.info("  %-38s %s", client.name, _words(run, case))


def _words(run: Run, case: Case) -> str:
    if run.measured is None:
        return f"FAILED: {run.error}"
    values = (f"{getattr(run.measured, metric):.4g} {metric}" for metric in case.metrics)
    return ", ".join(values)


def _objects(case: Case, client: Client, mode: str) -> int:
    if client.package == "wrk":
        # Long enough for a few of the largest objects.
        return 3 if case.kind == "1g" else max(1, round(_SECONDS[mode] / 2))
    if case.kind == "1g":
        return 1
    if case.kind == STATE:
        return _TENSORS[mode]
    # Whole batches for each worker.
    multiple = case.batch_size * max(1, case.workers)
    return max(1, round(client.rate * _SECONDS[mode] / multiple)) * multiple


def _run(rig: Rig, case: Case, client: Client, repeat: int, mode: str) -> Run:
    """Run one client in a process of its own."""
    words = [rig.to_json(), case.name, client.name, str(_objects(case, client, mode))]
    command = rig.inside([sys.executable, "-m", "tests.benchmarks.measure", *words])
    # A proxy of the machine's has no business between two programs on it.
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    # In a group of its own, so that workers do not outlive a client that hangs.
    with subprocess.Popen(
        command,
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, complaints = process.communicate(timeout=_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            error = f"no end after {_TIMEOUT_SECONDS} s"
            return Run(case.name, client.name, repeat, error=error)
    if process.returncode != 0:
        last = complaints.strip()[-_LAST_WORDS:]
        error = f"exit status {process.returncode}: {last}"
        return Run(case.name, client.name, repeat, error=error)
    measured = Measured.of(json.loads(said.strip().splitlines()[-1]))
    return Run(case.name, client.name, repeat, measured)


if __name__ == "__main__":
    main()
