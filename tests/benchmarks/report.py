"""Makes `docs/benchmarks.md` and its pictures of the results file."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt

from tests.benchmarks.cases import CASES
from tests.benchmarks.sizes import SIZES

if TYPE_CHECKING:
    from tests.benchmarks.cases import Case, Metric
    from tests.benchmarks.results import Results

__all__ = ["write_report"]

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_UNITS: dict[Metric, str] = {
    "cpu_us": "CPU µs/object",
    "rate": "samples/s",
    "megabytes": "MB/s",
    "cpu_gigabyte": "CPU s/GB",
}
_OURS = "torch-cloud-connector"
_COLUMNS = "objects/s | CPU µs/object | requests/object | peak memory beyond payload"
_MIB = 1 << 20


def write_report(results: Results) -> None:
    """Write the page and one picture a case."""
    measured = [case for case in CASES if results.figures(case.name, case.clients[0].name)]
    pictures = _DOCS / "images"
    pictures.mkdir(exist_ok=True)
    for case in measured:
        _draw(case, results, pictures / f"benchmarks-{case.name}.svg")
    page = [_HEAD, _summary(measured, results), *(_section(case, results) for case in measured)]
    (_DOCS / "benchmarks.md").write_text("\n".join([*page, _method(results)]))


_HEAD = """# Benchmarks

Every figure is taken beside its peers' in one run on one small machine; absolute figures hold for
nobody, ratios do. One command measures all of it and writes this page:

```bash
bash tests/benchmarks/run.sh            # --quick: three repeats of fewer objects
```
"""


def _summary(cases: list[Case], results: Results) -> str:
    lines = [
        "## Wanted and reached",
        "",
        "This project's median by that of the best of the peers named. For costs less is better.",
        "",
        "| case | against | wanted | reached | |",
        "|---|---|---|---|---|",
    ]
    for case in cases:
        ours = results.median(case.name, case.clients[0].name, case.metric)
        for wanted in case.wanted:
            theirs = _best(case, wanted.peers, results)
            bound = f"at {'most' if case.is_cost else 'least'} {wanted.ratio:g}x"
            if ours is None or theirs is None:
                lines.append(f"| {case.title} | {wanted.peers[0]} | {bound} | no figures | |")
                continue
            ratio = ours / theirs[1]
            reached = ratio <= wanted.ratio if case.is_cost else ratio >= wanted.ratio
            lines.append(
                f"| {case.title} | {theirs[0]} | {bound} | {ratio:.2f}x | "
                f"{'reached' if reached else '**missed**'} |"
            )
    return "\n".join([*lines, ""])


def _best(case: Case, peers: tuple[str, ...], results: Results) -> tuple[str, float] | None:
    medians = [(peer, results.median(case.name, peer, case.metric)) for peer in peers]
    known = [(peer, median) for peer, median in medians if median is not None]
    if not known:
        return None
    pick = min if case.is_cost else max
    return pick(known, key=lambda pair: pair[1])


def _section(case: Case, results: Results) -> str:
    lines = [
        f"## {case.title}",
        "",
        f"![{case.title}](images/benchmarks-{case.name}.svg)",
        "",
        f"| client | {_UNITS[case.metric]}, median | spread | {_COLUMNS} |",
        "|---|---|---|---|---|---|---|",
    ]
    for client in case.clients:
        figures = results.figures(case.name, client.name)
        if not figures:
            error = results.error(case.name, client.name) or "not run"
            lines.append(f"| {_shown(client.name)} | no figures: {error[:120]} | | | | | |")
            continue
        values = results.values(case.name, client.name, case.metric)
        cells = [
            _shown(client.name),
            f"**{statistics.median(values):.4g}**",
            f"{min(values):.4g} to {max(values):.4g}",
            f"{_median(results, case, client.name, 'rate'):.4g}",
            f"{_median(results, case, client.name, 'cpu_us'):.4g}",
            f"{statistics.median(f['requests'] / f['objects'] for f in figures):.3g}",
            _peak(case, figures),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _median(results: Results, case: Case, client: str, metric: Metric) -> float:
    return results.median(case.name, client, metric) or 0.0


def _peak(case: Case, figures: list[dict[str, float]]) -> str:
    if "peak_bytes" not in figures[0]:
        return ""
    payload = SIZES["huge"] if case.kind == "huge" else 0
    return f"{statistics.median(f['peak_bytes'] - payload for f in figures) / _MIB:.0f} MiB"


def _shown(name: str) -> str:
    return name.replace("ours", _OURS) if name.startswith("ours") else name


def _draw(case: Case, results: Results, path: Path) -> None:
    known = [c.name for c in case.clients if results.figures(case.name, c.name)]
    values = [results.values(case.name, name, case.metric) for name in known]
    medians = [statistics.median(each) for each in values]
    errors = [
        [median - min(each) for median, each in zip(medians, values, strict=True)],
        [max(each) - median for median, each in zip(medians, values, strict=True)],
    ]
    colours = ["#d1495b" if n.startswith("ours") else "#8d99ae" for n in known]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": case.name, "font.size": 9}):
        figure, axes = plt.subplots(figsize=(6.4, 0.5 + 0.38 * len(known)))
        axes.barh([_shown(name) for name in known], medians, xerr=errors, color=colours)
        axes.invert_yaxis()
        axes.set_xlabel(f"{_UNITS[case.metric]} ({'less' if case.is_cost else 'more'} is better)")
        axes.spines[["top", "right"]].set_visible(b=False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _method(results: Results) -> str:
    about = results.about
    peers = ", ".join(f"{name} {version}" for name, version in about["peers"].items())
    return f"""## Method

- Server: {about["server"]} with one worker on a core of its own, objects in memory, plain HTTP
  unless TLS is said; 20 ms are slept before each answer where latency is said. Paths and headers
  are those of S3, GCS and OSS, checksums and ETags included and true.
- Each run is a fresh process; a client of one process runs on the other core, a client with
  workers on both. Repeats are interleaved, A B A B; the table has medians and the extremes.
- CPU is user and system time of the client's whole process tree, after its connections are open.
  With a DataLoader, time counts from the first batch on, CPU from the start of the workers.
- Each peer runs at its best public setting; where several are known, all are shown and the best
  counts. `wrk` shows what the server itself can give, with a client that looks at nothing.
- Peak memory is the growth of the main process's resident memory, less the payload of the case
  that fills a buffer of the caller's.
- {about["cores"]} cores of {about["cpu"]}, Linux {about["kernel"]}, Python {about["python"]},
  pycurl {about["pycurl"]}; {peers}. {about["date"]}{", a quick run" if about["quick"] else ""}.
"""
