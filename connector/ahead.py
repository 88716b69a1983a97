"""The bodies of a table's rows, fetched ahead of whoever makes samples of them."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from connector.prefetch import Prefetch, waited
from connector.ranks import current_worker
from providers import ByteRange, IntegrityError, ObjectInfo, ProviderError
from providers.checksums import Verdict, compare
from providers.counters import count
from providers.planning import split_range
from providers.transfer import get_many

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from threading import Event

    from connector.table import ObjectRow
    from providers import Provider, TransferOptions
    from providers.checksums import Checksum

__all__ = ["Ahead", "Body", "Expectation", "Fetched", "info_of"]

Body: TypeAlias = "bytes | ProviderError | None"
"""What was fetched of an object; None: nothing, it is read on demand."""

_NODE_IN_FLIGHT = 1024
"""Requests under way that one machine's workers share unless told otherwise."""
_FEWEST_IN_FLIGHT = 8
_RANGES_WORTH_IT = 2
"""An object of more ranges than this is read in parallel."""


class Fetched(NamedTuple):
    """One object of a stream.

    Attributes:
        position: in the share.
        row: of the table.
        info: what the row says of the object, to pin reads to.
        body: its bytes, an error, or None.
    """

    position: int
    row: ObjectRow
    info: ObjectInfo
    body: Body


class _Parts:
    """The ranges of one object, as they arrive.

    Args:
        count: how many there are.
    """

    __slots__ = ("bodies", "missing", "told")

    def __init__(self, count: int) -> None:
        self.bodies: list[bytes | ProviderError] = [b""] * count
        self.missing = count
        self.told: list[Checksum] = []


class _Read(NamedTuple):
    """One request of a stream, as ``Wanted`` has it: a whole object, or one of its ranges.

    Attributes:
        provider: where the object is.
        key: the object.
        byte_range: what of it; None: all.
        if_match: pins the read to a version.
        size_bytes: what the read is expected to hold.
        into: None: bodies come as bytes.
        told: takes the whole object's checksum if the answer to a range tells it.
        position: of the object in the share.
        row: of the table.
        info: what the row says of the object.
        parts: of the object; None: it is read whole.
        piece: number of the range among them.
    """

    provider: Provider
    key: str
    byte_range: ByteRange | None
    if_match: ObjectInfo | None
    size_bytes: int
    into: None
    told: list[Checksum] | None
    position: int
    row: ObjectRow
    info: ObjectInfo
    parts: _Parts | None = None
    piece: int = 0


def info_of(row: ObjectRow, size: int = 0) -> ObjectInfo:
    """Return what a row says of its object."""
    return ObjectInfo(row.key, row.size or size, row.etag, row.version)


class Expectation:
    """How large objects of unknown size are taken to be: as the largest seen so far.

    Args:
        bytes: until the first has come.
    """

    __slots__ = ("_seen_bytes", "bytes")

    def __init__(self, bytes: int) -> None:  # noqa: A002 the unit is the name
        self.bytes = bytes
        self._seen_bytes = 0

    def learn(self, size_bytes: int) -> None:
        """Take in the size of one that has come."""
        self.bytes = self._seen_bytes = max(self._seen_bytes, size_bytes)


class Ahead:
    """Fetches the objects of one stream.

    Args:
        rows: with their positions, in the order wanted.
        providers: by the rows' roots.
        transfer: sizes and concurrency.
        expected: of objects whose size is unknown.
        ordered: yield in the order of ``rows``; False: as they arrive.
    """

    def __init__(
        self,
        rows: Iterable[tuple[int, ObjectRow]],
        providers: Mapping[str, Provider],
        transfer: TransferOptions,
        expected: Expectation,
        *,
        ordered: bool = True,
    ) -> None:
        self._left = iter(rows)
        self._providers = providers
        self._transfer = _shared(transfer)
        self._ordered = ordered
        self._whole_bytes = transfer.range_size_bytes * _RANGES_WORTH_IT
        self._lazy: tuple[int, ObjectRow] | None = None
        self._expected = expected

    def prefetched(self) -> Generator[Fetched, None, None]:
        """Yield the objects while a thread fetches the following ones."""
        transfer = self._transfer
        # Half of what may be held is the stream's, half waits to be taken.
        items, size = transfer.prefetch_objects // 2, transfer.max_bytes_in_flight // 2
        self._transfer = transfer.model_copy(
            update={
                "prefetch_objects": transfer.prefetch_objects - items,
                "max_bytes_in_flight": max(1, transfer.max_bytes_in_flight - size),
            }
        )
        return Prefetch(self._stream, _size_of, items, size).items()

    def fetched(self) -> Generator[Fetched, None, None]:
        """Yield the objects; the caller's thread fetches the following ones meanwhile."""
        with closing(self._stream(None)) as stream:
            while True:
                began = time.perf_counter()
                found = next(stream, None)
                waited(began)
                if found is None:
                    return
                yield found

    def _stream(self, stop: Event | None) -> Generator[Fetched, None, None]:
        """Objects read on demand end one run of reads."""
        while True:
            reads = get_many(self._reads(), self._transfer, ordered=self._ordered, stop=stop)
            with closing(reads) as bodies:
                for read, body in bodies:
                    # Only what is read into a buffer comes as a view.
                    found = self._take(read, cast("bytes | ProviderError", body))
                    if found is not None:
                        yield found
            lazy, self._lazy = self._lazy, None
            if lazy is None:
                return
            yield Fetched(*lazy, info_of(lazy[1]), None)

    def _reads(self) -> Iterator[_Read]:
        for position, row in self._left:
            if row.size is not None and row.size > self._transfer.lazy_above_bytes:
                self._lazy = position, row
                return
            yield from self._reads_of(position, row)

    def _reads_of(self, position: int, row: ObjectRow) -> Iterator[_Read]:
        transfer, provider = self._transfer, self._providers[row.root]
        info = info_of(row)
        pin = None if row.etag is None and row.version is None else info
        size = row.size
        if size is None:
            # One byte more tells an object that just fits from a larger one.
            span = None if transfer.decode_content else ByteRange(0, transfer.lazy_above_bytes + 1)
            expected = self._expected.bytes
            yield _Read(provider, row.key, span, pin, expected, None, None, position, row, info)
        elif pin is None or transfer.decode_content or size <= self._whole_bytes:
            yield _Read(provider, row.key, None, pin, size, None, None, position, row, info)
        else:
            spans = list(split_range(0, size, transfer.range_size_bytes))
            parts = _Parts(len(spans))
            for piece, span in enumerate(spans):
                length, told = span.length_in(size), parts.told
                yield _Read(
                    provider, row.key, span, pin, length, None, told, position, row, info,
                    parts, piece,
                )  # fmt: skip

    def _take(self, read: _Read, body: bytes | ProviderError) -> Fetched | None:
        """Return an object that has come whole, or failed; None: some of it is still missing."""
        row, parts = read.row, read.parts
        if parts is not None:
            parts.bodies[read.piece] = body
            parts.missing -= 1
            if parts.missing:
                return None
            body = self._joined(read, parts)
            return Fetched(read.position, row, read.info, body)
        if row.size is None and isinstance(body, bytes):
            self._expected.learn(len(body))
        return Fetched(read.position, row, read.info, body)

    def _joined(self, read: _Read, parts: _Parts) -> bytes | ProviderError:
        bodies: list[bytes] = []
        for body in parts.bodies:
            if isinstance(body, ProviderError):
                return body
            bodies.append(body)
        verdict = compare(parts.told[0] if parts.told else None, bodies, self._transfer.verify)
        if verdict is Verdict.UNVERIFIED:
            count(unverified_reads=1)
        if verdict is not Verdict.WRONG:
            return b"".join(bodies)
        return IntegrityError(
            "what came in ranges does not match the checksum that the service tells of the object",
            uri=read.provider.uri(read.key),
            operation="get",
        )


def _size_of(fetched: Fetched) -> int:
    return len(fetched.body) if isinstance(fetched.body, bytes) else 0


def _shared(transfer: TransferOptions) -> TransferOptions:
    """Return this worker's share of what its machine may have under way."""
    if not transfer.adaptive:
        return transfer
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    processes = current_worker()[1] * (int(local) if local.isdigit() else 1)
    share = max(_FEWEST_IN_FLIGHT, _NODE_IN_FLIGHT // max(1, processes))
    return transfer.model_copy(update={"max_in_flight": min(transfer.max_in_flight, share)})
