"""The bytes of an object in the making: one buffer, one put or an upload in parts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from providers import LimitError, ProviderError
from providers.planning import part_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers import MultipartUpload, ObjectInfo, Provider, TransferOptions

__all__ = ["Parts"]

_log = logging.getLogger(__name__)

_GROWTH_STEPS = 10
"""Parts of an object of unknown size double after every tenth of the parts there may be."""

_HINT_SLACK = 8
"""A hint may fall short by an eighth: torch.save adds to what the tensors hold."""


class Parts:
    """The object in the making: a buffer that fills, and the upload its full parts go to.

    This is all that knows how bytes travel; the writer above it only knows when.

    Args:
        provider: where the object will be.
        key: its key.
        if_absent: as for ``Provider.put``.
        metadata: as for ``Provider.put``.
        size_hint: bytes to come, where known.
        transfer: sizes of parts.

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
        self._if_absent = if_absent
        self._metadata = metadata
        self._limits = provider.limits
        hint = size_hint or 0
        if hint < 0:
            raise ValueError(f"write {provider.uri(key)}: size_hint {hint} is negative")
        try:
            wanted = transfer.part_size_bytes
            self._first = part_size(hint + hint // _HINT_SLACK, wanted, self._limits)
        except LimitError as error:
            raise provider.limit_error("write", key, str(error)) from None
        self._planned = -(-hint // self._first)
        self._put_bytes = min(transfer.multipart_threshold_bytes, self._limits.max_put_bytes)
        self._buffer = bytearray()
        self._upload: MultipartUpload | None = None
        self._sent = 0

    def add(self, view: memoryview) -> None:
        """Copy bytes into the buffer; send it when it is full and more is to come."""
        at = 0
        while at < len(view):
            if len(self._buffer) >= self._room():
                self._send_full()
            piece = view[at : at + self._room() - len(self._buffer)]
            self._buffer += piece
            at += len(piece)
            self.size += len(piece)

    def publish(self) -> ObjectInfo:
        """Make the object appear."""
        if self._upload is None and len(self._buffer) <= self._put_bytes:
            return self._provider.put(
                self._key, self._buffer, if_absent=self._if_absent, metadata=self._metadata
            )
        if self._buffer:
            self._send(self._buffer)
        return self._started().complete()

    def drop(self) -> None:
        """Forget the bytes here, and abort the upload there."""
        upload, self._upload = self._upload, None
        self._buffer = bytearray()
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

    def _part_bytes(self, number: int) -> int:
        """Return the size of a part: the planned one, growing where the plan ends."""
        if self._limits.equal_parts:
            return self._first
        unplanned = max(0, number - 1 - self._planned)
        doublings = unplanned // max(1, self._limits.max_parts // _GROWTH_STEPS)
        return min(self._first << doublings, self._limits.max_part_bytes)

    def _room(self) -> int:
        """How many bytes the buffer takes before something has to be sent."""
        room = self._part_bytes(self._sent + 1)
        return room if self._upload else max(room, self._put_bytes)

    def _send_full(self) -> None:
        """Send the buffer's full parts and keep the rest."""
        view = memoryview(self._buffer)
        self._buffer = bytearray()
        at = 0
        while len(view) - at >= (size := self._part_bytes(self._sent + 1)):
            self._send(view[at : at + size])
            at += size
        self._buffer += view[at:]

    def _send(self, data: bytearray | memoryview) -> None:
        if self._sent == self._limits.max_parts:
            raise self._too_many()
        self._started().put_part(self._sent + 1, data)
        self._sent += 1

    def _started(self) -> MultipartUpload:
        if self._upload is None:
            self._upload = self._provider.start_multipart(
                self._key, if_absent=self._if_absent, metadata=self._metadata
            )
        return self._upload

    def _too_many(self) -> LimitError:
        needed = 2 * self._first
        return self._provider.limit_error(
            "write", self._key, f"{self.size} bytes and more do not fit the "
            f"{self._limits.max_parts} parts this store takes; set the option part_size_bytes to "
            f"{needed} for up to {needed * self._limits.max_parts} bytes, or give the size as "
            "size_hint"
        )  # fmt: skip
