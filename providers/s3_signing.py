"""Whom botocore signs requests for, and signatures that replace its own where a clock is off."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from providers.addresses import BucketAddress
from providers.signing import SigV4

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers.access import Clock

__all__ = ["resigning", "scope_of"]

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=.+?/\d{8}/([^/]+)/([^/]+)/aws4_request")
_OF_SESSIONS = "s3express"
"""Signs with keys of sessions that only botocore has."""


def scope_of(headers: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return region and service that a request is signed for; None: it is not by SigV4."""
    match = _SCOPE.match(_text(headers.get("Authorization", "")))
    return (match[1], match[2]) if match else None


def resigning(clock: Clock, credentials: Callable[[], Any]) -> Callable[..., None]:
    """Return a handler of ``before-send`` that signs anew what was signed by a clock that is off.

    botocore goes by this machine's clock alone.

    Args:
        clock: the service's, once it is known.
        credentials: returns botocore's frozen ones.
    """

    def sign_anew(request: Any, **_: Any) -> None:
        scope = scope_of(request.headers) if clock.offset_seconds else None
        if scope is None or scope[1] == _OF_SESSIONS:
            return
        used, parts = credentials(), urlsplit(request.url)
        signer = SigV4(used.access_key, used.secret_key, used.token, *scope, now=clock)
        headers = {name: _text(value) for name, value in request.headers.items()}
        # Spelled as it goes out: without the port that is the scheme's own.
        host = BucketAddress.at(f"{parts.scheme}://{parts.netloc}", "", "bound").host
        payload = _text(request.headers["X-Amz-Content-SHA256"])
        request.headers.update(
            signer.sign(request.method, host, parts.path, parts.query, headers, payload)
        )

    return sign_anew


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
