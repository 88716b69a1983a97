"""Forks: what the parent opened stays the parent's."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from providers.testing.harness import noise
from providers.values import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from providers.s3 import S3Provider
    from tests.fakes.front import Front
    from tests.providers.s3.stores import Store

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="there is no fork"),
    # From 3.12 on, Python warns of what these tests do on purpose.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

PATIENCE_SECONDS = 60.0
BODY = noise(100_000)


def use(answers: Connection, provider: S3Provider, generations: int) -> None:
    """Read and copy in this child and in its children, and report what came of it."""
    # What the child does not refer to any more is freed here, were it freed at all.
    gc.collect()
    try:
        provider.copy("key", f"copied {generations}")
        answers.send(provider.get("key", ByteRange(3, 90_000)) == BODY[3:90_000])
        if generations > 1:
            answers.send(forked(use, provider, generations - 1))
    except BaseException as error:  # noqa: BLE001 the parent tells it
        answers.send(repr(error))
    gc.collect()


def look(answers: Connection, opened: weakref.ref[Any]) -> None:
    """Report whether something is still there after a collection."""
    gc.collect()
    answers.send(opened() is not None)


def forked(work: Callable[..., None], *arguments: Any) -> list[Any]:
    """Fork a child, and give back what it reports and how it ended."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(sending, *arguments))
    child.start()
    sending.close()
    found: list[Any] = []
    try:
        while receiving.poll(PATIENCE_SECONDS):
            found.append(receiving.recv())
        child.kill()
        found.append("the child hangs")
    except EOFError:
        pass
    child.join()
    receiving.close()
    return [*found, child.exitcode]


def test_children_leave_the_parents_connections_alone(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """Round after round, each process has connections of its own, and the parent's serve on."""
    store.put("key", BODY)
    ours: set[int] = set()
    theirs: set[int] = set()
    for _ in range(3):
        before = len(front.requests)
        provider.copy("key", "mine")
        assert provider.get("key") == BODY
        between = len(front.requests)
        assert forked(use, provider, 2) == [True, [True, 0], 0]
        ours |= {record.connection for record in front.requests[before:between]}
        theirs |= {record.connection for record in front.requests[between:]}
    # Each process has one for reads, one for requests that may take minutes, one for others.
    assert len(ours) == 3
    assert len(theirs) == 3 * 2 * 3
    assert not ours & theirs


def test_inherited_clients_are_never_freed(provider: S3Provider, store: Store) -> None:
    """Freeing them might say goodbye on connections that are still the parent's."""
    store.put("key", BODY)
    assert provider.get("key") == BODY
    # Within an assert, pytest would itself hold on to the clients.
    opened = weakref.ref(provider.clients)
    assert forked(look, opened) == [True, 0]


def test_a_client_replaced_in_a_child_stays_whole_in_the_parent(
    store: Store, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials renewed in a child are the child's affair."""
    store.put("key", BODY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.server.secret_key)
    provider = store.opened(front.endpoint, access_key_id=None, secret_access_key=None)
    assert provider.get("key") == BODY
    expired = b"<Error><Code>ExpiredToken</Code></Error>"
    front.answer(400, body=expired, when=lambda r: r.method == "GET")
    assert forked(use, provider, 1) == [True, 0]
    assert provider.get("key") == BODY
    used = [record.connection for record in front.requests]
    assert used[0] == used[-1]
    assert used.count(used[0]) == 2
