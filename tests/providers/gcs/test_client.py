"""Settings, credentials and connections of Google Cloud Storage."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from providers import open_provider
from providers.connections import Connection
from providers.errors import (
    AccessDeniedError,
    LimitError,
    SettingsError,
    UnavailableError,
    UnsupportedError,
)
from providers.gcs import GCSProvider
from providers.gcs_client import open_client
from providers.options import GCSOptions, TransferOptions
from providers.values import ByteRange
from tests.fakes.front import Front
from tests.providers.gcs.access import RawBucket, options, provider, upload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def tokens() -> Iterator[Front]:
    """A token server, which has nothing but what a test makes it say."""
    with Front("http://127.0.0.1:1") as front:
        yield front


@pytest.fixture
def key_file(tmp_path: Path, tokens: Front) -> Path:
    """A service account's key, whose tokens come from there."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "key.json"
    account = {
        "type": "service_account",
        "project_id": "some-project",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "trainer@some-project.iam.gserviceaccount.com",
        "token_uri": f"{tokens.endpoint}/token",
    }
    path.write_text(json.dumps(account))
    return path


def grant(tokens: Front, token: str) -> None:
    """Have the token server hand out a token once."""
    body = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
    tokens.answer(200, JSON, json.dumps(body).encode())


def bearers(front: Front) -> list[str | None]:
    """What each request claimed to be."""
    return [record.headers.get("authorization") for record in front.requests]


# ---- Credentials ----------------------------------------------------------------------------


def test_a_refused_token_is_replaced_once(
    front: Front, tokens: Front, key_file: Path, raw: RawBucket
) -> None:
    """401 drops the token; the request goes again with a new one, which then serves."""
    raw.put("a", b"body")
    gcs = provider(front.endpoint, raw.name, credentials_file=str(key_file))
    grant(tokens, "first")
    grant(tokens, "second")
    assert gcs.get("a") == b"body"
    front.answer(401)
    assert gcs.get("a") == b"body"
    assert gcs.get("a") == b"body"
    first, second = "Bearer first", "Bearer second"
    assert bearers(front) == [first, first, second, second]


def test_credentials_that_stay_refused(front: Front, tokens: Front, key_file: Path) -> None:
    """401 twice in a row raises AccessDeniedError after exactly two requests."""
    gcs = provider(front.endpoint, "bucket", credentials_file=str(key_file))
    grant(tokens, "first")
    grant(tokens, "second")
    front.answer(401, times=None)
    with pytest.raises(AccessDeniedError, match="missing, wrong or expired"):
        gcs.get("a")
    assert len(front.requests) == 2


def test_a_literal_token_is_not_tried_twice(front: Front) -> None:
    """A token that nothing can refresh is refused after one request, and is not told."""
    gcs = provider(front.endpoint, "bucket", access_token="ya29.secret\n")
    front.answer(401, times=None)
    with pytest.raises(AccessDeniedError) as caught:
        gcs.get("a")
    assert bearers(front) == ["Bearer ya29.secret"]
    assert "ya29" not in str(caught.value)


def test_a_token_server_in_trouble(front: Front, tokens: Front, key_file: Path) -> None:
    """A token server that refuses means no access; one that is gone may come back."""
    gcs = provider(front.endpoint, "bucket", credentials_file=str(key_file))
    tokens.answer(400, JSON, b'{"error": "invalid_grant"}', times=None)
    with pytest.raises(AccessDeniedError, match="invalid_grant"):
        gcs.get("a")
    tokens.clear()
    tokens.reset(times=None)
    times = TransferOptions(max_attempts=2)
    gcs = GCSProvider("bucket", options(front.endpoint, credentials_file=str(key_file)), times)
    with pytest.raises(UnavailableError, match="no token could be had"):
        gcs.get("a")
    assert front.requests == ()


def test_no_credentials_is_not_anonymous() -> None:
    """Without default credentials, nothing is sent, and the error tells what to set."""
    with pytest.raises(AccessDeniedError) as caught:
        GCSProvider("bucket").head("a")
    for word in (
        "head gs://bucket/a",
        "metadata server",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "gcloud auth application-default login",
        "access_token",
        "anonymous=True",
    ):
        assert word in str(caught.value)


def test_default_credentials_are_found(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's own endpoint and whoever GOOGLE_APPLICATION_CREDENTIALS names are the default."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    client = open_client(GCSOptions(), TransferOptions(), Connection.by("gs", GCSOptions()))
    assert client.endpoint == "https://storage.googleapis.com"
    assert client.session.credentials.service_account_email.startswith("trainer@")


def test_another_universe_has_another_endpoint(key_file: Path) -> None:
    """A key of a sovereign cloud leads to that cloud."""
    account = json.loads(key_file.read_text())
    key_file.write_text(json.dumps({**account, "universe_domain": "example.org"}))
    settings = GCSOptions(credentials_file=str(key_file))
    client = open_client(settings, TransferOptions(), Connection.by("gs", settings))
    assert client.endpoint == "https://storage.example.org"


def test_a_credentials_file_that_is_none(tmp_path: Path) -> None:
    """A missing or malformed file is named."""
    path = tmp_path / "none.json"
    gcs = GCSProvider("bucket", GCSOptions(credentials_file=str(path)))
    with pytest.raises(AccessDeniedError, match=str(path)):
        gcs.get("a")
    path.write_text("{}")
    with pytest.raises(AccessDeniedError, match=str(path)):
        gcs.get("a")


def test_the_project_is_billed(front: Front, raw: RawBucket) -> None:
    """Both APIs are told who pays, each in its own way."""
    raw.put("a", b"x")
    gcs = provider(front.endpoint, raw.name, project="payer", access_token="token")
    gcs.get("a")
    list(gcs.list_objects())
    xml, listing = front.requests
    assert xml.headers["x-goog-user-project"] == "payer"
    assert "userProject=payer" in listing.query


def test_netrc_is_not_asked(
    front: Front, raw: RawBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that a .netrc has for the host does not take the token's place."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    raw.put("a", b"x")
    provider(front.endpoint, raw.name, access_token="token").get("a")
    assert bearers(front) == ["Bearer token"]


# ---- Settings -------------------------------------------------------------------------------


def test_the_emulator_of_the_environment(
    front: Front, raw: RawBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STORAGE_EMULATOR_HOST is read when the provider is made and travels in its pickle."""
    raw.put("a", b"x")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", front.endpoint.removeprefix("http://"))
    gcs = open_provider(f"gs://{raw.name}")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    for one in (gcs, pickle.loads(pickle.dumps(gcs))):  # noqa: S301 our own bytes
        assert one.get("a") == b"x"
    assert bearers(front) == [None, None]


def test_a_dropped_token_is_missed(front: Front) -> None:
    """A copy that lost its literal token says so instead of asking without one."""
    gcs = provider(front.endpoint, "bucket", access_token="token")
    copied = pickle.loads(pickle.dumps(gcs))  # noqa: S301 our own bytes
    with pytest.raises(AccessDeniedError, match="access_token stayed behind"):
        copied.get("a")
    assert front.requests == ()


@pytest.mark.parametrize(
    "endpoint",
    ["ftp://host", "https://", "https://host/path", "https://u:p@host", "https://host?x", "a b"],
)
def test_bad_endpoints(endpoint: str) -> None:
    """An endpoint that is no host's URL is refused when the provider is made."""
    with pytest.raises(SettingsError, match="is not of the form"):
        GCSProvider("bucket", GCSOptions(endpoint=endpoint))


def test_a_token_that_is_none() -> None:
    """A line's end is forgiven, other characters are refused without being told."""
    GCSProvider("bucket", GCSOptions(access_token="ya29.token\n"))
    for token in ("ya29\n.token", "ya29 token", "ya29\u00e9", "\n"):
        with pytest.raises(SettingsError, match="access_token") as caught:
            GCSProvider("bucket", GCSOptions(access_token=token))
        assert "ya29" not in str(caught.value)


def test_credentials_of_two_kinds() -> None:
    """Credentials that exclude each other are refused."""
    with pytest.raises(SettingsError, match="exclude each other"):
        GCSProvider("bucket", GCSOptions(access_token="token", anonymous=True))


@pytest.mark.parametrize(
    ("endpoint", "google"),
    [
        (None, True),
        ("https://storage.googleapis.com", True),
        ("storage.europe-west3.rep.googleapis.com", True),
        ("http://127.0.0.1:4443", False),
        ("https://googleapis.com.example.org", False),
        ("https://evilgoogleapis.com", False),
    ],
)
def test_limits_by_endpoint(endpoint: str | None, google: bool) -> None:
    """Google's values on Google's endpoints, safe ones elsewhere, options above both."""
    limits = GCSProvider("bucket", GCSOptions(endpoint=endpoint)).limits
    assert (limits.conditional_put, limits.equal_parts) == (google, not google)
    known = GCSOptions(endpoint=endpoint, conditional_put=not google, equal_parts=google)
    limits = GCSProvider("bucket", known).limits
    assert (limits.conditional_put, limits.equal_parts) == (not google, google)
    assert (limits.max_sources, limits.min_join_bytes, limits.joins_server_side) == (32, 1, False)


def test_unknown_endpoints_take_no_conditional_put(front: Front) -> None:
    """if_absent is refused before anything is sent where nobody vouches for it."""
    gcs = GCSProvider("bucket", GCSOptions(endpoint=front.endpoint))
    with pytest.raises(UnsupportedError, match="conditional_put"):
        gcs.put("a", b"x", if_absent=True)
    assert front.requests == ()


@pytest.mark.parametrize("key", [".", ".."])
def test_keys_that_would_be_steps(gcs: GCSProvider, front: Front, key: str) -> None:
    """The service has no such objects, and a URL would turn them into the bucket itself."""
    for verb in (lambda: gcs.delete([key]), lambda: gcs.put(key, b"x"), lambda: gcs.get(key)):
        with pytest.raises(LimitError, match="no object of this name"):
            verb()
    assert front.requests == ()


def test_keys_are_encoded_to_the_last_slash(gcs: GCSProvider, front: Front) -> None:
    """Dots between slashes reach the service as they are, whatever sends them."""
    gcs.put("a/../b", b"x")
    gcs.copy("a/../b", "../c")
    paths = {record.path.partition(gcs.bucket)[2] for record in front.requests}
    assert "/a%2F..%2Fb" in paths
    assert any(path.endswith("/o/..%2Fc") for path in paths)


@pytest.mark.parametrize("missing", ["google.auth.transport.requests", "google_crc32c"])
def test_a_missing_library(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is told in one line."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SettingsError, match=r"pip install 'torch-cloud-connector\[gcs\]'"):
        GCSProvider("bucket").get("a")


def test_nothing_is_imported_before_it_is_needed() -> None:
    """Making a provider and asking its limits loads none of Google's libraries."""
    code = (
        "import sys; from providers import open_provider; open_provider('gs://b').limits; "
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('google', 'google_crc32c', 'requests', 'urllib3')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- Connections ----------------------------------------------------------------------------


def test_three_connections_serve_them_all(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """Every verb, errors and empty answers included, hands its connection on."""
    raw.put("a", b"body")
    raw.put("empty", b"")
    gcs.get("a")
    gcs.get("empty")
    gcs.get("a", ByteRange(1, 2))
    gcs.head("a")
    gcs.put("b", b"")
    gcs.copy("a", "c")
    gcs.compose(["a", "c"], "d")
    upload(gcs, "e", b"x")
    gcs.delete(["a"])
    gcs.start_multipart("f").abort()
    for verb in (lambda: gcs.get("missing"), lambda: gcs.head("missing")):
        with pytest.raises(FileNotFoundError):
            verb()
    assert len(list(gcs.list_objects())) == 5
    # One for reads, one for bodies to be stored, one for all else.
    assert {record.connection for record in front.requests} == {1, 2, 3}


def test_connections_are_bounded(front: Front, raw: RawBucket) -> None:
    """No more connections are open than the options allow, however many threads there are."""
    keys = [f"key-{number}" for number in range(50)]
    raw.put_many(keys)
    times = TransferOptions(max_connections=3)
    GCSProvider(raw.name, options(front.endpoint), times).delete(keys)
    assert raw.keys() == set()
    assert {record.connection for record in front.requests} == {1, 2, 3}


def test_a_listing_asks_for_no_more_than_it_reads(
    gcs: GCSProvider, front: Front, raw: RawBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages carry bounds and a projection; common prefixes are not bounded by objects."""
    monkeypatch.setattr(GCSProvider, "page_size", 2)
    raw.put_many(["a/1", "a/2", "b/1", "b/2", "c"])

    def listed(**bounds: Any) -> list[str]:
        return [info.key for info in gcs.list_objects(**bounds)]

    assert listed(start_after="a/1", stop_before="b/2") == ["a/2", "b/1"]
    assert all("fields=items%28name%2Csize" in record.query for record in front.requests)
    assert all("endOffset=b%2F2" in record.query for record in front.requests)
    count = len(front.requests)
    assert listed(delimiter="/", stop_before="b/1") == ["a/", "b/"]
    assert not [record for record in front.requests[count:] if "endOffset" in record.query]


def test_etags_are_those_of_headers(gcs: GCSProvider) -> None:
    """A composed object, which has no MD5, has one etag in listings and descriptions too."""
    gcs.put("a", b"x")
    info = gcs.compose(["a", "a"], "b")
    (listed,) = gcs.list_objects("b")
    assert info.etag == listed.etag == gcs.head("b").etag
    assert info.version == listed.version == gcs.head("b").version
