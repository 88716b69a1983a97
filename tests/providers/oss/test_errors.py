"""What answers and exceptions mean, class by class, whoever raised them."""

from __future__ import annotations

import base64
import inspect
import pickle
import ssl
from typing import Any

import oss2.exceptions as sdk
import pytest
import requests.exceptions as above
import urllib3.exceptions as below

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
from providers.oss_answers import describe
from providers.values import HttpRequest
from tests.providers.oss.stores import BUCKET, opened

_PROVIDER = opened("http://127.0.0.1:9")

_OF_STATUS: dict[int, type[ProviderError]] = {
    304: ServiceError,
    400: ServiceError,
    403: AccessDeniedError,
    404: NotFoundError,
    409: PreconditionError,
    412: PreconditionError,
}
_NEED_OTHER_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "ClientError": ("text",),
    "InconsistentError": ("text", "ID"),
    "OpenApiFormatError": ("text",),
    "OpenApiServerError": (503, "ID", "text", "ServiceUnavailable"),
    "RequestError": (above.ConnectionError("text"),),
    "SelectOperationClientError": ("text", "ID"),
    "OssError": (400, {}, b"", {"Code": "SomeCode"}),
    "SelectOperationFailed": (400, "SelectOperationFailed", "text"),
    "JSONDecodeError": ("text", "{", 0),
}


def exceptions_of(module: Any) -> list[type[Exception]]:
    """Return the exception classes a module defines, without its warnings."""
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception)
        and not issubclass(kind, Warning)
        and kind.__module__ == module.__name__
    ]


def instance(kind: type[Exception]) -> Exception:
    """Make an exception as its library would."""
    arguments = _NEED_OTHER_ARGUMENTS.get(kind.__name__, ("text",))
    if issubclass(kind, sdk.ServerError) and kind is not sdk.SelectOperationFailed:
        status = getattr(kind, "status", 400)
        code = getattr(kind, "code", "") or "SomeCode"
        body = f"<Error><Code>{code}</Code><Message>text</Message></Error>"
        arguments = (status, {"x-oss-next-append-position": "0"}, body.encode(), {"Code": code})
    return kind(*arguments)


def translated(error: Exception) -> ProviderError:
    """Return what the provider makes of an exception, once its form is checked."""
    found = _PROVIDER._translate(error, "get", "key")
    assert isinstance(found, ProviderError), error
    assert str(found).startswith(f"get oss://{BUCKET}/key: ")
    assert "\n" not in str(found)
    assert "None" not in str(found)
    return found


@pytest.mark.parametrize("kind", exceptions_of(sdk), ids=lambda kind: kind.__name__)
def test_exception_of_oss2_is_translated(kind: type[Exception]) -> None:
    """Every class of oss2's becomes one of ours, by code and status."""
    found = translated(instance(kind))
    expected: dict[str, type[ProviderError]] = {
        "ClientError": SettingsError,
        "InconsistentError": IntegrityError,
        "NotImplemented": UnsupportedError,
        "OpenApiServerError": UnavailableError,
        "RequestError": UnavailableError,
    }
    if issubclass(kind, sdk.ServerError):
        assert found.status == getattr(kind, "status", 400)
        assert found.code == (getattr(kind, "code", "") or "SomeCode")
        assert type(found) is expected.get(kind.__name__, _OF_STATUS[found.status or 0])
    else:
        assert type(found) is expected.get(kind.__name__, ServiceError)


@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped", "leaked"])
@pytest.mark.parametrize("kind", exceptions_of(above), ids=lambda kind: kind.__name__)
def test_exception_of_requests_is_translated(kind: type[Exception], wrapped: bool) -> None:
    """Every class of requests' becomes one of ours, whether oss2 caught it or not."""
    error = instance(kind)
    expected: dict[str, type[ProviderError]] = {
        "ConnectionError": UnavailableError,
        "ProxyError": UnavailableError,
        "ChunkedEncodingError": UnavailableError,
        "RetryError": UnavailableError,
        "ConnectTimeout": TimedOutError,
        "ReadTimeout": TimedOutError,
        "Timeout": TimedOutError,
        "SSLError": SettingsError,
        "InvalidURL": SettingsError,
        "InvalidProxyURL": SettingsError,
        "InvalidSchema": SettingsError,
        "MissingSchema": SettingsError,
        "InvalidHeader": SettingsError,
        "URLRequired": SettingsError,
        "TooManyRedirects": SettingsError,
    }
    found = translated(sdk.RequestError(error) if wrapped else error)
    assert type(found) is expected.get(kind.__name__, ServiceError)


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
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_cause_inside_decides(cause: Exception, expected: type[ProviderError]) -> None:
    """What lies innermost decides, in each nesting the clients use."""
    pooled = below.MaxRetryError(_POOL, "/", cause)
    for error in (cause, above.ConnectionError(cause), above.ConnectionError(pooled)):
        assert type(translated(error)) is expected
        assert type(translated(sdk.RequestError(error))) is expected


def test_rest_is_translated_too() -> None:
    """What stops a request before it is sent, and what makes an answer unreadable, is told."""
    assert type(translated(OSError("no CA bundle at /nowhere"))) is SettingsError
    assert type(translated(below.DecodeError("not gzip"))) is ServiceError
    assert type(translated(RuntimeError("parse xml: Key could not be found"))) is ServiceError


def test_foreign_exception_is_left_alone() -> None:
    """What no client raised is nobody's answer."""
    assert _PROVIDER._translate(KeyError("ours"), "get", "key") is None


def told(status: int, headers: dict[str, str], body: bytes = b"") -> ProviderError:
    """Return what the data plane is told of an answer."""
    request = HttpRequest("GET", f"http://127.0.0.1:9/{BUCKET}/a%2Fb%20c?x-oss-process=1")
    return _PROVIDER.explain(request, status, headers, body)


_CODES: list[tuple[int, str, type[ProviderError]]] = [
    (404, "NoSuchKey", NotFoundError),
    (404, "NoSuchUpload", NotFoundError),
    (403, "InvalidAccessKeyId", AccessDeniedError),
    (403, "InvalidObjectState", ArchivedError),
    (409, "FileAlreadyExists", PreconditionError),
    (412, "PreconditionFailed", PreconditionError),
    (416, "InvalidRange", RangeError),
    (400, "RequestTimeout", TimedOutError),
    (400, "BadDigest", UnavailableError),
    (400, "EntityTooSmall", ServiceError),
    (503, "QpsLimitExceeded", ThrottledError),
    (503, "DownloadTrafficRateLimitExceeded", ThrottledError),
    (503, "ServiceUnavailable", UnavailableError),
    (500, "InternalError", UnavailableError),
    (502, "", UnavailableError),
    (599, "", UnavailableError),
]


@pytest.mark.parametrize(("status", "code", "expected"), _CODES)
def test_answer_is_explained(status: int, code: str, expected: type[ProviderError]) -> None:
    """Code first, status second, from a body or from the header that a HEAD's answer has."""
    document = (
        f"<Error><Code>{code}</Code><Message>Some\n text.</Message><RequestId>ID</RequestId>"
        "<EC>0001-00000001</EC></Error>"
    ).encode()
    hidden = {"X-Oss-Err": base64.b64encode(document).decode(), "x-oss-ec": "0001-00000001"}
    for error in (told(status, {}, document), told(status, hidden)):
        assert type(error) is expected
        assert (error.status, error.code, error.request_id) == (status, code, "ID")
        assert str(error).startswith(f"get oss://{BUCKET}/a/b c: Some text; ")
        assert "EC 0001-00000001" in str(error)
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301 our own bytes
        assert (type(copied), str(copied)) == (expected, str(error))


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"\xff\xfe"])
def test_answer_of_another_server_is_explained(body: bytes) -> None:
    """Without an error document the status decides, and damaged headers do no harm."""
    error = told(503, {"Retry-After": "7", "x-oss-err": "%%%"}, body)
    assert type(error) is UnavailableError
    assert error.retry_after_seconds == 7.0
    assert "Service Unavailable" in str(error)


def test_answer_cut_short_is_explained() -> None:
    """Fields that arrived count, even where the document does not end."""
    error = told(403, {}, b"<Error><Code>InvalidObjectState</Code><Message>Cold</Message><Key>a")
    assert type(error) is ArchivedError


def test_answer_without_a_request_names_the_bucket() -> None:
    """The data plane may ask without a request."""
    error = _PROVIDER.explain(None, 503, {}, b"")
    assert str(error).startswith(f"get oss://{BUCKET}/: ")


@pytest.mark.parametrize(
    ("endpoint", "cname", "url"),
    [
        ("https://oss-cn-x.aliyuncs.com", False, f"https://{BUCKET}.oss-cn-x.aliyuncs.com/a%2Fb"),
        ("https://data.example.com", True, "https://data.example.com/a%2Fb"),
    ],
)
def test_key_is_read_off_each_form_of_url(endpoint: str, cname: bool, url: str) -> None:
    """The error names the key whichever way the bucket is addressed."""
    provider = opened(endpoint, cname=cname)
    error = provider.explain(HttpRequest("GET", url), 404, {}, b"")
    assert error.uri == f"oss://{BUCKET}/a/b"


def test_description_of_a_range_tells_the_whole_size() -> None:
    """Size is the object's, in any case of the header names; marks of ours stay inside."""
    info = describe(
        "key",
        {
            "content-range": "bytes 2-3/10",
            "Content-Length": "2",
            "ETAG": '"0A"',
            "x-oss-hash-crc64ecma": "77",
            "X-Oss-Meta-Colour": "blue",
            "x-oss-meta-connector-write-id": "mark",
            "x-oss-storage-class": "IA",
            "x-oss-version-id": "v",
            "Last-Modified": "Mon, 30 Nov 2026 10:00:00 GMT",
        },
    )
    assert (info.size, info.etag, info.checksum) == (10, "0A", "crc64ecma:77")
    assert (info.metadata, info.write_id) == ({"colour": "blue"}, "mark")
    assert (info.storage_class, info.version) == ("IA", "v")
    assert info.modified is not None
    assert info.modified.isoformat() == "2026-11-30T10:00:00+00:00"
