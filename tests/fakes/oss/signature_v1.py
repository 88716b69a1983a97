"""Signature V1: HMAC-SHA1 over a few headers and the resource.

Source: https://help.aliyun.com/zh/oss/developer-reference/ddd-signatures-to-urls and
"include signatures in the Authorization header (V1)", read 2026-11-30.
"""

import base64
import hashlib
import hmac
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from tests.fakes.oss.claims import Claim
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import Request

SCHEME = "OSS "

# Only these queries are part of the signature.
_SIGNED_QUERY_NAMES = """
    acl append asyncFetch bucketInfo callback callback-var cname comp continuation-token cors
    delete encryption endTime group inventory inventoryId lifecycle link live location logging
    metaQuery objectInfo objectMeta partNumber policy position qos qosInfo referer regionList
    replication replicationLocation replicationProgress requestPayment resourceGroup
    response-cache-control response-content-disposition response-content-encoding
    response-content-language response-content-type response-expires restore security-token
    sequential startTime stat status style styleName symlink tagging transferAcceleration uploadId
    uploads versionId versioning versions vod website worm wormExtend wormId x-oss-ac-forward-allow
    x-oss-ac-source-ip x-oss-ac-subnet-mask x-oss-ac-vpc-id x-oss-async-process x-oss-process
    x-oss-request-payer x-oss-traffic-limit
"""
_SIGNED_QUERIES = frozenset(_SIGNED_QUERY_NAMES.split())


def read_header(request: Request) -> Claim:
    """What an Authorization header of this version claims."""
    headers = request.headers
    access_key_id, _, signature = headers["authorization"].removeprefix(SCHEME).partition(":")
    date = headers.get("x-oss-date") or headers.get("date", "")
    text = _string_to_sign(request, date)
    return Claim(
        access_key_id=access_key_id,
        signature=signature,
        token=headers.get("x-oss-security-token") or headers.get("security-token"),
        string_to_sign=text,
        sign=lambda secret: _signature(secret, text),
        signed_at=_parse_date(date),
    )


def read_query(request: Request) -> Claim:
    """What a presigned URL of this version claims."""
    query = request.query
    expires = query.get("Expires", "")
    if not expires.isdecimal():
        raise ServiceError("AccessDenied", "Invalid date (should be seconds since epoch).")
    text = _string_to_sign(request, expires)
    return Claim(
        access_key_id=query["OSSAccessKeyId"],
        signature=query.get("Signature", ""),
        token=query.get("security-token"),
        string_to_sign=text,
        sign=lambda secret: _signature(secret, text),
        expires_at=datetime.fromtimestamp(int(expires), timezone.utc),
    )


def _parse_date(date: str) -> datetime:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError as error:
        raise ServiceError(
            "AccessDenied", "OSS authentication requires a valid Date.", ec="0002-00000202"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _string_to_sign(request: Request, date: str) -> bytes:
    headers = request.headers
    own = sorted(name for name in headers if name.startswith("x-oss-"))
    lines = [
        request.method,
        headers.get("content-md5", ""),
        headers.get("content-type", ""),
        date,
        *(f"{name}:{headers[name]}" for name in own),
        "",
    ]
    return "\n".join(lines).encode("latin-1") + _resource(request).encode("utf-8")


def _resource(request: Request) -> str:
    path = "/" if request.bucket is None else f"/{request.bucket}/{request.key}"
    signed = sorted(pair for pair in request.query.items() if pair[0] in _SIGNED_QUERIES)
    query = "&".join(f"{name}={value}" if value else name for name, value in signed)
    return f"{path}?{query}" if query else path


def _signature(secret: str, text: bytes) -> str:
    digest = hmac.new(secret.encode(), text, hashlib.sha1).digest()
    return base64.b64encode(digest).decode("ascii")
