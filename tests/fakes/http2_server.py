"""A server of objects over HTTP/2, and 1.1 for those who do not offer it; it can break streams."""

import contextlib
import hashlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, RequestReceived, StreamReset
from typing_extensions import Self

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_READ_BYTES = 64 << 10


@dataclass
class Answer:
    """One answer, and how it goes wrong, if it does.

    Attributes:
        status: of HTTP.
        headers: without the length.
        body: all of it.
        told: whether the length is.
        broken_at: bytes after which the stream ends.
        how: "reset" ends the stream alone, "goaway" the connection with a word, "close" without.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    told: bool = True
    broken_at: int | None = None
    how: str = "reset"
    sent: int = 0

    def fields(self) -> list[tuple[str, str]]:
        """Return the headers of HTTP/2."""
        length = [("content-length", str(len(self.body)))] if self.told else []
        return [(":status", str(self.status)), *self.headers.items(), *length]

    @property
    def stop(self) -> int:
        """Where sending ends."""
        return len(self.body) if self.broken_at is None else self.broken_at


Change = Callable[[Answer], None]


@dataclass
class _Requests:
    """What was asked, on every connection."""

    protocols: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)


class Http2Server:
    """Serves ``/bucket/key`` on loopback over TLS.

    Args:
        objects: by key.
        certificate: a PEM file with key and certificate.
        host: the name in it.

    Attributes:
        connections: opened so far.
        seen: what was asked.
    """

    def __init__(self, objects: Mapping[str, bytes], certificate: Path, host: str) -> None:
        self.objects = objects
        self.host = host
        self.connections = 0
        self.seen = _Requests()
        self._changes: dict[str, list[Change]] = {}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["h2", "http/1.1"])
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._links: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def endpoint(self) -> str:
        """By name."""
        return f"https://{self.host}:{self.port}"

    def change(self, key: str, *changes: Change) -> None:
        """Change the next answers about a key, one each."""
        self._changes[f"/bucket/{key}"] = list(changes)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for link in list(self._links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    # ---- Connections ---------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(raw, server_side=True) as link:
            with self._lock:
                self.connections += 1
                self._links.add(link)
            try:
                if link.selected_alpn_protocol() == "h2":
                    self._serve_2(link)
                else:
                    self._serve_1(link)
            finally:
                self._links.discard(link)

    def _answer(self, protocol: str, path: str, headers: Mapping[str, str]) -> Answer:
        with self._lock:
            self.seen.protocols.append(protocol)
            self.seen.paths.append(path)
            self.seen.ranges.append(headers.get("range", ""))
            changes = self._changes.get(path, [])
            change = changes.pop(0) if changes else None
        answer = self._properly(path, headers)
        if change is not None:
            change(answer)
        return answer

    def _properly(self, path: str, headers: Mapping[str, str]) -> Answer:
        data = self.objects.get(unquote(path).removeprefix("/bucket/"))
        if data is None:
            return Answer(404, {}, b"<Error><Code>NoSuchKey</Code></Error>")
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        told = {"etag": f'"{etag}"', "x-goog-generation": "1"}
        span = _RANGE.fullmatch(headers.get("range", ""))
        if span is None:
            return Answer(200, told, data)
        start, stop = int(span[1]), min(int(span[2] or len(data)) + 1, len(data))
        told["content-range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Answer(206, told, data[start:stop])

    # ---- HTTP/1.1 ------------------------------------------------------------------------

    def _serve_1(self, link: ssl.SSLSocket) -> None:
        with link.makefile("rb") as lines:
            while head := lines.readline():
                path = head.split()[1].decode()
                fields = iter(lines.readline, b"\r\n")
                pairs = (line.decode().partition(":")[::2] for line in fields)
                headers = {name.lower(): value.strip() for name, value in pairs}
                answer = self._answer("http/1.1", path, headers)
                told = {**answer.headers, "content-length": str(len(answer.body))}
                text = "".join(f"{name}: {value}\r\n" for name, value in told.items())
                head = f"HTTP/1.1 {answer.status} Word\r\n{text}\r\n".encode()
                link.sendall(head + answer.body)

    # ---- HTTP/2 --------------------------------------------------------------------------

    def _serve_2(self, link: ssl.SSLSocket) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        answers: dict[int, Answer] = {}
        link.sendall(connection.data_to_send())
        while data := link.recv(_READ_BYTES):
            for event in connection.receive_data(data):
                if isinstance(event, ConnectionTerminated):
                    return
                if isinstance(event, StreamReset):
                    answers.pop(event.stream_id, None)
                if isinstance(event, RequestReceived):
                    headers = _texts(event.headers)
                    answer = self._answer("h2", headers[":path"], headers)
                    answers[event.stream_id] = answer
                    connection.send_headers(event.stream_id, answer.fields())
            for broken in self._send(connection, answers):
                if broken.how == "goaway":
                    connection.close_connection()
                link.sendall(connection.data_to_send())
                if broken.how != "reset":
                    return
            link.sendall(connection.data_to_send())

    def _send(self, connection: H2Connection, answers: dict[int, Answer]) -> Iterator[Answer]:
        """Send what the windows allow; yield the answers that break."""
        for stream, answer in list(answers.items()):
            while answer.sent < answer.stop:
                room = connection.local_flow_control_window(stream)
                size = min(room, connection.max_outbound_frame_size, answer.stop - answer.sent)
                if size <= 0:
                    break
                connection.send_data(stream, answer.body[answer.sent : answer.sent + size])
                answer.sent += size
            if answer.sent < answer.stop:
                continue
            del answers[stream]
            if answer.broken_at is None:
                connection.end_stream(stream)
                continue
            if answer.how == "reset":
                connection.reset_stream(stream, error_code=2)
            yield answer


def _texts(headers: object) -> dict[str, str]:
    pairs: list[tuple[bytes | str, bytes | str]] = list(headers)  # type: ignore[call-overload]
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
