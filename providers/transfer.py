"""Transfers of many objects, written once over the verbs."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from providers.errors import ProviderError
from providers.planning import compose_groups, plan_join
from providers.values import ByteRange, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from typing import Literal

    from providers.base import Provider
    from providers.options import TransferOptions
    from providers.planning import Piece

__all__ = ["Composed", "Get", "compose_many", "get_many"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Get:
    """One read of a stream of reads.

    Attributes:
        provider: where the object is.
        key: the object.
        byte_range: what of it; None: all.
        if_match: pins the read to a version.
        size_bytes: what the read is expected to hold; counts against the byte budget.
    """

    provider: Provider
    key: str
    byte_range: ByteRange | None = None
    if_match: ObjectInfo | None = None
    size_bytes: int = 0

    def run(self) -> bytes | ProviderError:
        """Read, and return the error instead of raising it."""
        try:
            return self.provider.get(self.key, self.byte_range, if_match=self.if_match)
        except ProviderError as error:
            return error


def get_many(
    gets: Iterable[Get], transfer: TransferOptions
) -> Generator[bytes | ProviderError, None, None]:
    """Read many objects at once and yield their bodies in order.

    Pull-based: a read starts only when fewer than ``transfer.prefetch_objects`` bodies and
    ``transfer.max_bytes_in_flight`` bytes are under way or wait to be taken. An error is
    yielded in its place, so that the consumer decides; closing the generator drops the rest.
    """
    waiting: deque[tuple[Future[bytes | ProviderError], int]] = deque()
    budget = transfer.max_bytes_in_flight
    pool = ThreadPoolExecutor(transfer.max_in_flight, thread_name_prefix="connector-get")
    try:
        for get in gets:
            while waiting and (
                len(waiting) >= transfer.prefetch_objects or get.size_bytes > budget
            ):
                future, size = waiting.popleft()
                yield future.result()
                budget += size
            waiting.append((pool.submit(get.run), get.size_bytes))
            budget -= get.size_bytes
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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
    mark, numbers = secrets.token_hex(4), count()
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
                temporaries.append(f"{destination}.composing-{mark}-{next(numbers)}")
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
