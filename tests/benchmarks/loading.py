"""The training loop that every dataset goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from tests.benchmarks.measure import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.measure import Job, Read

__all__ = ["epoch"]


def _lengths(samples: list[bytes]) -> list[int]:
    """Return the lengths of a batch.

    Made in the worker: what travels to the trainer is the same for every connector, and is
    none of its work.
    """
    return [len(sample) for sample in samples]


def epoch(job: Job, make: Callable[[str], Any], *, shuffle: bool) -> Read:
    """Return one epoch of a DataLoader over the dataset that ``make`` finds below a prefix."""
    if job.case.workers == 0:
        # One batch of other objects opens connections, where the process is the same.
        _run(job, make(job.warm_up_prefix), shuffle=shuffle)
    dataset = make(job.prefix)
    return lambda: _run(job, dataset, shuffle=shuffle)


def _run(job: Job, dataset: Any, *, shuffle: bool) -> Totals:
    torch.manual_seed(0)
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=job.case.batch_size,
        shuffle=shuffle,
        num_workers=job.case.workers,
        collate_fn=_lengths,
    )
    objects = size_bytes = 0
    for lengths in loader:
        objects += len(lengths)
        size_bytes += sum(lengths)
    return Totals(objects, size_bytes)
