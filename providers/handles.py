"""libcurl's handles: one pool of leases a process, set up in one place, never freed by a fork.

A lease is one multi handle, with the connections that it keeps open, and its easy handles.
Each live stream has one to itself, since two streams on one multi in one thread would take
each other's completions. Leases outlive threads: a fresh multi reads the certificates again
and opens every connection anew.

What a fork copies must never be used, closed or freed by the child: it would join resolver
threads that no longer exist, and end the parent's TLS connections. So ``_alive`` owns every
handle, and a child raises their reference counts for good before it starts a pool of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from providers.errors import SettingsError

try:
    import pycurl
except ImportError as error:  # pragma: no cover the package depends on it
    raise SettingsError(
        "the package pycurl is missing: pip install 'pycurl>=7.46' (wheels need glibc 2.28 or "
        "newer, macOS or Windows; elsewhere build it with libcurl's headers installed)"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.connections import Connection

__all__ = ["HandleSettings", "Lease", "Slot", "handle_options", "leased"]

SUPPRESS_CONNECT_HEADERS = 265
"""pycurl has no name for it. Source: ``CURLOPT_SUPPRESS_CONNECT_HEADERS`` in curl/curl.h 8.23,
there since 7.54."""

_USER_AGENT = "torch-cloud-connector"
_KEEPALIVE_SECONDS = 60
_READ_BYTES = 512 << 10
"""Half the CPU of large bodies against libcurl's own 16 KiB, and more than this gains nothing."""


@dataclass(frozen=True, slots=True)
class HandleSettings:
    """What an easy handle is set up for; handles of equal settings stand in for each other.

    Attributes:
        connection: how the store is reached.
        proxy: URL, or empty.
        connect_timeout_seconds: for name look-up, TCP and TLS together.
        low_speed_bytes_per_second: below this ...
        low_speed_seconds: ... for so long, a transfer is broken off.
    """

    connection: Connection
    proxy: str
    connect_timeout_seconds: float
    low_speed_bytes_per_second: int
    low_speed_seconds: int


def handle_options(settings: HandleSettings) -> dict[int, Any]:
    """Return every option that an easy handle gets, once, when it is made.

    ``TIMEOUT_MS`` is not among them: it counts the time in which the consumer is away.
    """
    connection = settings.connection
    options: dict[int, Any] = {
        # Threads and signals: no SIGALRM in name look-ups.
        pycurl.NOSIGNAL: 1,
        # What may be asked and answered. Redirects are decided by the provider, since libcurl
        # would forward session tokens to another host.
        pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
        pycurl.FOLLOWLOCATION: 0,
        pycurl.NETRC: pycurl.NETRC_IGNORED,
        pycurl.HTTP09_ALLOWED: 0,
        # Keys are opaque: "a/../b" stays as it is.
        pycurl.PATH_AS_IS: 1,
        pycurl.HTTP_VERSION: (
            pycurl.CURL_HTTP_VERSION_2TLS if connection.http2 else pycurl.CURL_HTTP_VERSION_1_1
        ),
        # Bodies arrive as they are stored.
        pycurl.HTTP_CONTENT_DECODING: 0,
        pycurl.USERAGENT: _USER_AGENT,
        # TLS.
        pycurl.SSL_VERIFYPEER: int(connection.verify_tls),
        pycurl.SSL_VERIFYHOST: 2 * connection.verify_tls,
        # The proxy is decided in Python; libcurl's reading of the environment differs.
        pycurl.PROXY: settings.proxy,
        pycurl.NOPROXY: "",
        # What a proxy says of its tunnel is no answer of the store.
        SUPPRESS_CONNECT_HEADERS: 1,
        # Time.
        pycurl.CONNECTTIMEOUT_MS: max(1, round(settings.connect_timeout_seconds * 1000)),
        # Where no least speed is asked for, silence is still too slow.
        pycurl.LOW_SPEED_LIMIT: max(1, settings.low_speed_bytes_per_second),
        pycurl.LOW_SPEED_TIME: settings.low_speed_seconds,
        pycurl.TCP_KEEPALIVE: 1,
        pycurl.TCP_KEEPIDLE: _KEEPALIVE_SECONDS,
        pycurl.TCP_KEEPINTVL: _KEEPALIVE_SECONDS,
        pycurl.TCP_NODELAY: 1,
        # What one read of a socket may bring; callbacks get 16 KiB at a time all the same.
        pycurl.BUFFERSIZE: _READ_BYTES,
    }
    options |= _authorities(connection.ca)
    if connection.client_certificate:
        options[pycurl.SSLCERT] = connection.client_certificate
    if connection.client_key:
        options[pycurl.SSLKEY] = connection.client_key
    if connection.addresses:
        options[pycurl.RESOLVE] = list(connection.addresses)
    return options


def _authorities(path: str) -> dict[int, str]:
    # libcurl would add its own built-in path to whichever of the two is left unset; a proxy
    # that is spoken to over TLS trusts the same certificates.
    if os.path.isdir(path):  # noqa: PTH112 paths stay text here
        return {pycurl.CAPATH: path, pycurl.PROXY_CAPATH: path}
    return {pycurl.CAINFO: path, pycurl.PROXY_CAINFO: path}


class Slot:
    """One easy handle with the lists that its callbacks fill.

    Attributes:
        easy: the handle.
        home: where unused slots of these settings lie.
        lines: raw header lines of the answer, interim answers first.
        chunks: the body, unless a transfer has pointed the handle elsewhere.
        settings: what it was set up for.
        most_bytes: the largest body that libcurl lets through; 0: any.
    """

    __slots__ = ("chunks", "easy", "home", "lines", "most_bytes", "settings")

    def __init__(self, settings: HandleSettings, home: list[Slot]) -> None:
        self.settings = settings
        self.home = home
        self.lines: list[bytes] = []
        self.chunks: list[bytes] = []
        self.most_bytes = 0
        self.easy = _keep(pycurl.Curl())
        for option, value in handle_options(settings).items():
            self.easy.setopt(option, value)
        self.easy.setopt(pycurl.HEADERFUNCTION, self.lines.append)
        self.easy.setopt(pycurl.WRITEFUNCTION, self.chunks.append)

    def head(self) -> bytes:
        """Return the header lines in one piece."""
        return b"".join(self.lines)


class Lease:
    """One multi handle, for the one stream that holds it.

    Attributes:
        multi: the handle.
        beyond_select: some of its descriptors may be too high for ``select``.
    """

    def __init__(self) -> None:
        self.beyond_select = False
        self.multi = _keep(pycurl.CurlMulti())
        self._slots: list[Slot] = []
        self._idle: dict[HandleSettings, list[Slot]] = {}
        self._room = 0
        self._generation = _generation

    @property
    def inherited(self) -> bool:
        """Whether it belongs to the process that this one was forked from, or to none."""
        return self._generation is not _generation

    def make_room(self, connections: int) -> None:
        """Keep up to so many connections open."""
        if connections > self._room:
            self._room = connections
            self.multi.setopt(pycurl.M_MAXCONNECTS, connections)

    def idle(self, settings: HandleSettings) -> list[Slot]:
        """Return the stack of unused slots of these settings; users push and pop."""
        return self._idle.setdefault(settings, [])

    def new_slot(self, settings: HandleSettings) -> Slot:
        """Make a slot; whoever asked for it returns it to its ``home``."""
        slot = Slot(settings, self.idle(settings))
        self._slots.append(slot)
        return slot

    def close(self) -> None:
        """Close all handles and connections."""
        for slot in self._slots:
            with contextlib.suppress(pycurl.error):  # it may never have been added
                self.multi.remove_handle(slot.easy)
            _close(slot.easy)
        _close(self.multi)


_lock = threading.Lock()
_alive: dict[int, Any] = {}
_pool: list[Lease] = []
_generation = object()


def _keep(handle: Any) -> Any:
    _alive[id(handle)] = handle
    return handle


def _close(handle: Any) -> None:
    handle.close()
    _alive.pop(id(handle), None)


@contextlib.contextmanager
def leased() -> Iterator[Lease]:
    """Lend a multi handle; one that an exception leaves behind is closed, not pooled.

    The last one returned is the first one lent: its connections are the likeliest to be open.
    """
    with _lock:
        lease = _pool.pop() if _pool else None
    if lease is None:
        lease = Lease()
    try:
        yield lease
    except GeneratorExit:
        _give_back(lease)
        raise
    except BaseException:
        if not lease.inherited:
            lease.close()
        raise
    else:
        _give_back(lease)


def _give_back(lease: Lease) -> None:
    with _lock:
        if not lease.inherited:
            _pool.append(lease)


def _abandon() -> None:
    """Make sure that nothing ever frees what there is, and start afresh."""
    global _lock, _alive, _pool, _generation
    for handle in list(_alive.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
    _lock, _alive, _pool, _generation = threading.Lock(), {}, [], object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)
# At exit too: freeing a multi waits for name look-ups that are still under way.
atexit.register(_abandon)
