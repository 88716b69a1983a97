"""Signatures of requests: OAuth bearer tokens, AWS SigV4, and what scoped signatures share.

Each signer turns what will be sent into the headers to send, in microseconds and without an
SDK: whatever depends on the day or the second alone is computed once. Signers are made of one
set of credentials, are safe to share between threads, and do not pickle.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "EMPTY_PAYLOAD",
    "NO_HEADERS",
    "UNSIGNED_PAYLOAD",
    "BearerToken",
    "ScopedSigner",
    "SigV4",
    "Signer",
    "canonical_query",
]

EMPTY_PAYLOAD = hashlib.sha256(b"").hexdigest()
"""Payload hash of a request without a body, as AWS's SDKs send it."""

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
"""Payload hash of a body that TLS or a checksum header protects."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
"""What a request that needs no headers of its own is signed with."""

_LEFT_TO_PROXIES = frozenset({
    "baggage", "connection", "expect", "keep-alive", "proxy-authenticate",
    "proxy-authorization", "te", "traceparent", "tracestate", "trailer", "transfer-encoding",
    "upgrade", "user-agent", "x-amzn-trace-id",
})  # fmt: skip
"""Headers that SigV4 leaves out since what is on the way may change them.
Source: ``SIGNED_HEADERS_BLACKLIST`` of botocore 1.44.8, read 2026-11-30."""


class Signer:
    """What holds a secret: it never pickles and shows nothing of itself."""

    __slots__ = ()

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds secrets and does not pickle; "
            "make one of the credentials where it is used"
        )


class BearerToken(Signer):
    """An OAuth 2 access token.

    Args:
        token: as the identity provider gave it.
    """

    __slots__ = ("_value",)

    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    def sign(self, headers: Mapping[str, str] = NO_HEADERS) -> dict[str, str]:
        """Return the headers to send: those given, and the token."""
        sent = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        sent["Authorization"] = self._value
        return sent


class _Form(NamedTuple):
    """What a second's requests of one kind have in common: the same names, host and payload.

    Attributes:
        replaced: names of headers that are not sent as they were given.
        signed: those of them that are signed, in the order of signing.
        canonical: the canonical request from the headers on, each signed value a ``%s``.
        added: headers to send with them.
        opening: of ``Authorization``, up to the signature.
    """

    replaced: tuple[str, ...]
    signed: tuple[str, ...]
    canonical: str
    added: dict[str, str]
    opening: str


class _Moment(NamedTuple):
    """All of a scoped signature that stays the same for a second, and its key for a day."""

    second: int
    stamp: str
    credential: str
    head: str
    key: hmac.HMAC
    forms: dict[tuple[str, ...], _Form]


class ScopedSigner(Signer):
    """The form that SigV4 and OSS V4 share: a key scoped to a day, a region and a service."""

    __slots__ = ("_access_key_id", "_moment", "_now", "_region", "_secret", "_service", "_token")

    algorithm: ClassVar[str]
    vendor: ClassVar[str]
    closing: ClassVar[str]

    def __init__(
        self,
        access_key_id: str,
        secret: str,
        token: str | None,
        region: str,
        service: str,
        now: Callable[[], float],
    ) -> None:
        self._access_key_id = access_key_id
        self._secret = secret
        self._token = token
        self._region = region
        self._service = service
        self._now = now
        self._moment = self._compute(int(now()), None)

    def _current(self) -> _Moment:
        second = int(self._now())
        moment = self._moment
        if moment.second != second:
            self._moment = moment = self._compute(second, moment)
        return moment

    def _compute(self, second: int, last: _Moment | None) -> _Moment:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        day = stamp[:8]
        scope = f"{day}/{self._region}/{self._service}/{self.closing}"
        key = last.key if last is not None and last.stamp[:8] == day else self._key(day)
        return _Moment(
            second,
            stamp,
            f"{self.algorithm} Credential={self._access_key_id}/{scope}",
            f"{self.algorithm}\n{stamp}\n{scope}\n",
            key,
            {},
        )

    def _key(self, day: str) -> hmac.HMAC:
        key = f"{self.vendor}{self._secret}".encode()
        for word in (day, self._region, self._service, self.closing):
            key = hmac.digest(key, word.encode(), "sha256")
        return hmac.new(key, digestmod="sha256")

    def _signature(self, moment: _Moment, canonical: str) -> str:
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        keyed = moment.key.copy()
        keyed.update(f"{moment.head}{digest}".encode())
        return keyed.hexdigest()


class SigV4(ScopedSigner):
    """AWS Signature Version 4 as S3 wants it, by header.

    Args:
        access_key_id: names the credentials.
        secret_access_key: goes with it.
        session_token: of temporary credentials.
        region: the bucket's.
        service: ``s3`` for S3 and every compatible store.
        now: seconds since the epoch, by the server's clock if this one is off.
    """

    __slots__ = ()

    algorithm = "AWS4-HMAC-SHA256"
    vendor = "AWS4"
    closing = "aws4_request"

    _REPLACED = frozenset(
        {"authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}
    )

    def __init__(
        self,
        access_key_id: str,
        secret_access_key: str,
        session_token: str | None,
        region: str,
        service: str = "s3",
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(access_key_id, secret_access_key, session_token, region, service, now)

    def sign(
        self,
        method: str,
        host: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
        payload_hash: str = EMPTY_PAYLOAD,
    ) -> dict[str, str]:
        """Return the headers to send: those given, and the signature over all of it.

        Args:
            method: ``GET``, in upper case.
            host: as ``BucketAddress.host`` gives it.
            path: encoded, as it stands in the URL.
            query: encoded, as it stands in the URL.
            headers: to be sent and signed with it.
            payload_hash: SHA-256 of the body in hex, or ``UNSIGNED_PAYLOAD``.
        """
        moment = self._current()
        kind = (host, payload_hash, *headers)
        form = moment.forms.get(kind)
        if form is None:
            form = moment.forms[kind] = self._form(moment, host, payload_hash, headers)
        values = tuple([" ".join(headers[name].split()) for name in form.signed])
        if query:
            query = canonical_query(query, bare_names=False)
        canonical = f"{method}\n{path}\n{query}\n{form.canonical % values}"
        sent = {**headers, **form.added}
        for name in form.replaced:
            del sent[name]
        sent["Authorization"] = f"{form.opening}{self._signature(moment, canonical)}"
        return sent

    def _form(
        self, moment: _Moment, host: str, payload_hash: str, headers: Mapping[str, str]
    ) -> _Form:
        """Work out what does not depend on the request's path, query and values."""
        added = {"X-Amz-Date": moment.stamp, "X-Amz-Content-SHA256": payload_hash}
        if self._token:
            added["X-Amz-Security-Token"] = self._token
        replaced = [n for n in headers if n.lower() in self._REPLACED and n not in added]
        ignored = self._REPLACED | _LEFT_TO_PROXIES
        given = {name.lower(): name for name in headers if name.lower() not in ignored}
        fixed = {"host": host, **{name.lower(): value for name, value in added.items()}}
        names = sorted({*fixed, *given})
        listed = ";".join(names)
        lines = [
            f"{name}:%s" if name in given else f"{name}:{fixed[name].replace('%', '%%')}"
            for name in names
        ]
        return _Form(
            tuple(replaced),
            tuple([given[name] for name in names if name in given]),
            "\n".join([*lines, "", listed, payload_hash.replace("%", "%%")]),
            added,
            f"{moment.credential}, SignedHeaders={listed}, Signature=",
        )


def canonical_query(query: str, *, bare_names: bool) -> str:
    """Sort an encoded query; names without a value go bare (OSS) or before ``=`` (AWS)."""
    pairs = sorted([pair.partition("=")[::2] for pair in query.split("&")])
    if bare_names:
        return "&".join([f"{name}={value}" if value else name for name, value in pairs])
    return "&".join([f"{name}={value}" for name, value in pairs])
