"""Ranks that save and load together: sharded or copied, by other numbers of ranks, and broken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from torch.multiprocessing.spawn import spawn

from tests.connector.dcp.rank_process import Job, run_rank

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connector.store import Store


def together(world: int, job: Job) -> list[Any]:
    """Run a group of ranks, and return what each found."""
    start: Any = spawn  # torch gives it no types
    start(run_rank, (world, job), nprocs=world)
    return [
        json.loads((job.directory / f"{job.way}-{rank}.json").read_text()) for rank in range(world)
    ]


@pytest.fixture
def job(shared_store: Store, tmp_path: Path) -> Job:
    """A checkpoint of a store, to be saved by four ranks."""
    return Job(tmp_path, f"{shared_store.uri}run/step-1", shared_store.options, "save")


@pytest.mark.parametrize("shared_store", ["juicefs", "gcs", "oss"], indirect=True)
def test_saved_by_four_loaded_by_two(job: Job) -> None:
    """Shards of four ranks become those of two, to the last bit, in a model of other values."""
    together(4, job)
    for found in together(2, replace(job, way="load", seed=1)):
        assert all(found), found


@pytest.mark.parametrize("shared_store", ["juicefs"], indirect=True)
@pytest.mark.parametrize("sharded", [True, False])
def test_copies_become_shards(job: Job, sharded: bool) -> None:
    """What copies on each rank have saved, shards load, and the reverse."""
    together(2, replace(job, sharded=sharded))
    for found in together(3, replace(job, way="load", seed=1, sharded=not sharded)):
        assert all(found), found


@pytest.mark.parametrize("shared_store", ["juicefs"], indirect=True)
def test_what_changes_after_the_call_is_not_saved(job: Job) -> None:
    """Asynchronous saves hold the values that there were when they began."""
    together(2, replace(job, way="save-later"))
    for found in together(2, replace(job, way="load", seed=1)):
        assert all(found), found


@pytest.mark.parametrize("shared_store", ["juicefs", "oss"], indirect=True)
def test_one_rank_that_fails_fails_all(job: Job) -> None:
    """Every rank raises, says whose fault it was, and the earlier checkpoint stays."""
    together(2, job)
    for found in together(2, replace(job, way="break", seed=2)):
        assert "this rank broke" in found
        assert "RANK 1" in found
    for found in together(2, replace(job, way="load", seed=1)):
        assert all(found), found


@pytest.mark.parametrize("shared_store", ["juicefs", "file"], indirect=True)
def test_ranks_that_do_not_talk_share_no_file(shared_store: Store, job: Job) -> None:
    """Each has its own parts and its own metadata."""
    for found in together(2, replace(job, way="alone")):
        assert all(found), found
    key = shared_store.key("run/step-1")
    names = [info.key.removeprefix(f"{key}/") for info in shared_store.provider().list_objects(key)]
    assert sum(name.startswith("__0_") for name in names) == 1
    assert sum(name.startswith("__1_") for name in names) == 1
    assert {"__0.metadata", "__1.metadata"} <= set(names)
