"""What each rank of `test_ranks` does: one process of a gloo group."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path  # noqa: TC003 part of a dataclass that is pickled
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from connector.dcp import StorageReader, StorageWriter

if TYPE_CHECKING:
    from providers import Options

__all__ = ["Job", "model", "run_rank"]

_PATIENCE = timedelta(seconds=300)


@dataclass(frozen=True)
class Job:
    """What the ranks of one group do together.

    Attributes:
        directory: for their rendezvous and results.
        uri: of the checkpoint.
        options: of its store.
        way: the name of a function below.
        sharded: by FSDP; False: a copy on each rank.
        seed: of the model's values.
    """

    directory: Path
    uri: str
    options: Options | None
    way: str
    sharded: bool = True
    seed: int = 0


def model(seed: int) -> torch.nn.Module:
    """Return a model with some layers that split evenly over ranks, and some that do not."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 7)
    )


def run_rank(rank: int, world: int, job: Job) -> None:
    """Be one rank."""
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{job.directory}/{job.way}-{world}",
        rank=rank,
        world_size=world,
        timeout=_PATIENCE,
    )
    os.environ["LOCAL_WORLD_SIZE"] = str(world)
    try:
        result = _WAYS[job.way](rank, job, _spread(job))
        (job.directory / f"{job.way}-{rank}.json").write_text(json.dumps(result))
    finally:
        distributed.destroy_process_group()


def _spread(job: Job) -> torch.nn.Module:
    whole = model(job.seed)
    if not job.sharded:
        return DistributedDataParallel(whole)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for layer in whole:  # type: ignore[attr-defined]
        fully_shard(layer, mesh=mesh)
    fully_shard(whole, mesh=mesh)
    return whole


def _save(_: int, job: Job, spread: torch.nn.Module) -> Any:
    state = {"model": get_model_state_dict(spread), "step": 7}
    save(state, storage_writer=StorageWriter(job.uri, options=job.options))


def _save_later(_: int, job: Job, spread: torch.nn.Module) -> Any:
    state = {"model": get_model_state_dict(spread), "step": 7}
    future: Any = async_save(state, storage_writer=StorageWriter(job.uri, options=job.options))
    with torch.no_grad():
        for parameter in spread.parameters():
            parameter.zero_()
    future.result()


def _load(_: int, job: Job, spread: torch.nn.Module) -> Any:
    """Load into a model of other values; return whether each parameter is as it was saved."""
    state: dict[str, Any] = {"model": get_model_state_dict(spread), "step": 0}
    load(state, storage_reader=StorageReader(job.uri, options=job.options))
    set_model_state_dict(spread, state["model"])
    saved = dict(model(0).named_parameters())
    found = {name.removeprefix("module."): value for name, value in spread.named_parameters()}
    whole = {name: getattr(v, "full_tensor", lambda v=v: v)() for name, v in found.items()}
    return [state["step"] == 7, *(torch.equal(whole[name], saved[name]) for name in saved)]


class _Breaking(DefaultSavePlanner):
    def resolve_data(self, write_item: Any) -> Any:
        """Fail on one rank."""
        if distributed.get_rank() == distributed.get_world_size() - 1:
            raise RuntimeError("this rank broke")
        return super().resolve_data(write_item)


def _break(_: int, job: Job, spread: torch.nn.Module) -> Any:
    state = {"model": get_model_state_dict(spread), "step": 8}
    writer = StorageWriter(job.uri, options=job.options)
    try:
        save(state, storage_writer=writer, planner=_Breaking())
    except CheckpointException as error:
        return str(error)
    return "nothing was raised"


def _alone(rank: int, job: Job, _: torch.nn.Module) -> Any:
    """Save and load what is this rank's own, without asking the others."""
    settings: Any = {"use_collectives": False}
    mine: dict[str, Any] = {"tensor": torch.full((10,), float(rank)), "rank": rank}
    save(mine, storage_writer=StorageWriter(job.uri, options=job.options), **settings)
    distributed.barrier()
    found: dict[str, Any] = {"tensor": torch.zeros(10), "rank": -1}
    load(found, storage_reader=StorageReader(job.uri, options=job.options))
    return [found["rank"] == rank, torch.equal(found["tensor"], mine["tensor"])]


_WAYS = {
    "save": _save,
    "save-later": _save_later,
    "load": _load,
    "break": _break,
    "alone": _alone,
}
