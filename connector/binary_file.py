"""What files over objects share: a base for type checkers, and bytes of any buffer."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BinaryFile", "flat_view"]

if TYPE_CHECKING:

    class BinaryFile(io.BufferedIOBase, BinaryIO):
        """What ``torch.save`` and ``torch.load`` declare to take."""

else:
    # Inheriting from BinaryIO would add attributes (name, mode) that are None.
    BinaryFile = io.BufferedIOBase


def flat_view(buffer: Buffer) -> memoryview | None:
    """Return the bytes of a C-contiguous buffer, or None where its format has no such view.

    Nothing is exported from a ``memoryview`` on the way (as ``PickleBuffer`` would): CPython
    crashes when it collects one that is in use, and a traceback may hold it.

    Raises:
        TypeError: it is no buffer.
        BufferError: it is not C-contiguous.
    """
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("the buffer is not C-contiguous; make it so (numpy.ascontiguousarray)")
    if not view.nbytes:
        return memoryview(bytearray())
    try:
        return view.cast("B")
    except TypeError:
        # Big-endian numbers and structures, for example.
        return None
