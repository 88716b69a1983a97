"""A provider whose objects lie on a `PlaneServer`, signed by a counter."""

import contextlib
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

import providers.handles
import providers.pacing
from providers.answers import error_type, parse_error_xml, retry_after_seconds
from providers.checksums import Checksum
from providers.connections import Connection
from providers.errors import ProviderError
from providers.http import fetch
from providers.memory import MemoryProvider
from providers.options import TransferOptions
from providers.values import ByteRange, HttpRequest, ObjectInfo
from providers.watching import in_flight
from tests.fakes.plane_server import PlaneServer


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a stream, with everything that may be asked for."""

    provider: "PlaneProvider"
    key: str
    byte_range: ByteRange | None = None
    if_match: ObjectInfo | None = None
    size_bytes: int = 0
    into: memoryview | None = None
    told: list[Checksum] | None = None


class PlaneProvider(MemoryProvider):
    """Asks a server at `endpoint`; its verbs other than `signed_get` are those of memory."""

    scheme: ClassVar[str] = "plane"
    signs_reads: ClassVar[bool] = True
    pins_by_etag: ClassVar[bool] = True

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
        self.anonymous = False
        self.more_headers: dict[str, str] = {}

    @override
    def signed_get(
        self, key: str, byte_range: ByteRange | None = None, *, if_match: ObjectInfo | None = None
    ) -> HttpRequest | None:
        self.signed += 1
        headers = {} if self.anonymous else {"Authorization": f"token-{self.token}"}
        if byte_range is not None:
            headers["Range"] = byte_range.header
        if if_match is not None:
            headers["If-Match"] = f'"{if_match.etag}"'
        headers |= self.more_headers
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


@contextlib.contextmanager
def plane(objects: dict[str, bytes], certificate: Path | None = None) -> Iterator[PlaneServer]:
    """Serve objects to an engine that begins afresh, and see that nothing is left behind."""
    providers.pacing._start_afresh()
    with PlaneServer(objects, certificate) as server:
        yield server
    assert in_flight() == []
    assert providers.pacing.bytes_under_way().taken == 0
    assert [pace.in_flight for pace in providers.pacing._paces.values() if pace.in_flight] == []
    pooled = sum(1 + len(lease._slots) for lease in providers.handles._pool)
    assert len(providers.handles._alive) == pooled


def steady(**fields: Any) -> TransferOptions:
    """Options under which as many requests are under way as may be, 32 unless said otherwise."""
    return TransferOptions(**{"adaptive": False, "max_in_flight": 32, **fields})


def read_all(
    reads: Iterable[Read], transfer: TransferOptions | None = None, *, ordered: bool = True
) -> list[bytes | ProviderError]:
    """Read a stream to its end."""
    items = fetch(reads, transfer or TransferOptions(), ordered=ordered)
    return [bytes(body) if isinstance(body, memoryview) else body for _, body in items]


def read_one(read: Read, transfer: TransferOptions | None = None) -> bytes | ProviderError:
    """Read one object or range."""
    (body,) = read_all([read], transfer)
    return body
