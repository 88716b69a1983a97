"""How many bytes a training state will take, told from its tensors before it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["tensor_bytes"]


def tensor_bytes(state: Any) -> int:
    """Return the bytes that ``torch.save`` will write for the tensors of a state.

    Walks mappings, lists, tuples and sets and looks at no value, microseconds for each tensor.
    A storage counts once and whole, however many tensors share it, as it is saved. What else
    there is is not counted: this is a hint, and may fall short.
    """
    storages: dict[int, int] = {}
    seen: set[int] = set()
    left = [state]
    while left:
        value = left.pop()
        if isinstance(value, torch.Tensor):
            storages.update(_storage_of(value))
        elif isinstance(value, Mapping | list | tuple | set | frozenset) and id(value) not in seen:
            seen.add(id(value))
            left.extend(value.values() if isinstance(value, Mapping) else value)
    return sum(storages.values())


def _storage_of(tensor: torch.Tensor) -> dict[int, int]:
    """Return where a tensor's storage lies and how many bytes it has; nothing, if it has none."""
    if tensor.device.type == "meta":
        return {}
    try:
        storage = tensor.untyped_storage()
        return {storage.data_ptr(): storage.nbytes()}
    except (RuntimeError, NotImplementedError):
        # Sparse tensors and some subclasses have no storage of their own.
        return {}
