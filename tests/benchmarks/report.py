"""Makes docs/benchmarks.md and its pictures: ``python -m tests.benchmarks.report [RESULTS]``."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from tests.benchmarks.cases import CASES, STATE, Case, Metric, Target
from tests.benchmarks.plots import Panel, draw
from tests.benchmarks.results import Results, Summary, ratio, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["main", "write"]

_HERE = Path(__file__).parent
_DOCS = Path(__file__).parents[2] / "docs"
_UNITS: dict[Metric, str] = {
    "cpu_microseconds_per_object": "CPU µs/object",
    "samples_per_second": "samples/s",
    "megabytes_per_second": "MB/s",
    "cpu_seconds_per_gigabyte": "CPU s/GB",
    "peak_mebibytes": "MiB above payload",
}
_PICTURES = {
    "cpu": ("small", "tls", "oss-plain"),
    "s3": ("s3-", "msc"),
    "gcs": ("gcs-",),
    "oss": ("oss-slow",),
    "large": ("large",),
    "medium": ("medium",),
    "checkpoints": ("save-", "load-"),
}
_SMALL = 10


def main(arguments: list[str]) -> None:
    """Write the report of a results file."""
    path = Path(arguments[0]) if arguments else _HERE / "results.json"
    if not path.exists():
        raise SystemExit(f"there is no {path}: run `bash tests/benchmarks/run.sh` first")
    write(Results.load(path), _DOCS)


def write(results: Results, docs: Path) -> None:
    """Write ``benchmarks.md`` and ``images/benchmarks-*.svg`` below a directory."""
    summaries = {case.name: summarize(results, case) for case in CASES}
    pictures = _draw_all(summaries, docs / "images")
    template = Template((_HERE / "report.template.md").read_text())
    page = template.substitute(
        repeats=results.repeats,
        ratios=_ratios(summaries),
        cases="\n\n".join(_case(case, summaries[case.name], pictures) for case in CASES),
        mode=results.mode,
        dates=", ".join(results.dates),
        machine=_pairs(results.machine),
        versions=_pairs(results.versions),
    )
    (docs / "benchmarks.md").write_text(page)


def _pairs(values: dict[str, str]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in values.items())


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- Ratios --------------------------------------------------------------------------------


def _ratios(summaries: dict[str, list[Summary]]) -> str:
    rows = [
        _ratio_row(case, summaries[case.name], target) for case in CASES for target in case.targets
    ]
    head = ["case", "against", "measure", "wanted", "measured", "ours", "theirs", ""]
    return _table(head, rows)


def _ratio_row(case: Case, summaries: list[Summary], target: Target) -> list[str]:
    found = ratio(summaries, target)
    bound = "at least" if target.more_is_better else "at most"
    unit = "x" if target.peer else " MiB"
    wanted = f"{bound} {target.ratio:g}{unit}"
    row = [f"[{case.name}](#{case.name})", target.peer or "a fixed bound", _UNITS[target.metric]]
    if found is None:
        return [*row, wanted, "not measured", "", "", ""]
    by_client = {one.client: one for one in summaries}
    theirs = ""
    if found.theirs:
        median = _number(by_client[found.theirs].median(target.metric))
        theirs = f"{median} ({found.theirs})"
    return [
        *row,
        wanted,
        f"**{found.value:.3g}{unit}**",
        _number(by_client[found.ours].median(target.metric)),
        theirs,
        "reached" if found.reached else "**missed**",
    ]


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < _SMALL else f"{value:,.0f}"


# ---- Cases ---------------------------------------------------------------------------------


def _case(case: Case, summaries: list[Summary], pictures: dict[str, str]) -> str:
    parts = [f"### {case.name}", f"{case.title[0].upper()}{case.title[1:]}."]
    if not any(one.runs or one.error for one in summaries):
        return "\n\n".join([*parts, "Not run."])
    metrics: list[Metric] = list(case.metrics)
    # Time and work, whatever the case's goals go by.
    metrics += [m for m in _also(case) if m not in metrics]
    head = ["client", *(_UNITS[metric] for metric in metrics)]
    head += ["requests/object", "MB sent", "MB received"]
    head += ["client's core busy", "server's core busy"]
    rows = (_client_row(one, metrics) for one in summaries if one.runs)
    parts.append(_table(head, rows))
    failures = [f"- `{one.client}` failed: `{_line(one.error)}`" for one in summaries if one.error]
    parts += ["\n".join(failures)] if failures else []
    parts += [f"![{case.title}](images/{pictures[case.name]})"] if case.name in pictures else []
    return "\n\n".join(parts)


def _also(case: Case) -> tuple[Metric, ...]:
    if case.kind in {"1g", STATE}:
        return ("megabytes_per_second",)
    return ("samples_per_second", "cpu_microseconds_per_object")


def _client_row(one: Summary, metrics: list[Metric]) -> list[str]:
    return [
        one.client,
        *(_spread(one, metric) for metric in metrics),
        f"{one.per_object('requests'):.3g}",
        _megabytes(one, "bytes_sent"),
        _megabytes(one, "bytes_received"),
        f"{one.client_load:.0%}",
        f"{one.server_load:.0%}",
    ]


def _megabytes(one: Summary, name: str) -> str:
    values: list[int] = [getattr(run, name) for run in one.runs]
    return _number(statistics.median(values) / 1e6)


def _spread(one: Summary, metric: Metric) -> str:
    values = one.values(metric)
    return f"{_number(one.median(metric))} ({_number(min(values))}-{_number(max(values))})"


def _line(text: str) -> str:
    """Return the last line that was said, as a table's cell or a list's entry can hold it."""
    return text.strip().splitlines()[-1].replace("`", "'").replace("|", "/")


def _draw_all(summaries: dict[str, list[Summary]], images: Path) -> dict[str, str]:
    """Draw the pictures; return, for the last case of each, its file's name."""
    images.mkdir(parents=True, exist_ok=True)
    placed = {}
    for name, beginnings in _PICTURES.items():
        panels = [
            Panel(case, summaries[case.name], case.metrics[0])
            for case in CASES
            if case.name.startswith(beginnings) and any(one.runs for one in summaries[case.name])
        ]
        path = images / f"benchmarks-{name}.svg"
        path.unlink(missing_ok=True)
        if panels:
            draw(panels, path)
            placed[panels[-1].case.name] = path.name
    return placed


if __name__ == "__main__":
    main(sys.argv[1:])
