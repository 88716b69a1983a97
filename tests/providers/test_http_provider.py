"""What the three clouds share: what travels to other processes, and how stores are reached."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from urllib3.exceptions import InsecureRequestWarning

from providers.connections import Connection, choose_ca
from providers.errors import AccessDeniedError, ProviderError, SettingsError, UnavailableError
from providers.retry import without_waiting
from tests.fakes.front import Front
from tests.fakes.gates import Proxy, TLSGate
from tests.fakes.plane_certificate import make_certificate
from tests.providers import spawned
from tests.providers.clouds import Cloud

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from providers.http_provider import HttpProvider

PATIENCE_SECONDS = 60.0
BODY = b"the body"
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")


@pytest.fixture(params=["s3", "gs", "oss"])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """A fresh bucket of each cloud in turn."""
    named: str = request.param
    if named == "gs":
        server: Any = request.getfixturevalue("fake_gcs")
        bucket = request.getfixturevalue("fake_gcs_bucket")
        options = {"access_token": "the-secret-token"}
        return Cloud("gs", server.endpoint, bucket, options, "the-secret-token")
    if named == "oss":
        server = request.getfixturevalue("oss_server")
        bucket = request.getfixturevalue("oss_bucket")
        options = {
            "region": server.region,
            "access_key_id": server.access_key,
            "access_key_secret": server.secret_key,
        }
        return Cloud("oss", server.endpoint, bucket, options, server.secret_key)
    server = request.getfixturevalue("juicefs")
    bucket = request.getfixturevalue("juicefs_bucket")
    options = {
        "region": server.region,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
    }
    return Cloud("s3", server.endpoint, bucket, options, server.secret_key)


@pytest.fixture
def front(cloud: Cloud) -> Iterator[Front]:
    """What stands before its server."""
    with Front(cloud.endpoint) as running, without_waiting():
        yield running


# ---- Other processes -----------------------------------------------------------------------


def worker(provider: HttpProvider) -> Any:
    """Have a spawned process read, and return what it says."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=spawned.read, args=(sending, provider, "key"))
    child.start()
    sending.close()
    assert receiving.poll(PATIENCE_SECONDS)
    found = receiving.recv()
    child.join(PATIENCE_SECONDS)
    receiving.close()
    assert child.exitcode == 0
    return found


@pytest.mark.parametrize("used", ["read", "listed", "made"])
def test_spawned_worker_reads_without_an_sdk(cloud: Cloud, used: str) -> None:
    """Whatever the parent did before, a worker signs with what travelled and loads no SDK."""
    cloud.open().put("key", BODY)
    provider = cloud.open()
    if used == "read":
        provider.get("key")
    elif used == "listed":
        assert [found.key for found in provider.list_objects()] == ["key"]
    assert worker(provider) == (BODY, [])


def test_spawned_worker_says_what_it_lacks(cloud: Cloud) -> None:
    """Where the parent had no credentials the worker starts all the same, and its reads say so."""
    fields: dict[str, Any] = dict.fromkeys(cloud.options)
    if cloud.scheme == "gs":
        fields["credentials_file"] = "/nowhere.json"
    provider = cloud.open(**{**fields, "region": cloud.options.get("region")})
    found, _ = worker(provider)
    assert "AccessDeniedError" in found


def test_ordinary_pickles_carry_no_secret(cloud: Cloud) -> None:
    """Neither the options' secret nor what was resolved from it is in the bytes."""
    provider = cloud.open()
    provider.put("key", BODY)
    assert provider.get("key") == BODY
    assert cloud.secret.encode() not in pickle.dumps(provider)


def test_pickles_of_secrets_from_the_environment_carry_none(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an SDK found here is as secret as what was given."""
    if cloud.scheme == "gs":
        pytest.skip("a token for gs:// has no variable; its credentials have files")
    names = {
        "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        "oss": ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"),
    }[cloud.scheme]
    pair = [value for name, value in cloud.options.items() if name != "region"]
    for name, value in zip(names, pair, strict=True):
        monkeypatch.setenv(name, value)
    cloud.open().put("key", BODY)
    fields: dict[str, Any] = {name: None for name in cloud.options if name != "region"}
    provider = cloud.open(**fields)
    assert provider.get("key") == BODY
    assert cloud.secret.encode() not in pickle.dumps(provider)
    assert worker(provider) == (BODY, [])


def test_pickles_with_secrets_read_at_once(cloud: Cloud) -> None:
    """pickle_secrets=True keeps them, and what they were resolved to, in every pickle."""
    provider = cloud.open(pickle_secrets=True)
    provider.put("key", BODY)
    provider.get("key")
    kept = pickle.dumps(provider)
    assert cloud.secret.encode() in kept
    copied: HttpProvider = pickle.loads(kept)  # noqa: S301 our own bytes
    assert copied.access.access == provider.access.access
    assert copied.get("key") == BODY


def test_secrets_do_not_show_in_access(cloud: Cloud) -> None:
    """What signs is kept as plain data, whose text is safe to log."""
    provider = cloud.open()
    provider.put("key", BODY)
    provider.get("key")
    assert cloud.secret not in f"{provider!r} {provider.access.access!r} {provider.options!r}"


# ---- How stores are reached ----------------------------------------------------------------


def use(provider: HttpProvider) -> None:
    """Have the SDK, the reads and the puts work: each has connections of its own."""
    provider.put("key", BODY)
    assert provider.get("key") == BODY
    assert [found.key for found in provider.list_objects()] == ["key"]


def refusals(provider: HttpProvider) -> list[ProviderError]:
    """Return what each of the three raises."""
    found = []
    for call in (
        lambda: provider.get("key"),
        lambda: provider.put("key", BODY),
        lambda: list(provider.list_objects()),
    ):
        with pytest.raises(ProviderError) as caught:
            call()
        found.append(caught.value)
    return found


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of localhost."""
    return make_certificate(tmp_path_factory.mktemp("server"), "localhost")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of somebody else."""
    return make_certificate(tmp_path_factory.mktemp("client"), "trainer")


def test_option_ca_file(cloud: Cloud, certificate: Path, other: Path) -> None:
    """Whoever the file vouches for is trusted by all clients, anybody else by none."""
    with TLSGate(cloud.endpoint, certificate) as gate:
        use(cloud.open(gate.endpoint, ca_file=str(certificate)))
        for error in refusals(cloud.open(gate.endpoint, max_attempts=1, ca_file=str(other))):
            assert isinstance(error, SettingsError)
            assert "certificate" in str(error)


@pytest.mark.parametrize("variable", CERTIFICATES)
def test_ca_file_of_the_environment(
    cloud: Cloud, certificate: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Each variable serves all clients, whichever of them reads it by itself."""
    for name in (*CERTIFICATES, "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(certificate))
    with TLSGate(cloud.endpoint, certificate) as gate:
        use(cloud.open(gate.endpoint))


def test_option_verify_tls(
    cloud: Cloud, certificate: Path, other: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """False trusts anybody, in all clients, and is logged once instead of with each request."""
    with TLSGate(cloud.endpoint, certificate) as gate:
        for _ in range(2):
            use(cloud.open(gate.endpoint, ca_file=str(other), verify_tls=False))
        told = [record for record in caplog.records if "verify_tls" in record.getMessage()]
        assert [record.levelname for record in told] == ["WARNING"]
        assert gate.endpoint.partition("//")[2] in told[0].getMessage()


def test_other_hosts_are_warned_of_still() -> None:
    """What requests and urllib3 say of the program's own unverified requests stays."""
    connection = Connection(choose_ca("s3"), verify_tls=False)
    connection.tell_unverified("https://store.invalid:9000")
    text = "Unverified HTTPS request is being made to host '{}'. Adding"
    warnings.warn(text.format("bucket.store.invalid"), InsecureRequestWarning, stacklevel=1)
    for host in ("else.invalid", "store.invalid.else.invalid"):
        with pytest.warns(InsecureRequestWarning):
            warnings.warn(text.format(host), InsecureRequestWarning, stacklevel=1)


def test_options_client_certificate_and_key(
    cloud: Cloud, certificate: Path, other: Path, tmp_path: Path
) -> None:
    """All clients show it, from one file or from two; without it none is let in."""
    key, _, rest = other.read_text().partition("-----BEGIN CERTIFICATE")
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "certificate.pem").write_text(f"-----BEGIN CERTIFICATE{rest}")
    trusted: dict[str, Any] = {"ca_file": str(certificate)}
    with TLSGate(cloud.endpoint, certificate, client_ca=other) as gate:
        use(cloud.open(gate.endpoint, **trusted, client_certificate=str(other)))
        assert len(gate.clients) >= 2
        shown = str(tmp_path / "certificate.pem")
        named: dict[str, Any] = {
            "client_certificate": shown,
            "client_key": str(tmp_path / "key.pem"),
        }
        use(cloud.open(gate.endpoint, **trusted, **named))
        assert set(gate.clients) == {"trainer"}
        with without_waiting():
            for error in refusals(cloud.open(gate.endpoint, max_attempts=1, **trusted)):
                assert isinstance(error, SettingsError | UnavailableError)


@pytest.mark.parametrize(
    "fields", [{"client_certificate": "/no/such.pem"}, {"client_key": "/no/such.pem"}]
)
def test_client_certificate_that_is_not_there(cloud: Cloud, fields: dict[str, Any]) -> None:
    """A file that is missing is told when the provider is made."""
    with pytest.raises(SettingsError, match=r"/no/such\.pem"):
        cloud.open(**fields)


@pytest.mark.parametrize("encrypted", [False, True])
def test_option_proxy(cloud: Cloud, certificate: Path, encrypted: bool) -> None:
    """Reads, puts and the SDK's requests all go through it, in the form that suits the scheme."""
    with TLSGate(cloud.endpoint, certificate) as gate, Proxy() as proxy:
        endpoint = gate.endpoint if encrypted else cloud.endpoint
        use(cloud.open(endpoint, proxy=proxy.url, ca_file=str(certificate)))
        host = endpoint.partition("//")[2]
        if encrypted:
            # One tunnel for each client's connection.
            assert set(proxy.asked) == {f"CONNECT {host}"}
            assert len(proxy.asked) >= 2
            assert len(gate.spoken) == len(proxy.asked)
        else:
            assert proxy.asked == [f"{method} http://{host}" for method in ("PUT", "GET", "GET")]


def test_empty_option_proxy_goes_straight(
    cloud: Cloud, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It overrules the environment for all clients."""
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    use(cloud.open(front.endpoint, proxy=""))
    assert len(front.requests) == 3


@pytest.mark.parametrize("names", [PROXIES[::2], PROXIES[1::2], ("ALL_PROXY",)])
@pytest.mark.parametrize("encrypted", [False, True])
def test_proxy_of_the_environment(
    cloud: Cloud,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    encrypted: bool,
) -> None:
    """The environment's proxy serves all clients, whatever the case of its name."""
    with TLSGate(cloud.endpoint, certificate) as gate, Proxy() as proxy:
        for name in names:
            monkeypatch.setenv(name, proxy.url)
        endpoint = gate.endpoint if encrypted else cloud.endpoint
        use(cloud.open(endpoint, ca_file=str(certificate)))
        assert len(proxy.asked) >= 2
        if encrypted:
            assert len(gate.spoken) == len(proxy.asked)
        else:
            assert [one.split()[0] for one in proxy.asked] == ["PUT", "GET", "GET"]


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_no_proxy_is_honoured(
    cloud: Cloud, certificate: Path, monkeypatch: pytest.MonkeyPatch, name: str, encrypted: bool
) -> None:
    """A host that is excepted is reached straight by all clients; another one is not."""
    for proxied in PROXIES:
        monkeypatch.setenv(proxied, "http://127.0.0.1:1")
    with TLSGate(cloud.endpoint, certificate) as gate:
        endpoint = gate.endpoint if encrypted else cloud.endpoint
        monkeypatch.setenv(name, "example.com,127.0.0.1,localhost")
        use(cloud.open(endpoint, ca_file=str(certificate)))
        monkeypatch.setenv(name, "example.com")
        for error in refusals(cloud.open(endpoint, max_attempts=1, ca_file=str(certificate))):
            assert isinstance(error, UnavailableError)


@pytest.mark.parametrize("http2", [False, True])
def test_option_http2(cloud: Cloud, certificate: Path, http2: bool) -> None:
    """It is offered for reads on request; by default, and by the SDK, 1.1 is spoken."""
    trusted: dict[str, Any] = {"ca_file": str(certificate)}
    with TLSGate(cloud.endpoint, certificate, protocols=("h2", "http/1.1")) as gate:
        provider = cloud.open(gate.endpoint, max_attempts=1, **trusted, http2=http2)
        if http2:
            # The gate agrees to what it does not speak.
            with pytest.raises(ProviderError):
                provider.get("key")
            assert gate.spoken == ["h2"]
        provider.put("key", BODY)
        assert [found.key for found in provider.list_objects()] == ["key"]
        assert "h2" not in gate.spoken[http2:]


def test_missing_credentials_raise(cloud: Cloud) -> None:
    """A read without anything to sign it says so, and is not sent unsigned."""
    if cloud.scheme == "gs":
        pytest.skip("what is on plain http is an emulator, which gets none")
    fields: dict[str, Any] = {name: None for name in cloud.options if name != "region"}
    with pytest.raises(AccessDeniedError, match="there are no credentials"):
        cloud.open(**fields).get("key")
