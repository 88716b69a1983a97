"""A small object server on raw sockets that misbehaves on purpose, over HTTP or TLS.

Objects are what `objects` says; `GET /bucket/key` answers ranges and `If-Match` as object stores
do. A fault decides one request: it gets the exchange and sends whatever it likes.

    with PlaneServer({"a": b"bytes"}) as server:
        server.fault(cut_after(3), times=1)
"""

import hashlib
import re
import socket
import ssl
import struct
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from typing_extensions import Self

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Exchange:
    """One request and the connection that it came on.

    Args:
        server: which got it.
        link: the connection; a fault may send anything, or close it.
        key: the object asked for.
        headers: of the request, names in lower case.
        connection: number of the connection, from 1.
        status: of the answer, for the record.
        gone: the connection must not be used again.
    """

    server: "PlaneServer"
    link: socket.socket
    key: str
    headers: Mapping[str, str]
    connection: int
    status: int = 0
    gone: bool = False

    def answer(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send an answer; `headers` may overrule the Content-Length, empty ones are left out."""
        self.status = status
        fields = {"Content-Length": str(len(body)), **(headers or {})}
        lines = [f"HTTP/1.1 {status} Answer", *(f"{k}: {v}" for k, v in fields.items() if v)]
        self.link.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def properly(self) -> tuple[int, dict[str, str], bytes]:
        """Return what a good server answers: status, headers, body."""
        data = self.server.objects.get(self.key)
        if data is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        headers = {"ETag": f'"{etag}"', "x-amz-request-id": f"R{self.connection}"}
        wanted = self.headers.get("if-match", "").strip('"')
        if wanted and wanted != etag:
            return 412, headers, b"<Error><Code>PreconditionFailed</Code></Error>"
        span = _RANGE.fullmatch(self.headers.get("range", ""))
        if span is None:
            return 200, headers, data
        start, stop = int(span[1]), min(int(span[2] or len(data)) + 1, len(data))
        if start >= len(data):
            return 416, headers, b"<Error><Code>InvalidRange</Code></Error>"
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return 206, headers, data[start:stop]

    def close(self, *, reset: bool = False) -> None:
        """End the connection, by a reset if asked."""
        self.gone = True
        if reset:
            self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Past TLS, so that no farewell is sent.
            socket.socket(fileno=self.link.detach()).close()
        else:
            self.link.close()


Fault = Callable[[Exchange], None]


@dataclass(slots=True)
class _Rule:
    fault: Fault
    left: int | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that the server got."""

    key: str
    headers: Mapping[str, str]
    connection: int


@dataclass(slots=True)
class PlaneServer:
    """The server, on a free loopback port for the length of a `with` block.

    Args:
        objects: bodies by key.
        certificate: file with certificate and key; None: plain HTTP.
        client_ca: file of the certificates that clients must show one of; None: they need not.
        host: the name under which clients are told to reach it.
    """

    objects: dict[str, bytes]
    certificate: Path | None = None
    host: str = "127.0.0.1"
    client_ca: Path | None = None
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    protocols: set[str | None] = field(default_factory=set)
    closing: threading.Event = field(default_factory=threading.Event)
    _rules: list[_Rule] = field(default_factory=list)
    _links: set[socket.socket] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _listener: socket.socket = field(default_factory=socket.socket)

    def __enter__(self) -> Self:
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(512)
        threading.Thread(target=self._accept, name="plane-server", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http{'s' if self.certificate else ''}://{self.host}:{self.port}"

    def fault(self, fault: Fault, *, times: int | None = 1, key: str | None = None) -> None:
        """Let a fault decide the next requests, of one key or of any."""
        with self._lock:
            self._rules.append(_Rule(fault, times, key))

    def asked(self, key: str) -> list[Seen]:
        """Return the requests for one key."""
        return [seen for seen in list(self.seen) if seen.key == key]

    def hang_up(self) -> None:
        """Close every connection from this side."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _accept(self) -> None:
        context = None
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            context.set_alpn_protocols(["h2", "http/1.1"])
            if self.client_ca is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self.client_ca)
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                number = self.connections
            threading.Thread(
                target=self._serve, args=(link, context, number), name="plane-link", daemon=True
            ).start()

    def _serve(self, link: socket.socket, context: ssl.SSLContext | None, number: int) -> None:
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                link = context.wrap_socket(link, server_side=True)
                self.protocols.add(link.selected_alpn_protocol())
            with self._lock:
                self._links.add(link)
            with link, link.makefile("rb") as lines:
                while (first := lines.readline()) and self._respond(link, first, lines, number):
                    pass
        except OSError:
            return  # the client went away, which is its right
        finally:
            with self._lock:
                self._links.discard(link)

    def _respond(self, link: socket.socket, first: bytes, lines: BinaryIO, number: int) -> bool:
        headers: dict[str, str] = {}
        while (line := lines.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        path = first.split()[1].decode("latin-1")
        key = urllib.parse.unquote(path.split("/", 2)[-1])
        exchange = Exchange(self, link, key, headers, number)
        with self._lock:
            self.seen.append(Seen(key, headers, number))
            fault = self._rule_for(key)
        if fault is None:
            exchange.answer(*exchange.properly())
        else:
            fault(exchange)
        return not exchange.gone

    def _rule_for(self, key: str) -> Fault | None:
        for rule in self._rules:
            if rule.left != 0 and rule.key in (None, key):
                if rule.left is not None:
                    rule.left -= 1
                return rule.fault
        return None


def cut_after(size: int, *, reset: bool = False) -> Fault:
    """Send the head and so many bytes of the body (from its end, if negative), then close."""

    def fault(exchange: Exchange) -> None:
        status, headers, body = exchange.properly()
        part = body[:size]
        exchange.answer(status, {**headers, "Content-Length": str(len(body))}, part)
        exchange.close(reset=reset)

    return fault


def stall_after(size: int | None) -> Fault:
    """Send the head and so many bytes, then nothing more; None: not even the head."""

    def fault(exchange: Exchange) -> None:
        if size is not None:
            status, headers, body = exchange.properly()
            exchange.answer(status, {**headers, "Content-Length": str(len(body))}, body[:size])
        exchange.gone = True
        exchange.link.settimeout(_PATIENCE_SECONDS)
        exchange.link.recv(1)  # until the client has had enough

    return fault


def drip_after(size: int) -> Fault:
    """Send the head and so many bytes, then the rest one by one, twenty a second."""

    def fault(exchange: Exchange) -> None:
        status, headers, body = exchange.properly()
        exchange.answer(status, {**headers, "Content-Length": str(len(body))}, body[:size])
        exchange.gone = True
        for place in range(size, len(body)):
            exchange.server.closing.wait(0.05)
            exchange.link.sendall(body[place : place + 1])

    return fault


def answer(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Fault:
    """Answer this and nothing else."""
    return lambda exchange: exchange.answer(status, headers, body)


def amended(headers: Mapping[str, str], *, status: int | None = None) -> Fault:
    """Answer properly but for some headers, or for the status."""

    def fault(exchange: Exchange) -> None:
        proper, fields, body = exchange.properly()
        exchange.answer(status or proper, {**fields, **headers}, body)

    return fault


def whole_object(exchange: Exchange) -> None:
    """Answer the whole object, as servers do that know no ranges."""
    exchange.answer(200, {}, exchange.server.objects[exchange.key])


def reset_at_once(exchange: Exchange) -> None:
    """Reset the connection instead of answering."""
    exchange.close(reset=True)


def after(event: threading.Event) -> Fault:
    """Answer properly, once an event has happened."""

    def fault(exchange: Exchange) -> None:
        event.wait(_PATIENCE_SECONDS)
        exchange.answer(*exchange.properly())

    return fault


def raw(data: bytes) -> Fault:
    """Send these bytes as the answer, then close."""

    def fault(exchange: Exchange) -> None:
        exchange.link.sendall(data)
        exchange.close()

    return fault


def endless(headers: Mapping[str, str]) -> Fault:
    """Send a partial answer whose body never ends, until the client has had enough."""

    def fault(exchange: Exchange) -> None:
        exchange.answer(206, {**headers, "Content-Length": "", "Transfer-Encoding": "chunked"})
        exchange.gone = True
        piece = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        while True:
            exchange.link.sendall(piece)

    return fault


def then_close(exchange: Exchange) -> None:
    """Answer properly, then close the connection without a word of warning."""
    exchange.answer(*exchange.properly())
    exchange.close()


def in_turn(*faults: Fault) -> Fault:
    """Do what each fault says in turn, then what the last one says."""
    left = list(faults)

    def fault(exchange: Exchange) -> None:
        chosen = left.pop(0) if len(left) > 1 else left[0]
        chosen(exchange)

    return fault


def replacing(key: str, data: bytes, fault: Fault) -> Fault:
    """Do what a fault says, then let another body take the object's place."""

    def both(exchange: Exchange) -> None:
        fault(exchange)
        exchange.server.objects[key] = data

    return both


def unpinned(exchange: Exchange) -> None:
    """Answer as stores do that know no `If-Match`."""
    fields = {name: value for name, value in exchange.headers.items() if name != "if-match"}
    exchange.answer(*replace(exchange, headers=fields).properly())
