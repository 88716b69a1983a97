"""What stands between a client and a server, or a front: a gate that speaks TLS, and a proxy."""

import contextlib
import socket
import ssl
import threading
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from cryptography import x509
from cryptography.x509.oid import NameOID
from typing_extensions import Self

from tests.fakes.wire import Message, Upstream, read_message, send_answer

_PATIENCE_SECONDS = 60.0
_PIECE_BYTES = 64 * 1024


class Gate(ABC):
    """A listener on a free loopback port, for the length of a `with` block."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Closing alone does not wake a thread that accepts.
        _shut(self._listener)
        self._listener.close()
        with self._lock:
            for link in self._open:
                _shut(link)
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)

    @abstractmethod
    def serve(self, link: socket.socket) -> None:
        """Serve one connection."""

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._start(lambda link=link: self._hold(link))  # type: ignore[misc]

    def _hold(self, link: socket.socket) -> None:
        with self.keeping(link), contextlib.suppress(OSError):
            self.serve(link)

    @contextlib.contextmanager
    def keeping(self, link: socket.socket) -> Iterator[socket.socket]:
        """Have a connection cut when the gate closes, and close it at the block's end."""
        with self._lock:
            self._open.add(link)
        try:
            yield link
        finally:
            with self._lock:
                self._open.discard(link)
            link.close()

    def splice(self, one: socket.socket, other: socket.socket) -> None:
        """Copy both ways until either side ends."""
        back = self._start(lambda: _copy(other, one))
        _copy(one, other)
        back.join(_PATIENCE_SECONDS)


class TLSGate(Gate):
    """Takes TLS off and passes requests on.

    Args:
        upstream: `http://host:port` behind it.
        certificate: PEM file of key and certificate that it shows.
        client_ca: Whose certificates clients must show; None: nobody's.
        protocols: It agrees to by ALPN; of `h2` it knows no more than the name, and hangs up.

    Attributes:
        endpoint: `https://localhost:port`.
        clients: Common names that clients showed.
        spoken: Protocols that handshakes settled on.
    """

    def __init__(
        self,
        upstream: str,
        certificate: Path,
        client_ca: Path | None = None,
        protocols: tuple[str, ...] = ("http/1.1",),
    ) -> None:
        super().__init__()
        self._upstream = _address(upstream)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(list(protocols))
        if client_ca is not None:
            self._context.load_verify_locations(client_ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self.endpoint = f"https://localhost:{self.port}"
        self.clients: list[str] = []
        self.spoken: list[str | None] = []

    def serve(self, link: socket.socket) -> None:
        """Shake hands, then pass on one request after another."""
        with self.keeping(self._context.wrap_socket(link, server_side=True)) as encrypted:
            encrypted = cast("ssl.SSLSocket", encrypted)
            self.spoken.append(encrypted.selected_alpn_protocol())
            shown = encrypted.getpeercert(binary_form=True)
            if shown:
                subject = x509.load_der_x509_certificate(shown).subject
                names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
                self.clients += [str(name.value) for name in names]
            if encrypted.selected_alpn_protocol() == "h2":
                return
            _relay(encrypted, lambda _: self._upstream, lambda message: message)


class Proxy(Gate):
    """An HTTP proxy: tunnels by CONNECT, and requests in absolute form.

    Attributes:
        url: `http://127.0.0.1:port`.
        asked: What for, in order: `CONNECT host:port` and `GET http://host:port`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked: list[str] = []

    def serve(self, link: socket.socket) -> None:
        """Tunnel, or pass on one request after another."""
        if link.recv(8, socket.MSG_PEEK).startswith(b"CONNECT "):
            self._tunnel(link)
        else:
            _relay(link, self._target, _in_origin_form)

    def _tunnel(self, link: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += link.recv(1)
        target = head.split()[1].decode()
        self.asked.append(f"CONNECT {target}")
        with self.keeping(socket.create_connection(_address(f"http://{target}"))) as there:
            link.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self.splice(link, there)

    def _target(self, message: Message) -> tuple[str, int]:
        parts = urllib.parse.urlsplit(message.request.path)
        self.asked.append(f"{message.request.method} {parts.scheme}://{parts.netloc}")
        return _address(message.request.path)


def _relay(
    link: socket.socket,
    target: Callable[[Message], tuple[str, int]],
    changed: Callable[[Message], Message],
) -> None:
    """Pass requests of one connection on and answers back."""
    with link.makefile("rb") as stream, contextlib.ExitStack() as opened:
        upstreams: dict[tuple[str, int], Upstream] = {}
        while (message := read_message(cast("BinaryIO", stream), link)) is not None:
            address = target(message)
            if address not in upstreams:
                upstreams[address] = Upstream(*address)
                opened.callback(upstreams[address].close)
            answer = upstreams[address].exchange(changed(message))
            send_answer(link, answer, message.request.method)
            if not message.keeps_alive:
                return


def _in_origin_form(message: Message) -> Message:
    """Take scheme and host off the request line, byte for byte."""
    method, target, rest = message.head.split(b" ", 2)
    path = b"/" + target.split(b"/", 3)[3]
    return replace(message, head=b" ".join((method, path, rest)))


def _address(url: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            target.sendall(piece)
    _shut(source)
    _shut(target)


def _shut(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
