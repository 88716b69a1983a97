"""A program that forks in the middle of everything: `python -m tests.fakes.plane_fork`.

Reads through a host name (and over TLS, by the endpoint given) in a thread and in a half-consumed
stream, forks many times, lets each child drop all that it inherited and read on its own, and then
reads on. Exits with 0 if every body was right everywhere.
"""

import argparse
import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator

import providers.counters
import providers.handles
import providers.hedging
import providers.pacing
from providers.connections import Connection
from providers.http import fetch
from providers.options import TransferOptions
from tests.fakes.plane_provider import PlaneProvider, Read

_OBJECTS = 24
_CHILD_SECONDS = 20
_DEADLINE_SECONDS = 100


def body_of(key: str) -> bytes:
    """What the server must hold under a key."""
    return key.encode() * 2500


def keys() -> list[str]:
    """The objects that the server must hold."""
    return [f"object-{number}" for number in range(_OBJECTS)]


class Reader:
    """Reads everything, over and over."""

    def __init__(self, provider: PlaneProvider) -> None:
        self._provider = provider
        self._transfer = TransferOptions(max_in_flight=8, prefetch_objects=8)

    def stream(self) -> Iterator[tuple[Read, object]]:
        """Begin a stream of all objects."""
        return iter(fetch((Read(self._provider, key) for key in keys()), self._transfer))

    def check(self, items: Iterator[tuple[Read, object]]) -> int:
        """Read a stream to its end; return how many bodies were right."""
        count = 0
        for read, body in items:
            if body != body_of(read.key):
                raise SystemExit(f"{read.key}: {body!r:.200}")
            count += 1
        return count

    def until(self, stop: threading.Event) -> None:
        """Read on and on, as a prefetch thread does."""
        while not stop.is_set():
            self.check(self.stream())


def child(reader: Reader, inherited: Iterator[tuple[Read, object]], ending: str) -> None:
    """Drop what was inherited, read with handles of one's own, and end."""
    signal.alarm(_CHILD_SECONDS)
    del inherited
    gc.collect()
    good = reader.check(reader.stream()) == _OBJECTS
    if ending == "sys.exit":
        sys.exit(not good)
    os._exit(not good)


def hold_locks(held: threading.Event, release: threading.Event) -> None:
    """Hold every lock of the engine, as a thread may that a fork does not copy."""
    modules = (providers.handles, providers.pacing, providers.counters, providers.hedging)
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(module._lock)
        held.set()
        release.wait()


def fork_once(reader: Reader, ending: str, *, locked: bool) -> None:
    """Fork with a stream half consumed, and read on when the child is done."""
    items = reader.stream()
    for _ in range(_OBJECTS // 2):
        next(items)
    held, release = threading.Event(), threading.Event()
    if locked:
        threading.Thread(target=hold_locks, args=(held, release), daemon=True).start()
        held.wait()
    pid = os.fork()
    if pid == 0:
        child(reader, items, ending)
    release.set()
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"a child ended with status {status}")
    if reader.check(items) != _OBJECTS - _OBJECTS // 2:
        raise SystemExit("the parent's stream ended early")


def main() -> None:
    """Fork as often as asked, beside a thread that reads."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("endpoint")
    arguments.add_argument("ca")
    arguments.add_argument("--forks", type=int, default=6)
    arguments.add_argument("--ending", default="os._exit")
    chosen = arguments.parse_args()
    # An alarm ends what hangs, with a traceback. faulthandler's own timer would itself hang in
    # the children: a fork does not copy its thread, and the end of the program waits for it.
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(_DEADLINE_SECONDS)
    reader = Reader(PlaneProvider(chosen.endpoint, connection=Connection(chosen.ca)))
    failures: list[object] = []
    threading.excepthook = failures.append
    stop = threading.Event()
    beside = threading.Thread(target=reader.until, args=(stop,))
    beside.start()
    try:
        for number in range(chosen.forks):
            fork_once(reader, chosen.ending, locked=number % 2 == 1)
    finally:
        stop.set()
        beside.join()
    if failures:
        raise SystemExit(f"the thread beside failed: {failures}")


if __name__ == "__main__":
    main()
