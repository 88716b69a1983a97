"""Transfers of many objects, written once over the verbs."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from itertools import count as numbers_from
from typing import TYPE_CHECKING

from providers.checksums import RangedSum, Verdict, parse
from providers.composites import composite_name
from providers.counters import count
from providers.errors import IntegrityError, ProviderError
from providers.gets import Get, W, perform
from providers.http import fetch
from providers.planning import compose_groups, plan_join, split_range
from providers.values import ByteRange, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from threading import Event
    from typing import Literal

    from typing_extensions import Buffer

    from providers.base import Provider
    from providers.checksums import Checksum
    from providers.gets import Body
    from providers.options import TransferOptions
    from providers.planning import Piece

__all__ = ["Composed", "Get", "compose_many", "get_many", "read_into"]

_log = logging.getLogger(__name__)


def get_many(
    gets: Iterable[W],
    transfer: TransferOptions,
    *,
    ordered: bool = True,
    stop: Event | None = None,
) -> Generator[tuple[W, Body | ProviderError], None, None]:
    """Read many objects or ranges at once and yield each with its body.

    Pull-based: a read starts only when fewer than ``transfer.prefetch_objects`` bodies and
    ``transfer.max_bytes_in_flight`` bytes are under way or wait to be taken. Closing the
    generator drops the rest.

    Reads of stores over HTTP share one thread, the caller's; others have a pool of threads.
    The first read decides for the whole stream: of a mixed one that begins with HTTP, the
    others are read one by one.

    Args:
        gets: what to read; ``Get``, or one's own class with more fields.
        transfer: limits, timeouts and the retry policy.
        ordered: yield in the order of ``gets``; false: as they finish.
        stop: ends the stream soon after it is set, by another thread say.

    Yields:
        The read, and its body: bytes, or the filled part of its ``into``. An error comes in
        the body's place, so that the consumer decides.
    """
    left = iter(gets)
    first = next(left, None)
    if first is None:
        return
    every = chain((first,), left)
    if first.provider.signs_reads:
        yield from fetch(every, transfer, ordered=ordered, stop=stop)
    else:
        yield from _by_threads(every, transfer, ordered=ordered, stop=stop)


def _by_threads(
    gets: Iterable[W], transfer: TransferOptions, *, ordered: bool, stop: Event | None
) -> Generator[tuple[W, Body | ProviderError], None, None]:
    waiting: deque[tuple[W, Future[Body | ProviderError]]] = deque()
    budget = transfer.max_bytes_in_flight
    pool = ThreadPoolExecutor(transfer.max_in_flight, thread_name_prefix="connector-get")

    def take() -> tuple[W, Future[Body | ProviderError]]:
        if not ordered:
            wait([future for _, future in waiting], return_when=FIRST_COMPLETED)
            for index, (_, future) in enumerate(waiting):
                if future.done():
                    waiting.rotate(-index)
                    break
        return waiting.popleft()

    try:
        for get in gets:
            while waiting and (
                len(waiting) >= transfer.prefetch_objects or get.size_bytes > budget
            ):
                done, future = take()
                yield done, future.result()
                budget += done.size_bytes
            if stop is not None and stop.is_set():
                return
            waiting.append((get, pool.submit(perform, get)))
            budget -= get.size_bytes
        while waiting:
            done, future = take()
            yield done, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_into(
    provider: Provider,
    info: ObjectInfo,
    buffer: Buffer,
    *,
    start: int = 0,
    transfer: TransferOptions | None = None,
) -> int:
    """Fill a buffer with bytes of one object, in parallel ranges and without a copy.

    Args:
        provider: where the object is.
        info: the object as ``head`` or a listing gives it; every range is pinned to it.
        buffer: any writable C-contiguous buffer.
        start: offset of the first byte in the object.
        transfer: sizes and concurrency; default: the provider's.

    Returns:
        How many bytes were filled: all of the buffer, or fewer where the object ends.

    Raises:
        PreconditionError: the object is no longer the one of ``info``.
        IntegrityError: what was read of it, whole, does not match its checksum.
        RangeError: ``start`` is past the end.
    """
    transfer = transfer or provider.transfer
    view = provider.buffer(buffer)
    stop = min(info.size, start + len(view))
    if start > info.size:
        raise provider.range_error(info.key, ByteRange(start), info.size)
    told: list[Checksum] = [] if (found := parse(info.checksum)) is None else [found]
    gets = (
        Get(provider, info.key, span, info, len(piece), piece, told)
        for span in split_range(start, stop, transfer.range_size_bytes)
        for piece in (view[span.start - start :][: span.length_in(info.size)],)
    )
    whole = (start, stop) == (0, info.size)
    total: RangedSum | None = None
    with closing(get_many(gets, transfer, ordered=False)) as bodies:
        for get, body in bodies:
            if isinstance(body, ProviderError):
                raise body
            if len(body) != get.size_bytes:
                raise IntegrityError(
                    f"{get.size_bytes} bytes were asked for, the range came as {len(body)} bytes",
                    uri=provider.uri(info.key),
                    operation="get",
                )
            if whole and get.byte_range is not None:
                total = total or RangedSum(told[0] if told else None, transfer.verify)
                total.add(get.byte_range.start, body)
    if total is not None:
        _check(provider, info, total.verdict(info.size))
    return stop - start


def _check(provider: Provider, info: ObjectInfo, verdict: Verdict) -> None:
    if verdict is Verdict.WRONG:
        raise IntegrityError(
            f"the {info.size} bytes that came in ranges do not match the checksum that the "
            "service tells of the object",
            uri=provider.uri(info.key),
            operation="get",
        )
    if verdict is Verdict.UNVERIFIED:
        count(unverified_reads=1)


@dataclass(frozen=True, slots=True)
class Composed:
    """What ``compose_many`` made, and which way.

    Attributes:
        info: the object.
        way: ``server``: no byte came through the client; ``client``: all did; ``mixed``.
        client_bytes: bytes that came through the client.
        calls: server-side joins or copied parts.
    """

    info: ObjectInfo
    way: Literal["server", "mixed", "client"]
    client_bytes: int
    calls: int


def compose_many(
    provider: Provider,
    sources: Sequence[str | ObjectInfo],
    destination: str,
    *,
    if_absent: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Composed:
    """Join any number of objects of any size, in order, whatever the service's limits.

    Where the service joins whole objects (GCS), more than ``limits.max_sources`` make a tree
    of composes, whose temporaries are removed. Where it joins by copied parts (S3, OSS),
    neighbours too small for a part are read and sent on, one part in memory at a time.

    Args: as for ``Provider.compose``.

    Raises: as ``Provider.compose``; ``LimitError`` only when no number of parts suffices.
    """
    infos = [s if isinstance(s, ObjectInfo) else provider.head(s) for s in sources]
    full = [info for info in infos if info.size]
    limits = provider.limits
    if limits.joins_server_side:
        plan = plan_join([i.size for i in full], provider.transfer.part_size_bytes, limits)
        if len(full) > limits.max_sources or any(len(part) > 1 for part in plan):
            return _join_parts(provider, full, plan, destination, if_absent, metadata)
    elif len(full) > limits.max_sources:
        return _compose_tree(provider, full, destination, if_absent, metadata)
    info = provider.compose(infos, destination, if_absent=if_absent, metadata=metadata)
    return _said(provider, Composed(info, "server", 0, max(1, len(full))))


def _join_parts(
    provider: Provider,
    sources: list[ObjectInfo],
    plan: list[list[Piece]],
    destination: str,
    if_absent: bool,
    metadata: Mapping[str, str] | None,
) -> Composed:
    """Publish an object whose parts are copied by the service where it can be."""
    streamed = 0
    with provider.start_multipart(destination, if_absent=if_absent, metadata=metadata) as upload:
        for number, part in enumerate(plan, 1):
            if len(part) == 1:
                piece = part[0]
                span = ByteRange(piece.start, piece.stop)
                upload.copy_part(number, sources[piece.source], span)
            else:
                data = b"".join(_read(provider, sources[piece.source], piece) for piece in part)
                upload.put_part(number, data)
                streamed += len(data)
        info = upload.complete()
    copied = sum(len(part) == 1 for part in plan)
    return _said(provider, Composed(info, "mixed" if copied else "client", streamed, copied))


def _read(provider: Provider, source: ObjectInfo, piece: Piece) -> bytes:
    return provider.get(source.key, ByteRange(piece.start, piece.stop), if_match=source)


def _compose_tree(
    provider: Provider,
    sources: list[ObjectInfo],
    destination: str,
    if_absent: bool,
    metadata: Mapping[str, str] | None,
) -> Composed:
    """Compose level by level; temporaries lie beside the destination and are removed."""
    mark, numbers = secrets.token_hex(4), numbers_from()
    temporaries: list[str] = []
    level: list[ObjectInfo] = sources
    try:
        while len(level) > provider.limits.max_sources:
            groups, at = compose_groups(len(level), provider.limits.max_sources), 0
            joined: list[ObjectInfo] = []
            for size in groups:
                members, at = level[at : at + size], at + size
                if len(members) == 1:
                    joined += members
                    continue
                temporaries.append(composite_name(destination, mark, next(numbers)))
                joined.append(provider.compose(members, temporaries[-1], metadata={}))
            level = joined
        info = provider.compose(level, destination, if_absent=if_absent, metadata=metadata)
    finally:
        provider.delete(temporaries)
    return _said(provider, Composed(info, "server", 0, len(temporaries) + 1))


def _said(provider: Provider, composed: Composed) -> Composed:
    _log.info(
        "composed %s (%d bytes): %s, %d bytes through the client",
        provider.uri(composed.info.key),
        composed.info.size,
        composed.way,
        composed.client_bytes,
    )
    return composed
