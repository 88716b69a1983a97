"""The pure plans, over whatever sizes and limits Hypothesis thinks of."""

import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import fastcrc
import google_crc32c
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from providers.errors import LimitError
from providers.planning import (
    Piece,
    coalesce_ranges,
    combine_crc,
    compose_groups,
    part_size,
    plan_join,
    split_range,
)
from providers.values import Limits

LIMITS = Limits(
    min_part_bytes=5,
    max_part_bytes=50,
    max_parts=10_000,
    max_sources=10_000,
    min_join_bytes=5,
    max_put_bytes=50,
    max_copy_bytes=50,
    conditional_put=True,
    equal_parts=False,
    lists_in_order=True,
    joins_server_side=True,
)

ranges = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 40)).map(lambda r: (r[0], r[0] + r[1]))
)


@st.composite
def join_limits(draw: st.DrawFn) -> Limits:
    """Limits as services have them: a part may be many times the smallest."""
    smallest = draw(st.integers(1, 10))
    return replace(
        LIMITS,
        min_part_bytes=smallest,
        min_join_bytes=draw(st.integers(1, smallest)),
        max_part_bytes=smallest * draw(st.integers(3, 20)),
        max_parts=draw(st.sampled_from([3, 10, 10_000])),
        equal_parts=draw(st.booleans()),
    )


sources = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 300)), max_size=20)
wanted = st.integers(1, 400)


class TestJoin:
    @given(sources, wanted, join_limits())
    def test_every_byte_comes_once_in_order(
        self, sizes: list[int], wanted_bytes: int, limits: Limits
    ) -> None:
        """The pieces, one after the other, are the sources, one after the other."""
        pieces = [piece for part in plan(sizes, wanted_bytes, limits) for piece in part]
        at = 0
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        for piece in pieces:
            assert 0 <= piece.start < piece.stop <= sizes[piece.source]
            assert starts[piece.source] + piece.start == at
            at += piece.size
        assert at == sum(sizes)

    @given(sources, wanted, join_limits())
    def test_every_part_is_legal(self, sizes: list[int], wanted_bytes: int, limits: Limits) -> None:
        """Every part but the last is large enough, none is too large, and they are not too many."""
        parts = plan(sizes, wanted_bytes, limits)
        lengths = [sum(piece.size for piece in part) for part in parts]
        assert all(length >= limits.min_part_bytes for length in lengths[:-1])
        assert all(0 < length <= limits.max_part_bytes for length in lengths)
        assert len(parts) <= limits.max_parts

    @given(sources, wanted, join_limits())
    def test_equal_parts_are_equal(
        self, sizes: list[int], wanted_bytes: int, limits: Limits
    ) -> None:
        """Where the endpoint wants it, all parts but the last have one size, the last no more."""
        parts = plan(sizes, wanted_bytes, replace(limits, equal_parts=True))
        lengths = [sum(piece.size for piece in part) for part in parts]
        assert len(set(lengths[:-1])) <= 1
        assert not lengths or lengths[-1] <= lengths[0]

    @given(sources, wanted, join_limits())
    def test_a_copied_part_is_one_that_the_service_joins(
        self, sizes: list[int], wanted_bytes: int, limits: Limits
    ) -> None:
        """A part of one piece, which the service copies, is no smaller than it copies."""
        parts = plan(sizes, wanted_bytes, limits)
        for part in parts[:-1]:
            assert len(part) > 1 or part[0].size >= limits.min_join_bytes

    @given(sources, wanted, join_limits())
    def test_what_the_client_carries_fits_its_memory(
        self, sizes: list[int], wanted_bytes: int, limits: Limits
    ) -> None:
        """A part of several pieces is held whole: it is no larger than asked for or needed."""
        needed = max(
            wanted_bytes,
            2 * limits.min_part_bytes,
            -(-sum(sizes) // limits.max_parts),
        )
        for part in plan(sizes, wanted_bytes, limits):
            assert len(part) == 1 or sum(piece.size for piece in part) <= needed

    @given(st.lists(st.integers(5, 300), min_size=1, max_size=20), wanted)
    def test_large_sources_never_pass_through_the_client(
        self, sizes: list[int], wanted_bytes: int
    ) -> None:
        """Sources that the service joins are copied by it, all of them."""
        assert all(len(part) == 1 for part in plan_join(sizes, wanted_bytes, LIMITS))

    def test_small_sources_borrow_from_their_neighbour(self) -> None:
        """A group too small for a part takes what it lacks from the next source."""
        assert plan_join([3, 20], 16, LIMITS) == [
            [Piece(0, 0, 3), Piece(1, 0, 2)],
            [Piece(1, 2, 20)],
        ]

    def test_nothing_is_planned_for_nothing(self) -> None:
        """Empty sources, or none, need no part."""
        assert plan_join([], 16, LIMITS) == []
        assert plan_join([0, 0], 16, LIMITS) == []
        assert plan_join([0, 0], 16, replace(LIMITS, equal_parts=True)) == []

    def test_more_sources_than_parts_are_grouped(self) -> None:
        """More joinable sources than an upload has parts still make one object."""
        parts = plan_join([6] * 20, 16, replace(LIMITS, max_parts=10))
        assert len(parts) <= 10

    def test_too_much_for_any_number_of_parts_is_refused(self) -> None:
        """What does not fit the largest parts there may be is refused."""
        with pytest.raises(LimitError, match="10 parts of 50 bytes"):
            plan_join([501], 16, replace(LIMITS, max_parts=10))


def plan(sizes: list[int], wanted_bytes: int, limits: Limits) -> list[list[Piece]]:
    """Plan what can be planned."""
    assume(sum(sizes) <= limits.max_parts * limits.max_part_bytes)
    return plan_join(sizes, wanted_bytes, limits)


class TestCoalesce:
    @given(ranges, st.integers(0, 30))
    def test_every_range_is_served_once(self, asked: list[tuple[int, int]], gap: int) -> None:
        """Each range lies in exactly one read, which names it."""
        joined = coalesce_ranges(asked, gap)
        served = sorted(index for _, _, members in joined for index in members)
        assert served == list(range(len(asked)))
        for start, stop, members in joined:
            assert start == min(asked[index][0] for index in members)
            assert stop == max(asked[index][1] for index in members)

    @given(ranges, st.integers(0, 30))
    def test_reads_lie_apart(self, asked: list[tuple[int, int]], gap: int) -> None:
        """Reads come by start, and any two are further apart than a gap worth reading."""
        joined = coalesce_ranges(asked, gap)
        assert all(second[0] - first[1] > gap for first, second in pairwise(joined))

    @given(ranges, st.integers(0, 30))
    def test_no_read_holds_a_wider_gap(self, asked: list[tuple[int, int]], gap: int) -> None:
        """Unwanted bytes between two neighbours of a read are never more than allowed."""
        for _, _, members in coalesce_ranges(asked, gap):
            reached = None
            for start, stop in sorted(asked[index] for index in members):
                assert reached is None or start - reached <= gap
                reached = stop if reached is None else max(reached, stop)


class TestSplitting:
    @given(st.integers(0, 100), st.integers(0, 300), st.integers(1, 50))
    def test_a_range_is_cut_without_loss(self, start: int, length: int, size: int) -> None:
        """The cuts follow each other, have the size asked for but for the last, and cover all."""
        cuts = list(split_range(start, start + length, size))
        assert [cut.start for cut in cuts] == list(range(start, start + length, size))
        assert sum(cut.length_in(start + length) for cut in cuts) == length
        assert all(cut.length_in(start + length) == size for cut in cuts[:-1])

    @given(st.integers(0, 10_000), wanted, join_limits())
    def test_a_part_size_fits_the_limits(
        self, total: int, wanted_bytes: int, limits: Limits
    ) -> None:
        """The size is legal, suffices for the object, and is what was wanted where it can be."""
        assume(total <= limits.max_parts * limits.max_part_bytes)
        size = part_size(total, wanted_bytes, limits)
        assert limits.min_part_bytes <= size <= limits.max_part_bytes
        assert -(-total // size) <= limits.max_parts
        if limits.min_part_bytes <= wanted_bytes <= limits.max_part_bytes:
            assert size >= wanted_bytes

    def test_a_part_size_beyond_all_limits_is_refused(self) -> None:
        """An object that no parts can hold is refused, in numbers."""
        with pytest.raises(LimitError, match="501 bytes"):
            part_size(501, 16, replace(LIMITS, max_parts=10))

    @given(st.integers(1, 500), st.integers(2, 40))
    def test_groups_of_a_compose_tree(self, count: int, most: int) -> None:
        """Groups take all sources, none too many, in as few calls as can be, evenly."""
        groups = compose_groups(count, most)
        assert sum(groups) == count
        assert len(groups) == -(-count // most)
        assert max(groups) <= most
        assert max(groups) - min(groups) <= 1


def crc64nvme(data: bytes) -> int:
    """Compute a CRC-64/NVME bit by bit, as its definition says."""
    crc = (1 << 64) - 1
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x9A6C9329AC4BC9B5 if crc & 1 else 0)
    return crc ^ ((1 << 64) - 1)


# Source: https://reveng.sourceforge.io/crc-catalogue/17plus.htm, read 2026-12-01; each polynomial
# with its bits in reverse.
CRCS: dict[str, tuple[Callable[[bytes], int], int]] = {
    "CRC-32": (zlib.crc32, 0xEDB88320),
    "CRC-32C": (google_crc32c.value, 0x82F63B78),
    "CRC-64/XZ": (fastcrc.crc64.xz, 0xC96C5795D7870F42),
    "CRC-64/NVME": (crc64nvme, 0x9A6C9329AC4BC9B5),
}


@pytest.mark.parametrize("name", CRCS)
class TestCombiningSums:
    @given(first=st.binary(max_size=200), second=st.binary(max_size=200))
    def test_two_sums_make_that_of_the_whole(self, name: str, first: bytes, second: bytes) -> None:
        """The CRC of two pieces follows from theirs, empty pieces included."""
        total, polynomial = CRCS[name]
        joined = combine_crc(total(first), total(second), len(second), polynomial)
        assert joined == total(first + second)

    @given(pieces=st.lists(st.binary(max_size=60), max_size=12))
    def test_many_sums_make_that_of_the_whole(self, name: str, pieces: list[bytes]) -> None:
        """However many pieces there are, from none on, and in whichever grouping."""
        total, polynomial = CRCS[name]
        sums = [(total(piece), len(piece)) for piece in pieces]

        def join(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
            return combine_crc(left[0], right[0], right[1], polynomial), left[1] + right[1]

        whole = (total(b"".join(pieces)), sum(map(len, pieces)))
        assert reduce(join, sums, (0, 0)) == whole
        assert reduce(lambda right, left: join(left, right), reversed(sums), (0, 0)) == whole

    @given(first=st.integers(0, 2**32 - 1), lengths=st.lists(st.integers(0, 2**50), max_size=5))
    def test_lengths_add_up(self, name: str, first: int, lengths: list[int]) -> None:
        """Zeros of petabytes are one step; in one or in several, the sum is the same."""
        polynomial = CRCS[name][1]
        stepwise = reduce(lambda crc, size: combine_crc(crc, 0, size, polynomial), lengths, first)
        assert combine_crc(first, 0, sum(lengths), polynomial) == stepwise


@pytest.mark.parametrize("name", [name for name in CRCS if name != "CRC-64/NVME"])
def test_ranges_of_a_large_object_make_its_sum(name: str) -> None:
    """Ranges of megabytes, the last of an odd length, make the sum of the whole."""
    total, polynomial = CRCS[name]
    data = os.urandom((4 << 20) + 12_345)
    joined = 0
    for cut in split_range(0, len(data), 1 << 20):
        body = data[cut.start : cut.stop]
        joined = combine_crc(joined, total(body), len(body), polynomial)
    assert joined == total(data)
