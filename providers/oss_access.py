"""What reads of one OSS bucket are signed with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from typing_extensions import override

from providers.access import Access
from providers.addresses import BucketAddress, is_address
from providers.oss_signing import OSSV1, OSSV4
from providers.values import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers.access import Sign
    from providers.addresses import Style

__all__ = ["Credentials", "OSSAccess", "bucket_address"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair, and the token of a temporary one.

    Attributes:
        access_key_id: names the pair.
        access_key_secret: goes with it.
        security_token: of temporary credentials.
        literal: they come from the options.
    """

    access_key_id: str
    access_key_secret: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    literal: bool = False


@dataclass(frozen=True)
class OSSAccess(Access):
    """Address and credentials of one bucket.

    Attributes:
        bucket: its name.
        address: where it is.
        region: V4 signs for.
        version: of the signature.
        credentials: None: requests go unsigned.
        expires_at: None: the environment does not tell.
    """

    bucket: str
    address: BucketAddress
    region: str | None
    version: Literal["v4", "v1"]
    credentials: Credentials | None
    expires_at: float | None = None

    @override
    def signer(self, now: Callable[[], float]) -> Sign:
        address, bucket = self.address, self.bucket
        signed = self.signed(now)

        def sign(
            key: str,
            headers: Mapping[str, str],
            method: str = "GET",
            query: str = "",
            payload_hash: str | None = None,  # noqa: ARG001 neither signature covers the body
        ) -> HttpRequest:
            if signed is not None:
                headers = signed(method, bucket, key, query, headers)
            return HttpRequest(method, address.url(address.path(key), query), headers)

        return sign

    def signed(self, now: Callable[[], float]) -> Callable[..., dict[str, str]] | None:
        """Return the ``sign`` of the signer; None: requests go unsigned."""
        used = self.credentials
        if used is None:
            return None
        keys = used.access_key_id, used.access_key_secret, used.security_token
        if self.version == "v1":
            return OSSV1(*keys, now=now).sign
        return OSSV4(*keys, self.region or "", now=now).sign


def bucket_address(endpoint: str, bucket: str, *, cname: bool) -> BucketAddress:
    """Return where a bucket is, as oss2 has it: in the path of addresses and of localhost only."""
    style: Style = "virtual"
    host = urlsplit(endpoint).hostname or ""
    if cname:
        style = "bound"
    elif host == "localhost" or is_address(host):
        style = "path"
    return BucketAddress.at(endpoint, bucket, style)
