"""The base of files over objects, as type checkers want it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

__all__ = ["BinaryFile"]

if TYPE_CHECKING:

    class BinaryFile(io.BufferedIOBase, BinaryIO):
        """What ``torch.save`` and ``torch.load`` declare to take."""

else:
    # Inheriting from BinaryIO would add attributes (name, mode) that are None.
    BinaryFile = io.BufferedIOBase
