"""Which rank this process is, and which worker of its DataLoader."""

from __future__ import annotations

import os

from torch import distributed
from torch.utils.data import get_worker_info

from connector.sampling import Ranks
from providers import SettingsError

__all__ = ["current_ranks", "current_worker", "in_worker"]


def current_ranks() -> Ranks:
    """Return this process's rank: torch.distributed's, else ``RANK`` and ``WORLD_SIZE``, else one.

    Raises:
        SettingsError: one of the two variables is missing or they make no sense.
    """
    if distributed.is_available() and distributed.is_initialized():
        return Ranks(distributed.get_rank(), distributed.get_world_size())
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world_size is None:
        return Ranks()
    try:
        return Ranks(int(rank or ""), int(world_size or ""))
    except ValueError:
        raise SettingsError(
            f"RANK={rank!r} and WORLD_SIZE={world_size!r} name no rank; set both to whole numbers "
            "with 0 <= RANK < WORLD_SIZE, or pass rank= and world_size="
        ) from None


def current_worker() -> tuple[int, int]:
    """Return the number of this DataLoader worker and how many there are; else (0, 1)."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def in_worker() -> bool:
    """Whether this process is a DataLoader worker."""
    return get_worker_info() is not None
