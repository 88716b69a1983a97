"""The bytes of whatever can be written: buffers of any format and layout, torch's storages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from connector.binary_file import flat_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    Writable = Buffer | torch.UntypedStorage | torch.TypedStorage

__all__ = ["byte_views"]

_PIECE_BYTES = 1 << 20
"""What does not lie in one piece is gathered in pieces that stay in the processor's cache."""


def byte_views(buffer: Writable) -> tuple[int, Iterable[memoryview]]:
    """Return how many bytes a buffer has, and views of them in C order, as ``tobytes`` gives it.

    One that lies in one piece is viewed as it is.

    Args:
        buffer: anything with the buffer protocol, or a storage of a tensor on the CPU.

    Raises:
        TypeError: it has no bytes to view.
    """
    if isinstance(buffer, torch.UntypedStorage | torch.TypedStorage):
        return _views_of(_array_of(buffer))
    return _views_of(buffer)


def _views_of(buffer: Any) -> tuple[int, Iterable[memoryview]]:
    view = memoryview(buffer)
    if view.format == "O":
        raise TypeError("an array of Python objects has no bytes of its own; pickle it")
    if view.c_contiguous and (flat := flat_view(view)) is not None:
        return view.nbytes, (flat,)
    if isinstance(buffer, memoryview):
        # Nothing may be exported from it: see ``flat_view``.
        return view.nbytes, _pieces_of_view(view)
    return view.nbytes, _pieces_of_array(np.asarray(buffer))


def _array_of(storage: torch.UntypedStorage | torch.TypedStorage) -> Any:
    untyped = storage if isinstance(storage, torch.UntypedStorage) else storage.untyped()
    if untyped.device.type != "cpu":
        raise TypeError(f"a storage on {untyped.device} has no buffer; write storage.cpu()")
    return torch.empty(0, dtype=torch.uint8).set_(untyped).numpy()


def _pieces_of_view(view: memoryview) -> Iterator[memoryview]:
    if view.ndim != 1:
        yield memoryview(view.tobytes())
        return
    count = max(1, _PIECE_BYTES // view.itemsize)
    for at in range(0, len(view), count):
        yield memoryview(view[at : at + count].tobytes())


def _pieces_of_array(array: Any) -> Iterator[memoryview]:
    if array.nbytes <= _PIECE_BYTES or not array.ndim:
        yield memoryview(array.tobytes())
        return
    count = max(1, _PIECE_BYTES * len(array) // array.nbytes)
    for at in range(0, len(array), count):
        piece = array[at : at + count]
        yield from _pieces_of_array(piece if len(piece) < len(array) else piece[0])
