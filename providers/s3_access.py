"""What reads of one S3 bucket are signed with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from providers.access import Access
from providers.signing import SigV4
from providers.values import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers.access import Sign
    from providers.addresses import BucketAddress

__all__ = ["S3Access"]


@dataclass(frozen=True)
class S3Access(Access):
    """Address and credentials, as botocore resolves them.

    Attributes:
        address: of the bucket.
        region: requests are signed for.
        service: the same.
        checksums: whether the service is asked for the checksums of whole objects.
        access_key_id: None: requests go unsigned.
        secret_access_key: goes with it.
        session_token: of temporary credentials.
        expires_at: seconds since the epoch; None: not known to.
    """

    address: BucketAddress
    region: str
    service: str
    checksums: bool
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

        def sign(key: str, headers: Mapping[str, str]) -> HttpRequest:
            if checksums and "Range" not in headers:
                headers = {"x-amz-checksum-mode": "ENABLED", **headers}
            path = address.path(key)
            if signed is not None:
                headers = signed("GET", address.host, path, "", headers)
            return HttpRequest("GET", address.origin + path, headers)

        return sign
