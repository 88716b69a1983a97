"""Pure: which rank, and which of its workers, reads which sample, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Even", "Ranks", "Share", "deal"]

Even = Literal["pad", "drop", "exact"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process among those that train together.

    Attributes:
        rank: from 0 on.
        world_size: how many there are.

    Raises:
        ValueError: there is no such rank.
    """

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank {self.rank} of world size {self.world_size}: "
                "ranks are 0 to world_size - 1, and world_size is 1 or more"
            )


@dataclass(frozen=True, slots=True)
class Share:
    """The samples of one rank in one epoch.

    Rank r takes places r, r + world, r + 2 world, ... of the epoch's order.

    Attributes:
        count: samples of the epoch.
        ranks: whose share.
        even: ``pad``: every rank gets ceil(count / world) samples, those that lack coming from
            the start of the order again; ``drop``: every rank gets floor(count / world), the
            rest is left out; ``exact``: none twice, none lost, ranks may differ by one.

    Raises:
        ValueError: ``even`` is none of the three.
    """

    count: int
    ranks: Ranks
    even: Even = "pad"

    def __post_init__(self) -> None:
        if self.even not in get_args(Even):
            raise ValueError(f"even={self.even!r}: it is one of {', '.join(get_args(Even))}")

    def __len__(self) -> int:
        rank, world = self.ranks.rank, self.ranks.world_size
        extra = {"pad": world - 1, "drop": 0, "exact": world - 1 - rank}[self.even]
        return (self.count + extra) // world

    def place(self, position: int) -> int:
        """Return which place of the epoch's order comes at a position of the share."""
        return (self.ranks.rank + position * self.ranks.world_size) % self.count


def deal(length: int, worker: int, workers: int, batch_size: int | None) -> Iterable[int]:
    """Return the positions of a share that one of its workers takes, in order.

    Args:
        length: samples of the share.
        worker: from 0 on.
        workers: how many there are.
        batch_size: whole batches are dealt in turn, batch i to worker i mod ``workers``, as
            DataLoader asks for them; None: single samples are.
    """
    if batch_size is None:
        return range(worker, length, workers)
    starts = range(worker * batch_size, length, workers * batch_size)
    return chain.from_iterable(range(at, min(at + batch_size, length)) for at in starts)
