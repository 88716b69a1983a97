"""What each rank of `test_ranks` does: one process of a gloo group, with loaders of its own."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path  # noqa: TC003 part of a dataclass that is pickled
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader

from connector import IterableDataset, bytes_of

__all__ = ["Job", "Loading", "run_rank"]

_PATIENCE = timedelta(seconds=300)


@dataclass(frozen=True)
class Loading:
    """One loader, read for some epochs.

    Attributes:
        workers: of the loader.
        start: how they are started.
        keywords: of the dataset, beside its transform.
        batch_size: of the loader.
        drop_last: of the loader.
        epochs: how many.
        in_step: whether all ranks meet after every batch, as in training.
    """

    workers: int
    start: str = "fork"
    keywords: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 4
    drop_last: bool = False
    epochs: int = 1
    in_step: bool = False


@dataclass(frozen=True)
class Job:
    """What the ranks do, one loading after the other.

    Attributes:
        directory: where they meet and leave their results.
        uri: prefix of the objects.
        options: to reach them.
        loadings: by name.
    """

    directory: Path
    uri: str
    options: Any
    loadings: dict[str, Loading]


def run_rank(rank: int, world_size: int, job: Job, passed: Any) -> None:
    """Be one rank, and leave what was read as a pickle.

    Args:
        rank: of this process.
        world_size: how many there are.
        job: what to do.
        passed: a dataset that was made, and pickled, where there was no group yet.
    """
    assert not {"RANK", "WORLD_SIZE"} & set(os.environ)
    # Made before there is a group: ranks are looked up when they are needed.
    datasets = {
        name: IterableDataset.from_prefix(
            job.uri, options=job.options, transform=bytes_of, **loading.keywords
        )
        for name, loading in job.loadings.items()
    }
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{job.directory}/meeting",
        rank=rank,
        world_size=world_size,
        timeout=_PATIENCE,
    )
    read = {name: _read(datasets[name], loading) for name, loading in job.loadings.items()}
    read["passed"] = _read(passed, Loading(workers=2))
    (job.directory / f"rank-{rank}").write_bytes(pickle.dumps(read))
    distributed.destroy_process_group()


def _read(dataset: Any, loading: Loading) -> dict[str, Any]:
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=loading.batch_size,
        num_workers=loading.workers,
        drop_last=loading.drop_last,
        multiprocessing_context=loading.start if loading.workers else None,
        persistent_workers=loading.epochs > 1 and loading.workers > 0,
    )
    epochs, steps = [], torch.zeros(1)
    for _ in range(loading.epochs):
        batches = []
        for batch in loader:
            if loading.in_step:
                distributed.all_reduce(steps.add_(1))
            batches.append(batch)
        epochs.append(batches)
    return {"epochs": epochs, "len": len(dataset), "batches": len(loader)}
