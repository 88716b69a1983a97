"""One read of a stream of reads, and how it is done without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from providers.errors import IntegrityError, ProviderError

if TYPE_CHECKING:
    from providers.base import Provider
    from providers.checksums import Checksum
    from providers.values import ByteRange, ObjectInfo

__all__ = ["Body", "Get", "Pieces", "W", "Wanted", "joined", "perform", "size_of"]

Body: TypeAlias = "bytes | memoryview"
"""What a read gives: bytes, or the filled part of the caller's buffer."""

Pieces: TypeAlias = "list[bytes] | memoryview"
"""A body as it came: pieces that are not yet joined, or the filled part of the caller's buffer."""


def joined(pieces: Pieces) -> Body:
    """Return the body in one piece; a single piece as it is."""
    return b"".join(pieces) if isinstance(pieces, list) else pieces


def size_of(pieces: Pieces) -> int:
    """Return the bytes of a body."""
    return sum(map(len, pieces)) if isinstance(pieces, list) else len(pieces)


class Wanted(Protocol):
    """What a stream must be told of one read; classes may have more fields than these."""

    @property
    def provider(self) -> Provider:
        """Where the object is."""

    @property
    def key(self) -> str:
        """The object."""

    @property
    def byte_range(self) -> ByteRange | None:
        """What of it; None: all."""

    @property
    def if_match(self) -> ObjectInfo | None:
        """Pins the read to a version."""

    @property
    def size_bytes(self) -> int:
        """What the read is expected to hold; counts against the byte budget; 0: unknown."""

    @property
    def into(self) -> memoryview | None:
        """A writable flat view of bytes that takes the body; the result is its filled part."""

    @property
    def told(self) -> list[Checksum] | None:
        """Takes the whole object's checksum if the answer to a range tells it; None: unwanted."""


W = TypeVar("W", bound=Wanted)


class Get(NamedTuple):
    """One read of a stream of reads.

    Attributes:
        provider: where the object is.
        key: the object.
        byte_range: what of it; None: all.
        if_match: pins the read to a version.
        size_bytes: what the read is expected to hold; counts against the byte budget.
        into: a writable flat view of bytes that takes the body, which is then its filled part.
        told: takes the whole object's checksum if the answer to a range tells it.
    """

    provider: Provider
    key: str
    byte_range: ByteRange | None = None
    if_match: ObjectInfo | None = None
    size_bytes: int = 0
    into: memoryview | None = None
    told: list[Checksum] | None = None

    def run(self) -> bytes | ProviderError:
        """Read it alone, and return the error instead of raising it."""
        try:
            return self.provider.get(self.key, self.byte_range, if_match=self.if_match)
        except ProviderError as error:
            return error


def perform(get: Wanted) -> Body | ProviderError:
    """Read by the provider's own client, and return the error instead of raising it."""
    provider, into = get.provider, get.into
    try:
        provider.check_get(get.key, get.if_match)
        body = provider.get_by_client(get.key, get.byte_range, get.if_match)
    except ProviderError as error:
        return error
    if into is None:
        return body
    if len(body) > len(into):
        return IntegrityError(
            f"the body has {len(body)} bytes, the buffer for it {len(into)}",
            uri=provider.uri(get.key),
            operation="get",
        )
    into[: len(body)] = body
    return into[: len(body)]
