"""The pictures of the report: bars of medians, with the lowest and the highest run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tests.benchmarks.cases import Case, Metric
    from tests.benchmarks.results import Summary

__all__ = ["AXES", "Panel", "draw"]

AXES: dict[Metric, str] = {
    "cpu_microseconds_per_object": "CPU of the client, microseconds an object (less is better)",
    "samples_per_second": "samples a second (more is better)",
    "megabytes_per_second": "MB a second (more is better)",
    "cpu_seconds_per_gigabyte": "CPU of the client, seconds a GB (less is better)",
    "peak_mebibytes": "memory above the payload, MiB (less is better)",
}
_OURS, _PEER, _LIMIT = "#1b6ca8", "#9aa5b1", "#e3e7eb"


@dataclass(frozen=True)
class Panel:
    """One part of a picture.

    Attributes:
        case: what was measured.
        summaries: of its clients.
        metric: what the bars show.
    """

    case: Case
    summaries: list[Summary]
    metric: Metric


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write one picture of several panels, one below the other."""
    heights = [len(panel.summaries) * 0.3 + 0.9 for panel in panels]
    # Text as text, and nothing that changes from run to run: small files, small differences.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name, "font.size": 9}):
        figure = Figure(figsize=(8, sum(heights)), layout="constrained")
        grid = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
        for axes, panel in zip(grid[:, 0], panels, strict=True):
            _fill(axes, panel)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _fill(axes: Axes, panel: Panel) -> None:
    shown = [one for one in panel.summaries if one.runs]
    medians = [one.median(panel.metric) for one in shown]
    values = [one.values(panel.metric) for one in shown]
    spread = [
        [middle - min(runs) for middle, runs in zip(medians, values, strict=True)],
        [max(runs) - middle for middle, runs in zip(medians, values, strict=True)],
    ]
    names = [one.client for one in shown]
    axes.barh(names, medians, xerr=spread, color=[_colour(name) for name in names], ecolor="#444")
    for place, middle in enumerate(medians):
        axes.annotate(
            f"{middle:,.3g}" if middle < 1000 else f"{middle:,.0f}",
            (middle, place),
            xytext=(6, 7),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_title(panel.case.title, fontsize=9, loc="left")
    axes.set_xlabel(AXES[panel.metric], fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _colour(name: str) -> str:
    if name == "wrk":
        return _LIMIT
    return _OURS if name.startswith("connector/") else _PEER
