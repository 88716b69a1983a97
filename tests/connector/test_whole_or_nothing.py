"""Whatever a server or the system does to a save, the object is whole, or as it was."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest
import torch

from providers import MultipartUpload, Provider, ProviderError
from providers.retry import without_waiting
from tests.connector.store import FileStore, Store
from tests.fakes.front import Answer, Exchange, Front, Record, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FORKING = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
NAME = "step-2.pt"
KEY = f"runs/42/{NAME}"


@pytest.fixture(autouse=True)
def _no_pauses() -> Iterator[None]:
    with without_waiting():
        yield


def _state(store: Store, value: int) -> dict[str, torch.Tensor]:
    """Return what takes one put (value 0), or three parts."""
    size = 100 if value == 0 else 2 * store.part_bytes + 1000
    return {"weights": torch.full((size,), value, dtype=torch.uint8)}


def _label(request: Request | Record) -> str:
    """Name a request so that the same step of another save has the same name."""
    query = urllib.parse.parse_qsl(request.query, keep_blank_values=True)
    known = {"partNumber", "uploads", "uploadType", "delete"}
    words = [f"{name}={value}" if name in known else name for name, value in sorted(query)]
    return " ".join([request.method, *words])


def _is_start(label: str) -> bool:
    return label.startswith("POST") and "uploads" in label


def _completion(store: Store) -> str:
    labels = _requests_of_a_save(store, 7)
    return next(name for name in labels if name.startswith("POST") and not _is_start(name))


def _is(label: str) -> Callable[[Request], bool]:
    return lambda request: _label(request) == label


def _requests_of_a_save(store: Store, value: int) -> list[str]:
    """Return the labels of a save's requests, in order."""
    with Front(store.endpoint) as front:
        store.at(front.endpoint).checkpoint("rehearsal/").save(_state(store, value), NAME)
        return [_label(record) for record in front.requests]


def _check(store: Store, value: int, *, saved: bool, lost: int = 0) -> None:
    """The object is the new one, or the old one where the save failed; nothing else is left.

    But for uploads that the server began without ever telling their names (``lost``).
    """
    checkpoint = store.checkpoint()
    expected = _state(store, value) if saved else {"weights": torch.ones(3)}
    assert torch.equal(checkpoint.load(NAME)["weights"], expected["weights"])
    assert torch.equal(checkpoint.load("step-1.pt")["weights"], torch.zeros(3))
    assert checkpoint.names() == ["step-1.pt", NAME]
    assert len(store.unfinished(KEY)) == lost


def _prepare(store: Store) -> None:
    checkpoint = store.checkpoint()
    checkpoint.save({"weights": torch.zeros(3)}, "step-1.pt")
    checkpoint.save({"weights": torch.ones(3)}, NAME)


# ---- A server that fails ---------------------------------------------------------------------

ACTS = "does it and goes"
_FAULTS = {
    "answers 503": lambda front, **how: front.answer(503, **how),
    "resets": lambda front, **how: front.reset(**how),
    ACTS: lambda front, **how: front.drop_answer(**how),
}


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("value", [0, 7], ids=["in one put", "in parts"])
def test_a_passing_failure_at_each_request(cloud_store: Store, value: int, fault: str) -> None:
    """Each request of a save may fail once, answered or not: the save succeeds."""
    labels = _requests_of_a_save(cloud_store, value)
    for label in sorted(set(labels)):
        _prepare(cloud_store)
        lost = len(cloud_store.unfinished(KEY)) + (fault == ACTS and _is_start(label))
        with Front(cloud_store.endpoint) as front:
            _FAULTS[fault](front, when=_is(label))
            cloud_store.at(front.endpoint).checkpoint().save(_state(cloud_store, value), NAME)
            assert len(front.requests) > len(labels)
        _check(cloud_store, value, saved=True, lost=lost)


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("value", [0, 7], ids=["in one put", "in parts"])
def test_a_lasting_failure_at_each_request(cloud_store: Store, value: int, fault: str) -> None:
    """Each request of a save may fail for good: the save raises, or is found to be done."""
    attempts = cloud_store.transfer.max_attempts
    for label in sorted(set(_requests_of_a_save(cloud_store, value))):
        _prepare(cloud_store)
        old = cloud_store.raw_get(KEY)
        lost = len(cloud_store.unfinished(KEY))
        if fault == ACTS and _is_start(label):
            lost += attempts
        with Front(cloud_store.endpoint) as front:
            _FAULTS[fault](front, times=None, when=_is(label))
            error = _error_of_a_save(cloud_store.at(front.endpoint), value)
        assert error is None or (error.retryable and KEY in str(error))
        published = cloud_store.raw_get(KEY) != old
        # Without its answer, or the look at it afterwards, a save that is done may raise.
        assert published == (error is None) or fault == ACTS or label == "HEAD"
        _check(cloud_store, value, saved=published, lost=lost)


def _error_of_a_save(store: Store, value: int) -> ProviderError | None:
    try:
        store.checkpoint().save(_state(store, value), NAME)
    except ProviderError as error:
        return error
    return None


def test_a_lost_answer_to_the_completion(cloud_store: Store) -> None:
    """A completion whose every answer is lost is looked up by its write id, and succeeds."""
    label = _completion(cloud_store)
    _prepare(cloud_store)
    with Front(cloud_store.endpoint) as front:
        front.drop_answer(times=None, when=_is(label))
        info = cloud_store.at(front.endpoint).checkpoint().save(_state(cloud_store, 7), NAME)
    assert info.size == len(cloud_store.raw_get(KEY) or b"")
    _check(cloud_store, 7, saved=True)


def test_a_refused_completion(cloud_store: Store) -> None:
    """A completion that the server refuses raises, and the parts are dropped."""
    label = _completion(cloud_store)
    _prepare(cloud_store)
    with Front(cloud_store.endpoint) as front:
        front.answer(403, times=None, when=_is(label))
        with pytest.raises(ProviderError, match=KEY):
            cloud_store.at(front.endpoint).checkpoint().save(_state(cloud_store, 7), NAME)
    _check(cloud_store, 7, saved=False)


# ---- A process that is killed ----------------------------------------------------------------


def _start_save(store: Store, before: Callable[[], None] = lambda: None) -> Any:
    # A forked child cannot make tensors: OpenMP's threads are its parent's.
    state = _state(store, 7)

    def save() -> None:
        before()
        store.checkpoint().save(state, NAME)

    process = multiprocessing.get_context("fork").Process(target=save)
    process.start()
    return process


def _check_after_kill(store: Store) -> None:
    """The object is the old one or the new one, and the checkpoint before it loads."""
    checkpoint = store.checkpoint()
    found = checkpoint.load(NAME)["weights"]
    assert torch.equal(found, torch.ones(3)) or torch.equal(found, _state(store, 7)["weights"])
    assert torch.equal(checkpoint.load("step-1.pt")["weights"], torch.zeros(3))
    assert checkpoint.names() == ["step-1.pt", NAME]
    assert checkpoint.latest() == NAME


@_FORKING
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_killed_at_each_request(cloud_store: Store, *, done: bool) -> None:
    """SIGKILL before or after the server acts on any request: absent or complete."""
    for label in sorted(set(_requests_of_a_save(cloud_store, 7))):
        _prepare(cloud_store)
        with Front(cloud_store.endpoint) as front:
            children: list[Any] = []
            started = threading.Event()

            def kill(
                exchange: Exchange, started: threading.Event = started, children: Any = children
            ) -> Answer | None:
                if done:
                    exchange.forward()
                started.wait()
                os.kill(children[0].pid, signal.SIGKILL)
                return None

            front.apply(kill, when=_is(label))
            child = _start_save(cloud_store.at(front.endpoint))
            children.append(child)
            started.set()
            child.join(60)
            assert child.exitcode == -signal.SIGKILL
        _check_after_kill(cloud_store)


_STEPS = [
    *((MultipartUpload, "put_part", number) for number in (1, 2, 3)),
    (MultipartUpload, "complete", 1),
    (Provider, "start_multipart", 1),
]


@_FORKING
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "method", "number"), _STEPS)
def test_killed_at_each_step_on_files(
    tmp_path: Path, kind: type, method: str, number: int, *, after: bool
) -> None:
    """The same on a file system, where a step is a call."""
    store = FileStore(f"file://{tmp_path}/")
    _prepare(store)

    def be_lethal() -> None:
        original, calls = getattr(kind, method), [0]

        def lethal(*arguments: Any, **keywords: Any) -> Any:
            calls[0] += 1
            result = original(*arguments, **keywords) if after or calls[0] != number else None
            if calls[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(kind, method, lethal)

    child = _start_save(store, be_lethal)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    _check_after_kill(store)


def test_a_save_that_is_interrupted(cloud_store: Store) -> None:
    """KeyboardInterrupt in the middle of a save drops what was sent."""
    _prepare(cloud_store)
    with pytest.raises(KeyboardInterrupt), cloud_store.checkpoint().writer(NAME) as file:
        _interrupted(file, _state(cloud_store, 7))
    _check(cloud_store, 7, saved=False)


def _interrupted(file: Any, state: dict[str, Any]) -> None:
    torch.save(state, file)
    raise KeyboardInterrupt
