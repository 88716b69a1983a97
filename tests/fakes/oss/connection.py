"""HTTP/1.1 on one socket: keep-alive, chunked uploads, `Expect: 100-continue`.

`http.server` parses headers through the email package, which costs more than everything else a
small GET needs, and it rewrites paths that begin with two slashes.
"""

import contextlib
import socketserver
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from tests.fakes.oss.messages import RawRequest, Response

if TYPE_CHECKING:
    from tests.fakes.oss.server import Listener

_MAX_LINE_BYTES = 64 * 1024
_MAX_HEADERS = 200
_ONE_WRITE_BYTES = 64 * 1024
_NO_BODY_STATUSES = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class _BadRequestError(Exception):
    """The bytes are no HTTP request; the connection is closed after a bare answer."""


class Connection(socketserver.StreamRequestHandler):
    """Serves one client connection until either side closes it."""

    disable_nagle_algorithm = True
    rbufsize = 256 * 1024

    @override
    def handle(self) -> None:
        """Answer requests one after another."""
        listener = cast("Listener", self.server)
        with listener.tracking(self.connection), contextlib.suppress(OSError):
            try:
                while (request := self._read_request()) is not None:
                    self._send(request, listener.service.answer(request))
                    if request.headers.get("connection", "").lower() == "close":
                        return
            except _BadRequestError as error:
                self._send(None, Response(HTTPStatus.BAD_REQUEST, {"Connection": "close"}))
                raise ConnectionError(str(error)) from error

    def _read_request(self) -> RawRequest | None:
        line = self._read_line()
        if not line:
            return None
        words = line.split()
        if len(words) != 3 or words[2] != b"HTTP/1.1":
            raise _BadRequestError(f"no request line: {line[:100]!r}")
        headers = self._read_headers()
        if headers.get("expect", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._read_body(headers)
        return RawRequest(words[0].decode("latin-1"), words[1], headers, body)

    def _read_line(self) -> bytes:
        line = self.rfile.readline(_MAX_LINE_BYTES)
        if len(line) == _MAX_LINE_BYTES:
            raise _BadRequestError("a line of the head is too long")
        return line

    def _read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(_MAX_HEADERS):
            line = self._read_line()
            if not line:
                raise ConnectionError("the client left inside the head")
            if line in {b"\r\n", b"\n"}:
                return headers
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or name != name.strip():
                raise _BadRequestError(f"no header: {line[:100]!r}")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        raise _BadRequestError("too many headers")

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise _BadRequestError(f"no length: {length!r}")
        return self._read_exactly(int(length))

    def _read_chunks(self) -> bytes:
        chunks: list[bytes] = []
        while True:
            try:
                size = int(self._read_line().split(b";")[0], 16)
            except ValueError as error:
                raise _BadRequestError("no chunk size") from error
            if size == 0:
                break
            chunks.append(self._read_exactly(size))
            self._read_line()
        while self._read_line() not in {b"\r\n", b"\n", b""}:
            pass
        return b"".join(chunks)

    def _read_exactly(self, size_bytes: int) -> bytes:
        data = self.rfile.read(size_bytes) if size_bytes else b""
        if len(data) != size_bytes:
            raise ConnectionError("the client left inside the body")
        return data

    def _send(self, request: RawRequest | None, response: Response) -> None:
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        headers = {"Server": "AliyunOSS", "Date": formatdate(usegmt=True), **response.headers}
        if response.status not in _NO_BODY_STATUSES:
            headers.setdefault("Content-Length", str(len(response.body)))
        lines.extend(f"{name}: {value}" for name, value in headers.items())
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        body = b"" if request is None or request.method == "HEAD" else response.body
        if len(body) <= _ONE_WRITE_BYTES:
            self.connection.sendall(head + bytes(body))
        else:
            self.connection.sendall(head)
            self.connection.sendall(body)
