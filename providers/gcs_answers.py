"""What Google Cloud Storage says, read once: errors, descriptions, checksums, ranges.

Objects are read, written and deleted by the XML API, whose errors tell a missing object from
a missing bucket and whose headers describe the object; the JSON API lists, composes and copies.
"""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from datetime import datetime, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from providers.answers import error_type, http_date, parse_error_xml, user_metadata
from providers.errors import (
    IntegrityError,
    ProviderError,
    ServiceError,
    ThrottledError,
    UnavailableError,
)
from providers.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LISTED_FIELDS",
    "METADATA_PREFIX",
    "Answer",
    "AnswerError",
    "check_arrived",
    "content_range",
    "described",
    "document",
    "element",
    "explained",
    "resource_info",
    "stored_bytes",
    "time_of",
    "tree_of",
]

METADATA_PREFIX = "x-goog-meta-"

LISTED_FIELDS = (
    "items(name,size,generation,etag,md5Hash,storageClass,updated),prefixes,nextPageToken"
)
"""What ``resource_info`` reads of a listed object; all of it would be eight times as much."""

_REASONS: Mapping[str, type[ProviderError]] = MappingProxyType(
    {"rateLimitExceeded": ThrottledError, "userRateLimitExceeded": ThrottledError}
)
"""Reasons of the JSON API that mean more than their status, which may be 403. Source:
https://cloud.google.com/storage/docs/json_api/v1/status-codes, read 2026-11-30."""

_UNEXPLAINED: Mapping[int, str] = MappingProxyType(
    {
        401: "the credentials are missing, wrong or expired",
        403: "these credentials may not do this",
        404: "there is no such object, or no such bucket",
    }
)

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, read to its end.

    Attributes:
        status: of HTTP.
        headers: by lower-case names, or any spelling of them.
        body: as stored for a read of an object's bytes, else decompressed.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class AnswerError(Exception):
    """An answer that is no success; the provider says which operation and key it was for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


# ---- Errors --------------------------------------------------------------------------------


def explained(status: int, body: bytes) -> tuple[type[ProviderError], str, str | None]:
    """Return class, message and code of an error answer of either API."""
    code, message = _json_error(body)
    if not code and not message:
        fields = parse_error_xml(body)
        code, message = fields.get("Code"), fields.get("Details") or fields.get("Message", "")
    kind = _REASONS.get(code or "") or error_type(status, code)
    if not message:
        # The answer to a HEAD has no body, and proxies have bodies of their own.
        message = _UNEXPLAINED.get(status, "the store gave no reason")
    return kind, message, code


def _json_error(body: bytes) -> tuple[str | None, str]:
    """Read ``{"error": {"message": ..., "errors": [{"reason": ...}]}}``, or nothing."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return None, ""
    if not isinstance(error, dict):
        return None, str(error)
    details = error.get("errors") or [{}]
    return details[0].get("reason"), error.get("message", "")


def document(answer: Answer) -> dict[str, Any]:
    """Return the JSON object of an answer.

    Raises:
        UnavailableError: it is cut off, or none.
    """
    try:
        value = json.loads(answer.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UnavailableError("the answer is no whole JSON document", status=answer.status)
    return value


def tree_of(answer: Answer, root: str) -> ET.Element:
    """Return the document of an XML answer, which must be of this kind.

    Args:
        answer: with a status that says success, which the body may belie.
        root: name of the document's root.

    Raises:
        AnswerError: it is an error document.
        UnavailableError: it is cut off, or none of this kind.
    """
    if parse_error_xml(answer.body):
        raise AnswerError(answer)
    try:
        tree = ET.fromstring(answer.body)  # noqa: S314 expat refuses entity bombs since 2.4.1
    except ET.ParseError:
        tree = ET.Element("")
    if tree.tag.rpartition("}")[2] != root:
        raise UnavailableError(f"the answer is no whole {root} document", status=answer.status)
    return tree


def element(answer: Answer, root: str, name: str = "") -> str:
    """Return the text of an XML answer's element.

    Args:
        answer: as for ``tree_of``.
        root: the same.
        name: of a child of the root; empty: none is asked for.

    Raises:
        AnswerError: as ``tree_of`` does.
        UnavailableError: the same; or there is no such child.
    """
    tree = tree_of(answer, root)
    text = tree.findtext(f"{{*}}{name}", "") if name else ""
    if name and not text:
        raise UnavailableError(f"the {root} document has no {name}", status=answer.status)
    return text


# ---- Descriptions --------------------------------------------------------------------------


def described(key: str, headers: Mapping[str, str], size: int) -> ObjectInfo:
    """Read an object's description off the headers of an XML answer."""
    lower = {name.lower(): value for name, value in headers.items()}
    user, write_id = user_metadata(
        {
            name.removeprefix(METADATA_PREFIX): value
            for name, value in lower.items()
            if name.startswith(METADATA_PREFIX)
        }
    )
    crc32c = checksum(lower)
    return ObjectInfo(
        key,
        size=size,
        etag=lower.get("etag", "").strip('"') or None,
        version=lower.get("x-goog-generation"),
        checksum=f"crc32c:{crc32c}" if crc32c else None,
        storage_class=lower.get("x-goog-storage-class"),
        modified=http_date(lower.get("last-modified")),
        metadata=user,
        write_id=write_id,
    )


def resource_info(resource: Mapping[str, Any]) -> ObjectInfo:
    """Read an object's description off a resource of the JSON API."""
    user, write_id = user_metadata(resource.get("metadata") or {})
    crc32c = resource.get("crc32c")
    return ObjectInfo(
        resource["name"],
        size=int(resource.get("size", 0)),
        etag=_xml_etag(resource),
        version=str(resource["generation"]),
        checksum=f"crc32c:{crc32c}" if crc32c else None,
        storage_class=resource.get("storageClass"),
        modified=time_of(resource.get("updated", "")),
        metadata=user,
        write_id=write_id,
    )


def _xml_etag(resource: Mapping[str, Any]) -> str | None:
    """Return the ETag that the XML API gives this version; the JSON API's is another.

    It is the MD5 where there is one, else the other etag behind a dash. Nothing is pinned by
    it: what matters is that one version has one etag, however it was looked up.
    """
    if md5 := resource.get("md5Hash"):
        return base64.b64decode(md5).hex()
    return f"-{resource['etag']}" if "etag" in resource else None


def time_of(text: str) -> datetime | None:
    """Read a time of RFC 3339; Python 3.10 takes six decimals or none, and no ``Z``."""
    found = _TIME.fullmatch(text)
    if not found:
        return None
    offset = "+00:00" if found[3] == "Z" else found[3]
    moment = datetime.fromisoformat(f"{found[1]}.{(found[2] or '')[:6]:0<6}{offset}")
    return moment.astimezone(timezone.utc)


def checksum(headers: Mapping[str, str]) -> str | None:
    """Return the base64 CRC32C that ``x-goog-hash`` gives for the stored object."""
    hashes = headers.get("x-goog-hash", "").split(",")
    pairs = (item.strip().partition("=") for item in hashes)
    return next((value for name, _, value in pairs if name == "crc32c"), None)


def check_arrived(headers: Mapping[str, str], sent: str, uri: str, operation: str) -> None:
    """Compare what was sent with the CRC32C that the answer to it tells, where it does.

    Args:
        headers: of the answer.
        sent: the CRC32C of what left here.
        uri: of the object.
        operation: for the error to name.

    Raises:
        IntegrityError: they differ.
    """
    told = checksum({"x-goog-hash": headers.get("x-goog-hash", "")})
    if told not in {None, sent}:
        raise IntegrityError(
            f"what was sent arrived damaged: its CRC32C is {sent} here, {told} at the service",
            uri=uri,
            operation=operation,
        )


def stored_bytes(headers: Mapping[str, str]) -> int:
    """Return the size of the object that an answer's headers describe.

    Raises:
        ServiceError: no header tells it.
    """
    stored = headers.get("x-goog-stored-content-length")
    if stored is not None:
        return int(stored)
    span = content_range(headers)
    if span is not None:
        return span[2]
    if "content-length" in headers:
        return int(headers["content-length"])
    raise ServiceError("the answer does not tell the object's size")


def content_range(headers: Mapping[str, str]) -> tuple[int, int, int] | None:
    """Return start, stop and the object's size off ``Content-Range``; stop is 0 for ``*``."""
    found = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if not found:
        return None
    stop = int(found[2]) + 1 if found[2] else 0
    return int(found[1] or 0), stop, int(found[3])
