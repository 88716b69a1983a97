"""Small datasets in memory, and a look at what they ask of their store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector import IterableDataset, MapDataset
from providers.testing import Fault, FaultyProvider

if TYPE_CHECKING:
    from providers import Provider

__all__ = ["KINDS", "AnyDataset", "Kind", "behind", "fill", "gets"]

KINDS = (MapDataset, IterableDataset)
Kind = type[MapDataset[Any]] | type[IterableDataset[Any]]
AnyDataset = MapDataset[Any] | IterableDataset[Any]


def fill(bucket: Provider, count: int) -> str:
    """Put ``train/0000`` and so on, each holding its number as text, and return their prefix."""
    for number in range(count):
        bucket.put(f"train/{number:04}", str(number).encode())
    return bucket.uri("train/")


def behind(dataset: AnyDataset, *plan: Fault) -> FaultyProvider:
    """Put a provider that records, and fails by plan, in front of a dataset's only one."""
    maker = dataset._maker
    ((root, provider),) = maker.providers.items()
    faulty = FaultyProvider(provider, plan)
    maker.providers = {root: faulty}
    return faulty


def gets(faulty: FaultyProvider) -> list[str]:
    """Return the keys that were read, in order."""
    return [call.key for call in faulty.calls if call.operation == "get"]
