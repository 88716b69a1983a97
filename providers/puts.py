"""Requests with bodies: ``http.client`` over connections that are kept, half of libcurl's cost.

A thread sends one request at a time; the connections of all threads lie in one pool. Every send
and every wait has its own time limit, so that a large part may leave slowly but not stall.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, unquote, urlsplit

from providers.errors import ProviderError, SettingsError, TimedOutError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.connections import Connection
    from providers.options import TransferOptions
    from providers.values import HttpRequest

__all__ = ["PutAnswer", "PutConnections", "explain_failure"]

_PIECE_BYTES = 1 << 20
"""Each piece gets the time limit anew; smaller ones cost more."""


@dataclass(frozen=True, slots=True)
class PutAnswer:
    """One answer, read to its end.

    Attributes:
        status: of HTTP.
        headers: names by any spelling, as ``http.client`` has them.
        body: all of it.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class PutConnections:
    """The connections of one process to one store.

    Args:
        connection: certificates and proxy.
        transfer: time limits.
    """

    def __init__(self, connection: Connection, transfer: TransferOptions) -> None:
        self._connection = connection
        self._transfer = transfer
        self._lock = threading.Lock()
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}
        # It asks the environment: once, not for each body.
        self._proxy_for = functools.lru_cache(connection.proxy_for)

    def __del__(self) -> None:
        """Close what lies idle; a forked child holds on to what it inherited, for ever."""
        for links in self._idle.values():
            for link in links:
                link.close()

    def send(self, request: HttpRequest, body: memoryview) -> PutAnswer:
        """Send one request and return its answer, whatever its status.

        A connection that the store has closed meanwhile is replaced, once.

        Raises:
            OSError, http.client.HTTPException: no answer came; ``explain_failure`` says why.
        """
        url = urlsplit(request.url)
        origin = f"{url.scheme}://{url.netloc}"
        with self._lock:
            idle = self._idle.setdefault(origin, [])
            kept = idle.pop() if idle else None
        if kept is not None:
            try:
                return self._exchange(kept, url, request, body, origin)
            except (ConnectionError, http.client.BadStatusLine):
                # Nothing was answered: it was closed while it lay idle.
                kept.close()
        return self._exchange(self._open(url), url, request, body, origin)

    def _exchange(
        self,
        link: http.client.HTTPConnection,
        url: SplitResult,
        request: HttpRequest,
        body: memoryview,
        origin: str,
    ) -> PutAnswer:
        try:
            self._write(link, url, request, body)
            with link.getresponse() as response:
                data = response.read()
                closing = response.will_close
                answer = PutAnswer(
                    response.status, cast("Mapping[str, str]", response.headers), data
                )
        except BaseException:
            link.close()
            raise
        if closing:
            link.close()
        else:
            with self._lock:
                self._idle[origin].append(link)
        return answer

    def _write(
        self,
        link: http.client.HTTPConnection,
        url: SplitResult,
        request: HttpRequest,
        body: memoryview,
    ) -> None:
        target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
        if self._proxy(url) and url.scheme == "http":
            target = request.url
        link.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
        link.putheader("Host", url.netloc)
        for name, value in request.headers.items():
            link.putheader(name, value)
        link.putheader("Content-Length", str(len(body)))
        link.endheaders()
        # A refusal may come, and the connection be closed, before the body has left: if no answer
        # lies there either, waiting for one says so.
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(body), _PIECE_BYTES):
                link.send(body[start : start + _PIECE_BYTES])

    def _proxy(self, url: SplitResult) -> str:
        return self._proxy_for(f"{url.scheme}://{url.netloc}")

    def _open(self, url: SplitResult) -> http.client.HTTPConnection:
        times = self._transfer
        proxy = self._proxy(url)
        via = urlsplit(proxy) if proxy else None
        host, port = (via.hostname, via.port) if via else (url.hostname, url.port)
        link: http.client.HTTPConnection
        if url.scheme == "https":
            link = http.client.HTTPSConnection(
                host or "",
                port,
                timeout=times.connect_timeout_seconds,
                context=self._context,
                blocksize=_PIECE_BYTES,
            )
            if via:
                link.set_tunnel(url.hostname or "", url.port or 443, _proxy_headers(via))
        else:
            link = http.client.HTTPConnection(
                host or "", port, timeout=times.connect_timeout_seconds, blocksize=_PIECE_BYTES
            )
        link.connect()
        link.sock.settimeout(times.first_byte_timeout_seconds)
        return link

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        # Trusts nobody yet, unlike ``create_default_context``.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._connection.trust(context)
        return context


def _proxy_headers(via: SplitResult) -> dict[str, str]:
    if via.username is None:
        return {}
    pair = f"{unquote(via.username)}:{unquote(via.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}


def explain_failure(error: Exception, uri: str, operation: str) -> ProviderError | None:
    """Say why no answer came; None: it is no failure of a connection."""
    kind: type[ProviderError]
    if isinstance(error, ssl.SSLCertVerificationError):
        kind, what = SettingsError, "the certificate is not trusted (option ca_file)"
    elif isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" in (error.reason or ""):
        kind, what = SettingsError, "the endpoint does not speak TLS; is it http://?"
    elif isinstance(error, TimeoutError):
        kind, what = TimedOutError, "no answer in time"
    elif isinstance(error, OSError | http.client.HTTPException):
        kind, what = UnavailableError, "the connection broke"
        if isinstance(error, ConnectionRefusedError) or type(error).__name__ == "gaierror":
            what = "the endpoint cannot be reached"
    else:
        return None
    return kind(f"{what}: {str(error) or type(error).__name__}", uri=uri, operation=operation)
