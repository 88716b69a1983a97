"""Signature V4: HMAC-SHA256 over a canonical request, scoped to a day and a region.

Source: https://help.aliyun.com/zh/oss/developer-reference/recommend-to-use-signature-version-4,
read 2026-11-30.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from urllib.parse import quote

from tests.fakes.oss.claims import Claim
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import Request

SCHEME = "OSS4-HMAC-SHA256"
_PAYLOAD = "UNSIGNED-PAYLOAD"
_ALWAYS_SIGNED = frozenset({"content-type", "content-md5"})
_MAX_EXPIRES_SECONDS = 7 * 24 * 3600
_FIELDS = re.compile(r"(Credential|AdditionalHeaders|Signature)=([^,\s]*)")


def read_header(request: Request, region: str) -> Claim:
    """What an Authorization header of this version claims.

    Raises:
        ServiceError: It is not scoped to this region, or not complete.
    """
    headers = request.headers
    fields = dict(_FIELDS.findall(headers["authorization"]))
    if headers.get("x-oss-content-sha256") != _PAYLOAD:
        raise ServiceError("InvalidArgument", f"x-oss-content-sha256 must be {_PAYLOAD}.")
    date = headers.get("x-oss-date", "")
    credential = _scoped(fields.get("Credential", ""), date, region)
    additional = sorted(name for name in fields.get("AdditionalHeaders", "").split(";") if name)
    text = _string_to_sign(request, date, credential, additional)
    return Claim(
        access_key_id=credential[0],
        signature=fields.get("Signature", ""),
        token=headers.get("x-oss-security-token"),
        string_to_sign=text,
        sign=lambda secret: _signature(secret, credential[1:], text),
        signed_at=_parse_date(date),
    )


def read_query(request: Request, region: str) -> Claim:
    """What a presigned URL of this version claims.

    Raises:
        ServiceError: It is not scoped to this region, or not complete.
    """
    query = request.query
    date, expires = query.get("x-oss-date", ""), query.get("x-oss-expires", "")
    if not expires.isdecimal() or not 1 <= int(expires) <= _MAX_EXPIRES_SECONDS:
        raise ServiceError("AccessDenied", "x-oss-expires is not valid.", ec="0002-00000207")
    credential = _scoped(query.get("x-oss-credential", ""), date, region)
    additional = sorted(
        name for name in query.get("x-oss-additional-headers", "").split(";") if name
    )
    text = _string_to_sign(request, date, credential, additional)
    return Claim(
        access_key_id=credential[0],
        signature=query.get("x-oss-signature", ""),
        token=query.get("x-oss-security-token"),
        string_to_sign=text,
        sign=lambda secret: _signature(secret, credential[1:], text),
        expires_at=_parse_date(date) + timedelta(seconds=int(expires)),
    )


def _scoped(credential: str, date: str, region: str) -> tuple[str, ...]:
    """Access key id, day, region, product and closing word, each checked."""
    words = tuple(credential.rsplit("/", 4))
    if len(words) != 5 or words[4] != "aliyun_v4_request":
        raise ServiceError("InvalidArgument", "Invalid credential in Authorization header.")
    if words[2] != region:
        message = "Invalid signing region in Authorization header."
        raise ServiceError("InvalidArgument", message, ec="0002-00000226")
    if words[3] != "oss":
        message = "Invalid signing product in Authorization header."
        raise ServiceError("InvalidArgument", message, ec="0002-00000227")
    if words[1] != date[:8]:
        message = "Invalid signing date in Authorization header."
        raise ServiceError("InvalidArgument", message, ec="0002-00000225")
    return words


def _parse_date(date: str) -> datetime:
    try:
        return datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise ServiceError("InvalidArgument", "x-oss-date is not a valid date.") from error


def _string_to_sign(
    request: Request, date: str, credential: Sequence[str], additional: Sequence[str]
) -> bytes:
    canonical = _canonical_request(request, additional).encode("latin-1")
    scope = "/".join(credential[1:])
    digest = hashlib.sha256(canonical).hexdigest()
    return f"{SCHEME}\n{date}\n{scope}\n{digest}".encode()


def _canonical_request(request: Request, additional: Sequence[str]) -> str:
    path = "/" if request.bucket is None else f"/{request.bucket}/{request.key}"
    pairs = sorted(
        (quote(name, safe=""), quote(value, safe=""))
        for name, value in request.query.items()
        if name != "x-oss-signature"
    )
    signed = sorted(
        name
        for name in request.headers
        if name.startswith("x-oss-") or name in _ALWAYS_SIGNED or name in additional
    )
    return "\n".join(
        [
            request.method,
            quote(path, safe="/"),
            "&".join(f"{name}={value}" if value else name for name, value in pairs),
            *(f"{name}:{request.headers[name]}" for name in signed),
            "",
            ";".join(additional),
            _PAYLOAD,
        ]
    )


def _signature(secret: str, scope: Sequence[str], text: bytes) -> str:
    key = _signing_key(secret, *scope)
    return hmac.new(key, text, hashlib.sha256).hexdigest()


@lru_cache(maxsize=256)
def _signing_key(secret: str, *scope: str) -> bytes:
    key = f"aliyun_v4{secret}".encode()
    for word in scope:
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return key
