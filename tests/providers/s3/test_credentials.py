"""Whose credentials sign, what becomes of expired ones, and that none of them show."""

from __future__ import annotations

import json
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest

from providers.counters import snapshot
from providers.errors import AccessDeniedError, ProviderError, ServiceError, SettingsError
from providers.testing.harness import noise
from tests.providers.s3.stores import PART_BYTES, made, verbs
from tests.servers.environment import s3_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from providers.s3 import S3Provider
    from tests.fakes.front import Front
    from tests.fakes.wire import Request
    from tests.providers.s3.stores import Store

SKEWED = b"<Error><Code>RequestTimeTooSkewed</Code><Message>Too far.</Message></Error>"
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"


def from_environment(
    store: Store, endpoint: str, patch: pytest.MonkeyPatch, **changes: str
) -> S3Provider:
    """Return a provider without options, and put what it needs into the environment."""
    for name, value in {**s3_environment(store.server), **changes}.items():
        patch.setenv(name, value)
    patch.setenv("AWS_ENDPOINT_URL", endpoint)
    return made(store.bucket)


def signer(request: Request) -> str:
    """Return the access key that signed a request."""
    return request.headers["authorization"].partition("Credential=")[2].partition("/")[0]


def test_environment_signs(store: Store, front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint, region and credentials come from boto3's own variables; no option is needed."""
    provider = from_environment(store, front.endpoint, monkeypatch)
    provider.put("key", b"body")
    provider.delete(["key", "other"])
    assert len(front.requests) == 2
    assert "content-md5" in front.requests[1].headers
    assert front.requests[0].path == f"/{store.bucket}/key"
    assert not provider.limits.conditional_put


def test_profile_signs(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of the AWS files names region, endpoint and credentials."""
    server = store.server
    (tmp_path / "config").write_text(
        f"[profile lab]\nregion = eu-test-1\nendpoint_url = {server.endpoint}\n"
        f"aws_access_key_id = {server.access_key}\naws_secret_access_key = {server.secret_key}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    provider = made(store.bucket, profile="lab", region=server.region)
    provider.put("key", b"body")
    assert provider.clients.endpoint == server.endpoint
    assert made(store.bucket, profile="lab").clients.region == "eu-test-1"
    with pytest.raises(SettingsError, match=r"open s3://.*profile \(labs\) could not be found"):
        made(store.bucket, profile="labs").get("key")


def test_shared_credentials_sign(
    store: Store, front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared credentials file serves, by the option's profile or by that of AWS_PROFILE."""
    server = store.server
    (tmp_path / "credentials").write_text(
        f"[lab]\naws_access_key_id = {server.access_key}\n"
        f"aws_secret_access_key = {server.secret_key}\n"
        "[trial]\naws_access_key_id = trial\naws_secret_access_key = no\n"
        "aws_session_token = the-token\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    made(store.bucket, endpoint=front.endpoint, profile="lab").put("key", b"body")
    monkeypatch.setenv("AWS_PROFILE", "trial")
    with pytest.raises(AccessDeniedError, match="check access_key_id"):
        made(store.bucket, endpoint=front.endpoint).get("key")
    records: Any = front.requests
    assert [signer(record) for record in records] == [server.access_key, "trial"]
    assert records[1].headers["x-amz-security-token"] == "the-token"
    assert store.get("key") == b"body"


@pytest.mark.parametrize("verb", ["get", "put", "head", "list", "delete", "start"])
def test_no_credentials_is_not_anonymous(store: Store, front: Front, verb: str) -> None:
    """Without credentials nothing is sent, and the error says where they were looked for."""
    provider = made(store.bucket, endpoint=front.endpoint)
    with pytest.raises(AccessDeniedError, match=r"AWS_ACCESS_KEY_ID.*AWS_PROFILE.*anonymous=True"):
        verbs(provider)[verb]()
    assert front.requests == ()


def test_credentials_that_come_late_are_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Having found none, a provider looks again the next time."""
    provider = made(store.bucket, endpoint=store.server.endpoint)
    with pytest.raises(AccessDeniedError):
        provider.put("key", b"body")
    for name, value in s3_environment(store.server).items():
        monkeypatch.setenv(name, value)
    provider.put("key", b"body")
    assert store.get("key") == b"body"


@pytest.mark.parametrize(
    "field",
    ["access_key_id", "secret_access_key", "session_token"],
)
def test_half_a_pair_raises(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the keys is a mistake, not a reason to look elsewhere for the rest."""
    fields: dict[str, Any] = {field: "half"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(SettingsError, match="was given without"):
        made("bucket", endpoint="http://127.0.0.1:9", **fields).get("key")


def test_half_a_pair_in_the_environment_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for what the environment gives."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    with pytest.raises(AccessDeniedError, match=r"open s3://bucket/: .*[Pp]artial credentials"):
        made("bucket", endpoint="http://127.0.0.1:9").get("key")


@pytest.mark.parametrize("verb", ["get", "put", "head", "list", "delete", "start"])
def test_wrong_secret_raises(store: Store, front: Front, verb: str) -> None:
    """Refused credentials raise at the first request, which is not repeated."""
    provider = store.opened(front.endpoint, secret_access_key="wrong")
    with pytest.raises(AccessDeniedError) as caught:
        verbs(provider)[verb]()
    assert len(front.requests) == 1
    assert "wrong" not in str(caught.value)
    if verb != "head":
        assert "check secret_access_key" in str(caught.value)


def test_wrong_secret_of_a_large_body_raises(store: Store) -> None:
    """A refusal is heard even if the store does not wait for the body."""
    with pytest.raises(AccessDeniedError):
        store.opened(secret_access_key="wrong").put("key", noise(16 << 20))


def test_anonymous_requests_are_unsigned(strict: Store, strict_front: Front) -> None:
    """With anonymous=True nothing is signed, and bodies carry their MD5 instead."""
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [everybody]})
    strict.client.put_bucket_policy(Bucket=strict.bucket, Policy=policy)
    provider = made(strict.bucket, endpoint=strict_front.endpoint, anonymous=True)
    provider.put("key", b"body")
    assert provider.get("key") == b"body"
    provider.delete(["key", "other"])
    assert not any("authorization" in record.headers for record in strict_front.requests)
    assert "content-md5" in strict_front.requests[0].headers
    assert "content-md5" in strict_front.requests[2].headers


@pytest.mark.parametrize("code", ["ExpiredToken", "TokenRefreshRequired", "InvalidToken"])
@pytest.mark.parametrize("verb", ["get", "put", "list", "delete", "start"])
def test_expired_token_is_renewed_once(
    store: Store, front: Front, monkeypatch: pytest.MonkeyPatch, verb: str, code: str
) -> None:
    """The whole chain is asked again; one refused request is all it costs."""
    store.put("key", b"body")
    provider = from_environment(
        store, front.endpoint, monkeypatch, AWS_ACCESS_KEY_ID="old", AWS_SESSION_TOKEN="old"
    )
    assert provider.clients.refreshable
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.server.access_key)
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    front.answer(
        400, body=EXPIRED.replace(b"ExpiredToken", code.encode()), when=lambda r: signer(r) == "old"
    )
    verbs(provider)[verb]()
    assert [record.status for record in front.requests] == [400, 200]
    assert "old" not in str(front.requests[1].headers)


def test_bare_400_to_a_head_is_taken_for_expiry(
    store: Store, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A HEAD has no document to say "expired"; a region is looked for first."""
    store.put("key", b"body")
    provider = from_environment(store, front.endpoint, monkeypatch, AWS_ACCESS_KEY_ID="old")
    assert provider.clients.refreshable
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.server.access_key)
    front.answer(400, when=lambda r: signer(r) == "old", times=None)
    assert provider.head("key").size == 4
    assert signer_of_last(front) == store.server.access_key
    with pytest.raises(ProviderError):
        store.opened(front.endpoint, access_key_id="old").head("key")


def signer_of_last(front: Front) -> str:
    """Return the access key of the latest request."""
    record: Any = front.requests[-1]
    return signer(record)


def test_expiry_that_stays_raises(
    store: Store, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If fresh credentials are refused too, the error says what expired, after one more try."""
    provider = from_environment(store, front.endpoint, monkeypatch)
    front.answer(400, body=EXPIRED, times=None)
    with pytest.raises(AccessDeniedError, match="credentials have expired and no fresh ones"):
        provider.get("key")
    assert len(front.requests) == 2


def test_literal_credentials_are_not_renewed(provider: S3Provider, front: Front) -> None:
    """There is nowhere to get others from."""
    front.answer(400, body=EXPIRED, times=None)
    with pytest.raises(AccessDeniedError, match="have expired"):
        provider.get("key")
    assert len(front.requests) == 1


def test_threads_renew_together(
    store: Store, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all threads meet an expired token at once, the chain is asked once or twice."""
    store.put("key", b"body")
    opened: list[str] = []
    provider = from_environment(store, front.endpoint, monkeypatch, AWS_ACCESS_KEY_ID="old")
    assert provider.clients.refreshable
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.server.access_key)
    front.answer(400, body=EXPIRED, when=lambda r: signer(r) == "old", times=None)
    reopen = provider._reopen

    def counted() -> None:
        opened.append("again")
        reopen()

    monkeypatch.setattr(provider, "_reopen", counted)
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(provider.get, ["key"] * 16)) == [b"body"] * 16
    # Two threads may read the clock at the same moment.
    assert 1 <= len(opened) <= 3


def test_secrets_do_not_show(store: Store, front: Front, caplog: pytest.LogCaptureFixture) -> None:
    """Neither repr nor errors nor the logs of the SDK, at any level, tell a secret."""
    provider = store.opened(
        front.endpoint, secret_access_key="the-secret", session_token="the-token"
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError) as caught:
        provider.get("key")
    shown = f"{provider!r} {provider.options!r} {provider.options} {caught.value} {caplog.text}"
    assert front.requests[0].headers["x-amz-security-token"] == "the-token"
    assert "the-secret" not in shown
    assert "the-token" not in shown


def test_pickle_without_secrets_uses_its_own_environment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy whose secrets stayed behind looks elsewhere, and says so where it finds none."""
    copied: S3Provider = pickle.loads(pickle.dumps(store.opened()))  # noqa: S301 our own bytes
    with pytest.raises(AccessDeniedError, match=r"secret_access_key.*pickle_secrets=True"):
        copied.put("key", b"body")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.server.secret_key)
    copied.put("key", b"body")
    assert copied.clients.refreshable
    kept = store.opened(pickle_secrets=True)
    again: S3Provider = pickle.loads(pickle.dumps(kept))  # noqa: S301 our own bytes
    assert again.get("key") == b"body"


# ---- Regions -------------------------------------------------------------------------------

ELSEWHERE = {"x-amz-bucket-region": "eu-west-1"}
MALFORMED = (
    b"<Error><Code>AuthorizationHeaderMalformed</Code><Message>The region 'us-east-1' is wrong"
    b"</Message><Region>eu-west-1</Region></Error>"
)


def signed_for(record: Any) -> str:
    """Return the region that a request was signed for."""
    scope: str = record.headers["authorization"].partition("Credential=")[2]
    return scope.split("/")[2]


def wrongly_signed(request: Request) -> bool:
    """Whether a request is signed for the region by default."""
    return signed_for(request) == "us-east-1"


@pytest.mark.parametrize("headers", [ELSEWHERE, {}], ids=["header", "document"])
@pytest.mark.parametrize("verb", ["get", "put", "list", "head"])
def test_wrong_region_is_corrected_once(
    strict: Store, strict_front: Front, verb: str, headers: dict[str, str]
) -> None:
    """A bucket of another region costs one refused request; copies know the region."""
    if verb == "head":
        # It has no document.
        headers = ELSEWHERE
    strict.put("key", b"body")
    provider = strict.opened(strict_front.endpoint, pickle_secrets=True)
    strict_front.answer(400, headers, MALFORMED, when=wrongly_signed, times=None)
    for _ in range(2):
        verbs(provider)[verb]()
    copied: S3Provider = pickle.loads(pickle.dumps(provider))  # noqa: S301 our own bytes
    verbs(copied)[verb]()
    regions = [signed_for(record) for record in strict_front.requests]
    assert regions == ["us-east-1", "eu-west-1", "eu-west-1", "eu-west-1"]


def test_region_that_is_not_told_is_asked_for(strict: Store, strict_front: Front) -> None:
    """Where a redirect does not tell, a HEAD of the bucket does, even refused."""
    strict.put("key", b"body")
    strict_front.answer(301, when=lambda r: wrongly_signed(r) and r.method == "GET", times=None)
    strict_front.answer(403, ELSEWHERE, when=lambda r: r.method == "HEAD")
    assert strict.opened(strict_front.endpoint).get("key") == b"body"
    methods = [record.method for record in strict_front.requests]
    assert methods == ["GET", "HEAD", "GET"]


def test_data_plane_corrects_the_region(strict: Store, strict_front: Front) -> None:
    """What another client was answered corrects the region as well, once."""
    provider = strict.opened(strict_front.endpoint)
    strict_front.answer(200, ELSEWHERE, when=lambda r: r.method == "HEAD", times=2)
    error = provider.explain(None, 400, ELSEWHERE, MALFORMED)
    assert type(error) is ServiceError
    assert provider.recover(error)
    assert provider.clients.region == "eu-west-1"
    assert not provider.recover(error)


def test_region_that_cannot_be_one_raises() -> None:
    """A mistake in the region's name is told with the bucket, before anything is sent."""
    keys: dict[str, Any] = {"access_key_id": "a", "secret_access_key": "b"}
    with pytest.raises(SettingsError, match=r"open s3://bucket/: .*us east 1") as caught:
        made("bucket", region="us east 1", **keys).get("key")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("verb", ["get", "head", "list"])
def test_redirect_without_a_region_raises(strict: Store, strict_front: Front, verb: str) -> None:
    """A redirect to elsewhere, to https say, is an error, and neither followed nor a loop."""
    provider = strict.opened(strict_front.endpoint)
    strict_front.answer(301, {"Location": "https://elsewhere.invalid/"}, times=None)
    with pytest.raises(ServiceError, match=r"leads to https://elsewhere.*status 301"):
        verbs(provider)[verb]()
    assert len(strict_front.requests) == 2


@pytest.mark.parametrize("verb", ["get", "list"])
def test_credentials_that_arrive_expired_are_told(
    store: Store, front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """What boto3 refuses to sign with is an error of ours, which names the likely cause."""
    document = {
        "Version": 1,
        "AccessKeyId": "id",
        "SecretAccessKey": "secret",
        "SessionToken": "token",
        "Expiration": "2026-01-01T00:00:00Z",
    }
    (tmp_path / "document").write_text(json.dumps(document))
    (tmp_path / "config").write_text(
        f"[default]\ncredential_process = cat {tmp_path / 'document'}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    provider = made(store.bucket, endpoint=front.endpoint, region=store.server.region)
    with pytest.raises(AccessDeniedError, match=r"s3://.*still expired.*clock"):
        verbs(provider)[verb]()
    assert front.requests == ()


# ---- Clock ---------------------------------------------------------------------------------


def put_off(front: Front, ahead: timedelta, tolerated: timedelta = timedelta(minutes=15)) -> None:
    """Have the service behind a front go by another time, as if it were this machine's fault."""

    def is_skewed(request: Request) -> bool:
        there = datetime.now(timezone.utc) + ahead
        return abs(signed_at(request.headers) - there) > tolerated

    date = format_datetime(datetime.now(timezone.utc) + ahead)
    front.answer(403, {"Date": date}, SKEWED, times=None, when=is_skewed)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1)])
def test_skewed_clock_is_corrected(strict: Store, strict_front: Front, ahead: timedelta) -> None:
    """Refused for its clock, a read goes by the service's, and so do all that follow."""
    strict.put("key", b"body")
    put_off(strict_front, ahead)
    provider = strict.opened(strict_front.endpoint)
    before = snapshot().refreshes
    assert provider.get("key") == b"body"
    assert provider.get("key") == b"body"
    assert [record.status for record in strict_front.requests] == [403, 200, 200]
    assert snapshot().refreshes == before + 1
    ours, theirs = (signed_at(record.headers) for record in strict_front.requests[:2])
    assert abs(theirs - ours - ahead) < timedelta(minutes=1)


@pytest.mark.parametrize("verb", ["put", "head", "list", "delete", "start"])
def test_skewed_clock_is_corrected_for_the_sdk(
    strict: Store, strict_front: Front, verb: str
) -> None:
    """What boto3 signs follows the service's clock; a HEAD's refusal tells it by its date alone."""
    strict.put("key", b"body")
    put_off(strict_front, timedelta(hours=1))
    provider = strict.opened(strict_front.endpoint)
    verbs(provider)[verb]()
    assert strict_front.requests[0].status == 403
    assert all(record.status in {200, 204} for record in strict_front.requests[1:])


def test_all_verbs_go_by_the_corrected_clock(store: Store, front: Front) -> None:
    """One refusal serves all that follows: odd keys, parts, copies, listings, deletes."""
    store.put("a b/\u00e9?&=+", b"body")
    # What the server, which checks signatures, takes itself.
    put_off(front, timedelta(minutes=-10), timedelta(minutes=5))
    provider = store.opened(front.endpoint)
    assert [found.key for found in provider.list_objects("a b/")] == ["a b/\u00e9?&=+"]
    provider.copy("a b/\u00e9?&=+", "copy+of it")
    with provider.start_multipart("parts \u00e9", metadata={"note": "two  words"}) as upload:
        upload.put_part(1, noise(PART_BYTES))
        upload.put_part(2, b"last")
        upload.complete()
    provider.compose(["parts \u00e9", "copy+of it"], "whole")
    assert provider.head("whole").size == PART_BYTES + 8
    provider.delete(["copy+of it", "parts \u00e9", "tab\tin it"])
    assert store.keys() == ["a b/\u00e9?&=+", "whole"]
    refused = [record for record in front.requests if record.status == 403]
    assert len(refused) == 1


def test_head_that_is_denied_is_no_matter_of_clocks(strict: Store, strict_front: Front) -> None:
    """A bare refusal by a service whose time is this machine's is sent once."""
    strict_front.answer(403, {"Date": format_datetime(datetime.now(timezone.utc))}, times=None)
    with pytest.raises(AccessDeniedError):
        strict.opened(strict_front.endpoint).head("key")
    assert len(strict_front.requests) == 1


def test_clock_that_cannot_be_corrected_is_told(front: Front, provider: S3Provider) -> None:
    """Without a date, or where the service's own is refused, the error says what to do."""
    front.answer(403, body=SKEWED, times=None)
    with pytest.raises(AccessDeniedError, match="set this machine's clock"):
        provider.get("key")
    assert len(front.requests) == 1
    front.clear()
    front.answer(403, {"Date": "Tue, 01 Dec 2026 05:00:00 GMT"}, SKEWED, times=None)
    with pytest.raises(AccessDeniedError, match="set this machine's clock"):
        provider.get("key")
    assert len(front.requests) == 3


def signed_at(headers: Mapping[str, str]) -> datetime:
    """Return the moment that a request says it was signed at."""
    return datetime.strptime(f"{headers['x-amz-date']}+0000", "%Y%m%dT%H%M%SZ%z")
