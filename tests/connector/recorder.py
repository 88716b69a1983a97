"""A memory bucket that notes each step of a write, and can fail at any of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from providers import Limits, TransferOptions
from providers.memory import MemoryProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers import MultipartUpload, ObjectInfo

__all__ = ["Recorder"]

_numbers = itertools.count()


class Recorder(MemoryProvider):
    """A bucket of its own.

    Args:
        limits: limits of the provider to change.
        **transfer: fields of its transfer options; by default one attempt, one part at a time.
    """

    def __init__(self, limits: Mapping[str, Any] | None = None, **transfer: Any) -> None:
        options = TransferOptions(**{"max_attempts": 1, "max_parts_in_flight": 1, **transfer})
        super().__init__(f"recorded-{next(_numbers)}", None, options)
        self._changed = replace(super().limits, **(limits or {}))
        self.steps: list[tuple[str, int]] = []
        self.fault: Callable[[str], None] = lambda _: None
        self.part_fault: Callable[[int], None] = lambda _: None

    @property
    @override
    def limits(self) -> Limits:
        return self._changed

    @property
    def parts(self) -> list[int]:
        """Sizes of the parts sent so far."""
        return [size for step, size in self.steps if step == "part"]

    def held(self, key: str) -> bytes | None:
        """Return an object's bytes; None where there is none."""
        found = self._bucket.objects.get(key)
        return None if found is None else found[1]

    def _note(self, step: str, size: int) -> None:
        self.steps.append((step, size))
        self.fault(step)

    @override
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        self._note("put", len(data))
        return super()._put(key, data, if_absent=if_absent, metadata=metadata)

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        self._note("start", 0)
        upload = super()._start_multipart(key, write_id, if_absent=if_absent, metadata=metadata)
        self._watch(upload, "_put_part", "part")
        self._watch(upload, "_complete", "complete")
        self._watch(upload, "_abort", "abort")
        return upload

    def _watch(self, upload: MultipartUpload, method: str, step: str) -> None:
        original = getattr(upload, method)

        def watched(*arguments: Any) -> Any:
            self._note(step, len(arguments[-1]) if step == "part" else 0)
            if step == "part":
                self.part_fault(arguments[0])
            return original(*arguments)

        setattr(upload, method, watched)
