"""Whatever a server or the system does to a save, the object is whole, or as it was."""

from __future__ import annotations

import itertools
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
_PARTS = 3
_PATIENCE_SECONDS = 60.0
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


# ---- Parts in any order ----------------------------------------------------------------------


class _Parts:
    """Decides in which order a server answers the parts of one save.

    Args:
        front: of the server.
        last: the part that waits until the others are answered.
    """

    def __init__(self, front: Front, last: int) -> None:
        self._last = last
        self._answered: list[int] = []
        self._others_are = threading.Event()
        front.apply(self._answer, None, lambda request: _part(request) not in {0, last})

    def _answer(self, exchange: Exchange) -> Answer | None:
        answer = exchange.forward()
        self._answered.append(_part(exchange.message.request))
        if len(self._answered) == _PARTS - 1:
            self._others_are.set()
        return answer

    def wait_for_the_others(self) -> None:
        assert self._others_are.wait(_PATIENCE_SECONDS)


def _part(request: Request) -> int:
    """Return which part a request sends; 0: none."""
    return int(dict(urllib.parse.parse_qsl(request.query)).get("partNumber", 0))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_part_fails_after_all_others_arrived(cloud_store: Store, number: int) -> None:
    """Whichever part it is that fails for good, last of all: the others are dropped."""
    _prepare(cloud_store)
    with Front(cloud_store.endpoint) as front:
        parts = _Parts(front, number)

        def refuse(_: Exchange) -> Answer:
            parts.wait_for_the_others()
            return Answer(503, (), b"")

        front.apply(refuse, None, lambda request: _part(request) == number)
        assert _error_of_a_save(cloud_store.at(front.endpoint), 7) is not None
    _check(cloud_store, 7, saved=False)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_part_fails_while_all_others_travel(cloud_store: Store, number: int) -> None:
    """A part that fails first does not abort before the others are answered, or they would stay."""
    _prepare(cloud_store)
    attempts = itertools.count(1)
    failed, answered, at_abort = threading.Event(), [], []

    def refuse(_: Exchange) -> Answer:
        if next(attempts) == cloud_store.transfer.max_attempts:
            failed.set()
        return Answer(503, (), b"")

    def answer(exchange: Exchange) -> Answer | None:
        assert failed.wait(_PATIENCE_SECONDS)
        found = exchange.forward()
        answered.append(_part(exchange.message.request))
        return found

    def abort(exchange: Exchange) -> Answer | None:
        at_abort.append(len(answered))
        return exchange.forward()

    with Front(cloud_store.endpoint) as front:
        front.apply(refuse, None, lambda request: _part(request) == number)
        front.apply(answer, None, lambda request: _part(request) != 0)
        front.apply(abort, None, lambda request: request.method == "DELETE")
        assert _error_of_a_save(cloud_store.at(front.endpoint), 7) is not None
        assert at_abort[0] == len(answered)
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


@_FORKING
@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_at_the_last_part_to_arrive(cloud_store: Store, number: int) -> None:
    """The same where all parts but one, whichever, have arrived: nothing is published."""
    _prepare(cloud_store)
    with Front(cloud_store.endpoint) as front:
        parts = _Parts(front, number)
        children: list[Any] = []
        started = threading.Event()

        def kill(_: Exchange) -> None:
            parts.wait_for_the_others()
            started.wait()
            os.kill(children[0].pid, signal.SIGKILL)

        front.apply(kill, None, lambda request: _part(request) == number)
        children.append(_start_save(cloud_store.at(front.endpoint)))
        started.set()
        children[0].join(60)
        assert children[0].exitcode == -signal.SIGKILL
    assert torch.equal(cloud_store.checkpoint().load(NAME)["weights"], torch.ones(3))
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
        original, calls = getattr(kind, method), itertools.count(1)

        def lethal(*arguments: Any, **keywords: Any) -> Any:
            # Parts are sent by several threads: each call has a number of its own.
            due = next(calls) == number
            result = original(*arguments, **keywords) if after or not due else None
            if due:
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
