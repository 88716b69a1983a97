"""A tensor whose bytes lie in a part in C order: which of them a load wants, and where they go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from connector.dcp.loading import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.distributed.checkpoint.planner import ReadItem

    from connector.dcp.commit import Part

__all__ = ["Stored"]


class Stored(NamedTuple):
    """One saved tensor, or one saved chunk of it.

    Attributes:
        raw: offset of its first byte in the part.
        dtype: of its elements.
        sizes: its shape.
    """

    raw: int
    dtype: torch.dtype
    sizes: tuple[int, ...]

    def spans(
        self, part: Part, item: ReadItem, target: torch.Tensor, commit: Callable[[], None]
    ) -> Iterator[Span]:
        """Yield what is to be read: the rows that the wanted block touches.

        Args:
            part: where the tensor lies.
            item: says which block is wanted.
            target: takes it, any device, type and strides.
            commit: is called once it has.
        """
        starts, lengths = tuple(item.storage_offsets), tuple(item.lengths)
        row_bytes = self.dtype.itemsize * math.prod(self.sizes[1:])
        first, rows = (starts[0], lengths[0]) if self.sizes else (0, 1)
        start = self.raw + first * row_bytes
        inner = tuple(zip(starts[1:], lengths[1:], strict=True))
        whole_rows = all(
            (at, length) == (0, size)
            for (at, length), size in zip(inner, self.sizes[1:], strict=True)
        )
        into = _bytes_of(target) if whole_rows and target.dtype == self.dtype else None

        def take(data: memoryview) -> None:
            if into is None and data:
                block = torch.frombuffer(data, dtype=self.dtype).reshape(rows, *self.sizes[1:])
                for dimension, (at, length) in enumerate(inner, 1):
                    block = block.narrow(dimension, at, length)
                target.copy_(block.reshape(target.shape))
            commit()

        yield Span(part, start, start + rows * row_bytes, into, take)


def _bytes_of(tensor: torch.Tensor) -> memoryview | None:
    """Return a tensor's own memory, flat; None: it does not lie in one piece on the CPU."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or not tensor.numel():
        return None
    flat: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(flat)
