"""One entry of a distributed checkpoint as torch's own reader expects it: a tensor or bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import io

    from typing_extensions import Buffer

    from connector.writer import ObjectWriter

__all__ = ["write_bytes", "write_tensor"]


_END_BYTES = 4096
_ENDS = slice(None, _END_BYTES), slice(-_END_BYTES, None)


class _Watched:
    """Passes on what is written to a part, and notes where a tensor's own bytes begin.

    Args:
        file: the part.
        own: the tensor's bytes.

    Attributes:
        raw: offset in the part; None: they have not been seen.
    """

    def __init__(self, file: ObjectWriter, own: memoryview) -> None:
        self._file = file
        self._own = own
        self.raw: int | None = None

    def write(self, data: Buffer) -> int:
        """Write as the part does."""
        view = memoryview(data)
        # A header may be as long as a small tensor, but not have its bytes too.
        if view.nbytes == len(self._own) and all(view[s] == self._own[s] for s in _ENDS):
            self.raw = self._file.tell()
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: a part is sent as it fills."""


def write_tensor(file: ObjectWriter, tensor: torch.Tensor) -> int | None:
    """Write a tensor by ``torch.save``; return the offset of its bytes in the part, if known.

    Args:
        file: the part.
        tensor: any device, any strides; its elements are written in C order.
    """
    plain = tensor.detach().cpu().contiguous()
    if plain.untyped_storage().nbytes() != plain.nbytes:
        plain = plain.clone()
    own: Any = plain.reshape(-1).view(torch.uint8).numpy()
    watched: Any = _Watched(file, memoryview(own))
    torch.save(plain, watched)
    raw: int | None = watched.raw
    return raw if plain.nbytes else None


def write_bytes(file: ObjectWriter, data: io.BytesIO) -> None:
    """Write what a planner has serialised."""
    with data.getbuffer() as view:
        file.write(view)
