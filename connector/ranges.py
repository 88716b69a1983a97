"""Ranges of one version of one object: complete, of that version, or an error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from providers import ByteRange, IntegrityError, PreconditionError, RangeError
from providers.checksums import RangedSum, Verdict, parse
from providers.counters import count
from providers.transfer import Get, read_into

if TYPE_CHECKING:
    from providers import ObjectInfo, Provider, TransferOptions

__all__ = ["Ranges", "Whole"]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of one version of one object, complete or an error.

    Attributes:
        provider: where the object is.
        info: the version that every read is pinned to.
        size: bytes of that version.
        uri: as the script wrote it.
        transfer: sizes and concurrency.
    """

    provider: Provider
    info: ObjectInfo
    size: int
    uri: str
    transfer: TransferOptions

    @classmethod
    def open(
        cls, provider: Provider, info: ObjectInfo, uri: str, transfer: TransferOptions
    ) -> Ranges:
        """Ask for the version and the size where the caller does not know them."""
        pinned = info.etag is not None or info.version is not None
        if pinned and info.size:
            return cls(provider, info, info.size, uri, transfer)
        found = provider.head(info.key)
        ranges = cls(provider, info if pinned else found, found.size, uri, transfer)
        if info.size not in (0, found.size):
            ranges.fail(f"it had {info.size} bytes, now it has {found.size}", None)
        return ranges

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes of [start, stop)."""
        span = ByteRange(start, stop)
        return self.checked(span, self.get(span).run())

    def read_into(self, start: int, view: memoryview) -> None:
        """Fill ``view`` from ``start`` on, several ranges at once."""
        try:
            read_into(
                self.provider,
                replace(self.info, size=self.size),
                view,
                start=start,
                transfer=self.transfer,
            )
        except (PreconditionError, RangeError) as error:
            self.fail(str(error), error)

    def get(self, span: ByteRange) -> Get:
        """Return the read of a range, to be done alone or in a stream."""
        return Get(self.provider, self.info.key, span, self.info, span.length_in(self.size))

    def checked(self, span: ByteRange, body: bytes | Exception) -> bytes:
        """Return the body of a range if it is complete and of this version; raise otherwise."""
        if isinstance(body, PreconditionError | RangeError):
            self.fail(str(body), body)
        if isinstance(body, Exception):
            try:
                raise body
            finally:
                # Its traceback holds this frame, which must not hold it in turn.
                del body
        if len(body) != span.length_in(self.size):
            self.fail(
                f"bytes {span.start} to {span.stop} of {self.size} came as {len(body)} bytes", None
            )
        return body

    def fail(self, reason: str, cause: Exception | None) -> NoReturn:
        """Say that this version of the object is gone."""
        raise IntegrityError(
            f"the object changed while it was read ({reason}); open it again to read the new one",
            uri=self.uri,
            operation="get",
        ) from cause


class Whole:
    """Compares an object with its checksum once its bytes have come from the first to the last.

    What comes again, or out of order, is left out: an object that is read in part, or about
    which a reader jumps, is never compared as a whole.

    Args:
        ranges: of the object.
    """

    __slots__ = ("_ranges", "_reached", "_sum", "_wrong")

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._sum = RangedSum(parse(ranges.info.checksum), ranges.transfer.verify)
        self._reached = 0
        self._wrong = False

    def add(self, start: int, data: bytes | memoryview) -> None:
        """Take in what was read from ``start`` on.

        Raises:
            IntegrityError: the object is not what the service tells, now or since before.
        """
        size = self._ranges.size
        if start <= self._reached < start + len(data):
            with memoryview(data) as view, view[self._reached - start :] as fresh:
                self._sum.add(self._reached, fresh)
            self._reached = start + len(data)
            if self._reached == size:
                verdict = self._sum.verdict(size)
                self._wrong = verdict is Verdict.WRONG
                count(unverified_reads=int(verdict is Verdict.UNVERIFIED))
        if self._wrong:
            raise IntegrityError(
                f"the {size} bytes that came in ranges do not match the checksum that the "
                "service tells of the object; read it again, or restore it",
                uri=self._ranges.uri,
                operation="get",
            )

    def add_checked(self) -> None:
        """Note that all of the object came at once, already compared."""
        self._reached = self._ranges.size
