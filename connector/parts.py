"""The bytes of an object in the making: one put, or parts that are sent while it goes on."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from connector.part_buffers import PartBuffer, PartBuffers
from connector.part_sizes import PartSizes
from connector.part_threads import PartThreads
from providers import LimitError, ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers import ObjectInfo, Provider, TransferOptions

__all__ = ["Parts"]

_log = logging.getLogger(__name__)


class Parts:
    """The object in the making: a buffer that fills, and the upload that full ones go to.

    This is all that knows how bytes travel; the writer above it only knows when. Nothing in
    here knows the writer, so that one that nobody holds is collected while its parts travel.

    Args:
        provider: where the object will be.
        key: its key.
        if_absent: as for ``Provider.put``.
        metadata: as for ``Provider.put``.
        size_hint: bytes to come, where known.
        transfer: sizes of parts, and how many at once.

    Attributes:
        size: bytes added so far.
    """

    def __init__(
        self,
        provider: Provider,
        key: str,
        *,
        if_absent: bool,
        metadata: Mapping[str, str] | None,
        size_hint: int | None,
        transfer: TransferOptions,
    ) -> None:
        self.size = 0
        self._provider = provider
        self._key = key
        hint = size_hint or 0
        if hint < 0:
            raise ValueError(f"write {provider.uri(key)}: size_hint {hint} is negative")
        try:
            self._sizes = PartSizes(provider.limits, transfer, hint)
        except LimitError as error:
            raise provider.limit_error("write", key, str(error)) from None
        self._put = partial(provider.put, key, if_absent=if_absent, metadata=metadata)
        self._buffers = PartBuffers(transfer)
        self._threads = PartThreads(
            partial(provider.start_multipart, key, if_absent=if_absent, metadata=metadata),
            transfer.max_parts_in_flight,
        )
        self._buffer: PartBuffer | None = None
        self._filled = 0
        self._sent = 0

    def add(self, view: memoryview) -> None:
        """Copy bytes into the buffer; have it sent when it is full and more is to come.

        Raises:
            BaseException: what an earlier part failed with.
        """
        self._collect()
        at = 0
        while at < len(view):
            buffer = self._with_room()
            piece = view[at : at + buffer.size - self._filled]
            buffer.memory[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            at += len(piece)
            self.size += len(piece)

    def publish(self) -> ObjectInfo:
        """Make the object appear."""
        if not self._sent and self._filled <= self._sizes.put_bytes:
            return self._put(self._buffer.memory[: self._filled] if self._buffer else b"")
        if self._buffer is not None:
            self._send(self._buffer, 0, self._filled)
            self._buffer = None
        return self._threads.finish().complete()

    def drop(self) -> None:
        """Forget the bytes here, and abort the upload there; no thread is left."""
        upload = self._threads.stop()
        self._buffer = None
        self._buffers.drop()
        if upload is not None:
            upload.abort()

    def drop_quietly(self) -> None:
        """Drop where another error is under way, or nobody is left to hear of one."""
        try:
            self.drop()
        except ProviderError:
            _log.warning(
                "could not abort the unfinished upload of %s; it is invisible, and its parts "
                "stay until a lifecycle rule for unfinished uploads removes them",
                self._provider.uri(self._key),
                exc_info=True,
            )

    def _with_room(self) -> PartBuffer:
        """Return the buffer that is being filled, or the next one where it is full."""
        if self._buffer is None:
            self._buffer = self._next(max(self._sizes.first, self._sizes.put_bytes))
        elif self._filled == self._buffer.size:
            self._send_full(self._buffer)
        return self._buffer

    def _send_full(self, full: PartBuffer) -> None:
        """Send the buffer's full parts, and keep the rest in the next."""
        at = 0
        while full.size - at >= (size := self._sizes.of(self._sent + 1)):
            self._send(full, at, at + size)
            at += size
        # The first buffer alone may hold several parts, and a rest.
        rest = full.memory[at:]
        self._buffer = self._next(size)
        self._buffer.memory[: len(rest)] = rest
        self._filled = len(rest)

    def _send(self, buffer: PartBuffer, start: int, stop: int) -> None:
        limits = self._provider.limits
        if self._sent == limits.max_parts:
            raise self._too_many(limits.max_parts)
        self._sent += 1
        buffer.unsent += 1
        self._threads.send(self._sent, buffer, buffer.memory[start:stop])

    def _next(self, size: int) -> PartBuffer:
        """Return a buffer to fill; wait for a part to be sent where there are enough."""
        while (buffer := self._buffers.take(size)) is None:
            self._collect(wait=True)
        return buffer

    def _collect(self, *, wait: bool = False) -> None:
        """Take buffers back whose parts are all sent."""
        while (buffer := self._threads.ended(wait=wait)) is not None:
            wait = False
            buffer.unsent -= 1
            if not buffer.unsent:
                self._buffers.give_back(buffer)

    def _too_many(self, max_parts: int) -> LimitError:
        needed = 2 * self._sizes.first
        return self._provider.limit_error(
            "write", self._key, f"{self.size} bytes and more do not fit the {max_parts} parts "
            f"this store takes; set the option part_size_bytes to {needed} for up to "
            f"{needed * max_parts} bytes, or give the size as size_hint"
        )  # fmt: skip
