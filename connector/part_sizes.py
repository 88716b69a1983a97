"""How large the parts of an object are, of a size that is known, hinted at or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from providers.planning import part_size

if TYPE_CHECKING:
    from providers import Limits, TransferOptions

__all__ = ["PartSizes"]

_GROWTH_STEPS = 10
"""Parts of an object of unknown size double after every tenth of the parts there may be: after
1,000 on every cloud, so that 10,000 parts of 16 MiB to 5 GiB hold 12 TiB. Beyond a hint they double
after every tenth of those left, so that a hint that was far too small is no harm."""

_HINT_SLACK = 8
"""A hint may fall short by an eighth: torch.save adds to what the tensors hold."""


class PartSizes:
    """The sizes of an object's parts, by their numbers.

    Args:
        limits: of the store.
        transfer: the size of part that is wanted, and the size up to which one put is.
        size_hint: bytes to come; 0: unknown.

    Attributes:
        put_bytes: objects up to here are written by one put.
        first: size of the first part.

    Raises:
        LimitError: no parts that the store takes hold so many bytes.
    """

    def __init__(self, limits: Limits, transfer: TransferOptions, size_hint: int) -> None:
        self._limits = limits
        total = size_hint + size_hint // _HINT_SLACK
        self.put_bytes = min(transfer.multipart_threshold_bytes, limits.max_put_bytes)
        self.first = part_size(total, transfer.part_size_bytes, limits)
        self._planned = -(-size_hint // self.first)
        self._step = max(1, (limits.max_parts - self._planned) // _GROWTH_STEPS)

    def of(self, number: int) -> int:
        """Return the size of a part: the planned one, growing where the plan ends."""
        if self._limits.equal_parts:
            return self.first
        unplanned = max(0, number - 1 - self._planned)
        return min(self.first << unplanned // self._step, self._limits.max_part_bytes)
