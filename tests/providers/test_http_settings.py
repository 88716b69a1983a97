"""How handles are set up, told by what arrives at the server."""

import gzip
import socket
from collections.abc import Iterator
from pathlib import Path

import pycurl
import pytest

from providers.connections import Connection, choose_ca
from providers.errors import (
    ProviderError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.handles import SUPPRESS_CONNECT_HEADERS, HandleSettings, handle_options
from providers.options import TransferOptions
from providers.retry import without_waiting
from tests.fakes.plane_certificate import make_certificate
from tests.fakes.plane_provider import PlaneProvider, Read, plane, read_all, read_one
from tests.fakes.plane_server import PlaneServer, answer, stall_after

HOST = "plane.test"
BODY = b"body"


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server of one object."""
    with plane({"a": BODY}) as server, without_waiting():
        yield server


def settings(connection: Connection) -> HandleSettings:
    """What a handle is made from."""
    return HandleSettings(connection, "http://proxy:1", 1.5, 100, 7)


# ---- What goes in ----------------------------------------------------------------------------


def test_every_handle_gets_these() -> None:
    """Nothing is left to libcurl's own taste that could hurt."""
    options = handle_options(settings(Connection("/etc/hosts")))
    expected = {
        pycurl.NOSIGNAL: 1,
        pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
        pycurl.FOLLOWLOCATION: 0,
        pycurl.NETRC: pycurl.NETRC_IGNORED,
        pycurl.HTTP09_ALLOWED: 0,
        pycurl.PATH_AS_IS: 1,
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
        pycurl.HTTP_CONTENT_DECODING: 0,
        SUPPRESS_CONNECT_HEADERS: 1,
        pycurl.SSL_VERIFYPEER: 1,
        pycurl.SSL_VERIFYHOST: 2,
        pycurl.CAINFO: "/etc/hosts",
        pycurl.PROXY_CAINFO: "/etc/hosts",
        pycurl.PROXY: "http://proxy:1",
        pycurl.NOPROXY: "",
        pycurl.CONNECTTIMEOUT_MS: 1500,
        pycurl.LOW_SPEED_LIMIT: 100,
        pycurl.LOW_SPEED_TIME: 7,
        pycurl.TCP_KEEPALIVE: 1,
    }
    assert {option: options.get(option) for option in expected} == expected
    assert pycurl.TIMEOUT_MS not in options
    assert pycurl.TIMEOUT not in options


def test_what_a_connection_may_ask_for(tmp_path: Path) -> None:
    """Each of its fields has its option; a directory of certificates is given as one."""
    connection = Connection(
        str(tmp_path),
        verify_tls=False,
        client_certificate="cert.pem",
        client_key="key.pem",
        http2=True,
        addresses=("host:443:127.0.0.1",),
    )
    options = handle_options(settings(connection))
    expected = {
        pycurl.CAPATH: str(tmp_path),
        pycurl.PROXY_CAPATH: str(tmp_path),
        pycurl.SSL_VERIFYPEER: 0,
        pycurl.SSL_VERIFYHOST: 0,
        pycurl.SSLCERT: "cert.pem",
        pycurl.SSLKEY: "key.pem",
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS,
        pycurl.RESOLVE: ["host:443:127.0.0.1"],
    }
    assert {option: options.get(option) for option in expected} == expected


# ---- What is sent ----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a/../b", "a/./b", "../b", "a//b", "a/%2E%2E/b", "a?b#c", "ä b+c"])
def test_keys_arrive_as_they_are(server: PlaneServer, key: str) -> None:
    """No path is tidied on the way: keys are opaque."""
    server.objects[key] = BODY
    assert read_one(Read(PlaneProvider(server.endpoint), key)) == BODY
    assert [seen.key for seen in server.seen] == [key]


def test_nothing_is_sent_that_was_not_asked_for(
    server: PlaneServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Expect, no Accept-Encoding, no password of the user's netrc."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    provider = PlaneProvider(server.endpoint)
    provider.anonymous = True
    assert read_one(Read(provider, "a")) == BODY
    assert set(server.seen[0].headers) == {"host", "user-agent", "accept"}


def test_a_handle_keeps_nothing_of_the_last_request(server: PlaneServer) -> None:
    """Credentials and ranges of one read never go out with another's."""
    named, nameless = PlaneProvider(server.endpoint), PlaneProvider(server.endpoint)
    named.more_headers = {"X-Secret": "s"}
    nameless.anonymous = True
    one = TransferOptions(max_in_flight=1)
    assert read_all([Read(named, "a"), Read(nameless, "a")], one) == [BODY] * 2
    assert "x-secret" in server.seen[0].headers
    assert set(server.seen[1].headers) == {"host", "user-agent", "accept"}
    assert server.connections == 1


def test_packed_bodies_arrive_as_stored(server: PlaneServer) -> None:
    """An object stored with Content-Encoding is not unpacked, so that its size stays right."""
    packed = gzip.compress(b"text" * 100)
    server.fault(answer(200, {"Content-Encoding": "gzip"}, packed))
    assert read_one(Read(PlaneProvider(server.endpoint), "a")) == packed


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(server: PlaneServer, status: int) -> None:
    """Where a request goes is the provider's to say; the answer is an error that it explains."""
    with PlaneServer({"a": BODY}) as other:
        server.fault(answer(status, {"Location": f"{other.endpoint}/bucket/a"}))
        found = read_one(Read(PlaneProvider(server.endpoint), "a"))
        assert isinstance(found, ProviderError)
        assert found.status == status
        assert other.seen == []


@pytest.mark.parametrize("scheme", ["ftp", "file", "gopher", "dict", "nonsense"])
def test_no_other_protocol_is_spoken(server: PlaneServer, scheme: str) -> None:
    """An endpoint that is not http or https is refused without a try."""
    provider = PlaneProvider(server.endpoint.replace("http", scheme))
    found = read_one(Read(provider, "a"))
    assert isinstance(found, SettingsError)
    assert "plane://bucket/a" in str(found)
    assert server.connections == 0


# ---- TLS -------------------------------------------------------------------------------------


def named(port: int, ca: Path) -> Connection:
    """A connection that finds the host without a look-up."""
    return Connection(str(ca), addresses=(f"{HOST}:{port}:127.0.0.1",))


def test_tls_by_name(tmp_path: Path) -> None:
    """The certificate's name is checked, and HTTP/1.1 is all that is offered."""
    certificate = make_certificate(tmp_path, HOST)
    with PlaneServer({"a": BODY}, certificate, HOST) as server:
        provider = PlaneProvider(server.endpoint, connection=named(server.port, certificate))
        assert read_all([Read(provider, "a")] * 8) == [BODY] * 8
        assert server.protocols == {"http/1.1"}


def test_an_untrusted_certificate(tmp_path: Path) -> None:
    """It is an error at once, which names the file of trusted certificates; nothing is sent."""
    certificate = make_certificate(tmp_path, HOST)
    other = make_certificate(tmp_path, "other.test")
    with PlaneServer({"a": BODY}, certificate, HOST) as server:
        provider = PlaneProvider(server.endpoint, connection=named(server.port, other))
        found = read_one(Read(provider, "a"))
        assert isinstance(found, SettingsError)
        assert str(other) in str(found)
        assert "plane://bucket/a" in str(found)
        assert (server.seen, server.connections) == ([], 1)


@pytest.mark.parametrize("content", [None, "no certificate\n"])
def test_a_file_without_certificates(tmp_path: Path, content: str | None) -> None:
    """The error names the file."""
    missing = tmp_path / "missing.pem"
    if content is not None:
        missing.write_text(content)
    with PlaneServer({"a": BODY}, make_certificate(tmp_path, HOST), HOST) as server:
        provider = PlaneProvider(server.endpoint, connection=named(server.port, missing))
        found = read_one(Read(provider, "a"))
        assert isinstance(found, SettingsError)
        assert str(missing) in str(found)
        assert server.seen == []


def test_a_certificate_of_another_host(tmp_path: Path) -> None:
    """A trusted certificate is not enough: it must be the host's."""
    certificate = make_certificate(tmp_path, "other.test")
    with PlaneServer({"a": BODY}, certificate, HOST) as server:
        provider = PlaneProvider(server.endpoint, connection=named(server.port, certificate))
        assert isinstance(read_one(Read(provider, "a")), SettingsError)
        assert server.seen == []
        trusting = Connection(
            str(certificate), verify_tls=False, addresses=(f"{HOST}:{server.port}:127.0.0.1",)
        )
        assert read_one(Read(PlaneProvider(server.endpoint, connection=trusting), "a")) == BODY


def test_a_client_s_certificate(tmp_path: Path) -> None:
    """A server that wants one gets it."""
    certificate = make_certificate(tmp_path, HOST)
    client = make_certificate(tmp_path, "client.test")
    with PlaneServer({"a": BODY}, certificate, client_ca=client) as server, without_waiting():
        shown = Connection(str(certificate), client_certificate=str(client))
        assert read_one(Read(PlaneProvider(server.endpoint, connection=shown), "a")) == BODY
        hidden = PlaneProvider(server.endpoint, connection=Connection(str(certificate)))
        found = read_one(Read(hidden, "a"), TransferOptions(max_attempts=2))
        assert isinstance(found, ProviderError)
        assert len(server.seen) == 1


# ---- Proxies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_the_environment_names_a_proxy(
    server: PlaneServer, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found where Python's own clients find it, in capitals too."""
    monkeypatch.setenv(variable, server.endpoint)
    monkeypatch.setenv("NO_PROXY", "elsewhere.test")
    server.objects[f"{HOST}/bucket/a"] = BODY
    assert read_one(Read(PlaneProvider(f"http://{HOST}"), "a")) == BODY
    assert [seen.key for seen in server.seen] == [f"{HOST}/bucket/a"]


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_the_environment_excepts_hosts_from_the_proxy(
    server: PlaneServer, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those are reached directly."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv(variable, "127.0.0.1")
    assert read_one(Read(PlaneProvider(server.endpoint), "a")) == BODY


def test_an_option_beats_the_environment(
    server: PlaneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is named is used whatever is excepted, and an empty one means none."""
    ca = choose_ca("plane")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    direct = PlaneProvider(server.endpoint, connection=Connection(ca, proxy=""))
    assert read_one(Read(direct, "a")) == BODY
    monkeypatch.setenv("no_proxy", "*")
    server.objects[f"{HOST}/bucket/a"] = BODY
    through = PlaneProvider(f"http://{HOST}", connection=Connection(ca, proxy=server.endpoint))
    assert read_one(Read(through, "a")) == BODY


@pytest.mark.parametrize(
    ("status", "error", "attempts"), [(407, SettingsError, 1), (502, UnavailableError, 2)]
)
def test_a_proxy_that_refuses(
    server: PlaneServer, status: int, error: type[ProviderError], attempts: int
) -> None:
    """The error says that it was the proxy, keeps its password to itself, and is no answer."""
    server.fault(answer(status, {}, b"no"), times=None)
    proxy = f"http://me:hidden@127.0.0.1:{server.port}"
    connection = Connection(choose_ca("plane"), proxy=proxy)
    provider = PlaneProvider(f"https://{HOST}", connection=connection)
    found = read_one(Read(provider, "a"), TransferOptions(max_attempts=2))
    assert isinstance(found, error)
    assert "proxy" in str(found)
    assert str(status) in str(found)
    assert "hidden" not in str(found)
    assert provider.explained == []
    assert len(server.seen) == attempts


# ---- Time ------------------------------------------------------------------------------------


def test_a_connection_that_is_not_made_in_time() -> None:
    """Each attempt makes one, and is given up when its time for TLS is over."""
    with socket.create_server(("127.0.0.1", 0)) as listener, without_waiting():
        endpoint = f"https://127.0.0.1:{listener.getsockname()[1]}"
        transfer = TransferOptions(connect_timeout_seconds=0.2, max_attempts=3)
        found = read_one(Read(PlaneProvider(endpoint), "a"), transfer)
        assert isinstance(found, TimedOutError)
        assert "plane://bucket/a" in str(found)
        listener.settimeout(0)
        for _ in range(3):
            listener.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("into", [False, True])
def test_an_answer_that_does_not_begin_in_time(server: PlaneServer, into: bool) -> None:
    """Each attempt is given up after the time for the first byte, long before that for silence."""
    server.fault(stall_after(None), times=None)
    transfer = TransferOptions(first_byte_timeout_seconds=0.2, low_speed_seconds=50, max_attempts=3)
    buffer = memoryview(bytearray(10)) if into else None
    found = read_one(Read(PlaneProvider(server.endpoint), "a", into=buffer), transfer)
    assert isinstance(found, TimedOutError)
    assert "no answer within 0.2 s" in str(found)
    assert len(server.seen) == 3
