"""Connections that fail, stall, lead elsewhere, or are not what they seem."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from providers.errors import (
    ProviderError,
    ServiceError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.retry import without_waiting
from providers.testing.harness import noise
from providers.values import ByteRange
from tests.fakes.front import Front, Request
from tests.providers.oss.stores import (
    BUCKET,
    PART_BYTES,
    completing,
    hours_from_now,
    opened,
    store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from providers.oss import OSSProvider
    from tests.fakes.oss import OSSServer


def test_refused_connection_raises() -> None:
    """Nothing listens: the error names the endpoint and what was wrong."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with without_waiting(), pytest.raises(UnavailableError, match="ould not connect") as caught:
            opened(endpoint, max_attempts=2).get("key")
    assert endpoint.removeprefix("http://") in str(caught.value)
    assert "gave up after 2 attempts" in str(caught.value)


def test_unknown_host_raises() -> None:
    """A name that does not resolve is told as such."""
    with without_waiting(), pytest.raises(UnavailableError, match="cannot be reached"):
        opened("http://oss.invalid", max_attempts=1).get("key")


def test_http_server_behind_https_raises() -> None:
    """A TLS endpoint that speaks none is a mistake in the settings, not tried again."""
    with (
        _talking(
            lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        ) as port,
        pytest.raises(SettingsError, match=r"does not speak TLS.*is it http://\?"),
    ):
        opened(f"https://127.0.0.1:{port}").get("key")


def test_untrusted_certificate_raises(tmp_path: Path) -> None:
    """A certificate nobody vouches for is a mistake in the settings, not tried again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_self_signed(tmp_path))

    def shake_hands(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True):
            raise AssertionError("the client trusts a certificate of nobody")

    with _talking(shake_hands) as port, pytest.raises(SettingsError, match="not trusted"):
        opened(f"https://localhost:{port}").get("key")


@pytest.mark.parametrize("verb", ["get", "put", "head", "list"])
def test_reset_connection_is_tried_again(
    front: Front, server: OSSServer, provider: OSSProvider, verb: str
) -> None:
    """A reset counts as one failed attempt, whatever the request."""
    store(server, "key", b"body")
    front.reset()
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: provider.get("key"),
        "put": lambda: provider.put("key", b"body"),
        "head": lambda: provider.head("key"),
        "list": lambda: list(provider.list_objects()),
    }
    calls[verb]()
    assert len(front.requests) == 2


def test_silent_server_times_out(front: Front, server: OSSServer) -> None:
    """An answer that does not begin in time is a TimedOutError."""
    store(server, "key", b"body")
    front.stall(60.0, times=None)
    impatient = opened(front.endpoint, max_attempts=1, first_byte_timeout_seconds=0.1)
    with pytest.raises(TimedOutError, match=r"no answer within 0\.1 s"):
        impatient.get("key")


def test_completing_may_take_long(front: Front, server: OSSServer) -> None:
    """Complete and copy wait for the completion timeout, not for the first byte's."""
    store(server, "key", b"body")
    patient = opened(front.endpoint, first_byte_timeout_seconds=0.1, max_attempts=1)
    front.stall(0.5, when=completing)
    front.stall(0.5, when=lambda r: "x-oss-copy-source" in r.headers, times=2)
    with patient.start_multipart("whole") as upload:
        upload.copy_part(1, patient.head("key"), ByteRange(0))
        upload.complete()
    patient.copy("key", "copied")
    assert server.objects(BUCKET) == dict.fromkeys(["copied", "key", "whole"], b"body")


def test_three_connections_serve_all(front: Front, provider: OSSProvider) -> None:
    """Every answer, an error's too, is read to its end and leaves its connection usable."""
    front.rewrite(lambda answer: replace(answer, body=b"wordy"), when=_puts, times=2)
    provider.put("key", b"body")
    with provider.start_multipart("whole") as upload:
        upload.put_part(1, b"x")
    for call in (
        lambda: provider.get("missing"),
        lambda: provider.head("missing"),
        lambda: provider.get("key", ByteRange(9)),
    ):
        with pytest.raises(ProviderError):
            call()
    assert provider.get("key", ByteRange(1, 2)) == b"o"
    provider.copy("key", "copied")
    with provider.start_multipart("whole") as upload:
        upload.put_part(1, noise(PART_BYTES))
        upload.copy_part(2, provider.head("key"), ByteRange(0))
        upload.complete()
    provider.start_multipart("whole").abort()
    assert len(list(provider.list_objects())) == 3
    provider.delete(["key", "copied", "whole", "odd\r"])
    provider.delete(["odd\r"])
    # One for reads, one for bodies to be stored, one for all else.
    assert {record.connection for record in front.requests} == {1, 2, 3}


def test_redirect_is_not_followed(front: Front, server: OSSServer) -> None:
    """A redirect would take the security token to another host; it is an error instead."""
    server.add_credentials("STS.id", "sts-secret", "the-token")
    with Front(server.endpoint) as elsewhere:
        front.answer(307, {"Location": f"{elsewhere.endpoint}/b/key"}, times=None)
        provider = opened(
            front.endpoint,
            access_key_id="STS.id",
            access_key_secret="sts-secret",
            security_token="the-token",
        )
        for read in (provider.get, provider.head):
            with pytest.raises(ServiceError, match=f"it leads to {elsewhere.endpoint}/b/key"):
                read("key")
        assert elsewhere.requests == ()


def test_netrc_does_not_replace_the_signature(
    server: OSSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A .netrc that has a password for every host leaves requests as they were signed."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password something\n")
    monkeypatch.setenv("NETRC", str(netrc))
    opened(server.endpoint).put("key", b"body")
    assert server.objects(BUCKET) == {"key": b"body"}


def _puts(request: Request) -> bool:
    return request.method == "PUT"


@contextlib.contextmanager
def _talking(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve a port on which each connection is talked to and closed."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            talk(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield listener.server_address[1]
        finally:
            listener.shutdown()
            thread.join()


def _self_signed(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(hours_from_now(-1))
        .not_valid_after(hours_from_now(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "certificate.pem", directory / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths
