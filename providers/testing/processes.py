"""What a provider promises across pickles, forks, spawned processes and threads."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from providers.testing.harness import Harness, noise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from providers.base import Provider

__all__ = ["ProcessTests"]

_PATIENCE_SECONDS = 60.0
_LOCKS = (type(threading.Lock()), type(threading.RLock()))

_forks = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
# From 3.12 on, Python warns of what these tests do on purpose.
_may_fork = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def _use(provider: Provider, key: str, connection: Connection) -> None:
    """Write and read an object in a child, and send what came of it."""
    try:
        provider.put(key, b"from the child")
        connection.send(provider.get(key))
    except BaseException as error:  # noqa: BLE001 the parent tells it
        connection.send(f"{type(error).__name__}: {error}")
    finally:
        connection.close()


def used_in_child(provider: Provider, key: str, start: str) -> Any:
    """Return what a child process read with the provider; a hang is an answer too."""
    context: Any = multiprocessing.get_context(start)
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_use, args=(provider, key, sending))
    child.start()
    sending.close()
    try:
        answer = receiving.recv() if receiving.poll(_PATIENCE_SECONDS) else "the child hangs"
    except EOFError:
        answer = "the child died"
    if answer == "the child hangs":
        child.kill()
    child.join()
    receiving.close()
    child.close()
    return answer


class ProcessTests(Harness):
    """One provider, many processes and threads."""

    def test_provider_pickles(self, provider: Provider) -> None:
        """A copy reads and writes the same bucket, whether or not the original was used."""
        for used in (False, True):
            if used:
                provider.put(self.key("original"), b"x")
            copied = pickle.loads(pickle.dumps(provider))  # noqa: S301 our own bytes
            assert type(copied) is type(provider)
            assert (copied.uri("k"), copied.limits) == (provider.uri("k"), provider.limits)
            assert copied.transfer == provider.transfer

    def test_provider_pickles_small(self, provider: Provider) -> None:
        """A pickle holds options, never a client: a million samples may carry one each."""
        provider.put(self.key("a"), b"x")
        assert len(pickle.dumps(provider)) < 4096

    @pytest.mark.parametrize("start", [pytest.param("fork", marks=_forks), "spawn"])
    @_may_fork
    def test_provider_works_in_a_child(self, provider: Provider, start: str) -> None:
        """A provider used in the parent works in a child, and in the parent afterwards."""
        provider.put(self.key("parent"), b"x")
        assert used_in_child(provider, self.key("child"), start) == b"from the child"
        assert provider.get(self.key("parent")) == b"x"
        expected = {"parent", "child"} if self.shared_storage else {"parent"}
        assert self.stored() == expected

    @_forks
    @_may_fork
    def test_provider_works_in_a_child_forked_under_lock(self, provider: Provider) -> None:
        """A lock held by another thread during a fork does not stop the child."""
        provider.put(self.key("parent"), b"x")
        with _held_elsewhere(_locks_of(provider)):
            answer = used_in_child(provider, self.key("child"), "fork")
        assert answer == b"from the child"
        assert provider.get(self.key("parent")) == b"x"

    @_forks
    @_may_fork
    def test_provider_works_in_children_forked_under_load(self, provider: Provider) -> None:
        """Children forked while other threads are in the middle of requests work."""
        key, body = self.key("parent"), noise(100_000)
        provider.put(key, body)
        stop, started = threading.Event(), threading.Barrier(5)

        def read_on() -> int:
            started.wait(_PATIENCE_SECONDS)
            wrong = 0
            while not stop.is_set():
                wrong += provider.get(key) != body
            return wrong

        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read_on) for _ in range(4)]
            started.wait(_PATIENCE_SECONDS)
            try:
                answers = [used_in_child(provider, self.key(f"c{n}"), "fork") for n in range(3)]
            finally:
                stop.set()
            assert [reader.result() for reader in readers] == [0] * 4
        assert answers == [b"from the child"] * 3

    def test_provider_is_thread_safe(self, provider: Provider) -> None:
        """Sixteen threads that write, read, list and delete get what is theirs."""

        def work(number: int) -> list[str]:
            mine = self.key(f"{number:02}")
            for turn in range(5):
                body = noise(1000 + number, turn)
                provider.put(f"{mine}/{turn}", body)
                if provider.get(f"{mine}/{turn}") != body:
                    return ["a foreign body"]
                if provider.head(f"{mine}/{turn}").size != len(body):
                    return ["a foreign size"]
            provider.delete([f"{mine}/0"])
            return [entry.key[len(mine) :] for entry in provider.list_objects(f"{mine}/")]

        with ThreadPoolExecutor(16) as pool:
            results = list(pool.map(work, range(16)))
        assert results == [["/1", "/2", "/3", "/4"]] * 16
        assert len(self.stored()) == 16 * 4

    def test_provider_is_first_used_by_many_threads(self) -> None:
        """Threads that meet at a provider's very first request share one client."""
        self.raw_put(self.key("a"), b"x")
        for _ in range(3):
            fresh, together = self.make_provider(), threading.Barrier(8)

            def read(
                _: int, fresh: Provider = fresh, together: threading.Barrier = together
            ) -> bytes:
                together.wait(_PATIENCE_SECONDS)
                return fresh.get(self.key("a"))

            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(read, range(8))) == [b"x"] * 8


def _locks_of(thing: Any, depth: int = 4) -> list[Any]:
    """Find the locks in a provider, and in the objects of its own package that it holds."""
    found = []
    ours = type(thing).__module__.partition(".")[0]
    for value in vars(thing).values() if hasattr(thing, "__dict__") else ():
        if isinstance(value, _LOCKS):
            found.append(value)
        elif depth and type(value).__module__.partition(".")[0] in {ours, "providers"}:
            found += _locks_of(value, depth - 1)
    return found


@contextmanager
def _held_elsewhere(locks: list[Any]) -> Iterator[None]:
    """Have another thread hold the locks."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            release.wait(_PATIENCE_SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        held.wait(_PATIENCE_SECONDS)
        yield
    finally:
        release.set()
        holder.join()
