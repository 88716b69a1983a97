"""Whatever a server or the system does to a distributed save, it is whole, or nothing changed."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from connector import Checkpoint
from providers.retry import without_waiting
from tests.connector.dcp.states import load, save
from tests.fakes.front import Front

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.connector.store import Store
    from tests.fakes.front import Answer, Exchange, Request

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
_PATIENCE_SECONDS = 60.0
_FAULTS: dict[str, Callable[..., None]] = {
    "answers 503": lambda front, **how: front.answer(503, **how),
    "resets": lambda front, **how: front.reset(**how),
    "does it and goes": lambda front, **how: front.drop_answer(**how),
}


@pytest.fixture(autouse=True)
def _no_pauses() -> Iterator[None]:
    with without_waiting():
        yield


def _state(store: Store, value: int) -> dict[str, Any]:
    """Return what takes a part of three pieces."""
    size = 2 * store.part_bytes + 1000
    return {"weights": torch.full((size,), value, dtype=torch.uint8), "step": value}


def _prepare(store: Store) -> None:
    save(store, "run/step-1", _state(store, 1))
    save(store, "run/step-2", _state(store, 2))


def _count(store: Store) -> int:
    """Return how many requests the save of an existing name takes."""
    save(store, "rehearsal/step-2", _state(store, 2))
    with Front(store.endpoint) as front:
        save(store.at(front.endpoint), "rehearsal/step-2", _state(store, 3))
        return len(front.requests)


def _check(store: Store) -> int:
    """Return which save is there: all of it, and the checkpoint before it too."""
    found = []
    for path in ("run/step-1", "run/step-2"):
        state = load(store, path, {**_state(store, 0), "step": 0})
        assert torch.equal(state["weights"], _state(store, state["step"])["weights"])
        found.append(state["step"])
    checkpoint = Checkpoint(f"{store.uri}run/", options=store.options)
    assert checkpoint.names() == ["step-1", "step-2"]
    assert found[0] == 1
    step: int = found[1]
    assert step in (2, 3)
    return step


def _from(number: int) -> Callable[[Request], bool]:
    requests = itertools.count()
    return lambda _: next(requests) >= number


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_server_that_fails_from_some_request_on(cloud_store: Store, fault: str) -> None:
    """A save that raises has changed nothing, unless only its answer or the sweeping was lost."""
    for number in range(_count(cloud_store)):
        _prepare(cloud_store)
        raised = False
        with Front(cloud_store.endpoint) as front:
            _FAULTS[fault](front, times=None, when=_from(number))
            try:
                save(cloud_store.at(front.endpoint), "run/step-2", _state(cloud_store, 3))
            except CheckpointException:
                raised = True
        assert raised
        assert _check(cloud_store) == 2 or number > 0


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_server_that_fails_once(cloud_store: Store, fault: str) -> None:
    """Each request may fail once, answered or not: the save succeeds."""
    for number in range(_count(cloud_store)):
        _prepare(cloud_store)
        with Front(cloud_store.endpoint) as front:
            _FAULTS[fault](front, times=1, when=_from(number))
            save(cloud_store.at(front.endpoint), "run/step-2", _state(cloud_store, 3))
        assert _check(cloud_store) == 3


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_killed_at_each_request(cloud_store: Store, *, done: bool) -> None:
    """SIGKILL before or after the server acts on any request: absent or complete."""
    seen = []
    for number in range(_count(cloud_store)):
        _prepare(cloud_store)
        with Front(cloud_store.endpoint) as front:
            children: list[Any] = []
            started = threading.Event()

            def kill(
                exchange: Exchange, started: threading.Event = started, children: Any = children
            ) -> Answer | None:
                if done:
                    exchange.forward()
                started.wait(_PATIENCE_SECONDS)
                os.kill(children[0].pid, signal.SIGKILL)
                return None

            front.apply(kill, when=_from(number))
            child = _start_save(cloud_store.at(front.endpoint))
            children.append(child)
            started.set()
            child.join(_PATIENCE_SECONDS)
            assert child.exitcode == -signal.SIGKILL
        seen.append(_check(cloud_store))
    assert seen == sorted(seen)
    assert seen[0] == 2


def _start_save(store: Store) -> Any:
    # A forked child cannot make tensors: OpenMP's threads are its parent's.
    state = _state(store, 3)
    process = multiprocessing.get_context("fork").Process(
        target=save, args=(store, "run/step-2", state)
    )
    process.start()
    return process
