"""What is saved is loaded again, by us and by torch, whole or in part, and no byte twice."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as torch_load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as torch_save

from connector import Checkpoint, TransferOptions
from connector.dcp import StorageReader, StorageWriter
from providers import LimitError, SettingsError
from providers.counters import snapshot
from tests.connector.dcp.states import empty, load, same, save, state

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connector.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def names(store: Store, path: str) -> list[str]:
    """Return the names of what lies below a path."""
    key = f"{store.key(path.rstrip('/'))}/"
    return [info.key.removeprefix(key) for info in store.provider().list_objects(key)]


def copied(store: Store, path: str, directory: Path) -> Path:
    """Copy a checkpoint to local files, where torch's own reader finds it."""
    for name in names(store, path):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(store.provider().get(store.key(path + name)))
    return directory


def test_what_was_saved_is_loaded(store: Store) -> None:
    """Tensors of every kind and plain values come back as they were, on every store."""
    saved = state()
    save(store, "run/step-1", saved)
    assert same(load(store, "run/step-1", empty(saved)), saved)
    part, *rest = sorted(names(store, "run/step-1/"), key=lambda name: name[:1] == "c")
    assert {part, *rest} >= {".metadata", "connector.commit.json"}
    assert len(rest) == 2
    checkpoint = Checkpoint(f"{store.uri}run/", options=store.options)
    assert (checkpoint.names(), checkpoint.latest()) == (["step-1"], "step-1")


def test_torch_reads_ours(store: Store, tmp_path: Path) -> None:
    """A copy on a disk is a checkpoint of torch's."""
    saved = state()
    save(store, "step-1", saved)
    found = empty(saved)
    directory = copied(store, "step-1/", tmp_path / "copy")
    torch_load(found, storage_reader=FileSystemReader(directory))
    assert same(found, saved)


@pytest.mark.parametrize("threads", [1, 3])
def test_ours_reads_torchs(store: Store, tmp_path: Path, threads: int) -> None:
    """What torch has written, and was copied to a store, loads without a record."""
    saved = state()
    writer = FileSystemWriter(tmp_path / "local", thread_count=threads)
    torch_save(saved, storage_writer=writer)
    for path in (tmp_path / "local").iterdir():
        store.raw_put(f"step-1/{path.name}", path.read_bytes())
    assert same(load(store, "step-1", empty(saved)), saved)
    with pytest.raises(CheckpointException, match="verify='required'"):
        load(store, "step-1", empty(saved), verify="required")


def test_a_checkpoint_id_wins(store: Store) -> None:
    """The URI of a call counts, not that of an earlier one."""
    settings: dict[str, Any] = {"options": store.options, "transfer": store.transfer}
    writer = StorageWriter(f"{store.uri}nowhere", **settings)
    reader = StorageReader(**settings)
    for number in (1, 2):
        uri = f"{store.uri}step-{number}"
        torch_save(state(number), storage_writer=writer, checkpoint_id=uri)
    for number in (1, 2):
        found = empty(state(number))
        torch_load(found, storage_reader=reader, checkpoint_id=f"{store.uri}step-{number}")
        assert same(found, state(number))
    with pytest.raises(CheckpointException, match="needs a URI"):
        torch_save(state(), storage_writer=StorageWriter())


def test_parts_may_spread_over_prefixes(store: Store) -> None:
    """Below two random digits each; all else stays where it is looked for."""
    save(store, "step-1", state(), fan_out=True)
    assert same(load(store, "step-1", empty(state())), state())
    (part,) = [name for name in names(store, "step-1/") if name.endswith(".distcp")]
    assert len(part.partition("/")[0]) == 2
    save(store, "step-1", state(1))
    assert same(load(store, "step-1", empty(state(1))), state(1))
    assert sum(name.endswith(".distcp") for name in names(store, "step-1/")) == 1


def test_overwriting_may_be_refused(store: Store) -> None:
    """Nothing is written where there is a checkpoint already."""
    save(store, "step-1", state(), overwrite=False)
    before = names(store, "step-1/")
    with pytest.raises(CheckpointException, match="overwrite=False"):
        save(store, "step-1", state(1), overwrite=False)
    assert names(store, "step-1/") == before
    assert same(load(store, "step-1", empty(state())), state())


def test_other_types_and_blocks(store: Store) -> None:
    """A target of another type or layout takes what was saved, and so does a block of it."""
    weight = torch.rand(30, 40)
    save(store, "step-1", {"weight": weight})
    double = {"weight": torch.zeros(30, 40, dtype=torch.float64)}
    assert torch.equal(load(store, "step-1", double)["weight"], weight.double())
    turned = {"weight": torch.zeros(40, 30).t()}
    assert torch.equal(load(store, "step-1", turned)["weight"], weight)


def test_one_tensor_of_many_takes_its_own_bytes(cloud_store: Store) -> None:
    """Of 64 tensors one is read by its range; all of them by theirs, each byte once."""
    tensors = {f"t{number}": torch.rand(64, 1024) for number in range(64)}
    size = 64 * 1024 * 4
    transfer = TransferOptions(range_size_bytes=1 << 20)
    save(cloud_store, "step-1", tensors, transfer=transfer)
    for wanted in (["t17"], list(tensors)):
        before = snapshot().bytes_read
        found = load(
            cloud_store, "step-1", {n: torch.zeros(64, 1024) for n in wanted}, transfer=transfer
        )
        assert all(torch.equal(found[name], tensors[name]) for name in wanted)
        overhead = len(cloud_store.raw_get("step-1/.metadata") or b"") + len(
            cloud_store.raw_get("step-1/connector.commit.json") or b""
        )
        read = snapshot().bytes_read - before
        assert read <= 1.05 * size * len(wanted) + 2 * overhead


def test_asynchronous_saves_are_staged(store: Store) -> None:
    """What changes after the call returned does not reach the checkpoint."""
    saved = state()
    staged = {"weight": saved["model"]["weight"].clone()}
    settings: dict[str, Any] = {"options": store.options, "transfer": store.transfer}
    future: Any = async_save(staged, storage_writer=StorageWriter(f"{store.uri}step-1", **settings))
    staged["weight"].zero_()
    future.result()
    found = load(store, "step-1", {"weight": torch.zeros(100, 200)})
    assert torch.equal(found["weight"], saved["model"]["weight"])


def test_nothing_is_loaded_where_nothing_is(store: Store) -> None:
    """The error says what is missing, and where."""
    with pytest.raises(CheckpointException, match=r"there is no whole checkpoint: \.metadata"):
        load(store, "step-1", empty(state()))


@pytest.mark.parametrize("checkpoint_id", ["run/step-1", "s3:/b/k", "s3://bucket", "s3://bucket/"])
def test_what_is_no_place_for_a_checkpoint(checkpoint_id: str) -> None:
    """It is refused when the writer is made, and by torch's own choice of a storage."""
    assert not StorageWriter.validate_checkpoint_id(checkpoint_id)
    assert not StorageReader.validate_checkpoint_id(checkpoint_id)
    for kind in (StorageWriter, StorageReader):
        with pytest.raises((SettingsError, LimitError)):
            kind(checkpoint_id)
    assert StorageWriter.validate_checkpoint_id("s3://bucket/run/step-1")


def test_importing_the_package_does_not_load_it() -> None:
    """Only those who save distributed checkpoints pay for it."""
    code = "import connector, sys; sys.exit('connector.dcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
