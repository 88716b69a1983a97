"""What spawned workers of tests do; imports nothing that a worker would not."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from providers.counters import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from providers.base import Provider

SDKS = ("boto3", "botocore", "google", "oss2", "requests", "urllib3")
THREADS = 4
MOST_READS = 50_000
"""Of one thread; so that a failure to renew ends too."""


def read(answers: Connection, provider: Provider, key: str) -> None:
    """Read an object, and send its bytes and the names of the SDKs that were loaded for it."""
    try:
        body = provider.get(key)
    except Exception as error:  # noqa: BLE001 the parent tells it
        answers.send((repr(error), []))
        return
    answers.send((body, [name for name in SDKS if name in sys.modules]))


def read_on(
    answers: Connection, provider: Provider, key: str, renewals: int, life_seconds: float
) -> None:
    """Read with several threads until credentials were renewed often enough.

    Args:
        answers: gets the number of reads, or an error, and all the bodies that differ.
        provider: to read from.
        key: of an object.
        renewals: that must be seen.
        life_seconds: of tokens that something in this process puts into its environment;
            0: somebody else hands them out.
    """
    bodies: set[bytes] = set()

    def run(_: int) -> int:
        for count in range(MOST_READS):
            bodies.add(provider.get(key))
            # By the SDK, whose credentials expire as well.
            if count % 100 == 50:
                provider.head(key)
            if snapshot().refreshes >= renewals:
                return count + 1
        raise RuntimeError(f"{snapshot().refreshes} renewals only")

    try:
        with fresh_tokens(life_seconds), ThreadPoolExecutor(THREADS) as pool:
            answers.send((sum(pool.map(run, range(THREADS))), bodies))
    except Exception as error:  # noqa: BLE001 the parent tells it
        answers.send((repr(error), bodies))


@contextlib.contextmanager
def fresh_tokens(life_seconds: float) -> Iterator[None]:
    """Have an agent keep the environment's token fresh, if there is one to be kept."""
    done = threading.Event()

    def keep() -> None:
        while not done.wait(life_seconds / 4):
            put_token(life_seconds)

    agent = threading.Thread(target=keep)
    if life_seconds:
        put_token(life_seconds)
        agent.start()
    try:
        yield
    finally:
        done.set()
        if life_seconds:
            agent.join()


def put_token(life_seconds: float) -> None:
    """Put a fresh token of OSS into the environment."""
    os.environ["OSS_SESSION_TOKEN"] = f"token-{time.time() + life_seconds}"
