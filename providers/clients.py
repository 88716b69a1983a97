"""One live client a process: opened on first use, abandoned (never closed or freed) by a fork."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ClientSlot"]

C = TypeVar("C")

_tokens = itertools.count()
_opened: dict[int, Any] = {}
_inherited: list[dict[int, Any]] = []


def _keep_inherited_alive() -> None:
    """In a forked child, hold on to the parent's clients so that nothing ever frees them."""
    _inherited.append(dict(_opened))
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_inherited_alive)


class ClientSlot(Generic[C]):
    """Holds one client for one process and opens it when first asked.

    Args:
        open_client: makes the client; called at most once a process, unless dropped.
    """

    def __init__(self, open_client: Callable[[], C]) -> None:
        self._open = open_client
        self._reset()

    def _reset(self) -> None:
        """Forget whatever was there: a fresh lock, since the old one may be held for ever."""
        self._lock = threading.Lock()
        self._token: int | None = None
        self._pid = os.getpid()

    def get(self) -> C:
        """Return this process's client."""
        if self._pid != os.getpid():
            self._reset()
        token = self._token
        if token is None:
            with self._lock:
                token = self._token if self._token is not None else self._fill()
        client: C = _opened[token]
        return client

    def _fill(self) -> int:
        client = self._open()
        token = next(_tokens)
        _opened[token] = client
        weakref.finalize(self, _opened.pop, token, None)
        self._token = token
        return token

    def drop(self) -> None:
        """Let the next ``get`` open a new client; requests under way keep the old one."""
        if self._pid == os.getpid():
            with self._lock:
                self._token = None
