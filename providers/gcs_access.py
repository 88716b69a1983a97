"""What reads of one GCS bucket are signed with: a token, by the XML API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from typing_extensions import override

from providers.access import Access
from providers.values import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers.access import Sign

__all__ = ["GCSAccess"]


@dataclass(frozen=True)
class GCSAccess(Access):
    """Endpoint and token, as google-auth finds them.

    Attributes:
        endpoint: ``https://storage.googleapis.com`` say.
        bucket: its name.
        headers: that google-auth adds to a request: the token, the project that is billed.
        expires_at: seconds since the epoch; None: not known to.
    """

    endpoint: str
    bucket: str
    headers: Mapping[str, str] = field(repr=False)
    expires_at: float | None = None

    @override
    def signer(self, now: Callable[[], float]) -> Sign:
        root = f"{self.endpoint}/{quote(self.bucket, safe='')}/"
        # Whoever does not accept gzip gets objects stored so decompressed, with other sizes.
        always = {"Accept-Encoding": "gzip", **self.headers}

        def sign(
            key: str,
            headers: Mapping[str, str],
            method: str = "GET",
            query: str = "",
            payload_hash: str | None = None,  # noqa: ARG001 a token signs no body
        ) -> HttpRequest:
            # Encoded to the last slash, so that nothing on the way takes ".." for a step up.
            url = root + quote(key, safe="")
            return HttpRequest(method, f"{url}?{query}" if query else url, {**always, **headers})

        return sign
