"""Whose credentials sign, what becomes of expired ones, and that none of them show."""

from __future__ import annotations

import contextlib
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import pytest

from providers.counters import snapshot
from providers.errors import AccessDeniedError, SettingsError
from providers.options import OSSOptions
from providers.oss import OSSProvider
from tests.fakes.front import Front
from tests.providers.oss.stores import BUCKET, hours_from_now, opened, store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fakes.oss import OSSServer

_EXPIRED = "renew OSS_SESSION_TOKEN"


def from_environment(
    server: OSSServer, patch: pytest.MonkeyPatch, token: str | None, **changes: Any
) -> OSSProvider:
    """Return a provider without credentials of its own, and put some into the environment."""
    patch.setenv("OSS_ACCESS_KEY_ID", "STS.id\n" if token else "AKID\n")
    patch.setenv("OSS_ACCESS_KEY_SECRET", "sts-secret\n" if token else "SECRET\n")
    if token:
        patch.setenv("OSS_SESSION_TOKEN", token)
    return OSSProvider(
        BUCKET, OSSOptions(endpoint=server.endpoint, region=server.region, **changes)
    )


def grant(server: OSSServer, token: str, hours: int = 1) -> None:
    """Make the temporary key good with this token only."""
    server.add_credentials("STS.id", "sts-secret", token, hours_from_now(hours))


@pytest.mark.parametrize("version", ["v4", "v1"])
@pytest.mark.parametrize("token", [None, "a token/+="])
def test_environment_signs(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch, version: str, token: str | None
) -> None:
    """OSS_ACCESS_KEY_ID and its siblings sign, a line's end after them or not."""
    grant(server, "a token/+=")
    provider = from_environment(server, monkeypatch, token, signature_version=version)
    provider.put("key", b"body")
    assert provider.get("key") == b"body"


@pytest.mark.parametrize("version", ["v4", "v1"])
def test_literal_token_signs(server: OSSServer, version: str) -> None:
    """Explicit temporary credentials sign, and win over the environment."""
    grant(server, "the-token")
    provider = opened(
        server.endpoint,
        access_key_id="STS.id",
        access_key_secret="sts-secret",
        security_token="the-token",
        signature_version=version,
    )
    provider.put("key", b"body")
    provider.copy("key", "copied")
    assert server.objects(BUCKET) == {"copied": b"body", "key": b"body"}


def test_missing_credentials_raise() -> None:
    """Without credentials the error says where they were looked for."""
    provider = opened("http://127.0.0.1:9", access_key_id=None, access_key_secret=None)
    with pytest.raises(AccessDeniedError, match=r"access_key_id.*OSS_ACCESS_KEY_ID.*anonymous"):
        provider.get("key")


@pytest.mark.parametrize("given", ["access_key_id", "access_key_secret"])
def test_half_a_pair_raises(given: str) -> None:
    """A key without its secret, or the reverse, is a mistake, not a reason to look elsewhere."""
    fields: dict[str, Any] = {"access_key_id": None, "access_key_secret": None, given: "half"}
    with pytest.raises(SettingsError, match="go together"):
        opened("http://127.0.0.1:9", **fields).get("key")


@pytest.mark.parametrize("verb", ["get", "head", "list", "part"])
def test_expired_token_is_renewed_once(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """When the environment has new credentials, one refused request is all it costs."""
    store(server, "key", b"body")
    grant(server, "old")
    provider = from_environment(server, monkeypatch, "old")
    upload = provider.start_multipart("whole")
    grant(server, "old", hours=-1)
    server.add_credentials("STS.new", "new-secret", "new", hours_from_now(1))
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "STS.new")
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "new-secret")
    monkeypatch.setenv("OSS_SESSION_TOKEN", "new")
    server.requests.clear()
    calls: dict[str, Any] = {
        "get": lambda: provider.get("key"),
        "head": lambda: provider.head("key"),
        "list": lambda: list(provider.list_objects()),
        "part": lambda: upload.put_part(1, b"x"),
    }
    calls[verb]()
    assert [r.code for r in server.requests] == ["SecurityTokenExpired", None]
    calls[verb]()
    assert [r.code for r in server.requests[2:]] == [None]
    upload.abort()


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "InvalidSecurityToken"])
def test_credentials_taken_away_are_renewed(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """A temporary key that is known no more has expired too."""
    store(server, "key", b"body")
    grant(server, "old")
    provider = from_environment(server, monkeypatch, "old")
    assert provider.get("key") == b"body"
    if code == "InvalidAccessKeyId":
        server.remove_credentials("STS.id")
        from_environment(server, monkeypatch, None)
        monkeypatch.delenv("OSS_SESSION_TOKEN")
    else:
        grant(server, "new")
        from_environment(server, monkeypatch, "new")
    server.requests.clear()
    assert provider.get("key") == b"body"
    assert [r.code for r in server.requests] == [code, None]


def test_expired_token_that_stays_raises(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without new credentials the error says what expired, after one more try."""
    grant(server, "the-token", hours=-1)
    provider = from_environment(server, monkeypatch, "the-token")
    with pytest.raises(AccessDeniedError, match=_EXPIRED) as caught:
        provider.get("key")
    assert caught.value.code == "SecurityTokenExpired"
    assert "the-token" not in str(caught.value)
    assert len(server.requests) == 2
    monkeypatch.delenv("OSS_ACCESS_KEY_SECRET")
    with pytest.raises(AccessDeniedError, match=_EXPIRED):
        provider.get("key")
    assert len(server.requests) == 3


def test_expired_literal_token_raises_at_once(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Literal credentials are never swapped for those of the environment."""
    from_environment(server, monkeypatch, None)
    grant(server, "the-token", hours=-1)
    provider = opened(
        server.endpoint,
        access_key_id="STS.id",
        access_key_secret="sts-secret",
        security_token="the-token",
    )
    with pytest.raises(AccessDeniedError, match=_EXPIRED):
        provider.get("key")
    assert len(server.requests) == 1


def test_unknown_long_lived_key_is_not_tried_again(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key without a token does not expire; unknown, it is wrong."""
    server.remove_credentials("AKID")
    provider = from_environment(server, monkeypatch, None)
    with pytest.raises(AccessDeniedError, match="code InvalidAccessKeyId"):
        provider.get("key")
    assert len(server.requests) == 1


def test_expired_token_is_renewed_for_many_threads(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that meet the expiry together all go on."""
    store(server, "key", b"body")
    grant(server, "old")
    provider = from_environment(server, monkeypatch, "old")
    assert provider.get("key") == b"body"
    grant(server, "new")
    from_environment(server, monkeypatch, "new")
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(provider.get, ["key"] * 32))
    assert bodies == [b"body"] * 32


@pytest.mark.parametrize("version", ["v4", "v1"])
@pytest.mark.parametrize("ahead_seconds", [3600.0, -3600.0])
def test_skewed_clock_is_corrected(
    front: Front, server: OSSServer, version: str, ahead_seconds: float
) -> None:
    """Refused for its clock, a read goes by the service's, and so do all that follow."""
    store(server, "key", b"body")
    server.clock_offset_seconds = ahead_seconds
    provider = opened(front.endpoint, signature_version=version)
    before = snapshot().refreshes
    assert provider.get("key") == b"body"
    assert provider.get("key") == b"body"
    assert [record.status for record in front.requests] == [403, 200, 200]
    assert snapshot().refreshes == before + 1
    ours, theirs = (signed_at(record.headers) for record in front.requests[:2])
    assert abs((theirs - ours).total_seconds() - ahead_seconds) < 60.0


def test_clock_that_cannot_be_corrected_is_told(front: Front, provider: OSSProvider) -> None:
    """Where no answer says what time it is the error says what to do, after one request."""
    skewed = b"<Error><Code>RequestTimeTooSkewed</Code><Message>Too far.</Message></Error>"
    front.answer(403, body=skewed, times=None)
    with pytest.raises(AccessDeniedError, match="set this machine's clock"):
        provider.get("key")
    assert len(front.requests) == 1
    front.clear()
    front.answer(403, {"Date": "Tue, 01 Dec 2026 05:00:00 GMT"}, skewed, times=None)
    with pytest.raises(AccessDeniedError, match="set this machine's clock"):
        provider.get("key")
    assert len(front.requests) == 3


def test_many_threads_with_a_skewed_clock_read(front: Front, server: OSSServer) -> None:
    """All that are refused together go by the service's time, which is noted once."""
    store(server, "key", b"body")
    server.clock_offset_seconds = 7200.0
    provider = opened(front.endpoint)
    before = snapshot().refreshes
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(provider.get, ["key"] * 32)) == [b"body"] * 32
    assert snapshot().refreshes == before + 1


@pytest.mark.parametrize("version", ["v4", "v1"])
@pytest.mark.parametrize("verb", ["head", "list", "delete", "start"])
def test_skewed_clock_is_corrected_for_the_sdk(
    front: Front, server: OSSServer, version: str, verb: str
) -> None:
    """What is sent by oss2 goes by the service's clock too, once that has been told."""
    store(server, "key", b"body")
    server.clock_offset_seconds = 3600.0
    provider = opened(front.endpoint, signature_version=version)
    verbs: dict[str, Any] = {
        "head": lambda: provider.head("key"),
        "list": lambda: list(provider.list_objects()),
        "delete": lambda: provider.delete(["key", "other"]),
        "start": lambda: provider.start_multipart("other").abort(),
    }
    verbs[verb]()
    assert front.requests[0].status == 403
    assert all(record.status in {200, 204} for record in front.requests[1:])


def signed_at(headers: Mapping[str, str]) -> datetime:
    """Return the moment that a request of either signature says it was signed at."""
    stamp = headers.get("x-oss-date")
    if stamp is None:
        return parsedate_to_datetime(headers["date"])
    return datetime.strptime(f"{stamp}+0000", "%Y%m%dT%H%M%SZ%z")


def test_pickle_without_secrets_asks_the_environment(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy whose secret stayed behind says so, or signs with what it finds."""
    store(server, "key", b"body")
    provider = opened(server.endpoint)
    pickled = pickle.dumps(provider)
    assert b"SECRET" not in pickled
    copied = pickle.loads(pickled)  # noqa: S301 our own bytes
    with pytest.raises(AccessDeniedError, match="access_key_secret stayed behind"):
        copied.get("key")
    from_environment(server, monkeypatch, None)
    assert copied.get("key") == b"body"
    pickled = pickle.dumps(opened(server.endpoint, pickle_secrets=True))
    kept = pickle.loads(pickled)  # noqa: S301 the same
    monkeypatch.delenv("OSS_ACCESS_KEY_ID")
    assert kept.get("key") == b"body"


def test_resolved_settings_travel(server: OSSServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint and region are settled once; a copy elsewhere asks the same store."""
    monkeypatch.setenv("OSS_ENDPOINT", server.endpoint)
    monkeypatch.setenv("OSS_REGION", server.region)
    pickled = pickle.dumps(OSSProvider(BUCKET))
    monkeypatch.delenv("OSS_ENDPOINT")
    monkeypatch.delenv("OSS_REGION")
    copied = pickle.loads(pickled)  # noqa: S301 our own bytes
    assert copied.options.endpoint == server.endpoint
    assert copied.options.region == server.region


@pytest.mark.parametrize("version", ["v4", "v1"])
def test_secrets_do_not_show(
    server: OSSServer, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    """No log line, at any level, and no error or repr holds a secret or a token."""
    caplog.set_level(logging.DEBUG)
    grant(server, "the-token")
    with Front(server.endpoint) as front:
        for secret in ("sts-secret", "wrong-secret"):
            provider = opened(
                front.endpoint,
                access_key_id="STS.id",
                access_key_secret=secret,
                security_token="the-token",
                signature_version=version,
            )
            shown = repr(provider) + repr(provider.options) + repr(provider.client)
            try:
                provider.put("key", b"body")
            except AccessDeniedError as error:
                shown += str(error)
            with contextlib.suppress(AccessDeniedError):
                provider.delete(["key"])
            for text in (caplog.text, shown):
                assert "the-token" not in text
                assert secret not in text
    assert "POST /the-bucket/?delete=" in caplog.text


def test_sdk_signs_with_what_reads_sign_with(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials renewed for a read serve oss2 at once, however its client was opened."""
    store(server, "key", b"body")
    grant(server, "old")
    provider = from_environment(server, monkeypatch, "old")
    assert [found.key for found in provider.list_objects()] == ["key"]
    grant(server, "new")
    from_environment(server, monkeypatch, "new")
    server.requests.clear()
    provider.access.drop()
    assert [found.key for found in provider.list_objects()] == ["key"]
    assert provider.get("key") == b"body"
    assert [record.code for record in server.requests] == [None, None]
