"""Every error this package raises, in one tree.

ProviderError
├── NotFoundError        (FileNotFoundError)    no such object, bucket or upload
├── AccessDeniedError    (PermissionError)      the service refuses these credentials
├── PreconditionError                           the object is not, or no longer, as required
├── RangeError           (ValueError)           the range starts at or past the end
├── UnsupportedError     (NotImplementedError)  this store cannot do it
├── ArchivedError                               restore the object first
├── UnavailableError     (ConnectionError)      5xx, reset, refused            retryable
├── ThrottledError                              429, SlowDown and their like   retryable
├── TimedOutError        (TimeoutError)         no answer in time              retryable
├── LimitError           (ValueError)           refused before sending, from the limits
├── IntegrityError                              checksum, length or version differs
├── SettingsError        (ValueError)           an option, URI or extra is wrong or missing
└── ServiceError                                anything else the service answered

The message alone carries operation, URI, status, code and request id: an error crosses
process borders as ``Type(message)``, so match on the type, never on the extras.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AccessDeniedError",
    "ArchivedError",
    "IntegrityError",
    "LimitError",
    "NotFoundError",
    "PreconditionError",
    "ProviderError",
    "RangeError",
    "ServiceError",
    "SettingsError",
    "ThrottledError",
    "TimedOutError",
    "UnavailableError",
    "UnsupportedError",
]


class ProviderError(Exception):
    """Something went wrong between this process and an object store.

    Args:
        message: what happened and what to do about it.
        uri: the object, prefix or bucket it happened to.
        operation: the verb, ``get`` say.
        status: HTTP status of the service's answer.
        code: the service's own error code, ``NoSuchKey`` say.
        request_id: the service's name for the request, for its support.
        retry_after_seconds: how long the service asked to wait.
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        uri: str | None = None,
        operation: str | None = None,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.uri = uri
        self.operation = operation
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds
        super().__init__(_sentence(message, uri, operation, status, code, request_id))


def _sentence(
    message: str,
    uri: str | None,
    operation: str | None,
    status: int | None,
    code: str | None,
    request_id: str | None,
) -> str:
    """Return ``operation uri: message (status, code, request id)`` on one line."""
    where = " ".join(word for word in (operation, uri) if word)
    answer = ", ".join(
        f"{name} {value}"
        for name, value in (("status", status), ("code", code), ("request id", request_id))
        if value not in (None, "")
    )
    text = " ".join(message.split())
    if where:
        text = f"{where}: {text}"
    return f"{text} ({answer})" if answer else text


class NotFoundError(ProviderError, FileNotFoundError):
    """There is no such object, bucket or upload."""


class AccessDeniedError(ProviderError, PermissionError):
    """The service refuses these credentials, or wants some."""


class PreconditionError(ProviderError):
    """The object is not, or no longer, in the state the request required."""


class RangeError(ProviderError, ValueError):
    """The range starts at or past the end of the object."""


class UnsupportedError(ProviderError, NotImplementedError):
    """This store, or this endpoint, cannot do what was asked."""


class ArchivedError(ProviderError):
    """The object lies in an archive class and must be restored before it can be read."""


class UnavailableError(ProviderError, ConnectionError):
    """The service failed or could not be reached; trying again may help."""

    retryable = True


class ThrottledError(ProviderError):
    """The service asks for fewer requests."""

    retryable = True


class TimedOutError(ProviderError, TimeoutError):
    """No answer came in time."""

    retryable = True


class LimitError(ProviderError, ValueError):
    """Refused before anything was sent, because the service's limits forbid it."""


class IntegrityError(ProviderError):
    """What arrived is not what is stored: checksum, length or version differs."""


class SettingsError(ProviderError, ValueError):
    """An option, a URI or an optional package is wrong or missing."""


class ServiceError(ProviderError):
    """An answer of the service that fits no other class."""
