"""Checkpoints by name: saved and loaded on every store, found by step, pruned with care."""

from __future__ import annotations

import io
import itertools
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

from connector import checkpoint as checkpoint_module
from connector.checkpoint import Checkpoint, remember_loaded
from providers import (
    AccessDeniedError,
    GCSOptions,
    IntegrityError,
    LocalOptions,
    NotFoundError,
    Options,
    PreconditionError,
    S3Options,
    SettingsError,
    TransferOptions,
    UnsupportedError,
)
from providers.memory import MemoryProvider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.connector.store import Store

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "_loaded", set())


@pytest.fixture
def checkpoint() -> Checkpoint:
    """An empty run in memory."""
    return Checkpoint(f"memory://run-{next(_numbers)}/runs/42/")


def _write(checkpoint: Checkpoint, *names: str) -> None:
    for name in names:
        with checkpoint.writer(name) as file:
            file.write(name.encode())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other)) and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _training_state() -> dict[str, Any]:
    """Return a model and its optimizer after a step, and what goes with them."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 300)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "nested": [{"half": torch.ones(5, dtype=torch.bfloat16)}, (1, 2.5, "text", None)],
        "empty": torch.zeros(0),
        "view": torch.arange(100)[10:20],
    }


# ---- Saving and loading ----------------------------------------------------------------


def test_a_training_state_comes_back(store: Store) -> None:
    """Model, optimizer and what goes with them survive a save and a load on every store."""
    checkpoint, state = store.checkpoint(), _training_state()
    info = checkpoint.save(state, "step-1.pt")
    raw = store.raw_get("runs/42/step-1.pt")
    assert raw is not None
    assert len(raw) == info.size
    assert _equal(torch.load(io.BytesIO(raw), weights_only=True), state)
    assert _equal(checkpoint.load("step-1.pt"), state)
    assert store.unfinished("runs/42/step-1.pt") == []


def test_a_large_checkpoint_goes_in_parts_and_comes_by_ranges(store: Store) -> None:
    """A checkpoint of several parts is loaded from several ranges."""
    checkpoint = store.checkpoint()
    elements = 3 * store.part_bytes // 4
    state = {"small": torch.arange(5), "large": torch.arange(elements, dtype=torch.int32)}
    assert checkpoint.save(state, "step-1.pt").size > 3 * store.part_bytes
    assert _equal(checkpoint.load("step-1.pt"), state)


def test_the_form_before_zip(store: Store) -> None:
    """The older format of torch, which is no zip file, is written and read too."""
    checkpoint, state = store.checkpoint(), _training_state()
    with checkpoint.writer("old.pt") as file:
        torch.save(state, file, _use_new_zipfile_serialization=False)
    assert _equal(checkpoint.load("old.pt"), state)
    with checkpoint.reader("old.pt") as file:
        assert _equal(torch.load(file, weights_only=True), state)


def test_writer_and_reader_are_files(store: Store) -> None:
    """``torch.save`` and ``torch.load`` work on what ``writer`` and ``reader`` open."""
    checkpoint, state = store.checkpoint(), _training_state()
    with checkpoint.writer("step-2.pt", size_hint=10_000) as written:
        torch.save(state, written)
    with checkpoint.reader("step-2.pt") as read:
        assert _equal(torch.load(read, weights_only=True), state)
    assert written.uri == read.uri == store.uri + "runs/42/step-2.pt"
    assert written.info.size == read.size


def test_loading_elsewhere(checkpoint: Checkpoint) -> None:
    """``map_location`` is torch's, in every form."""
    checkpoint.save({"a": torch.ones(3)}, "1.pt")
    loaded = checkpoint.load("1.pt", map_location="meta")
    assert loaded["a"].device.type == "meta"
    loaded = checkpoint.load("1.pt", map_location=lambda storage, _: storage)
    assert loaded["a"].device.type == "cpu"


class _Anything:
    """What a checkpoint should not hold."""


def test_only_weights_unless_asked(checkpoint: Checkpoint) -> None:
    """A checkpoint that holds code is loaded only with ``weights_only=False``."""
    checkpoint.save({"a": _Anything()}, "1.pt")
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        checkpoint.load("1.pt")
    assert isinstance(checkpoint.load("1.pt", weights_only=False)["a"], _Anything)


def test_an_existing_checkpoint_is_replaced_unless_asked(store: Store) -> None:
    """``if_absent`` protects what is there; without it the new one takes its place."""
    checkpoint = store.checkpoint()
    checkpoint.save({"a": 1}, "1.pt")
    checkpoint.save({"a": 2}, "1.pt")
    refused = (PreconditionError, UnsupportedError)
    with pytest.raises(refused):
        checkpoint.save({"a": 3}, "1.pt", if_absent=True)
    assert checkpoint.load("1.pt") == {"a": 2}


def test_metadata_of_a_writer(checkpoint: Checkpoint) -> None:
    """A writer's metadata stays with the object."""
    with checkpoint.writer("1.pt", metadata={"epoch": "3"}) as file:
        file.write(b"x")
    assert checkpoint.reader("1.pt").info.metadata == {"epoch": "3"}


def test_a_small_checkpoint_is_loaded_by_two_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that fits one range costs one look and one read."""
    checkpoint = Checkpoint("memory://counted")
    checkpoint.save(_training_state(), "1.pt")
    made: list[str] = []

    def watch(name: str) -> None:
        original = getattr(MemoryProvider, name)

        def watched(*arguments: Any) -> Any:
            made.append(name)
            return original(*arguments)

        monkeypatch.setattr(MemoryProvider, name, watched)

    for name in ("_head", "_get", "_list_page"):
        watch(name)
    checkpoint.load("1.pt")
    assert made == ["_head", "_get"]


def test_a_checkpoint_replaced_while_it_is_read(store: Store) -> None:
    """A load never mixes two checkpoints."""
    checkpoint = store.checkpoint()
    checkpoint.save({"a": torch.zeros(store.part_bytes)}, "1.pt")
    with checkpoint.reader("1.pt") as file:
        file.read(4)
        checkpoint.save({"a": torch.ones(store.part_bytes)}, "1.pt")
        file.seek(0)
        with pytest.raises(IntegrityError, match="changed"):
            torch.load(file, weights_only=True)


def test_a_failing_state_is_not_saved(store: Store) -> None:
    """A state that cannot be pickled raises, and the old checkpoint stands."""
    checkpoint = store.checkpoint()
    checkpoint.save({"a": 1}, "1.pt")
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        checkpoint.save({"a": torch.zeros(store.part_bytes), "b": lambda: None}, "1.pt")
    assert checkpoint.load("1.pt") == {"a": 1}
    assert store.unfinished("runs/42/1.pt") == []


# ---- Missing ones ------------------------------------------------------------------------


def test_a_missing_checkpoint_says_where_it_was_looked_for(store: Store) -> None:
    """The error names the URI and what there is instead."""
    checkpoint = store.checkpoint()
    with pytest.raises(NotFoundError, match=r"runs/42/7\.pt.*there are no checkpoints below"):
        checkpoint.load("7.pt")
    _write(checkpoint, "step-1.pt", "dcp-2/.metadata")
    for read in (checkpoint.load, checkpoint.reader):
        with pytest.raises(NotFoundError) as caught:
            read("step-7.pt")
        assert str(caught.value).startswith(f"load {store.uri}runs/42/step-7.pt: there is no")
        assert str(caught.value).endswith("there are step-1.pt, dcp-2")
    with pytest.raises(NotFoundError, match=r"distributed checkpoint.*StorageReader"):
        checkpoint.load("dcp-2")


def test_a_missing_checkpoint_among_many(checkpoint: Checkpoint) -> None:
    """Of many names the error gives the last ones and their number."""
    _write(checkpoint, *(f"{step}.pt" for step in range(15)))
    with pytest.raises(NotFoundError, match=r"there are 5\.pt, .*, 14\.pt and 5 more"):
        checkpoint.load("99.pt")


def test_a_missing_checkpoint_where_listing_is_denied(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where names cannot be listed the error says so, and is still NotFoundError."""

    def refuse(*_: object) -> None:
        raise AccessDeniedError("not allowed", operation="list")

    monkeypatch.setattr(MemoryProvider, "_list_page", refuse)
    with pytest.raises(NotFoundError, match=r"cannot be listed \(list: not allowed\)"):
        checkpoint.load("1.pt")
    with pytest.raises(AccessDeniedError):
        checkpoint.names()


# ---- Names and URIs ----------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["memory://joined/a/b", "memory://joined/a/b/"])
@pytest.mark.parametrize("name", ["1.pt", "/1.pt"])
def test_names_are_joined_by_one_slash(uri: str, name: str) -> None:
    """Whether the URI ends in a slash, or the name begins with one, makes no difference."""
    checkpoint = Checkpoint(uri)
    assert checkpoint.uri == "memory://joined/a/b/"
    with checkpoint.writer(name) as file:
        file.write(b"x")
    assert (file.uri, file.key) == ("memory://joined/a/b/1.pt", "a/b/1.pt")
    assert checkpoint.reader(name).uri == file.uri


@pytest.mark.parametrize("uri", ["memory://bucket-only", "memory://bucket-only/"])
def test_a_bucket_holds_checkpoints_too(uri: str) -> None:
    """Without a path the names are the bucket's own keys."""
    checkpoint = Checkpoint(uri)
    _write(checkpoint, "1.pt", "d/2.pt")
    assert checkpoint.uri == "memory://bucket-only/"
    assert checkpoint.names() == ["1.pt"]
    assert checkpoint.reader("d/2.pt").key == "d/2.pt"


def test_odd_keys_mean_themselves(checkpoint: Checkpoint) -> None:
    """Nothing in a name or a path is decoded or tidied up."""
    odd = Checkpoint(f"{checkpoint.uri}a//b%20?c")
    _write(odd, "x#1 ü.pt")
    assert odd.names() == ["x#1 ü.pt"]
    assert odd.reader("x#1 ü.pt").key == "runs/42/a//b%20?c/x#1 ü.pt"


def test_a_full_uri_is_a_name(store: Store) -> None:
    """A URI reads, writes and deletes elsewhere: in the bucket, or on another store."""
    checkpoint = store.checkpoint()
    for uri in (f"{store.uri}elsewhere/best.pt", f"memory://other-{next(_numbers)}/best.pt"):
        checkpoint.save({"a": 1}, uri)
        assert checkpoint.load(uri) == {"a": 1}
        with checkpoint.reader(uri) as file:
            assert file.uri == uri
        checkpoint.delete(uri)
        with pytest.raises(NotFoundError):
            checkpoint.load(uri)
    assert checkpoint.names() == []


@pytest.mark.parametrize("name", ["", "/", "memory://bucket", "memory://bucket/"])
def test_names_that_are_none(checkpoint: Checkpoint, name: str) -> None:
    """An empty name, or a bucket, is refused: above all where it would be deleted."""
    _write(checkpoint, "1.pt")
    for use in (checkpoint.delete, checkpoint.load, checkpoint.writer):
        with pytest.raises(ValueError, match="names"):
            use(name)
    assert checkpoint.names() == ["1.pt"]


def test_settings_are_checked_at_once() -> None:
    """A path without a scheme, or options of another scheme, are told when it is made."""
    with pytest.raises(SettingsError, match="no scheme"):
        Checkpoint("runs/42")
    with pytest.raises(SettingsError, match="LocalOptions"):
        Checkpoint("file:///tmp/x", options=S3Options())


@pytest.mark.parametrize(
    ("alias", "options"),
    [("s3a", S3Options(anonymous=True)), ("gcs", GCSOptions(anonymous=True))],
)
def test_aliases_stay_as_written(alias: str, options: Options) -> None:
    """The URI on files, and so in errors, is the script's own, alias included."""
    checkpoint = Checkpoint(f"{alias}://bucket/runs", options=options)
    file = checkpoint.writer("1.pt")
    assert file.uri == f"{alias}://bucket/runs/1.pt"
    file.abort()


def test_transfer_options_are_used() -> None:
    """The transfer options given decide how bytes travel."""
    transfer = TransferOptions(range_size_bytes=12345)
    checkpoint = Checkpoint("memory://b", transfer=transfer)
    assert checkpoint._provider.transfer is transfer


def test_it_pickles(store: Store) -> None:
    """A checkpoint works in another place as it did here; secrets travel as options allow."""
    checkpoint = store.checkpoint()
    if store.options is not None:
        options = store.options.model_copy(update={"pickle_secrets": True})
        checkpoint = Checkpoint(checkpoint.uri, options=options, transfer=store.transfer)
    _write(checkpoint, "1.pt")
    arrived = pickle.loads(pickle.dumps(checkpoint))  # noqa: S301 our own bytes
    assert arrived.names() == ["1.pt"]
    assert repr(arrived) == repr(checkpoint) == f"Checkpoint('{store.uri}runs/42/')"


# ---- Order and steps ---------------------------------------------------------------------


def test_names_by_step(store: Store) -> None:
    """Names come by step as a number, those without a digit first; only whole ones count."""
    checkpoint = store.checkpoint()
    names = ["step-10.pt", "step-9.pt", "last.ckpt", "best.pt", "epoch=3-step=100.ckpt"]
    _write(checkpoint, *names, "dcp-50/.metadata", "dcp-50/__0_0.distcp")
    _write(checkpoint, "dcp-200/__0_0.distcp", "sub/step-300.pt")
    store.raw_put("runs/421.pt", b"another run's")
    expected = [
        "best.pt", "last.ckpt", "step-9.pt", "step-10.pt", "dcp-50", "epoch=3-step=100.ckpt"
    ]  # fmt: skip
    assert checkpoint.names() == expected
    assert checkpoint.latest() == expected[-1]


def test_latest_is_the_newest_that_is_whole(checkpoint: Checkpoint) -> None:
    """A distributed checkpoint counts from the moment its metadata is there."""
    assert checkpoint.latest() is None
    _write(checkpoint, "best.pt")
    assert checkpoint.latest() is None
    _write(checkpoint, "step-1.pt", "step-2/__0_0.distcp", "step-2/deep/.metadata")
    assert checkpoint.latest() == "step-1.pt"
    _write(checkpoint, "step-2/.metadata")
    assert checkpoint.latest() == "step-2"


def test_steps_are_numbers_not_times(checkpoint: Checkpoint) -> None:
    """An older step written later does not come last; zeros in front do not count."""
    _write(checkpoint, "step-0020.pt", "step-100.pt", "step-3.pt")
    assert checkpoint.names() == ["step-3.pt", "step-0020.pt", "step-100.pt"]


def test_digits_of_other_scripts_are_no_step(checkpoint: Checkpoint) -> None:
    """Only 0 to 9 make a step."""
    _write(checkpoint, "best-².pt", "best-٣.pt")
    assert checkpoint.latest() is None


def test_directory_markers_are_no_names() -> None:
    """Empty objects that stand for directories are not taken for checkpoints."""
    checkpoint = Checkpoint("memory://markers/runs/42")
    provider = MemoryProvider("markers")
    for key in ("runs/42/", "runs/42/step-1/", "runs/42//x", "runs/42/2.pt"):
        provider.put(key, b"")
    assert checkpoint.names() == ["2.pt"]


def test_inside_a_distributed_checkpoint_there_are_no_names(store: Store) -> None:
    """Its files are never taken for checkpoints, nor deleted as such."""
    inside = store.checkpoint("runs/42/step-7")
    _write(inside, ".metadata", "__0_0.distcp", "__1_0.distcp")
    assert (inside.names(), inside.latest(), inside.keep_last(1)) == ([], None, [])
    assert store.checkpoint().names() == ["step-7"]


# ---- Deleting ----------------------------------------------------------------------------


def test_deleting(store: Store) -> None:
    """A name's object, or its whole directory, is deleted; a missing one is no error."""
    checkpoint = store.checkpoint()
    _write(
        checkpoint, "step-1.pt", "step-10.pt", "dcp-2/.metadata", "dcp-2/a/b", "dcp-20/.metadata"
    )
    checkpoint.delete("step-1.pt")
    checkpoint.delete("dcp-2/")
    checkpoint.delete("never-there")
    assert checkpoint.names() == ["step-10.pt", "dcp-20"]
    assert store.raw_get("runs/42/dcp-2/a/b") is None
    assert store.raw_get("runs/42/dcp-20/.metadata") == b"dcp-20/.metadata"


def test_deleting_what_was_never_whole(store: Store) -> None:
    """The remains of an interrupted distributed save can be deleted by name."""
    checkpoint = store.checkpoint()
    _write(checkpoint, "dcp-2/__0_0.distcp")
    checkpoint.delete("dcp-2")
    assert store.raw_get("runs/42/dcp-2/__0_0.distcp") is None


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Which keys were deleted together, in order."""
    batches: list[list[str]] = []
    original = MemoryProvider._delete

    def note(self: MemoryProvider, keys: Any) -> Any:
        batches.append(list(keys))
        return original(self, keys)

    monkeypatch.setattr(MemoryProvider, "_delete", note)
    return batches  # type: ignore[return-value]


def test_what_commits_a_checkpoint_is_deleted_first(
    checkpoint: Checkpoint, deleted: list[list[str]]
) -> None:
    """A deletion that stops half way leaves no checkpoint that looks whole."""
    _write(checkpoint, "dcp-2/__0_0.distcp", "dcp-2/.metadata", "dcp-2/-early")
    checkpoint.delete("dcp-2")
    assert deleted[0] == ["runs/42/dcp-2/.metadata"]
    assert {"runs/42/dcp-2/__0_0.distcp", "runs/42/dcp-2/-early"} <= set(deleted[1])


def test_keep_last(store: Store) -> None:
    """All but the last steps go, and are named; those without a digit stay."""
    checkpoint = store.checkpoint()
    _write(
        checkpoint, "best.pt", *(f"step-{step}.pt" for step in (1, 2, 10, 20)), "dcp-15/.metadata"
    )
    assert checkpoint.keep_last(2) == ["step-1.pt", "step-2.pt", "step-10.pt"]
    assert checkpoint.names() == ["best.pt", "dcp-15", "step-20.pt"]
    assert checkpoint.keep_last(2) == []
    assert checkpoint.keep_last(1) == ["dcp-15"]


def test_keep_last_of_a_pattern(checkpoint: Checkpoint) -> None:
    """Names that do not match the pattern are neither counted nor deleted."""
    _write(checkpoint, "a-1.pt", "a-2.pt", "b-3.pt", "A-0.pt")
    assert checkpoint.keep_last(1, pattern="a-*") == ["a-1.pt"]
    assert checkpoint.names() == ["A-0.pt", "a-2.pt", "b-3.pt"]


def test_keep_last_spares_what_was_loaded(checkpoint: Checkpoint) -> None:
    """What this process loaded, by whichever object, stays; it does not count."""
    _write(checkpoint, *(f"step-{step}.pt" for step in range(5)), "dcp-5/.metadata", "9.pt")
    same = Checkpoint(checkpoint.uri)
    same.reader("step-1.pt").close()
    same.reader(f"{checkpoint.uri}step-3.pt").close()
    remember_loaded(f"{checkpoint.uri}dcp-5")
    assert checkpoint.keep_last(1) == ["step-0.pt", "step-2.pt", "step-4.pt"]
    assert checkpoint.names() == ["step-1.pt", "step-3.pt", "dcp-5", "9.pt"]


def test_keep_last_counts_from_one(checkpoint: Checkpoint) -> None:
    """Keeping none is refused."""
    _write(checkpoint, "1.pt")
    for n in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            checkpoint.keep_last(n)
    assert checkpoint.names() == ["1.pt"]


def test_options_reach_the_provider() -> None:
    """The options given are those that the store is opened with."""
    options = LocalOptions(root="/")
    assert Checkpoint("file:///nowhere/at/all", options=options)._provider.options.root == "/"  # type: ignore[attr-defined]
