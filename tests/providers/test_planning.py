"""The pure plans, over whatever sizes and limits Hypothesis thinks of."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from providers.errors import LimitError
from providers.planning import (
    Piece,
    coalesce_ranges,
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
