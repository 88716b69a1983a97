"""What S3 answers: errors, descriptions, and the range that an answer holds."""

from __future__ import annotations

import re
from datetime import timezone
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from providers.answers import (
    error_type,
    http_date,
    redirection,
    retry_after_seconds,
    user_metadata,
)
from providers.errors import ServiceError
from providers.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.errors import ProviderError
    from providers.values import ByteRange

__all__ = ["EXPIRED", "MISPLACED", "describe", "error_of_answer", "expected_bytes", "listed",
           "unquoted"]  # fmt: skip

EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken",
                     "TokenRefreshRequired"})  # fmt: skip
"""Codes of credentials that were good once; all come with status 400. Source:
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, read 2026-11-30."""

MISPLACED = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
                       "PermanentRedirect", "TemporaryRedirect"})  # fmt: skip
"""Codes of a request that went to, or was signed for, another region than the bucket's.
Source: the same page."""

_EXPIRY = "the credentials have expired and no fresh ones were found"
_MEANING: Mapping[str, str] = MappingProxyType(
    {
        "AccessDenied": "the credentials lack the permission; for an object that is not there "
        "it is said too, where s3:ListBucket is not granted",
        "InvalidAccessKeyId": "check access_key_id",
        "RequestTimeTooSkewed": "set this machine's clock",
        "SignatureDoesNotMatch": "check secret_access_key and region",
        "NoSuchBucket": "check the bucket's name and the endpoint",
        **dict.fromkeys(EXPIRED, _EXPIRY),
    }
)
"""What to do about a code."""

_BARE: Mapping[int, str] = MappingProxyType(
    {
        400: "expired credentials or a wrong region look like this",
        403: _MEANING["AccessDenied"],
        404: "there is no such object, or no such bucket",
    }
)
"""What a status means where a HEAD leaves no room for a code."""

_METADATA_PREFIX = "x-amz-meta-"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_CHECKSUMS = ("crc64nvme", "crc32c", "crc32", "sha256", "sha1")


def error_of_answer(
    uri: str, operation: str, status: int, headers: Mapping[str, str], fields: Mapping[str, str]
) -> ProviderError:
    """Return the error that an answer stands for: code first, status second.

    Args:
        uri: what the request was about.
        operation: the verb.
        status: of the answer.
        headers: of the answer.
        fields: of its error document, ``Code`` and ``Message`` among them; may be empty.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    found = fields.get("Code", "")
    # Where there is no document, botocore gives the status for a code.
    code = None if found.isdigit() or not found else found
    words = [fields.get("Message") or _phrase(status)]
    bare = _BARE.get(status, "") if operation == "head" else ""
    words.append(_MEANING.get(code, "") if code else bare)
    if code == "InvalidObjectState":
        words.append(f"it lies in {fields.get('StorageClass', 'an archive class')}; restore it")
    region = lower.get("x-amz-bucket-region") or fields.get("Region")
    if region and (code in MISPLACED or code is None):
        words.append(f"the bucket is in {region} (option region)")
    words.append(redirection(status, lower))
    return error_type(status, code)(
        "; ".join(word.rstrip(".") for word in words if word),
        uri=uri,
        operation=operation,
        status=status,
        code=code,
        request_id=lower.get("x-amz-request-id") or fields.get("RequestId"),
        retry_after_seconds=retry_after_seconds(lower),
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an error"


def describe(key: str, headers: Mapping[str, str]) -> ObjectInfo:
    """Read an object's description off the headers of a GET or HEAD, of a range too."""
    lower = {name.lower(): value for name, value in headers.items()}
    span = _CONTENT_RANGE.fullmatch(lower.get("content-range", ""))
    user, write_id = user_metadata(
        {n[len(_METADATA_PREFIX) :]: v for n, v in lower.items() if n.startswith(_METADATA_PREFIX)}
    )
    return ObjectInfo(
        key,
        size=int(span[3] if span else lower.get("content-length", "0")),
        etag=unquoted(lower.get("etag")),
        version=lower.get("x-amz-version-id"),
        checksum=_checksum(lower),
        # Told of every class but this one. Source:
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html, read 2026-11-30.
        storage_class=lower.get("x-amz-storage-class", "STANDARD"),
        modified=http_date(lower.get("last-modified")),
        metadata=user,
        write_id=write_id,
    )


def listed(found: Mapping[str, Any]) -> ObjectInfo:
    """Read an object's description off an entry of a listing, as botocore gives it."""
    return ObjectInfo(
        found["Key"],
        size=found["Size"],
        etag=unquoted(found.get("ETag")),
        storage_class=found.get("StorageClass"),
        modified=found["LastModified"].astimezone(timezone.utc),
    )


def _checksum(headers: Mapping[str, str]) -> str | None:
    """Return the checksum of the whole object, which that of its parts' checksums is not."""
    for name in _CHECKSUMS:
        value = headers.get(f"x-amz-checksum-{name}")
        if value and "-" not in value and headers.get("x-amz-checksum-type") != "COMPOSITE":
            return f"{name}:{value}"
    return None


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without its quotes."""
    return etag.strip('"') if etag else None


def expected_bytes(
    uri: str, headers: Mapping[str, str], byte_range: ByteRange | None
) -> int | None:
    """Return how long the body must be; None if only its framing tells.

    Some stores answer a range with status 200, so it is ``Content-Range`` that counts.

    Raises:
        ServiceError: the answer is not to the range that was asked for.
    """
    length = headers.get("content-length")
    if byte_range is None:
        return int(length) if length else None
    answered = headers.get("content-range", "")
    span = _CONTENT_RANGE.fullmatch(answered)
    if span:
        first, stop, size = int(span[1]), int(span[2]) + 1, int(span[3])
        if (first, stop) == (byte_range.start, first + byte_range.length_in(size)):
            return stop - first
    raise ServiceError(
        f"the range {byte_range.header} was asked for, {answered or 'the whole object'!r} came; "
        "something on the way drops or changes the Range header",
        uri=uri,
        operation="get",
    )
