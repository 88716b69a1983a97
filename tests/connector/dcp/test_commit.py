"""A distributed checkpoint is whole or absent, and what was damaged since is refused by name."""

from __future__ import annotations

import io
import json
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save as torch_save

from connector import Checkpoint
from connector.dcp import StorageReader, StorageWriter
from connector.dcp.unpickling import load_metadata
from providers import IntegrityError
from tests.connector.dcp.states import empty, load, same, save, state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch.distributed.checkpoint.metadata import Metadata

    from tests.connector.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

RECORD = "step-1/connector.commit.json"


def part_of(store: Store) -> str:
    """Return the name of the one part of a checkpoint."""
    (part,) = json.loads(store.raw_get(RECORD) or b"")["parts"]
    return f"step-1/{part['name']}"


# ---- Whole or absent -------------------------------------------------------------------------


class Breaking(DefaultSavePlanner):
    """Fails in the middle of a part."""

    def resolve_data(self, write_item: Any) -> Any:
        """Fail at the last tensor."""
        if write_item.index.fqn == "model.view":
            raise RuntimeError("the planner broke")
        return super().resolve_data(write_item)


def test_a_save_that_fails_changes_nothing(store: Store) -> None:
    """The earlier checkpoint of the same name stays, and loads."""
    save(store, "step-1", state())
    with pytest.raises(CheckpointException, match="the planner broke"):
        torch_save(
            state(1),
            storage_writer=StorageWriter(
                f"{store.uri}step-1", options=store.options, transfer=store.transfer
            ),
            planner=Breaking(),
        )
    assert same(load(store, "step-1", empty(state())), state())


def test_a_save_that_ends_between_record_and_metadata(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a save that never became visible is none of the earlier one's."""
    save(store, "step-1", state())
    monkeypatch.setattr("connector.dcp.writer.pickle.dumps", fail)
    with pytest.raises(CheckpointException, match="killed here"):
        save(store, "step-1", state(1))
    monkeypatch.undo()
    assert same(load(store, "step-1", empty(state())), state())
    save(store, "step-1", state(2))
    assert same(load(store, "step-1", empty(state())), state(2))


def fail(*_: Any) -> bytes:
    """Stand in for the end of the process."""
    raise RuntimeError("killed here")


def test_saving_to_a_name_whose_deletion_broke_off(store: Store) -> None:
    """What marks a deletion is gone before the new checkpoint is there."""
    store.raw_put("run/step-1/connector.deleting", b"")
    save(store, "run/step-1", state())
    checkpoint = Checkpoint(f"{store.uri}run/", options=store.options)
    assert store.raw_get("run/step-1/connector.deleting") is None
    assert checkpoint.names() == ["step-1"]
    save(store, "run/step-2", state())
    assert checkpoint.keep_last(1) == ["step-1"]


# ---- Damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [True, False])
def test_a_part_that_is_missing_is_named(store: Store, record: bool) -> None:
    """With a record and without one, before anything is loaded."""
    save(store, "step-1", state())
    part = part_of(store)
    gone = [part] if record else [part, RECORD]
    store.provider().delete([store.key(name) for name in gone])
    with pytest.raises(
        CheckpointException, match="the checkpoint is not whole: it is missing"
    ) as e:
        load(store, "step-1", empty(state()))
    assert part.rpartition("/")[2] in str(e.value)


def test_a_part_of_another_size_is_named(store: Store) -> None:
    """A part that was cut short is no part."""
    save(store, "step-1", state())
    part = part_of(store)
    store.raw_put(part, (store.raw_get(part) or b"")[:-1])
    with pytest.raises(CheckpointException, match="bytes instead of"):
        load(store, "step-1", empty(state()))


def test_a_part_that_was_written_again_is_refused(cloud_store: Store) -> None:
    """Even where the sizes agree."""
    save(cloud_store, "step-1", state())
    part = part_of(cloud_store)
    damaged = bytearray(cloud_store.raw_get(part) or b"")
    damaged[-1] ^= 1
    cloud_store.raw_put(part, bytes(damaged))
    with pytest.raises(CheckpointException, match="it was written again since"):
        load(cloud_store, "step-1", empty(state()))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format":1}', b'{"format":1,"parts":[1]}'])
def test_a_damaged_record_is_refused(store: Store, text: bytes) -> None:
    """It is never taken for a missing one."""
    save(store, "step-1", state())
    store.raw_put(RECORD, text)
    with pytest.raises(CheckpointException, match="the commit record is damaged"):
        load(store, "step-1", empty(state()))


def test_a_record_of_a_later_format_is_left_alone(store: Store) -> None:
    """What it says is not known here; sizes are compared all the same."""
    save(store, "step-1", state())
    store.raw_put(RECORD, b'{"format":2}')
    assert same(load(store, "step-1", empty(state())), state())


# ---- Code that was planted -------------------------------------------------------------------


class Planted:
    """Runs when it is loaded."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (self.place,)

    place = ""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a directory appears if planted code ran."""
    monkeypatch.setattr(Planted, "place", str(tmp_path / "ran"))
    return tmp_path / "ran"


def test_code_in_the_metadata_does_not_run(store: Store, planted: Path) -> None:
    """The error names what was wanted; those who trust the writer may say so."""
    save(store, "step-1", state())
    metadata: Metadata = pickle.loads(store.raw_get("step-1/.metadata") or b"")  # noqa: S301 ours
    metadata.planner_data = {"x": Planted()}
    store.raw_put("step-1/.metadata", pickle.dumps(metadata))
    with pytest.raises(CheckpointException, match=r"posix\.mkdir"):
        load(store, "step-1", empty(state()))
    assert not planted.exists()
    load(store, "step-1", empty(state()), trusted=True)
    assert planted.exists()


def test_code_in_an_entry_does_not_run(store: Store, planted: Path, tmp_path: Path) -> None:
    """Torch's planner would run it, though the metadata is clean."""
    local = FileSystemWriter(tmp_path / "local")
    torch_save({"weight": torch.ones(3), "extra": Planted()}, storage_writer=local)
    for path in (tmp_path / "local").iterdir():
        store.raw_put(f"step-1/{path.name}", path.read_bytes())
    wanted = {"weight": torch.zeros(3), "extra": None}
    with pytest.raises(CheckpointException, match="the entry 'extra' holds more than plain values"):
        load(store, "step-1", dict(wanted))
    assert not planted.exists()
    load(store, "step-1", dict(wanted), trusted=True)
    assert planted.exists()


@pytest.mark.parametrize(
    "data", [b"", b"nothing", pickle.dumps({"a": 1}), pickle.dumps(io.BytesIO)]
)
def test_what_is_no_metadata(data: bytes) -> None:
    """The error says so, and where it lies."""
    with pytest.raises(IntegrityError, match=r"memory://b/\.metadata"):
        load_metadata(data, "memory://b/.metadata")


def test_readers_take_what_they_know() -> None:
    """A misspelt word is no silent default."""
    with pytest.raises(ValueError, match="'auto' or 'required'"):
        StorageReader("memory://b/k", verify="always")  # type: ignore[arg-type]
