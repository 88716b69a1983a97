"""What a service's error answer means: code first, status second, message text never."""

from __future__ import annotations

import email.utils
import time
import xml.etree.ElementTree as ET
from types import MappingProxyType
from typing import TYPE_CHECKING

from providers.base import WRITE_ID
from providers.errors import (
    AccessDeniedError,
    ArchivedError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    RangeError,
    ServiceError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

__all__ = [
    "ERROR_CODES",
    "SKEWED",
    "error_type",
    "http_date",
    "parse_error_xml",
    "redirection",
    "retry_after_seconds",
    "user_metadata",
]

ERROR_CODES: Mapping[str, type[ProviderError]] = MappingProxyType(
    {
        "NoSuchKey": NotFoundError,
        "NoSuchBucket": NotFoundError,
        "NoSuchUpload": NotFoundError,
        "AccessDenied": AccessDeniedError,
        "InvalidAccessKeyId": AccessDeniedError,
        "SignatureDoesNotMatch": AccessDeniedError,
        "RequestTimeTooSkewed": AccessDeniedError,
        "ExpiredToken": AccessDeniedError,
        "InvalidToken": AccessDeniedError,
        "TokenRefreshRequired": AccessDeniedError,
        "SecurityTokenExpired": AccessDeniedError,
        "InvalidSecurityToken": AccessDeniedError,
        "PreconditionFailed": PreconditionError,
        "FileAlreadyExists": PreconditionError,
        "InvalidRange": RangeError,
        "InvalidObjectState": ArchivedError,
        "SlowDown": ThrottledError,
        "SlowDownRead": ThrottledError,
        "SlowDownWrite": ThrottledError,
        "TooManyRequests": ThrottledError,
        "Throttling": ThrottledError,
        "ThrottlingException": ThrottledError,
        "RequestLimitExceeded": ThrottledError,
        "BandwidthLimitExceeded": ThrottledError,
        "QpsLimitExceeded": ThrottledError,
        "TotalQpsLimitExceeded": ThrottledError,
        "DownloadTrafficRateLimitExceeded": ThrottledError,
        "UploadTrafficRateLimitExceeded": ThrottledError,
        "InternalError": UnavailableError,
        "ServiceUnavailable": UnavailableError,
        "IncompleteBody": UnavailableError,
        "BadDigest": UnavailableError,
        "XAmzContentSHA256Mismatch": UnavailableError,
        "OperationAborted": UnavailableError,
        "ConditionalRequestConflict": UnavailableError,
        "RequestTimeout": TimedOutError,
        "NotImplemented": UnsupportedError,
    }
)
"""Codes of S3, OSS and the GCS XML API. Sources: the error lists of the services' references
(docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html,
help.aliyun.com/zh/oss/support/http-status-code-overview), read 2026-11-30."""

SKEWED = "RequestTimeTooSkewed"
"""Code of a signature that was made by a clock too far off; S3 and OSS share it."""

_STATUSES: Mapping[int, type[ProviderError]] = MappingProxyType(
    {
        401: AccessDeniedError,
        403: AccessDeniedError,
        404: NotFoundError,
        408: TimedOutError,
        409: PreconditionError,
        412: PreconditionError,
        416: RangeError,
        429: ThrottledError,
        501: UnsupportedError,
    }
)


def error_type(status: int, code: str | None) -> type[ProviderError]:
    """Return the class of an error answer; an unknown code falls back on the status."""
    if code and code in ERROR_CODES:
        return ERROR_CODES[code]
    if status in _STATUSES:
        return _STATUSES[status]
    return UnavailableError if status >= 500 else ServiceError  # noqa: PLR2004 HTTP's own line


def redirection(status: int, headers: Mapping[str, str]) -> str:
    """Say where an answer leads, since nobody follows it; empty if nowhere.

    Args:
        status: of the answer.
        headers: by lower-case names.
    """
    if status // 100 != 3 or "location" not in headers:  # noqa: PLR2004 HTTP's own
        return ""
    return f"it leads to {headers['location']}; is that the endpoint to use?"


def parse_error_xml(body: bytes) -> dict[str, str]:
    """Return the fields of an ``<Error>`` document; empty when it is none."""
    try:
        root = ET.fromstring(body)  # noqa: S314 expat refuses entity bombs since 2.4.1
    except ET.ParseError:
        return {}
    if _local(root.tag) != "Error":
        return {}
    return {_local(child.tag): (child.text or "").strip() for child in root}


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Read ``Retry-After``, in seconds or as a date; None if absent or unreadable."""
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), "").strip()
    if value.isdigit():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.timestamp() - time.time())


def http_date(value: str | None) -> datetime | None:
    """Read an HTTP date such as that of ``Last-Modified``; None if absent or unreadable."""
    try:
        return email.utils.parsedate_to_datetime(value or "")
    except (TypeError, ValueError):
        return None


def user_metadata(raw: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Split stored metadata into the user's own and this package's write id."""
    metadata = {key.lower(): value for key, value in raw.items()}
    return metadata, metadata.pop(WRITE_ID, None)
