"""Small frozen values that cross the provider boundary."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from providers.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

__all__ = ["ByteRange", "HttpRequest", "Limits", "ObjectInfo", "ObjectURI", "UploadInfo"]

_ALIASES = MappingProxyType({"gcs": "gs", "s3a": "s3"})


@dataclass(frozen=True, slots=True, order=True)
class ObjectURI:
    """``scheme://bucket/key``, split by hand: nothing in it is decoded or normalised.

    Attributes:
        scheme: lower case, aliases resolved (``gcs`` is ``gs``, ``s3a`` is ``s3``).
        bucket: up to the first slash; empty for ``file``.
        key: everything after that slash, byte for byte; may be empty.
    """

    scheme: str
    bucket: str
    key: str = ""

    @classmethod
    def parse(cls, uri: str) -> ObjectURI:
        """Split a URI.

        Raises:
            SettingsError: there is no scheme, no bucket, or an ARN stands in its place.
        """
        scheme, separator, rest = uri.partition("://")
        if not separator or not scheme:
            raise SettingsError(
                f"{uri!r} has no scheme; for a local file write 'file://{_slashed(uri)}'"
            )
        scheme = scheme.lower()
        scheme = _ALIASES.get(scheme, scheme)
        bucket, _, key = rest.partition("/")
        if bucket.startswith("arn:"):
            raise SettingsError(
                f"{uri!r}: an ARN cannot stand in a URI; use the access point's alias"
            )
        if scheme == "file" and bucket:
            raise SettingsError(
                f"{uri!r} names a host; a local path has three slashes: 'file:///{rest}'"
            )
        if scheme != "file" and not bucket:
            raise SettingsError(f"{uri!r} names no bucket; write '{scheme}://bucket/key'")
        return cls(scheme, bucket, key)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"


def _slashed(path: str) -> str:
    return path if path.startswith("/") else f"/absolute/path/to/{path}"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``start`` to ``stop`` of an object, half-open.

    Attributes:
        start: first byte, at least 0.
        stop: one past the last byte, more than ``start``; None means to the end.
    """

    start: int
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0:
            raise ValueError(f"a range starts at 0 or later, not at {self.start}")
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"range [{self.start}, {self.stop}) is empty; stop must exceed start")

    @property
    def header(self) -> str:
        """The value of an HTTP ``Range`` header."""
        return f"bytes={self.start}-{'' if self.stop is None else self.stop - 1}"

    def length_in(self, size: int) -> int:
        """How many bytes of an object of ``size`` bytes the range covers."""
        stop = size if self.stop is None else min(self.stop, size)
        return max(0, stop - self.start)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a service says of one object (or, in a listing, of one common prefix).

    Attributes:
        key: the object's key, or the common prefix.
        size: bytes.
        etag: as the service sends it, without its quotes.
        version: generation (GCS), version id, or the provider's own version stamp; pins reads.
        checksum: ``algorithm:value`` in the service's own form, ``crc32c:yZRlqg==`` say.
        storage_class: the service's word for it.
        modified: time of the last change, UTC.
        metadata: the user's own metadata; listings leave it empty.
        is_prefix: true for a common prefix.
        write_id: this package's random mark of the write that made it, where it left one.
    """

    key: str
    size: int = 0
    etag: str | None = None
    version: str | None = None
    checksum: str | None = None
    storage_class: str | None = None
    modified: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_prefix: bool = False
    write_id: str | None = None


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """An upload in parts that is neither completed nor aborted; nobody sees its parts.

    Attributes:
        key: of the object that it would become; on ``file``, of the hidden file itself.
        upload_id: the service's name for it.
        started: when it was begun, UTC; on ``file``, when it was last written to.
    """

    key: str
    upload_id: str
    started: datetime


@dataclass(frozen=True, slots=True)
class Limits:
    """Facts about one provider instance: service, endpoint and options together.

    Attributes:
        min_part_bytes: smallest multipart part but the last.
        max_part_bytes: largest part.
        max_parts: parts of one upload.
        max_sources: sources of one compose call.
        min_join_bytes: smallest source, but the last, that the service joins.
        max_put_bytes: largest single put.
        max_copy_bytes: largest single copy request; larger ones are copied in parts.
        conditional_put: whether ``if_absent`` is honoured.
        equal_parts: whether all parts but the last must have one size.
        lists_in_order: whether listings arrive in UTF-8 byte order.
        joins_server_side: whether parts can be copied from other objects (``copy_part``).
        keeps_metadata: whether the user's own metadata can be stored with an object.
    """

    min_part_bytes: int
    max_part_bytes: int
    max_parts: int
    max_sources: int
    min_join_bytes: int
    max_put_bytes: int
    max_copy_bytes: int
    conditional_put: bool
    equal_parts: bool
    lists_in_order: bool
    joins_server_side: bool
    keeps_metadata: bool = True


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One signed request, ready to send; asked for again on every attempt.

    Attributes:
        method: ``GET``.
        url: absolute, already percent-encoded.
        headers: with the signature; never logged as they are.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
