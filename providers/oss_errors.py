"""What the exceptions of oss2, and of requests and urllib3 beneath it, mean."""

from __future__ import annotations

import ssl
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from providers.errors import (
    IntegrityError,
    ServiceError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.oss_answers import error_of_answer, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from providers.errors import ProviderError
    from providers.oss_answers import Subject

__all__ = ["fields_of_sdk", "translate"]


def translate(error: BaseException, subject: Subject, endpoint: str) -> ProviderError | None:
    """Return what an exception of the client means; None if it is none of the client's."""
    import oss2.exceptions as sdk
    import requests
    import urllib3

    if isinstance(error, sdk.RequestError):
        return _of_transport(error.exception, subject, endpoint)
    if isinstance(error, sdk.OssError):
        return _of_sdk(error, subject, sdk)
    if isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError | OSError):
        return _of_transport(error, subject, endpoint)
    if isinstance(error, ET.ParseError | RuntimeError | ValueError):
        # What the client raises for a document that lacks what it looks for.
        return subject.error(ServiceError, f"the answer is not one of OSS's: {error}")
    return None


def fields_of_sdk(error: BaseException) -> Mapping[str, str]:
    """Return the fields of the error document that an exception of the client carries, if any."""
    headers, body = getattr(error, "headers", None) or {}, _text(getattr(error, "body", ""))
    return fields_of(headers, body.encode())


def _of_sdk(error: Any, subject: Subject, sdk: Any) -> ProviderError:
    if isinstance(error, sdk.InconsistentError):
        return subject.error(IntegrityError, _text(error.body))
    if isinstance(error, sdk.ClientError):
        return subject.error(SettingsError, _text(error.body))
    if error.status is None or error.status <= 0:
        return subject.error(ServiceError, str(error))
    body, headers = _text(getattr(error, "body", "")), getattr(error, "headers", {})
    if not body and "x-oss-err" not in headers:
        body = f"<Error><Code>{escape(error.code)}</Code></Error>"
    return error_of_answer(subject, error.status, headers, body.encode())


def _text(body: Any) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)


def _of_transport(error: BaseException, subject: Subject, endpoint: str) -> ProviderError:
    causes = list(_causes(error))
    # The client was told to follow no redirect, and keeps the one that it met.
    for answer in (getattr(cause, "response", None) for cause in causes):
        if answer is not None and answer.is_redirect:
            return error_of_answer(subject, answer.status_code, answer.headers, answer.content)
    kind, what = _meaning(causes)
    root = next((str(cause) for cause in reversed(causes) if str(cause)), "")
    return subject.error(kind, f"{what} ({endpoint}): {root or type(causes[-1]).__name__}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those it wraps, the outermost first; each client nests its own way."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        wrapped = [*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__]
        waiting += [inner for inner in wrapped if isinstance(inner, BaseException)]


def _meaning(causes: list[BaseException]) -> tuple[type[ProviderError], str]:
    """Return the class of a failure below HTTP's own statuses, and its name."""
    import requests.exceptions as above
    import urllib3.exceptions as below

    broken = (
        above.ConnectionError,
        above.ChunkedEncodingError,
        above.RetryError,
        below.ProtocolError,
        below.ProxyError,
        below.PoolError,
        below.IncompleteRead,
        below.InvalidChunkLength,
        ConnectionError,
    )
    # The first line that fits counts. A refused connection is a NewConnectionError, which
    # urllib3 derives from its timeout; a lost one during a handshake is an SSLError too.
    meanings: tuple[tuple[tuple[type[BaseException], ...], type[ProviderError], str], ...] = (
        ((ssl.SSLCertVerificationError,), SettingsError,
         "the certificate is not trusted; REQUESTS_CA_BUNDLE names other authorities"),
        ((ssl.SSLEOFError, ssl.SSLZeroReturnError), UnavailableError, "the connection broke"),
        ((above.SSLError, below.SSLError, ssl.SSLError), SettingsError, "TLS failed"),
        ((below.NewConnectionError,), UnavailableError, "the endpoint cannot be reached"),
        ((above.Timeout, below.TimeoutError, TimeoutError), TimedOutError, "no answer in time"),
        (broken, UnavailableError, "the connection broke"),
        ((above.TooManyRedirects,), SettingsError, "the endpoint redirects elsewhere"),
        ((above.RequestException, below.HTTPError), ServiceError, "the request failed"),
        ((OSError,), SettingsError, "the request could not be prepared"),
    )  # fmt: skip
    unsendable = (
        above.InvalidURL, above.MissingSchema, above.InvalidSchema, above.InvalidHeader,
        above.URLRequired, below.LocationValueError,
    )  # fmt: skip
    if isinstance(causes[0], unsendable):
        return SettingsError, "the request cannot be sent"
    for types, kind, what in meanings:
        if any(isinstance(cause, types) for cause in causes):
            return kind, what
    return ServiceError, "the request failed"
