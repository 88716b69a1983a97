"""What answers of Google Cloud Storage and exceptions of its libraries mean, class by class."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import google.auth.exceptions
import pytest
import requests.exceptions
import urllib3.exceptions

from providers import errors
from providers.errors import (
    AccessDeniedError,
    ProviderError,
    ServiceError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.gcs import GCSProvider
from providers.gcs_answers import resource_info
from providers.options import GCSOptions
from providers.values import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

# They are annotated in part; what a test makes of them needs no checker.
auth: Any = google.auth.exceptions

GCS = GCSProvider("bucket", GCSOptions(endpoint="http://127.0.0.1:1"))

EXPECTED: dict[type[Exception], type[ProviderError]] = {
    auth.GoogleAuthError: AccessDeniedError,
    auth.TransportError: UnavailableError,
    auth.RefreshError: AccessDeniedError,
    auth.UserAccessTokenError: AccessDeniedError,
    auth.DefaultCredentialsError: AccessDeniedError,
    auth.MutualTLSChannelError: SettingsError,
    auth.ClientCertError: SettingsError,
    auth.OAuthError: AccessDeniedError,
    auth.ReauthFailError: AccessDeniedError,
    auth.ReauthSamlChallengeFailError: AccessDeniedError,
    auth.MalformedError: AccessDeniedError,
    auth.InvalidResource: AccessDeniedError,
    auth.InvalidOperation: AccessDeniedError,
    auth.InvalidValue: AccessDeniedError,
    auth.InvalidType: AccessDeniedError,
    auth.OSError: AccessDeniedError,
    auth.TimeoutError: TimedOutError,
    auth.ResponseError: AccessDeniedError,
    requests.exceptions.RequestException: ServiceError,
    requests.exceptions.InvalidJSONError: ServiceError,
    requests.exceptions.JSONDecodeError: ServiceError,
    requests.exceptions.HTTPError: ServiceError,
    requests.exceptions.ConnectionError: UnavailableError,
    requests.exceptions.ProxyError: UnavailableError,
    requests.exceptions.SSLError: SettingsError,
    requests.exceptions.Timeout: TimedOutError,
    requests.exceptions.ConnectTimeout: TimedOutError,
    requests.exceptions.ReadTimeout: TimedOutError,
    requests.exceptions.URLRequired: SettingsError,
    requests.exceptions.TooManyRedirects: ServiceError,
    requests.exceptions.MissingSchema: SettingsError,
    requests.exceptions.InvalidSchema: SettingsError,
    requests.exceptions.InvalidURL: SettingsError,
    requests.exceptions.InvalidHeader: SettingsError,
    requests.exceptions.InvalidProxyURL: SettingsError,
    requests.exceptions.ChunkedEncodingError: UnavailableError,
    requests.exceptions.ContentDecodingError: UnavailableError,
    requests.exceptions.StreamConsumedError: ServiceError,
    requests.exceptions.RetryError: ServiceError,
    requests.exceptions.UnrewindableBodyError: ServiceError,
}


def _exceptions_of(module: ModuleType) -> Iterator[type[Exception]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Exception):
            own = value.__module__ == module.__name__
            if own and not issubclass(value, Warning):
                yield value


def _translated(error: Exception) -> ProviderError:
    found = GCS._translate(error, "get", "a")
    assert found is not None
    return found


def _made(kind: type[Exception]) -> Exception:
    if kind is requests.exceptions.JSONDecodeError:
        return requests.exceptions.JSONDecodeError("boom", "document", 0)
    return kind("boom")


@pytest.mark.parametrize("module", [google.auth.exceptions, requests.exceptions])
def test_every_exception_of_a_library_is_translated(module: ModuleType) -> None:
    """Each class has a ProviderError of its own, which names the operation and the object."""
    for kind in _exceptions_of(module):
        error = _translated(_made(kind))
        assert type(error) is EXPECTED[kind], kind
        assert (error.operation, error.uri) == ("get", "gs://bucket/a")
        assert "boom" in str(error)


def test_every_failure_of_a_body_is_translated() -> None:
    """While a body is read, urllib3's exceptions come unwrapped; each may be tried again."""
    for kind in _exceptions_of(urllib3.exceptions):
        if issubclass(kind, urllib3.exceptions.HTTPError):
            error = kind.__new__(kind, "boom")
            vars(error).update(partial=1, expected=2, length=3)
            timed_out = issubclass(kind, urllib3.exceptions.TimeoutError)
            expected = TimedOutError if timed_out else UnavailableError
            assert GCS._translate(error, "get", "a").__class__ is expected, kind


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (auth.RefreshError("boom", retryable=True), UnavailableError),
        (auth.OAuthError("boom", retryable=True), UnavailableError),
        (OSError("no such CA bundle"), SettingsError),
        (ConnectionResetError("boom"), UnavailableError),
        (TimeoutError("boom"), TimedOutError),
    ],
)
def test_exceptions_with_more_to_them(error: Exception, expected: type[ProviderError]) -> None:
    """What google-auth calls retryable is retried; files that cannot be read are not."""
    assert type(_translated(error)) is expected


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (requests.exceptions.SSLError("boom"), SettingsError),
        (requests.exceptions.ConnectionError("boom"), UnavailableError),
    ],
)
def test_a_token_that_could_not_be_fetched(cause: Exception, expected: type[ProviderError]) -> None:
    """It is told by its cause: a lost connection passes, bad TLS does not."""
    refused = auth.RefreshError("no token")
    refused.__cause__ = auth.TransportError(cause)
    refused.__cause__.__cause__ = cause
    assert type(_translated(refused)) is expected


def test_mistakes_of_our_own_are_not_dressed_up() -> None:
    """An exception of no library passes as it is."""
    assert GCS._translate(TypeError("a bug"), "get", "a") is None


def _json(status: int, reason: str) -> bytes:
    detail = {"message": "As told.", "domain": "global", "reason": reason}
    return json.dumps(
        {"error": {"code": status, "message": "As told.", "errors": [detail]}}
    ).encode()


def _xml(code: str) -> bytes:
    text = f"<Code>{code}</Code><Message>As told.</Message>"
    return f"<?xml version='1.0'?><Error>{text}</Error>".encode()


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, _json(400, "invalid"), "ServiceError", "invalid"),
        (401, _json(401, "authError"), "AccessDeniedError", "authError"),
        (403, _json(403, "forbidden"), "AccessDeniedError", "forbidden"),
        (403, _json(403, "rateLimitExceeded"), "ThrottledError", "rateLimitExceeded"),
        (403, _json(403, "userRateLimitExceeded"), "ThrottledError", "userRateLimitExceeded"),
        (404, _json(404, "notFound"), "NotFoundError", "notFound"),
        (408, _json(408, "uploadBrokenConnection"), "TimedOutError", "uploadBrokenConnection"),
        (412, _json(412, "conditionNotMet"), "PreconditionError", "conditionNotMet"),
        (429, _json(429, "rateLimitExceeded"), "ThrottledError", "rateLimitExceeded"),
        (500, _json(500, "backendError"), "UnavailableError", "backendError"),
        (503, _json(503, "backendError"), "UnavailableError", "backendError"),
        (400, _xml("BadDigest"), "UnavailableError", "BadDigest"),
        (400, _xml("EntityTooSmall"), "ServiceError", "EntityTooSmall"),
        (403, _xml("AccessDenied"), "AccessDeniedError", "AccessDenied"),
        (404, _xml("NoSuchKey"), "NotFoundError", "NoSuchKey"),
        (404, _xml("NoSuchBucket"), "NotFoundError", "NoSuchBucket"),
        (412, _xml("PreconditionFailed"), "PreconditionError", "PreconditionFailed"),
        (416, _xml("InvalidRange"), "RangeError", "InvalidRange"),
        (503, _xml("SlowDown"), "ThrottledError", "SlowDown"),
        (503, _xml("ServiceUnavailable"), "UnavailableError", "ServiceUnavailable"),
        (400, b'{"error": "invalid_grant"}', "ServiceError", None),
        (404, b"", "NotFoundError", None),
        (502, b"<html>proxy</html>", "UnavailableError", None),
        (302, b"", "ServiceError", None),
    ],
)
def test_an_answer_is_explained(status: int, body: bytes, kind: str, code: str | None) -> None:
    """Code first, status second; the key comes from the URL, percent signs and all."""
    request = HttpRequest("GET", "http://127.0.0.1:1/bucket/a%2F..%2F100%2525?x=y")
    headers = {"X-GUploader-UploadID": "request-7", "retry-after": "3"}
    error = GCS.explain(request, status, headers, body)
    assert type(error) is getattr(errors, kind)
    assert (error.status, error.code, error.request_id) == (status, code, "request-7")
    assert error.retry_after_seconds == 3
    assert error.uri == "gs://bucket/a/../100%25"
    assert (code is None) == ("As told." not in str(error))


def test_headers_are_described() -> None:
    """Size, hash, generation and the rest come off the headers, however they are spelled."""
    info = GCS.describe(
        "a",
        {
            "Content-Length": "7",
            "X-Goog-Stored-Content-Length": "12",
            "ETag": '"abc"',
            "x-goog-generation": "1700000000000001",
            "x-goog-hash": "md5=XrY7u+Ae7tCTyyK7j1rNww==, crc32c=yZRlqg==",
            "x-goog-storage-class": "NEARLINE",
            "Last-Modified": "Mon, 30 Nov 2026 10:00:00 GMT",
            "x-goog-meta-Colour": "blue",
            "x-goog-meta-connector-write-id": "0123",
        },
    )
    assert (info.key, info.size, info.etag) == ("a", 12, "abc")
    assert (info.version, info.checksum) == ("1700000000000001", "crc32c:yZRlqg==")
    assert (info.storage_class, info.write_id) == ("NEARLINE", "0123")
    assert info.modified == datetime(2026, 11, 30, 10, tzinfo=timezone.utc)
    assert info.metadata == {"colour": "blue"}


@pytest.mark.parametrize(
    ("headers", "size"),
    [
        ({"Content-Range": "bytes 10-19/4321", "Content-Length": "10"}, 4321),
        ({"Content-Length": "10"}, 10),
    ],
)
def test_the_size_is_the_objects(headers: dict[str, str], size: int) -> None:
    """A range's answer tells the object's size, not its own."""
    assert GCS.describe("a", headers).size == size


def test_a_size_that_is_not_told_is_no_zero() -> None:
    """Headers without any length raise."""
    with pytest.raises(ServiceError, match="size"):
        GCS.describe("a", {})


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2026-11-30T10:00:00Z", 0),
        ("2026-11-30T10:00:00.1Z", 100_000),
        ("2026-11-30T10:00:00.123456789Z", 123_456),
        ("2026-11-30T12:00:00.123+02:00", 123_000),
    ],
)
def test_times_of_listings(text: str, microsecond: int) -> None:
    """Any number of decimals and any offset is read, and comes out as UTC."""
    info = resource_info({"name": "a", "generation": "1", "updated": text})
    assert info.modified == datetime(2026, 11, 30, 10, 0, 0, microsecond, timezone.utc)
    assert info.modified.utcoffset() == timedelta(0)
