"""Loads ``.metadata``, a pickle, without letting it run anything but what describes checkpoints."""

from __future__ import annotations

import io
import pathlib
import pickle
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as of_torch
from typing_extensions import override

from providers import IntegrityError

__all__ = ["load_metadata"]

_METADATA = "torch.distributed.checkpoint.metadata"
_STORAGE_INFO = {("torch.distributed.checkpoint.filesystem", "_StorageInfo")}
"""Of torch's writers, and of those of the AWS, Google and Alibaba connectors, which derive."""
_PLAIN = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "bytearray"),
    ("builtins", "complex"),
    ("collections", "OrderedDict"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
}
_PATHS = {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"}
_MEMORY_FORMAT = "_MEM_FORMAT_ENCODING"


def load_metadata(data: bytes, uri: str, *, trusted: bool = False) -> Any:
    """Return the ``Metadata`` in a pickle.

    Args:
        data: the pickle.
        uri: where it lies, for errors.
        trusted: let it run any code it likes.

    Raises:
        IntegrityError: it is no pickle, not of a checkpoint, or wants something else loaded.
    """
    try:
        found = pickle.loads(data) if trusted else _Unpickler(io.BytesIO(data)).load()  # noqa: S301
    except _Forbidden as error:
        raise IntegrityError(
            f"it wants {error} loaded, which describes no checkpoint and could run any code; if "
            "you trust whoever wrote it, pass trusted=True",
            uri=uri,
            operation="load",
        ) from None
    except Exception as error:
        raise IntegrityError(
            f"it cannot be read as the metadata of a checkpoint: {error!r}",
            uri=uri,
            operation="load",
        ) from error
    if not isinstance(found, of_torch.Metadata):
        raise IntegrityError(
            f"it holds a {type(found).__name__}, no metadata of a checkpoint",
            uri=uri,
            operation="load",
        )
    return found


class _Forbidden(Exception):  # noqa: N818 caught above, told by its message
    """Something that is not admitted; the message is its name."""


class _Unpickler(pickle.Unpickler):
    @override
    def find_class(self, module: str, name: str) -> Any:
        if module == _METADATA and name in {*of_torch.__all__, _MEMORY_FORMAT}:
            return getattr(of_torch, name)
        if (module, name) in _STORAGE_INFO | _PLAIN:
            return super().find_class(module, name)
        if module.partition(".")[0] == "pathlib" and name in _PATHS:
            # Whichever system wrote it, and without a file system behind it.
            return pathlib.PurePosixPath
        if module == "torch":
            found = getattr(torch, name, None)
            if isinstance(found, torch.dtype | torch.layout | torch.memory_format):
                return found
        raise _Forbidden(f"{module}.{name}")
