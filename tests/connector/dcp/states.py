"""States to save, empty ones to load into, and whether two are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.state_dict_loader import load as torch_load
from torch.distributed.checkpoint.state_dict_saver import save as torch_save

from connector.dcp import StorageReader, StorageWriter

if TYPE_CHECKING:
    from tests.connector.store import Store

__all__ = ["empty", "load", "same", "save", "state"]


def state(seed: int = 0) -> dict[str, Any]:
    """Return tensors of many kinds, and plain values, nested."""
    torch.manual_seed(seed)
    return {
        "model": {
            "weight": torch.rand(100, 200),
            "half": torch.rand(3, 5).to(torch.bfloat16),
            "empty": torch.empty(0, 4),
            "scalar": torch.tensor(5),
            "turned": torch.rand(50, 60).t(),
            "view": torch.rand(40, 40)[3:7, 5:9],
            "mask": torch.rand(17) > 0.5,
            "complex": torch.rand(7, dtype=torch.complex64),
        },
        "step": seed,
        "name": f"run-{seed}",
        "losses": [1.5, torch.ones(2) * seed],
    }


def empty(value: Any) -> Any:
    """Return the same structure without its values."""
    if isinstance(value, dict):
        return {name: empty(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [empty(inner) for inner in value]
    return torch.zeros_like(value) if torch.is_tensor(value) else type(value)()


def same(left: Any, right: Any) -> bool:
    """Whether two states are equal to the last bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[n], right[n]) for n in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if torch.is_tensor(left):
        return left.dtype == right.dtype and torch.equal(left, right)
    return bool(left == right)


def save(store: Store, path: str, value: dict[str, Any], **settings: Any) -> None:
    """Save a state to a path of a store."""
    settings = {"options": store.options, "transfer": store.transfer, **settings}
    torch_save(value, storage_writer=StorageWriter(store.uri + path, **settings))


def load(store: Store, path: str, into: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Load a state from a path of a store."""
    settings = {"options": store.options, "transfer": store.transfer, **settings}
    torch_load(into, storage_reader=StorageReader(store.uri + path, **settings))
    return into
