"""What reads of one S3 bucket are signed with."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from providers.access import Access
from providers.checksums import crc_of
from providers.signing import EMPTY_PAYLOAD, UNSIGNED_PAYLOAD, SigV4
from providers.values import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers.access import Sign
    from providers.addresses import BucketAddress
    from providers.checksums import Checksum

__all__ = ["CRC32_HEADER", "S3Access", "check_arguments", "crc32_text", "protected"]

CRC32_HEADER = "x-amz-checksum-crc32"
"""Of a body, as a request tells it and the answer does."""

_ALGORITHM_HEADER = "x-amz-sdk-checksum-algorithm"
_MD5_HEADER = "Content-MD5"
_ARGUMENTS = {
    CRC32_HEADER: "ChecksumCRC32",
    _ALGORITHM_HEADER: "ChecksumAlgorithm",
    _MD5_HEADER: "ContentMD5",
}
"""What boto3 calls these headers."""

_VERIFIED = {"x-amz-checksum-mode": "ENABLED"}
"""Asks for the checksum of the whole object, where there is one."""


@dataclass(frozen=True)
class S3Access(Access):
    """Address and credentials, as botocore resolves them.

    Attributes:
        address: of the bucket.
        region: requests are signed for.
        service: the same.
        checksums: whether the service is sent and asked for its own checksums.
        amazon: whether it is Amazon's.
        access_key_id: None: requests go unsigned.
        secret_access_key: goes with it.
        session_token: of temporary credentials.
        expires_at: seconds since the epoch; None: not known to.
    """

    address: BucketAddress
    region: str
    service: str
    checksums: bool
    amazon: bool
    access_key_id: str | None = None
    secret_access_key: str = field(default="", repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None

    @override
    def signer(self, now: Callable[[], float]) -> Sign:
        address, checksums = self.address, self.checksums
        signed = None
        if self.access_key_id is not None:
            signed = SigV4(
                self.access_key_id,
                self.secret_access_key,
                self.session_token,
                self.region,
                self.service,
                now=now,
            ).sign

        def sign(
            key: str,
            headers: Mapping[str, str],
            method: str = "GET",
            query: str = "",
            payload_hash: str | None = None,
        ) -> HttpRequest:
            payload = payload_hash or UNSIGNED_PAYLOAD
            if method == "GET":
                payload = EMPTY_PAYLOAD
                if checksums and "Range" not in headers:
                    headers = {**_VERIFIED, **headers} if headers else _VERIFIED
            path = address.path(key)
            if signed is not None:
                headers = signed(method, address.host, path, query, headers, payload)
            return HttpRequest(method, address.url(path, query), headers)

        return sign


def crc32_text(crc: Checksum) -> str:
    """Return a CRC-32 in the service's own form."""
    if not isinstance(crc.value, int):
        raise TypeError(f"a {crc.algorithm} is no CRC")
    return base64.b64encode(crc.value.to_bytes(4, "big")).decode("ascii")


def _checks(data: memoryview, *, checksums: bool, signed: bool) -> dict[str, str]:
    """Return the headers by which the store checks a body.

    Without Amazon's checksums it is the SHA-256 of the signature that the store checks; what is
    not signed has an MD5.
    """
    if checksums:
        crc = crc32_text(crc_of("crc32", data))
        return {CRC32_HEADER: crc, _ALGORITHM_HEADER: "CRC32"}
    if signed:
        return {}
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return {_MD5_HEADER: base64.b64encode(digest).decode("ascii")}


def check_arguments(data: memoryview, *, checksums: bool, signed: bool) -> dict[str, str]:
    """Return the arguments of boto3 by which the store checks a body.

    The CRC is told, for botocore would put one behind the body and send both ``aws-chunked``.
    """
    checks = _checks(data, checksums=checksums, signed=signed)
    return {_ARGUMENTS[name]: value for name, value in checks.items()}


def protected(data: memoryview, access: S3Access) -> tuple[dict[str, str], str | None]:
    """Return the headers by which the store checks a body, and the hash that is signed.

    Where Amazon's checksums are sent, TLS and a CRC protect it: hashing it costs more.
    """
    signed = access.access_key_id is not None
    headers = _checks(data, checksums=access.checksums, signed=signed)
    encrypted = access.address.origin.startswith("https:")
    if not signed or (access.checksums and access.amazon and encrypted):
        return headers, None
    return headers, hashlib.sha256(data).hexdigest()
