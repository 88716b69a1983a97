"""A provider whose objects lie on a `PlaneServer`, signed by a counter."""

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from providers.answers import error_type, parse_error_xml, retry_after_seconds
from providers.connections import Connection
from providers.errors import ProviderError
from providers.memory import MemoryProvider
from providers.options import TransferOptions
from providers.values import ByteRange, HttpRequest, ObjectInfo


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a stream, with everything that may be asked for."""

    provider: "PlaneProvider"
    key: str
    byte_range: ByteRange | None = None
    if_match: ObjectInfo | None = None
    size_bytes: int = 0
    into: memoryview | None = None


class PlaneProvider(MemoryProvider):
    """Asks a server at `endpoint`; its verbs other than `signed_get` are those of memory."""

    scheme: ClassVar[str] = "plane"

    def __init__(
        self,
        endpoint: str,
        transfer: TransferOptions | None = None,
        connection: Connection | None = None,
    ) -> None:
        super().__init__("bucket", None, transfer)
        self.endpoint = endpoint
        self.connection = connection
        self.token = 1
        self.signed = 0
        self.recoveries = 0
        self.explained: list[tuple[int, bytes]] = []
        self.pins = True

    @override
    def signed_get(
        self, key: str, byte_range: ByteRange | None = None, *, if_match: ObjectInfo | None = None
    ) -> HttpRequest | None:
        self.signed += 1
        headers = {"Authorization": f"token-{self.token}"}
        if byte_range is not None:
            headers["Range"] = byte_range.header
        if if_match is not None:
            headers["If-Match"] = f'"{if_match.etag}"'
        path = urllib.parse.quote(key, safe="/~.")
        return HttpRequest("GET", f"{self.endpoint}/bucket/{path}", headers)

    @override
    def explain(
        self, request: HttpRequest | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        self.explained.append((status, body))
        code = parse_error_xml(body).get("Code")
        key = request.url.rpartition("/")[2] if request is not None else ""
        return error_type(status, code)(
            "the server refused",
            uri=self.uri(key),
            operation="get",
            status=status,
            code=code,
            request_id=headers.get("x-amz-request-id"),
            retry_after_seconds=retry_after_seconds(headers),
        )

    @override
    def describe(self, key: str, headers: Mapping[str, str]) -> ObjectInfo:
        etag = headers.get("etag") if self.pins else None
        return ObjectInfo(key, etag=etag.strip('"') if etag else None)

    @override
    def recover(self, error: ProviderError) -> bool:
        if error.code != "ExpiredToken":
            return False
        self.recoveries += 1
        self.token += 1
        return True
