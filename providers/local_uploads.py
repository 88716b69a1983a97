"""Uploads in parts to a file: parts of one size go straight to where they will stay."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from providers.directories import Place, copy_bytes, write_all
from providers.errors import IntegrityError
from providers.uploads import MultipartUpload

if TYPE_CHECKING:
    from providers.local import LocalProvider
    from providers.values import ByteRange, ObjectInfo

__all__ = ["LocalUpload"]


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a part lies.

    Attributes:
        place: the hidden file that holds it.
        offset: its first byte in there.
        size: its bytes.
    """

    place: Place
    offset: int
    size: int


class LocalUpload(MultipartUpload):
    """A hidden file in the destination's directory.

    The first part to arrive sets a size; every part no larger is written to its place as if
    all had that size. Where that was right for all but the last, completing the upload is a
    rename, otherwise one copy.
    """

    def __init__(
        self, provider: LocalProvider, key: str, write_id: str, *, if_absent: bool
    ) -> None:
        super().__init__(provider, key, write_id)
        self._files = provider
        self._if_absent = if_absent
        self._place = provider.place(key)
        self._whole = self._place.temporary()
        self._unit_bytes = 0
        self._apart: dict[int, Place] = {}
        self._choosing = threading.Lock()
        self._whole.create()

    def _slot(self, number: int, size: int) -> _Slot:
        with self._choosing:
            if not self._unit_bytes:
                self._unit_bytes = size
            if size <= self._unit_bytes:
                return _Slot(self._whole, (number - 1) * self._unit_bytes, size)
            if number not in self._apart:
                self._apart[number] = self._place.temporary()
                self._apart[number].create()
            return _Slot(self._apart[number], 0, size)

    @override
    def _put_part(self, number: int, data: memoryview) -> _Slot:
        slot = self._slot(number, len(data))
        with slot.place.opened(os.O_WRONLY) as file:
            write_all(file, data, slot.offset)
        return slot

    @override
    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> _Slot:
        slot = self._slot(number, byte_range.length_in(source.size))
        with slot.place.opened(os.O_WRONLY) as file:
            self._files.copy_range(source, byte_range, file, slot.offset)
        return slot

    @override
    def _complete(self, receipts: dict[int, _Slot]) -> None:
        if self._lies_in_order(list(receipts.values())):
            with self._whole.opened(os.O_WRONLY) as file:
                os.ftruncate(file, sum(slot.size for slot in receipts.values()))
                os.fsync(file)
            self._whole.publish(self._place.name, if_absent=self._if_absent)
        else:
            self._join(receipts)
        self._abort()

    def _lies_in_order(self, slots: list[_Slot]) -> bool:
        """Whether the hidden file already is the object, but for what follows it."""
        end = 0
        for slot in slots:
            if slot.place is not self._whole or slot.offset != end:
                return False
            end += slot.size
        return True

    def _join(self, receipts: dict[int, _Slot]) -> None:
        def fill(file: int) -> None:
            offset = 0
            for number, slot in receipts.items():
                with slot.place.opened(os.O_RDONLY) as part:
                    copied = copy_bytes(part, slot.offset, file, offset, slot.size)
                if copied < slot.size:
                    raise IntegrityError(
                        f"part {number} has only {copied} of its {slot.size} bytes left",
                        uri=self._files.uri(self.key),
                        operation="complete",
                    )
                offset += slot.size

        self._files.write(self.key, fill, if_absent=self._if_absent)

    @override
    def _abort(self) -> None:
        for place in (*self._apart.values(), self._whole):
            place.remove()
