"""What answers and exceptions mean, class by class, whoever raised them."""

from __future__ import annotations

import inspect
import pickle
import ssl
from datetime import datetime, timezone
from typing import Any

import botocore.exceptions as sdk
import pytest
import urllib3.exceptions as below
from botocore.parsers import ResponseParserError

from providers.errors import (
    AccessDeniedError,
    ArchivedError,
    IntegrityError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    RangeError,
    ServiceError,
    SettingsError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
)
from providers.values import HttpRequest
from tests.providers.s3.stores import made

_PROVIDER = made("bucket", endpoint="http://127.0.0.1:9", access_key_id="a", secret_access_key="b")

_CREDENTIALS = {
    "CredentialRetrievalError",
    "LoginAuthorizationCodeError",
    "LoginError",
    "LoginInsufficientPermissions",
    "LoginRefreshRequired",
    "LoginTokenLoadError",
    "MetadataRetrievalError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "RefreshWithMFAUnsupportedError",
    "SSOError",
    "SSOTokenLoadError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}
_TRANSPORT: dict[str, type[ProviderError]] = {
    "ChecksumError": IntegrityError,
    "FlexibleChecksumError": IntegrityError,
    "ConnectTimeoutError": TimedOutError,
    "ReadTimeoutError": TimedOutError,
    "ConnectionClosedError": UnavailableError,
    "ConnectionError": UnavailableError,
    "EndpointConnectionError": UnavailableError,
    "HTTPClientError": UnavailableError,
    "IncompleteReadError": UnavailableError,
    "ProxyConnectionError": UnavailableError,
    "ResponseStreamingError": UnavailableError,
    "ClientError": NotFoundError,
    "EventStreamError": NotFoundError,
}
"""Whatever is in neither is about settings, which botocore refuses before it sends anything."""

_NEED_MORE = {"WaiterError": {"last_response"}}


def classes() -> list[type[Exception]]:
    """Return every exception class of botocore, without its warnings."""
    return [
        kind
        for _, kind in inspect.getmembers(sdk, inspect.isclass)
        if issubclass(kind, Exception)
        and not issubclass(kind, Warning)
        and kind.__module__ == sdk.__name__
    ]


def instance(kind: type[Any]) -> Exception:
    """Make an exception with every field that its message names."""
    if issubclass(kind, sdk.ClientError):
        return answered(404, "NoSuchKey", kind)
    if not hasattr(kind, "fmt"):
        made_of: Exception = kind("text")
        return made_of
    names = {*kind.fmt.replace("}", "{").split("{")[1::2]} | _NEED_MORE.get(kind.__name__, set())
    found: Exception = kind(**dict.fromkeys(names, "text"))
    return found


def answered(status: int, code: str, kind: type[Any] = sdk.ClientError, **fields: str) -> Exception:
    """Make the exception of an answer."""
    document = {"Code": code, "Message": "text", **fields}
    headers = {"x-amz-request-id": "REQUEST-7"}
    told = {"HTTPStatusCode": status, "HTTPHeaders": headers, "RequestId": "REQUEST-7"}
    error: Exception = kind({"Error": document, "ResponseMetadata": told}, "GetObject")
    return error


def translated(error: Exception, operation: str = "get") -> ProviderError:
    """Return what the provider makes of an exception, once its form is checked."""
    found = _PROVIDER._translate(error, operation, "key")
    assert isinstance(found, ProviderError), error
    assert str(found).startswith(f"{operation} s3://bucket/key: ")
    assert "\n" not in str(found)
    assert "None" not in str(found)
    copied = pickle.loads(pickle.dumps(found))  # noqa: S301 our own bytes
    assert (type(copied), str(copied)) == (type(found), str(found))
    return found


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_exception_of_botocore_is_translated(kind: type[Exception]) -> None:
    """Every class of botocore's becomes one of ours, and tells what botocore told."""
    found = translated(instance(kind))
    expected = AccessDeniedError if kind.__name__ in _CREDENTIALS else SettingsError
    assert type(found) is _TRANSPORT.get(kind.__name__, expected)


def test_names_of_exceptions_are_of_this_botocore() -> None:
    """Nothing stands above that botocore no longer has."""
    assert {*_CREDENTIALS, *_TRANSPORT} <= {kind.__name__ for kind in classes()}


_POOL: Any = "pool"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (below.ProtocolError("broken", ConnectionResetError(104, "reset")), UnavailableError),
        (below.ProtocolError("broken", below.IncompleteRead(3, 7)), UnavailableError),
        (below.ReadTimeoutError(_POOL, "/", "slow"), TimedOutError),
        (below.ConnectTimeoutError(_POOL, "slow"), TimedOutError),
        (below.NewConnectionError(_POOL, "refused"), UnavailableError),
        (below.ProxyError("proxy", OSError("403")), UnavailableError),
        (below.SSLError(ssl.SSLEOFError(8, "EOF")), UnavailableError),
        (below.SSLError(ssl.SSLCertVerificationError(1, "self-signed")), SettingsError),
        (below.SSLError(ssl.SSLError(1, "wrong version")), SettingsError),
        (TimeoutError("slow"), TimedOutError),
        (ConnectionResetError(104, "reset"), UnavailableError),
        (FileNotFoundError(2, "no CA bundle at /nowhere"), SettingsError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_cause_inside_decides(cause: Exception, expected: type[ProviderError]) -> None:
    """What lies innermost decides, whether botocore wrapped it or let it through."""
    assert type(translated(cause)) is expected
    assert type(translated(sdk.HTTPClientError(error=cause))) is expected


def test_rest_is_translated_too() -> None:
    """What makes an answer unreadable is told; what no client raised is nobody's answer."""
    assert type(translated(ResponseParserError("no XML"))) is ServiceError
    assert type(translated(ValueError("no date"))) is ServiceError
    assert _PROVIDER._translate(KeyError("ours"), "get", "key") is None


_CODES: list[tuple[int, str, type[ProviderError]]] = [
    (404, "NoSuchKey", NotFoundError),
    (404, "NoSuchBucket", NotFoundError),
    (404, "NoSuchUpload", NotFoundError),
    (403, "AccessDenied", AccessDeniedError),
    (403, "InvalidAccessKeyId", AccessDeniedError),
    (403, "SignatureDoesNotMatch", AccessDeniedError),
    (403, "RequestTimeTooSkewed", AccessDeniedError),
    (400, "ExpiredToken", AccessDeniedError),
    (400, "TokenRefreshRequired", AccessDeniedError),
    (403, "InvalidObjectState", ArchivedError),
    (412, "PreconditionFailed", PreconditionError),
    (409, "ConditionalRequestConflict", UnavailableError),
    (409, "OperationAborted", UnavailableError),
    (416, "InvalidRange", RangeError),
    (400, "RequestTimeout", TimedOutError),
    (400, "BadDigest", UnavailableError),
    (400, "XAmzContentSHA256Mismatch", UnavailableError),
    (400, "IncompleteBody", UnavailableError),
    (400, "EntityTooSmall", ServiceError),
    (301, "PermanentRedirect", ServiceError),
    (503, "SlowDown", ThrottledError),
    (429, "TooManyRequests", ThrottledError),
    (503, "ServiceUnavailable", UnavailableError),
    (500, "InternalError", UnavailableError),
    (501, "NotImplemented", UnsupportedError),
    (502, "", UnavailableError),
    (599, "", UnavailableError),
    (418, "", ServiceError),
]


def told(
    status: int, headers: dict[str, str], body: bytes = b"", method: str = "GET"
) -> ProviderError:
    """Return what the data plane is told of an answer."""
    request = HttpRequest(method, "http://127.0.0.1:9/bucket/a%2Fb%20c?partNumber=1")
    return _PROVIDER.explain(request, status, headers, body)


@pytest.mark.parametrize(("status", "code", "expected"), _CODES)
def test_answer_is_explained(status: int, code: str, expected: type[ProviderError]) -> None:
    """Code first, status second, for both paths alike, with all that the service told."""
    body = f"<Error><Code>{code}</Code><Message>Why.</Message></Error>" if code else "<html>"
    error = told(status, {"X-Amz-Request-Id": "ID", "Retry-After": "3"}, body.encode())
    assert type(error) is expected
    assert (error.status, error.code) == (status, code or None)
    assert (error.request_id, error.retry_after_seconds) == ("ID", 3.0)
    assert str(error).startswith("get s3://bucket/a/b c: ")
    assert ("Why" in str(error)) == bool(code)
    by_sdk = translated(answered(status, code or str(status)))
    assert (type(by_sdk), by_sdk.status, by_sdk.code) == (expected, status, code or None)
    assert by_sdk.request_id == "REQUEST-7"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://bucket.s3.eu-central-1.amazonaws.com/a/b", "a/b"),
        ("https://bucket.s3.amazonaws.com/bucket/b", "bucket/b"),
        ("https://s3.amazonaws.com/bucket//a%3F%25", "/a?%"),
        ("http://127.0.0.1:9/bucket/bucket/b?x=1", "bucket/b"),
    ],
)
def test_key_is_read_off_a_url(url: str, key: str) -> None:
    """An error names the key of its request, in either style of address."""
    error = _PROVIDER.explain(HttpRequest("GET", url), 404, {}, b"")
    assert error.uri == f"s3://bucket/{key}"


def test_archived_object_tells_its_class() -> None:
    """An archived object's error names key and storage class, and what to do."""
    error = translated(answered(403, "InvalidObjectState", StorageClass="DEEP_ARCHIVE"))
    assert type(error) is ArchivedError
    assert "it lies in DEEP_ARCHIVE; restore it" in str(error)
    body = b"<Error><Code>InvalidObjectState</Code><StorageClass>GLACIER</StorageClass></Error>"
    assert "it lies in GLACIER" in str(told(403, {}, body))


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (404, NotFoundError, "there is no such object, or no such bucket"),
        (403, AccessDeniedError, "s3:ListBucket is not granted"),
        (400, ServiceError, "expired credentials or a wrong region"),
    ],
)
def test_head_has_no_document(status: int, kind: type[ProviderError], words: str) -> None:
    """A HEAD leaves only the status, so the message says all that it may mean."""
    for error in (translated(answered(status, str(status)), "head"), told(status, {}, b"", "HEAD")):
        assert type(error) is kind
        assert error.code is None
        assert words in str(error)


def test_clock_that_is_off_is_told() -> None:
    """Nothing but the clock helps, and the message says so."""
    error = translated(answered(403, "RequestTimeTooSkewed"))
    assert "set this machine's clock" in str(error)
    assert not _PROVIDER.recover(error)


def test_region_of_the_bucket_is_told() -> None:
    """A redirect that cannot be followed names the region to set."""
    headers = {"x-amz-bucket-region": "eu-west-1"}
    body = b"<Error><Code>PermanentRedirect</Code></Error>"
    assert "the bucket is in eu-west-1 (option region)" in str(told(301, headers, body))
    assert "the bucket is in eu-west-1 (option region)" in str(told(301, headers))


def test_describe_reads_every_header() -> None:
    """A description holds all that the headers tell, of a part's answer too."""
    info = _PROVIDER.describe(
        "key",
        {
            "Content-Length": "10",
            "Content-Range": "bytes 5-14/1000",
            "ETag": '"abc-2"',
            "x-amz-version-id": "v7",
            "x-amz-checksum-crc32": "AAAAAA==",
            "x-amz-checksum-type": "FULL_OBJECT",
            "x-amz-storage-class": "STANDARD_IA",
            "Last-Modified": "Tue, 01 Dec 2026 01:02:03 GMT",
            "x-amz-meta-colour": "blue",
            "X-Amz-Meta-connector-write-id": "mark",
        },
    )
    assert (info.key, info.size, info.etag, info.version) == ("key", 1000, "abc-2", "v7")
    assert (info.checksum, info.storage_class) == ("crc32:AAAAAA==", "STANDARD_IA")
    assert info.modified == datetime(2026, 12, 1, 1, 2, 3, tzinfo=timezone.utc)
    assert (info.metadata, info.write_id) == ({"colour": "blue"}, "mark")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-amz-checksum-crc32": "AAAAAA==-2"},
        {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-type": "COMPOSITE"},
    ],
)
def test_checksum_of_parts_is_none_of_the_object(headers: dict[str, str]) -> None:
    """A checksum of checksums does not describe the bytes."""
    info = _PROVIDER.describe("key", {"Content-Length": "3", **headers})
    assert info.checksum is None
    assert info.storage_class == "STANDARD"
