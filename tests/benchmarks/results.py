"""Figures of all runs in one file, so that a run that was broken off goes on where it stopped."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.cases import Metric

__all__ = ["Results", "value"]


def value(metric: Metric, figures: dict[str, float]) -> float:
    """Return one figure in the unit of a table."""
    if metric == "rate":
        return figures["objects"] / figures["seconds"]
    if metric == "megabytes":
        return figures["bytes"] / figures["seconds"] / 1e6
    if metric == "cpu_us":
        return figures["cpu_seconds"] / figures["objects"] * 1e6
    return figures["cpu_seconds"] / (figures["bytes"] / 1e9)


class Results:
    """The results file.

    Args:
        path: of the file; made when the first figure comes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        empty: dict[str, Any] = {"about": {}, "runs": []}
        self._data = json.loads(path.read_text()) if path.exists() else empty

    @property
    def about(self) -> dict[str, Any]:
        """Machine, date and versions."""
        about: dict[str, Any] = self._data["about"]
        return about

    def describe(self, about: dict[str, Any]) -> None:
        """Say what the figures were taken on."""
        self._data["about"] = about
        self._save()

    def has(self, case: str, client: str, repeat: int) -> bool:
        """Whether a run is there already."""
        wanted = (case, client, repeat)
        return any((r["case"], r["client"], r["repeat"]) == wanted for r in self._data["runs"])

    def add(self, case: str, client: str, repeat: int, outcome: dict[str, Any]) -> None:
        """Keep one run: its figures, or its error."""
        run = {"case": case, "client": client, "repeat": repeat, **outcome}
        self._data["runs"].append(run)
        self._save()

    def drop(self, case: str) -> None:
        """Forget the runs of a case."""
        self._data["runs"] = [run for run in self._data["runs"] if run["case"] != case]

    def _save(self) -> None:
        draft = self._path.with_suffix(".part")
        draft.write_text(json.dumps(self._data, indent=1) + "\n")
        draft.replace(self._path)

    def figures(self, case: str, client: str) -> list[dict[str, float]]:
        """Return the figures of all repeats."""
        return [
            run["figures"]
            for run in self._data["runs"]
            if (run["case"], run["client"]) == (case, client) and "figures" in run
        ]

    def error(self, case: str, client: str) -> str | None:
        """Return why a client has no figures."""
        errors = [
            run["error"]
            for run in self._data["runs"]
            if (run["case"], run["client"]) == (case, client) and "error" in run
        ]
        return errors[-1] if errors else None

    def values(self, case: str, client: str, metric: Metric) -> list[float]:
        """Return one metric of all repeats."""
        return [value(metric, figures) for figures in self.figures(case, client)]

    def median(self, case: str, client: str, metric: Metric) -> float | None:
        """Return the median of a metric; None: there are no figures."""
        values = self.values(case, client, metric)
        return statistics.median(values) if values else None
