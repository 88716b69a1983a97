"""Decides whether a request is who it claims to be."""

import hmac
from datetime import datetime, timedelta

from tests.fakes.oss import signature_v1, signature_v4
from tests.fakes.oss.claims import Claim
from tests.fakes.oss.credentials import CredentialTable, check_token
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import Request

# Source: facts of the service, error code RequestTimeTooSkewed, read 2026-11-30.
_MAX_SKEW = timedelta(minutes=15)


def authenticate(request: Request, table: CredentialTable, region: str, now: datetime) -> bool:
    """Check the signature of a request.

    Returns:
        Whether there was one at all: False means an anonymous request.

    Raises:
        ServiceError: There was one, and it does not hold.
    """
    claim = _claim(request, region)
    if claim is None:
        return False
    credential = table.find(claim.access_key_id)
    _check_time(claim, now)
    check_token(credential, claim.token, now)
    if not hmac.compare_digest(claim.sign(credential.secret).encode(), claim.signature.encode()):
        raise ServiceError(
            "SignatureDoesNotMatch",
            ec="0002-00000040",
            OSSAccessKeyId=claim.access_key_id,
            SignatureProvided=claim.signature,
            StringToSign=claim.string_to_sign.decode("utf-8", "replace"),
        )
    return True


def _claim(request: Request, region: str) -> Claim | None:
    authorization = request.headers.get("authorization")
    if authorization is not None:
        if authorization.startswith(f"{signature_v4.SCHEME} "):
            return signature_v4.read_header(request, region)
        if authorization.startswith(signature_v1.SCHEME):
            return signature_v1.read_header(request)
        raise ServiceError("InvalidArgument", "Authorization header is invalid.")
    if request.query.get("x-oss-signature-version") == signature_v4.SCHEME:
        return signature_v4.read_query(request, region)
    if "OSSAccessKeyId" in request.query:
        return signature_v1.read_query(request)
    return None


def _check_time(claim: Claim, now: datetime) -> None:
    if claim.expires_at is not None and now >= claim.expires_at:
        raise ServiceError("AccessDenied", "Request has expired.", ec="0002-00000069")
    if claim.signed_at is not None and abs(now - claim.signed_at) > _MAX_SKEW:
        raise ServiceError(
            "RequestTimeTooSkewed",
            ec="0002-00000504",
            MaxAllowedSkewMilliseconds=int(_MAX_SKEW.total_seconds() * 1000),
            RequestTime=claim.signed_at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            ServerTime=now.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        )
