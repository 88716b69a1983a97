"""Which checkpoints go, in any order of saves, loads, deletions and crashes."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from connector import checkpoint as checkpoint_module
from connector.checkpoint import COMMIT, DELETING, Checkpoint, remember_loaded
from providers import AccessDeniedError
from providers.composites import composite_name
from providers.memory import MemoryProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connector.store import Store

_numbers = itertools.count()
_FILES = (COMMIT, "__0_0.distcp", "__1_0.distcp", "connector.commit.json")


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "_loaded", set())


class _KilledError(BaseException):
    """The process ends here."""


class _Bucket(MemoryProvider):
    """A bucket in which something happens before any one change of it."""

    def __init__(self, bucket: str) -> None:
        super().__init__(bucket, None)
        self.left = -1
        self.happens: Callable[[], None] = lambda: None

    def arm(self, after: int, happens: Callable[[], None]) -> None:
        """Let something happen after so many changes."""
        self.left, self.happens = after, happens

    def _tick(self) -> None:
        self.left -= 1
        if self.left == -1:
            self.happens()

    def put(self, *arguments: Any, **keywords: Any) -> Any:
        self._tick()
        return super().put(*arguments, **keywords)

    def _delete(self, keys: Any) -> Any:
        for key in keys:
            self._tick()
            super()._delete([key])
        return []

    def below(self, prefix: str) -> set[str]:
        """Return the names of what lies below a prefix."""
        return {info.key[len(prefix) :] for info in self.list_objects(prefix)}


_STEPS = st.integers(0, 7)


class Retention(RuleBasedStateMachine):
    """Saves, loads, deletions and crashes against a plain model: step to state."""

    def __init__(self) -> None:
        super().__init__()
        checkpoint_module._loaded.clear()
        self.bucket = _Bucket(f"retention-{next(_numbers)}")
        self.checkpoint = self._open()
        self.other = self._open()
        self.saving: set[int] = set()
        self.whole: set[int] = set()
        self.loaded: set[int] = set()
        self.bucket.put("runs/420/step-0/.metadata", b"another run's")

    def _open(self) -> Checkpoint:
        checkpoint = Checkpoint(f"memory://{self.bucket.bucket}/runs/42")
        checkpoint._provider = self.bucket
        return checkpoint

    def _files(self, step: int) -> set[str]:
        return self.bucket.below(f"runs/42/step-{step}/")

    def _write(self, step: int, files: tuple[str, ...]) -> None:
        for file in files:
            self.bucket.put(f"runs/42/step-{step}/{file}", b"x")

    def _kept(self, n: int) -> set[int]:
        return set(sorted(self.whole)[-n:])

    @rule(step=_STEPS)
    def begin(self, step: int) -> None:
        """A distributed save begins, where there is none of the name."""
        if step not in self.saving | self.whole:
            self.bucket.delete([f"runs/42/step-{step}/{DELETING}"])
            self._write(step, _FILES[1:])
            self.saving.add(step)

    @precondition(lambda self: self.saving)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """A save is committed."""
        step = data.draw(st.sampled_from(sorted(self.saving)))
        self._write(step, _FILES[:1])
        self.saving.remove(step)
        self.whole.add(step)

    @precondition(lambda self: self.whole)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        """This process resumes from a checkpoint."""
        step = data.draw(st.sampled_from(sorted(self.whole)))
        remember_loaded(f"memory://{self.bucket.bucket}/runs/42/step-{step}")
        self.loaded.add(step)

    @rule(n=st.integers(1, 3))
    def keep_last(self, n: int) -> None:
        """Nothing but the old ones goes, and nothing is left of them."""
        old = self.whole - self._kept(n) - self.loaded
        assert self.checkpoint.keep_last(n) == [f"step-{step}" for step in sorted(old)]
        self._gone(old, n)

    @rule(n=st.integers(1, 3), other=st.integers(1, 3), at=st.integers(0, 12))
    def keep_last_twice_at_once(self, n: int, other: int, at: int) -> None:
        """Two processes that prune at once leave what the stricter one keeps."""
        ran: list[bool] = []

        def prune() -> None:
            ran.append(True)
            self.other.keep_last(other)

        self.bucket.arm(at, prune)
        self.checkpoint.keep_last(n)
        self.bucket.arm(-1, prune)
        fewest = min(n, other) if ran else n
        self._gone(self.whole - self._kept(fewest) - self.loaded, fewest)

    @rule(n=st.integers(1, 3), at=st.integers(0, 12))
    def keep_last_while_another_commits(self, n: int, at: int) -> None:
        """A save that is committed meanwhile is not touched."""
        old = self.whole - self._kept(n) - self.loaded
        done: set[int] = set()

        def commit() -> None:
            done.update(sorted(self.saving)[:1])
            for step in done:
                self._write(step, _FILES[:1])

        self.bucket.arm(at, commit)
        self.checkpoint.keep_last(n)
        self.bucket.arm(-1, commit)
        self._gone(old, n)
        self.saving -= done
        self.whole |= done

    @rule(n=st.integers(1, 3), at=st.integers(0, 12))
    def keep_last_is_killed(self, n: int, at: int) -> None:
        """Whatever a killed deletion leaves looks whole only if it is."""

        def kill() -> None:
            raise _KilledError

        old = self.whole - self._kept(n) - self.loaded
        self.bucket.arm(at, kill)
        with suppress(_KilledError):
            self.checkpoint.keep_last(n)
        self.bucket.arm(-1, kill)
        self.whole -= {step for step in old if COMMIT not in self._files(step)}

    def _gone(self, old: set[int], n: int) -> None:
        self.whole -= old
        oldest = min(self._kept(n), default=0)
        for step in range(oldest):
            assert step in self.whole | self.saving or not self._files(step)

    @invariant()
    def what_counts_is_whole(self) -> None:
        """Names are the whole ones; of saves and of whole ones nothing is missing, ever."""
        assert self.checkpoint.names() == [f"step-{step}" for step in sorted(self.whole)]
        for step in self.whole:
            assert self._files(step) - {DELETING} == set(_FILES)
        for step in self.saving:
            assert self._files(step) == set(_FILES[1:])
        assert self.bucket.below("runs/420/") == {"step-0/.metadata"}


TestRetention = Retention.TestCase
TestRetention.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


# ---- On every store ------------------------------------------------------------------------


def _write(checkpoint: Checkpoint, *names: str) -> None:
    for name in names:
        with checkpoint.writer(name) as file:
            file.write(name.encode())


def test_what_a_broken_deletion_left_goes(store: Store) -> None:
    """Remains with a mark go with the next pruning, a save under way of a lower step stays."""
    checkpoint = store.checkpoint()
    _write(checkpoint, f"step-1/{DELETING}", "step-1/__0_0.distcp", "step-2/__0_0.distcp")
    _write(checkpoint, f"step-9/{DELETING}", "step-9/__0_0.distcp")
    assert checkpoint.keep_last(1) == []
    assert store.raw_get("runs/42/step-1/__0_0.distcp") is not None
    _write(checkpoint, "step-5/__0_0.distcp", "step-5/.metadata")
    assert (checkpoint.names(), checkpoint.keep_last(1)) == (["step-5"], [])
    assert store.raw_get("runs/42/step-1/__0_0.distcp") is None
    assert store.raw_get(f"runs/42/step-1/{DELETING}") is None
    assert store.raw_get("runs/42/step-2/__0_0.distcp") is not None
    assert store.raw_get("runs/42/step-9/__0_0.distcp") is not None


def test_pruning_a_directory_leaves_nothing_and_no_neighbour_loses(store: Store) -> None:
    """Nested and odd files go with their directory; keys that begin alike stay."""
    checkpoint = store.checkpoint("run-1")
    _write(checkpoint, "step-1/.metadata", "step-1/a/b ü%20", "step-1x/__0.distcp", "step-2.pt")
    neighbours = store.checkpoint("run-10")
    _write(neighbours, "step-1.pt", "step-2.pt")
    assert checkpoint.keep_last(1) == ["step-1"]
    for gone in (".metadata", "a/b ü%20", DELETING):
        assert store.raw_get(f"run-1/step-1/{gone}") is None
    assert store.raw_get("run-1/step-1x/__0.distcp") is not None
    assert neighbours.names() == ["step-1.pt", "step-2.pt"]


def test_names_on_several_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and files of a directory that come on many pages are all seen."""
    monkeypatch.setattr(MemoryProvider, "page_size", 3)
    checkpoint = Checkpoint(f"memory://paged-{next(_numbers)}/runs/")
    _write(checkpoint, *(f"{step}.pt" for step in range(10)), "5/.metadata")
    _write(checkpoint, *(f"5/__{rank}_0.distcp" for rank in range(10)))
    assert checkpoint.latest() == "9.pt"
    assert len(checkpoint.keep_last(1)) == 10
    assert [info.key for info in checkpoint._provider.list_objects("runs/")] == ["runs/9.pt"]


@pytest.fixture
def checkpoint() -> Checkpoint:
    """An empty run in memory."""
    return Checkpoint(f"memory://kept-{next(_numbers)}/runs/42/")


def test_names_of_one_step_stay_or_go_together(checkpoint: Checkpoint) -> None:
    """A model and its optimizer in files of their own are one step."""
    _write(checkpoint, "model-1.pt", "optim-1.pt", "model-2.pt", "optim-02.pt", "step-3/x.distcp")
    assert checkpoint.keep_last(1) == ["model-1.pt", "optim-1.pt"]
    assert checkpoint.names() == ["model-2.pt", "optim-02.pt"]


def test_an_object_goes_without_the_save_beside_it(checkpoint: Checkpoint) -> None:
    """Of a name that is an object, and a directory that is not whole, only the object goes."""
    key = "runs/42/1/__0_0.distcp"
    bucket = checkpoint._provider
    for each in (key, "runs/42/1", "runs/42/2"):
        bucket.put(each, b"x")
    assert checkpoint.keep_last(1) == ["1"]
    assert bucket.get(key) == b"x"


def test_a_directory_of_which_something_was_loaded_stays(checkpoint: Checkpoint) -> None:
    """A single file read out of a checkpoint spares it, as does a slash at the URI's end."""
    _write(checkpoint, *(f"{step}/.metadata" for step in (1, 2, 3, 11)), "1/model.pt")
    checkpoint.reader("1/model.pt").close()
    remember_loaded(f"{checkpoint.uri}2/")
    assert checkpoint.keep_last(1) == ["3"]


def test_what_is_being_composed_is_no_name(checkpoint: Checkpoint) -> None:
    """The temporaries of a compose under way are neither counted nor deleted."""
    _write(checkpoint, "1.pt", composite_name("2.pt", "01234567", 9))
    assert (checkpoint.names(), checkpoint.keep_last(1)) == (["1.pt"], [])


def test_a_save_under_way_at_the_uri_itself_has_no_names(checkpoint: Checkpoint) -> None:
    """Files of a distributed checkpoint are never pruned as checkpoints."""
    inside = Checkpoint(f"{checkpoint.uri}step-1")
    _write(inside, "__0_0.distcp", "__1_0.distcp")
    assert (inside.names(), inside.latest(), inside.keep_last(1)) == ([], None, [])


def test_deleting_what_holds_the_run_is_refused(checkpoint: Checkpoint) -> None:
    """A URI of the run itself, or above it, is no checkpoint's name."""
    _write(checkpoint, "1.pt")
    for uri in (checkpoint.uri, checkpoint.uri.removesuffix("42/")):
        with pytest.raises(ValueError, match="lies in it"):
            checkpoint.delete(uri)
    assert checkpoint.names() == ["1.pt"]


def test_what_was_loaded_can_be_deleted_by_name(checkpoint: Checkpoint) -> None:
    """An explicit deletion is meant."""
    checkpoint.save({}, "1.pt")
    checkpoint.load("1.pt")
    checkpoint.delete("1.pt")
    assert checkpoint.names() == []


def test_without_the_right_to_write_everything_stays(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credential that may only read is told so, and each checkpoint is still whole."""
    _write(checkpoint, *(f"{step}/.metadata" for step in (1, 2, 3)), "0.pt")

    def refuse(*_: object, **__: object) -> None:
        raise AccessDeniedError("not allowed", operation="delete")

    for name in ("_put", "_delete"):
        monkeypatch.setattr(MemoryProvider, name, refuse)
    with pytest.raises(AccessDeniedError):
        checkpoint.keep_last(1)
    assert checkpoint.names() == ["0.pt", "1", "2", "3"]


def test_one_that_cannot_be_deleted_holds_up_no_other(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are tried before the first failure is raised."""
    _write(checkpoint, *(f"{step}.pt" for step in range(4)))
    original = MemoryProvider._delete

    def refuse_one(self: MemoryProvider, keys: Any) -> Any:
        if "runs/42/1.pt" in keys:
            raise AccessDeniedError("held", operation="delete")
        return original(self, keys)

    monkeypatch.setattr(MemoryProvider, "_delete", refuse_one)
    with pytest.raises(AccessDeniedError, match="held"):
        checkpoint.keep_last(1)
    assert checkpoint.names() == ["1.pt", "3.pt"]
