"""What one run of one client costs: time, CPU of the whole process tree, memory at its peak."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Figures", "batches", "whole"]

Figures = dict[str, float]


def _cpu_seconds() -> float:
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _memory_bytes(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


@contextlib.contextmanager
def _measured(figures: Figures) -> Iterator[None]:
    # From here on the peak is counted anew.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = _memory_bytes("VmRSS")
    began, cpu = time.perf_counter(), _cpu_seconds()
    yield
    figures["seconds"] = time.perf_counter() - began
    figures["cpu_seconds"] = _cpu_seconds() - cpu
    figures["peak_bytes"] = _memory_bytes("VmHWM") - before


def whole(run: Callable[[int], int], objects: int, size: int, warm: int = 200) -> Figures:
    """Measure a function that reads so many objects, after it has opened its connections.

    Args:
        run: takes how many objects to read, returns how many bytes it got.
        objects: to measure.
        size: of one, in bytes.
        warm: objects read before, unmeasured.
    """
    figures: Figures = {}
    if warm:
        run(warm)
    with _measured(figures):
        got = run(objects)
    if got != objects * size:
        raise SystemExit(f"{got} bytes came instead of {objects * size}")
    return {**figures, "objects": objects, "bytes": got}


def batches(loader: Iterable[Any], size: int) -> Figures:
    """Measure a DataLoader of lists of bytes, from its first batch on.

    What starting the workers takes is part of the CPU, and not of the time.
    """
    figures: Figures = {}
    with _measured(figures):
        objects, first, began = 0, 0, 0.0
        iterator = iter(loader)
        for batch in iterator:
            if not objects:
                first, began = len(batch), time.perf_counter()
            objects += len(batch)
            if any(len(body) != size for body in batch):
                raise SystemExit("an object has another size")
        took = time.perf_counter() - began
        # Its end waits for the workers, whose CPU counts from then on.
        del iterator
    return {
        **figures,
        "seconds": took * objects / (objects - first),
        "objects": objects,
        "bytes": objects * size,
        "workers": float(os.environ.get("WORKERS", "0")),
    }
