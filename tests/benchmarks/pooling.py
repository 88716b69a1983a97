"""The loop with threads that clients without a stream of their own go through."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.benchmarks.measure import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.measure import Job, Read

__all__ = ["pooled"]


def pooled(job: Job, get: Callable[[str], int], threads: int) -> Read:
    """Return a loop that gets every key, by so many threads; ``get`` returns the length."""
    pool = ThreadPoolExecutor(threads)
    list(pool.map(get, job.warm_up_keys))

    def read() -> Totals:
        lengths = list(pool.map(get, job.keys))
        return Totals(len(lengths), sum(lengths))

    return read
