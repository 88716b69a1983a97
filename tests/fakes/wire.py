"""HTTP/1.1 as bytes on a socket: just enough to pass messages on without changing them.

`http.server` and `http.client` normalise paths and header names; a signed request survives only
if nothing is touched, so heads are kept as received.
"""

import contextlib
import http.client
import select
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import BinaryIO

_MAX_HEAD_BYTES = 256 * 1024
_UPSTREAM_TIMEOUT_SECONDS = 120.0
_BODYLESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request.

    Args:
        method: As sent.
        path: Everything before the first `?`, as sent: nothing is decoded or merged.
        query: Everything after the first `?`, as sent; empty if there is none.
        headers: By lower-case name; repeated ones are joined with a comma.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    @property
    def target(self) -> str:
        """Path and query as they stood in the request line."""
        return f"{self.path}?{self.query}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it is given to the client.

    Args:
        status: HTTP status.
        headers: In order, with the server's spelling. `Content-Length` is set from the body when
            the answer is sent, except for an answer without a body.
        body: Whole, with any chunked framing taken off.
        sent_bytes: Send only so much of the body, then close; None sends all.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    sent_bytes: int | None = None

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def with_header(self, name: str, value: str) -> "Answer":
        """The same answer with one header replaced or added."""
        others = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return Answer(self.status, (*others, (name, value)), self.body, self.sent_bytes)


@dataclass(frozen=True, slots=True)
class Message:
    """A whole request: its head as a value, and its bytes as received."""

    request: Request
    head: bytes = field(repr=False)
    framed_body: bytes = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def keeps_alive(self) -> bool:
        """Whether the client expects to use the connection again."""
        return self.request.headers.get("connection", "").lower() != "close"


def read_message(stream: BinaryIO, connection: socket.socket) -> Message | None:
    """Read one request, or None at the end of the connection."""
    head = _read_head(stream)
    if head is None:
        return None
    request = _parse_head(head)
    if request.headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if request.headers.get("transfer-encoding", "").lower() == "chunked":
        framed, body = _read_chunked(stream)
    else:
        length = int(request.headers.get("content-length", "0"))
        framed = body = stream.read(length)
        if len(body) < length:
            return None
    return Message(request, head, framed, body)


def send_answer(connection: socket.socket, answer: Answer, method: str) -> None:
    """Send an answer, or the part of it that `sent_bytes` allows."""
    bodyless = method == "HEAD" or answer.status in _BODYLESS
    if not bodyless:
        answer = answer.with_header("Content-Length", str(len(answer.body)))
    phrase = http.client.responses.get(answer.status, "Unknown")
    lines = [f"HTTP/1.1 {answer.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    connection.sendall(head + (b"" if bodyless else answer.body[: answer.sent_bytes]))


class Upstream:
    """One kept-alive connection to the server behind a front."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def exchange(self, message: Message) -> Answer:
        """Pass a request on and read the whole answer."""
        connection = self._connect()
        # A server may refuse and close before it has read the body: its answer still counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(message.head + message.framed_body)
        response = http.client.HTTPResponse(connection, method=message.request.method)
        try:
            response.begin()
            body = response.read()
        except BaseException:
            self.close()
            raise
        finally:
            response.close()
        if response.will_close:
            self.close()
        skipped = {"transfer-encoding", "connection"}
        headers = tuple(pair for pair in response.getheaders() if pair[0].lower() not in skipped)
        return Answer(response.status, headers, body)

    def close(self) -> None:
        """Drop the connection; the next exchange opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket:
        # Readable while nothing is expected means that the server has closed its side.
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(self._address, _UPSTREAM_TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


def _read_head(stream: BinaryIO) -> bytes | None:
    lines: list[bytes] = []
    size = 0
    while True:
        line = stream.readline(_MAX_HEAD_BYTES)
        size += len(line)
        if not line.endswith(b"\n") or size > _MAX_HEAD_BYTES:
            return None
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)


def _parse_head(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    headers: dict[str, str] = {}
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(method, path, query, MappingProxyType(headers))


def _read_chunked(stream: BinaryIO) -> tuple[bytes, bytes]:
    framed, body = [], []
    while True:
        line = stream.readline()
        size = int(line.split(b";")[0], 16)
        framed.append(line)
        if size == 0:
            break
        data = stream.read(size)
        framed += [data, stream.readline()]
        body.append(data)
    while framed[-1] != b"\r\n":
        framed.append(stream.readline())
    return b"".join(framed), b"".join(body)
