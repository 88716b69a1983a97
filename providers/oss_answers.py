"""What OSS answers: errors, descriptions, ranges, checksums, and results that only a body tells."""

from __future__ import annotations

import base64
import binascii
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING

from providers.answers import (
    error_type,
    http_date,
    parse_error_xml,
    redirection,
    retry_after_seconds,
    user_metadata,
)
from providers.checksums import Verdict, compare, parse
from providers.errors import IntegrityError, UnavailableError
from providers.oss_regions import told_place
from providers.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.errors import ProviderError

__all__ = [
    "METADATA_PREFIX",
    "Subject",
    "confirm",
    "describe",
    "error_of_answer",
    "fields_of",
    "verify",
]

METADATA_PREFIX = "x-oss-meta-"

_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "InvalidObjectState": "restore the object first",
        "SecurityTokenExpired": "renew OSS_SESSION_TOKEN and its keys, or security_token",
        "RequestTimeTooSkewed": "set this machine's clock",
        "SecondLevelDomainForbidden": "give the endpoint by its host name, not by an address",
        "SignatureDoesNotMatch": "check access_key_secret, region and signature_version",
    }
)
_FIELD = re.compile(r"<(Code|Message|RequestId|EC|StorageClass|Endpoint)>([^<]*)</\1>")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a request is about, for its errors to name.

    Attributes:
        uri: the object, or the bucket.
        operation: the verb.
    """

    uri: str
    operation: str

    def error(self, kind: type[ProviderError], message: str) -> ProviderError:
        """Return an error of no particular answer."""
        return kind(message, uri=self.uri, operation=self.operation)


def error_of_answer(
    subject: Subject, status: int, headers: Mapping[str, str], body: bytes
) -> ProviderError:
    """Return the error that an answer stands for: code first, status second."""
    lower = {name.lower(): value for name, value in headers.items()}
    fields = fields_of(headers, body)
    code = fields.get("Code")
    words = [fields.get("Message") or _phrase(status)]
    if "StorageClass" in fields:
        words.append(f"it is of the class {fields['StorageClass']}")
    if code and code in _ADVICE:
        words.append(_ADVICE[code])
    if place := told_place(fields):
        words.append(place)
    if leads := redirection(status, lower):
        words.append(leads)
    finer = lower.get("x-oss-ec") or fields.get("EC")
    if finer:
        words.append(f"EC {finer}")
    return error_type(status, code)(
        "; ".join(word.rstrip(".") for word in words),
        uri=subject.uri,
        operation=subject.operation,
        status=status,
        code=code,
        request_id=lower.get("x-oss-request-id") or fields.get("RequestId"),
        retry_after_seconds=retry_after_seconds(lower),
    )


def fields_of(headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
    """Return the fields of an error document, which an answer to a HEAD has in a header."""
    lower = {name.lower(): value for name, value in headers.items()}
    return _fields(body) or _fields(_hidden_body(lower))


def _fields(body: bytes) -> dict[str, str]:
    """Read an error document, even one cut short: echoes of a long key make it long."""
    return parse_error_xml(body) or (
        dict(_FIELD.findall(body.decode("utf-8", "replace"))) if b"<Error>" in body else {}
    )


def _hidden_body(lower: Mapping[str, str]) -> bytes:
    """Return the error document that the answer to a HEAD carries in a header."""
    try:
        return base64.b64decode(lower.get("x-oss-err", ""), validate=True)
    except (ValueError, binascii.Error):
        return b""


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else "an error"


def describe(key: str, headers: Mapping[str, str]) -> ObjectInfo:
    """Read an object's description off the headers of a GET or HEAD, of a range too."""
    lower = {name.lower(): value for name, value in headers.items()}
    span = _CONTENT_RANGE.fullmatch(lower.get("content-range", ""))
    user, write_id = user_metadata(
        {n[len(METADATA_PREFIX) :]: v for n, v in lower.items() if n.startswith(METADATA_PREFIX)}
    )
    crc = lower.get("x-oss-hash-crc64ecma")
    return ObjectInfo(
        key,
        size=int(span[3] if span else lower.get("content-length", "0")),
        etag=lower.get("etag", "").strip('"') or None,
        version=lower.get("x-oss-version-id"),
        checksum=f"crc64ecma:{crc}" if crc else None,
        storage_class=lower.get("x-oss-storage-class"),
        modified=http_date(lower.get("last-modified")),
        metadata=user,
        write_id=write_id,
    )


def verify(subject: Subject, headers: Mapping[str, str], data: bytes | memoryview) -> None:
    """Compare bytes with the CRC-64 that the service gives for them, where it does.

    Raises:
        IntegrityError: they differ.
    """
    told = headers.get("x-oss-hash-crc64ecma")
    if told is None:
        return
    if compare(parse(f"crc64ecma:{told}"), data) is Verdict.WRONG:
        raise subject.error(
            IntegrityError,
            f"the CRC-64 of {len(data)} bytes is another here than at the service, {told} "
            f"(request id {headers.get('x-oss-request-id')})",
        )


def confirm(
    subject: Subject, status: int, headers: Mapping[str, str], body: bytes, root: str
) -> dict[str, str]:
    """Return the fields of a result that is a success only if its body says so.

    Raises:
        ProviderError: the body holds an error.
        UnavailableError: it is not the result; whether anything happened is unclear.
    """
    if parse_error_xml(body):
        raise error_of_answer(subject, status, headers, body)
    try:
        element = ET.fromstring(body)  # noqa: S314 expat refuses entity bombs since 2.4.1
    except ET.ParseError:
        element = ET.Element("")
    if element.tag.rpartition("}")[2] != root:
        raise UnavailableError(
            f"the answer is no {root}, so what became of the request is unclear",
            uri=subject.uri,
            operation=subject.operation,
            status=status,
            request_id=headers.get("x-oss-request-id"),
        )
    return {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in element}
