"""A reverse proxy that misbehaves on purpose.

Put a `Front` between a client and a real server. It passes everything on byte for byte, signatures
and odd keys included, until a rule says otherwise:

    with Front(server.endpoint) as front:
        front.answer(status=503, headers={"Retry-After": "1"}, times=2)
        front.drop_answer(when=lambda request: request.method == "PUT")

Rules are tried in the order they were made; the first that is not used up and whose `when` agrees
decides the request. Bodies are held whole in memory, both ways, and a request is read to its end
before any rule acts.
"""

import contextlib
import http.client
import os
import socket
import socketserver
import struct
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import BinaryIO, cast

from typing_extensions import Self

from tests.fakes.wire import Answer, Message, Request, Upstream, read_message, send_answer

__all__ = ["Answer", "Exchange", "Front", "Record", "Request"]

When = Callable[[Request], bool]
_JOIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Record:
    """One request that reached the front, and what became of it.

    Args:
        method: As sent; `path` and `query` too.
        path: Everything before the first `?`.
        query: Everything after it.
        headers: By lower-case name.
        body_size: Bytes, without chunked framing.
        connection: Which connection of the front it came on, counted from 1.
        status: What the client was answered, or None: not yet, or never.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body_size: int
    connection: int
    status: int | None = None


class Exchange:
    """One request on its way; a rule decides what becomes of it."""

    def __init__(self, message: Message, front: "Front", upstream: Upstream) -> None:
        self.message = message
        self.closing = front.closing
        self.resets = False
        self._front = front
        self._upstream = upstream

    def forward(self) -> Answer:
        """Let the server answer, as it would without the rule."""
        return self._front.respond(self.message, self._upstream)


Fault = Callable[[Exchange], Answer | None]
"""Gives the answer to send, or None to close the connection without one."""


@dataclass(slots=True)
class _Rule:
    fault: Fault
    when: When
    left: int | None


class Front:
    """A reverse proxy on a free loopback port, for the length of a `with` block.

    Every rule takes `times`, how many requests it decides (None for all until `clear`), and
    `when`, which picks them (all by default).

    Args:
        upstream: The server's endpoint, `http://host:port`.
    """

    def __init__(self, upstream: str) -> None:
        address = urllib.parse.urlsplit(upstream)
        self.upstream = (address.hostname or "127.0.0.1", address.port or 80)
        self.closing = threading.Event()
        self._lock = threading.RLock()
        self._rules: list[_Rule] = []
        self._records: list[Record] = []
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._connection_count = 0
        self._listener = _Listener(self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name="front", daemon=True
        )
        port: int = self._listener.server_address[1]
        self.endpoint = f"http://127.0.0.1:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        _fronts.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wake whatever stalls, cut all connections and wait for the threads."""
        self.closing.set()
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join(_JOIN_SECONDS)
        self._listener.server_close()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections.values():
            thread.join(_JOIN_SECONDS)

    @property
    def requests(self) -> tuple[Record, ...]:
        """What arrived, in order of arrival."""
        with self._lock:
            return tuple(self._records)

    def clear(self) -> None:
        """Forget all rules; the records stay."""
        with self._lock:
            self._rules.clear()

    def answer(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        times: int | None = 1,
        when: When | None = None,
    ) -> None:
        """Answer in the server's place, without asking it."""
        answer = Answer(status, tuple((headers or {}).items()), body)
        self.apply(lambda _: answer, times, when)

    def drop_answer(self, *, times: int | None = 1, when: When | None = None) -> None:
        """Let the server do its work, then close without answering."""

        def fault(exchange: Exchange) -> None:
            exchange.forward()

        self.apply(fault, times, when)

    def reset(self, *, times: int | None = 1, when: When | None = None) -> None:
        """Reset the connection without asking the server."""

        def fault(exchange: Exchange) -> None:
            exchange.resets = True

        self.apply(fault, times, when)

    def truncate(
        self, after_bytes: int, *, times: int | None = 1, when: When | None = None
    ) -> None:
        """Promise the whole body, send only `after_bytes` of it, close."""
        self.apply(
            lambda exchange: replace(exchange.forward(), sent_bytes=after_bytes), times, when
        )

    def stall(self, seconds: float, *, times: int | None = 1, when: When | None = None) -> None:
        """Let the server do its work, then wait before answering."""

        def fault(exchange: Exchange) -> Answer | None:
            answer = exchange.forward()
            return None if exchange.closing.wait(seconds) else answer

        self.apply(fault, times, when)

    def rewrite(
        self,
        function: Callable[[Answer], Answer],
        *,
        times: int | None = 1,
        when: When | None = None,
    ) -> None:
        """Change the server's answer; `Content-Length` follows the body."""
        self.apply(lambda exchange: function(exchange.forward()), times, when)

    def apply(self, fault: Fault, times: int | None = 1, when: When | None = None) -> None:
        """Add a rule of your own."""
        with self._lock:
            self._rules.append(_Rule(fault, when or (lambda _: True), times))

    def respond(self, message: Message, upstream: Upstream) -> Answer:
        """Answer one request that no rule has decided; subclasses know better."""
        try:
            return upstream.exchange(message)
        except (OSError, http.client.HTTPException) as error:
            return Answer(502, (), f"the server behind the front failed: {error!r}".encode())

    def serve(self, connection: socket.socket) -> None:
        """Serve one connection until either side closes it."""
        with self._lock:
            self._connections[connection] = threading.current_thread()
            self._connection_count += 1
            number = self._connection_count
        upstream = Upstream(*self.upstream)
        try:
            with connection.makefile("rb") as stream, contextlib.suppress(ConnectionError):
                while self._serve_one(connection, cast("BinaryIO", stream), upstream, number):
                    pass
        finally:
            upstream.close()
            with self._lock:
                del self._connections[connection]

    def close_in_child(self) -> None:
        """Close a forked child's copies, or a client would not see connections end."""
        self._listener.server_close()
        for connection in self._connections:
            os.close(connection.detach())

    def _serve_one(
        self, connection: socket.socket, stream: BinaryIO, upstream: Upstream, number: int
    ) -> bool:
        message = None if self.closing.is_set() else read_message(stream, connection)
        if message is None:
            return False
        place = self._record(message, number)
        exchange = Exchange(message, self, upstream)
        fault = self._pick(message.request) or Exchange.forward
        answer = fault(exchange)
        if answer is None:
            if exchange.resets:
                # Lingering for no time at all makes close send RST instead of FIN.
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        with self._lock:
            self._records[place] = replace(self._records[place], status=answer.status)
        send_answer(connection, answer, message.request.method)
        return answer.sent_bytes is None and message.keeps_alive

    def _record(self, message: Message, connection: int) -> int:
        head = message.request
        record = Record(
            head.method, head.path, head.query, head.headers, len(message.body), connection
        )
        with self._lock:
            self._records.append(record)
            return len(self._records) - 1

    def _pick(self, request: Request) -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if rule.left != 0 and rule.when(request):
                    rule.left = None if rule.left is None else rule.left - 1
                    return rule.fault
        return None


class _Listener(socketserver.ThreadingTCPServer):
    request_queue_size = 512
    daemon_threads = True

    def __init__(self, front: Front) -> None:
        self._front = front
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)

    def finish_request(self, request: object, client_address: object) -> None:
        del client_address
        connection = cast("socket.socket", request)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._front.serve(connection)

    def shutdown_request(self, request: object) -> None:
        connection = cast("socket.socket", request)
        # FIN first, whoever else may hold a copy; but it would spoil a reset.
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER) == 0:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        connection.close()


_fronts: "weakref.WeakSet[Front]" = weakref.WeakSet()


def _close_in_child() -> None:
    for front in list(_fronts):
        front.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
