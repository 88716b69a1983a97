"""Connections over which bodies are sent: kept, replaced, refused, timed, trusted, forked."""

from __future__ import annotations

import dataclasses
import http.server
import os
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from providers.clients import ClientSlot
from providers.connections import Connection
from providers.errors import SettingsError, TimedOutError, UnavailableError
from providers.options import TransferOptions
from providers.puts import PutConnections, explain_failure
from providers.values import HttpRequest
from tests.fakes.plane_certificate import make_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BODY = memoryview(bytes(range(256)) * 40)
SYSTEM = Connection("/etc/ssl/certs/ca-certificates.crt", proxy="")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Sink

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_PUT(self) -> None:
        """Take a body, or do what the test wants instead."""
        if self.server.refuse:
            self.close_connection = True
            self.send_response(403)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"denied")
            return
        if self.server.silent.is_set():
            self.server.release.wait(30)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        self.send_response(200)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        # Closed without a word, as servers do with what lies idle.
        self.close_connection = self.server.hang_up

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Sink(http.server.ThreadingHTTPServer):
    """A server that takes bodies."""

    daemon_threads = True

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.refuse = self.hang_up = False
        self.silent, self.release = threading.Event(), threading.Event()
        self.scheme = "http"
        if certificate is not None:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def request(self, key: str = "a%2Fb/../c") -> HttpRequest:
        """Return a signed request as a provider makes it."""
        return HttpRequest("PUT", f"{self.endpoint}/bucket/{key}?partNumber=1", {"X-Signed": "s"})


def serving(sink: Sink) -> Iterator[Sink]:
    """Serve for the length of a test."""
    thread = threading.Thread(target=sink.serve_forever, daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        sink.release.set()
        sink.shutdown()
        sink.server_close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A server over plain HTTP."""
    yield from serving(Sink())


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Sink]:
    """A server over TLS."""
    yield from serving(Sink(make_certificate(tmp_path, "puts.test")))


def test_a_body_arrives_as_it_is(sink: Sink) -> None:
    """Path, query, headers and body are those of the request, and nothing is added but framing."""
    answer = PutConnections(SYSTEM, TransferOptions()).send(sink.request(), BODY)
    ((path, headers, body),) = sink.got
    assert (answer.status, answer.headers.get("etag")) == (200, '"e"')
    assert (path, body) == ("/bucket/a%2Fb/../c?partNumber=1", bytes(BODY))
    assert set(headers) == {"Host", "X-Signed", "Content-Length"}


def test_an_empty_body_has_a_length(sink: Sink) -> None:
    """Stores refuse a PUT that does not tell how long it is."""
    PutConnections(SYSTEM, TransferOptions()).send(sink.request(), memoryview(b""))
    assert sink.got[0][1]["Content-Length"] == "0"


def test_a_connection_serves_again(sink: Sink) -> None:
    """Many bodies in turn take one connection; as many threads as there are take no more."""
    connections = PutConnections(SYSTEM, TransferOptions())
    for _ in range(20):
        connections.send(sink.request(), BODY)
    assert sink.connections == 1
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: connections.send(sink.request(), BODY), range(40)))
    assert sink.connections <= 5
    assert len(sink.got) == 60


def test_a_connection_closed_while_idle_is_replaced(sink: Sink) -> None:
    """The store may hang up at any time; the body then goes over a fresh connection, once."""
    connections = PutConnections(SYSTEM, TransferOptions())
    sink.hang_up = True
    for _ in range(5):
        assert connections.send(sink.request(), BODY).status == 200
    assert (sink.connections, len(sink.got)) == (5, 5)


def test_a_refusal_is_heard_before_the_body_has_left(sink: Sink) -> None:
    """A store that answers at once and hangs up is no broken connection."""
    sink.refuse = True
    large = memoryview(bytes(32 << 20))
    answer = PutConnections(SYSTEM, TransferOptions()).send(sink.request(), large)
    assert (answer.status, answer.body) == (403, b"denied")


def explained(connections: PutConnections, request: HttpRequest) -> Exception | None:
    """Return what a failing send means."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 which one is what is under test
        connections.send(request, BODY)
    return explain_failure(caught.value, "s3://bucket/key", "put")


def test_a_silent_server_times_out(sink: Sink) -> None:
    """No answer within ``first_byte_timeout_seconds`` is a TimedOutError."""
    sink.silent.set()
    impatient = PutConnections(SYSTEM, TransferOptions(first_byte_timeout_seconds=0.2))
    error = explained(impatient, sink.request())
    assert isinstance(error, TimedOutError)
    assert str(error).startswith("put s3://bucket/key: no answer in time")


def test_nobody_there_is_told() -> None:
    """A refused connection and an unknown host are unreachable endpoints."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for host in (f"127.0.0.1:{unused.getsockname()[1]}", "store.invalid"):
            request = HttpRequest("PUT", f"http://{host}/bucket/key", {})
            error = explained(PutConnections(SYSTEM, TransferOptions()), request)
            assert isinstance(error, UnavailableError)
            assert "the endpoint cannot be reached" in str(error)


def test_only_the_named_authority_is_trusted(secure: Sink, tmp_path: Path) -> None:
    """TLS is verified against ``ca``; what else signs the certificate is refused and told."""
    own = dataclasses.replace(SYSTEM, ca=str(tmp_path / "puts.test.pem"))
    assert PutConnections(own, TransferOptions()).send(secure.request(), BODY).status == 200
    error = explained(PutConnections(SYSTEM, TransferOptions()), secure.request())
    assert isinstance(error, SettingsError)
    assert "the certificate is not trusted" in str(error)
    blind = dataclasses.replace(SYSTEM, verify_tls=False)
    assert PutConnections(blind, TransferOptions()).send(secure.request(), BODY).status == 200
    assert len(secure.got) == 2


def test_a_server_without_tls_is_told(sink: Sink) -> None:
    """https:// to a server that speaks plain HTTP is a mistake in the settings."""
    request = HttpRequest("PUT", sink.request().url.replace("http:", "https:"), {})
    error = explained(PutConnections(SYSTEM, TransferOptions()), request)
    assert isinstance(error, SettingsError)
    assert "does not speak TLS" in str(error)


def test_a_proxy_is_asked_for_the_whole_url(sink: Sink) -> None:
    """Over plain HTTP the proxy gets the URL and forwards it."""
    through = dataclasses.replace(SYSTEM, proxy=sink.endpoint)
    request = HttpRequest("PUT", "http://store.invalid/bucket/key", {})
    PutConnections(through, TransferOptions()).send(request, BODY)
    assert sink.got[0][0] == "http://store.invalid/bucket/key"
    assert sink.got[0][1]["Host"] == "store.invalid"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_connections_of_its_own(secure: Sink, tmp_path: Path) -> None:
    """A forked child neither uses nor closes what it inherited; the parent's serves on."""
    own = dataclasses.replace(SYSTEM, ca=str(tmp_path / "puts.test.pem"))
    slot = ClientSlot(lambda: PutConnections(own, TransferOptions()))
    slot.get().send(secure.request(), BODY)
    pid = os.fork()
    if pid == 0:
        status = slot.get().send(secure.request(), BODY).status
        os._exit(0 if status == 200 else 1)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    for _ in range(10):
        assert slot.get().send(secure.request(), BODY).status == 200
    assert secure.connections == 2
