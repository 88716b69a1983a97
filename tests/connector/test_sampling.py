"""Who reads what: nothing lost, nothing twice, everyone the same, by arithmetic alone."""

from __future__ import annotations

from collections import Counter
from itertools import chain, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from connector.sampling import Even, Ranks, Share, deal

_counts = st.integers(0, 200)
_worlds = st.integers(1, 12)
_workers = st.integers(1, 6)
_batches = st.none() | st.integers(1, 9)
_evens: st.SearchStrategy[Even] = st.sampled_from(["pad", "drop", "exact"])


def _shares(count: int, world: int, even: Even) -> list[list[int]]:
    shares = [Share(count, Ranks(rank, world), even) for rank in range(world)]
    return [[share.place(position) for position in range(len(share))] for share in shares]


@given(_counts, _worlds)
def test_exact_loses_nothing_and_repeats_nothing(count: int, world: int) -> None:
    """Together the ranks read every place once; their lengths differ by one at most."""
    shares = _shares(count, world, "exact")
    assert sorted(chain.from_iterable(shares)) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(_counts, _worlds)
def test_pad_is_even_and_loses_nothing(count: int, world: int) -> None:
    """Every rank reads as many; what is read again comes from the start of the order."""
    shares = _shares(count, world, "pad")
    assert {len(share) for share in shares} == {-(-count // world)}
    places = [place for turn in zip_longest(*shares) for place in turn]
    assert places == [place % count for place in range(len(places))]


@given(_counts, _worlds)
def test_drop_is_even_and_repeats_nothing(count: int, world: int) -> None:
    """Every rank reads as many, none twice; fewer than the number of ranks are left out."""
    shares = _shares(count, world, "drop")
    assert {len(share) for share in shares} == {count // world}
    assert max(Counter(chain.from_iterable(shares)).values(), default=1) == 1
    assert count - sum(map(len, shares)) < world


@given(st.integers(1, 200), _worlds, st.sampled_from([("pad", False), ("drop", True)]))
def test_shares_are_those_of_distributed_sampler(
    count: int, world: int, even: tuple[Even, bool]
) -> None:
    """``pad`` and ``drop`` read what torch's DistributedSampler reads."""
    name, drop_last = even
    for rank, share in enumerate(_shares(count, world, name)):
        sampler: DistributedSampler[int] = DistributedSampler(
            range(count),  # type: ignore[arg-type]
            num_replicas=world,
            rank=rank,
            shuffle=False,
            drop_last=drop_last,
        )
        assert share == list(sampler)


@given(_counts, _workers, _batches)
def test_workers_split_a_share(length: int, workers: int, batch_size: int | None) -> None:
    """Whatever is dealt, the workers of a rank read each of its positions once, in order."""
    dealt = [list(deal(length, worker, workers, batch_size)) for worker in range(workers)]
    assert sorted(chain.from_iterable(dealt)) == list(range(length))
    assert all(positions == sorted(positions) for positions in dealt)


@given(_counts, _workers, st.integers(1, 9))
def test_whole_batches_are_dealt_in_turn(length: int, workers: int, batch_size: int) -> None:
    """Batch i comes from worker i mod W: taken in turn, the order is that of one worker."""
    dealt = [list(deal(length, worker, workers, batch_size)) for worker in range(workers)]
    batches = [
        [positions[at : at + batch_size] for at in range(0, len(positions), batch_size)]
        for positions in dealt
    ]
    turns = [batch for turn in zip_longest(*batches) for batch in turn if batch]
    assert turns == [
        list(range(at, min(at + batch_size, length))) for at in range(0, length, batch_size)
    ]


@given(_evens)
def test_an_empty_epoch_is_empty(even: Even) -> None:
    """Without samples every share is empty, and nothing divides by zero."""
    assert _shares(0, 3, even) == [[], [], []]


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0)])
def test_ranks_that_make_no_sense(rank: int, world: int) -> None:
    """A rank outside of its world is refused, with both numbers."""
    with pytest.raises(ValueError, match=f"rank {rank} of world size {world}"):
        Ranks(rank, world)


def test_an_unknown_way_to_be_even() -> None:
    """A misspelt ``even`` is refused with the words there are."""
    with pytest.raises(ValueError, match="pad, drop, exact"):
        Share(1, Ranks(), "padd")  # type: ignore[arg-type]
