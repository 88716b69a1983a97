"""Pure plans: which ranges to read together, which parts to send, how to join. No network here.

The sums of consecutive ranges are joined here too: that is arithmetic on their lengths.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from providers.errors import LimitError
from providers.values import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from providers.values import Limits

__all__ = [
    "Piece",
    "coalesce_ranges",
    "combine_crc",
    "compose_groups",
    "part_size",
    "plan_join",
    "split_range",
]


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one source.

    Attributes:
        source: index into the list of sources.
        start: first byte of the source.
        stop: one past the last byte.
    """

    source: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Bytes in the piece."""
        return self.stop - self.start


def coalesce_ranges(
    ranges: Sequence[tuple[int, int]], max_gap_bytes: int
) -> list[tuple[int, int, list[int]]]:
    """Join ranges that overlap or lie at most ``max_gap_bytes`` apart.

    Args:
        ranges: (start, stop) pairs in any order.
        max_gap_bytes: the most unwanted bytes to read in order to save a request.

    Returns:
        (start, stop, indices of the ranges served), by start.
    """
    joined: list[tuple[int, int, list[int]]] = []
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, stop = ranges[index]
        if joined and start - joined[-1][1] <= max_gap_bytes:
            first, last, members = joined[-1]
            joined[-1] = (first, max(last, stop), [*members, index])
        else:
            joined.append((start, stop, [index]))
    return joined


def split_range(start: int, stop: int, size_bytes: int) -> Iterator[ByteRange]:
    """Cut [start, stop) into ranges of ``size_bytes``; the last may be smaller."""
    for at in range(start, stop, size_bytes):
        yield ByteRange(at, min(at + size_bytes, stop))


def combine_crc(first: int, second: int, second_bytes: int, polynomial: int) -> int:
    """Return the CRC of two consecutive ranges from the CRC of each.

    For any CRC whose bits are reflected and whose initial value equals its final mask: CRC-32,
    CRC-32C, CRC-64/XZ and CRC-64/NVME. Such a sum is a polynomial over GF(2), lowest power in
    the highest bit; ``second_bytes`` more bytes multiply the first by x to the power of their
    bits, and the masks cancel out.

    Args:
        first: CRC of the bytes that come first; 0 of none.
        second: CRC of those that follow; 0 of none.
        second_bytes: how many follow. Time grows with the logarithm of this.
        polynomial: reflected, as in ``0xEDB88320``; its highest bit tells the width.
    """
    return _multiply(_power(second_bytes, polynomial), first, polynomial) ^ second


def _multiply(left: int, right: int, polynomial: int) -> int:
    """Multiply two reflected polynomials modulo a third."""
    product, place = 0, 1 << (polynomial.bit_length() - 1)
    while left:
        if left & place:
            product ^= right
            left ^= place
        place >>= 1
        right = right >> 1 ^ polynomial if right & 1 else right >> 1
    return product


@functools.lru_cache(maxsize=64)  # Most parts of an object have one size.
def _power(count: int, polynomial: int) -> int:
    """Return x to the power of the bits in ``count`` bytes."""
    product = 1 << (polynomial.bit_length() - 1)  # One, whose only bit is the highest.
    exponent = 3  # The bits of a byte: x to the power of two cubed.
    while count:
        if count & 1:
            product = _multiply(_repeated_square(exponent, polynomial), product, polynomial)
        count >>= 1
        exponent += 1
    return product


@functools.cache
def _repeated_square(count: int, polynomial: int) -> int:
    """Return x, squared ``count`` times, modulo the polynomial."""
    if not count:
        return 1 << (polynomial.bit_length() - 2)
    root = _repeated_square(count - 1, polynomial)
    return _multiply(root, root, polynomial)


def part_size(total_bytes: int, wanted_bytes: int, limits: Limits) -> int:
    """Return the part size for an object of known size, within the limits.

    Raises:
        LimitError: no part size is large enough.
    """
    needed = -(-total_bytes // limits.max_parts)
    if needed > limits.max_part_bytes:
        raise LimitError(
            f"{total_bytes} bytes need parts of {needed} bytes; the service takes at most "
            f"{limits.max_parts} parts of {limits.max_part_bytes} bytes"
        )
    return max(needed, min(max(wanted_bytes, limits.min_part_bytes), limits.max_part_bytes))


def compose_groups(count: int, max_sources: int) -> list[int]:
    """Return how many neighbours each compose call of one level of a tree takes.

    The groups keep order, none exceeds ``max_sources``, and a group of one needs no call.
    """
    calls = -(-count // max_sources)
    base, extra = divmod(count, calls)
    return [base + (index < extra) for index in range(calls)]


def plan_join(sizes: Sequence[int], part_size_bytes: int, limits: Limits) -> list[list[Piece]]:
    """Plan the parts of an upload that joins sources in order.

    A part of one piece is copied by the service; a part of several pieces, or of a piece
    the service would refuse, goes through the client.

    Args:
        sizes: bytes of each source; empty ones are left out.
        part_size_bytes: size of a part that goes through the client.
        limits: of the provider that joins.

    Raises:
        LimitError: no number of parts suffices.
    """
    pieces = [Piece(i, 0, size) for i, size in enumerate(sizes) if size]
    if not pieces:
        return []
    cut = _equal_parts if limits.equal_parts else _legal_parts
    parts = cut(pieces, part_size_bytes, limits)
    if len(parts) <= limits.max_parts:
        return parts
    return _slices(pieces, part_size(sum(sizes), part_size_bytes, limits))


def _equal_parts(pieces: list[Piece], wanted_bytes: int, limits: Limits) -> list[list[Piece]]:
    """All parts but the last have one size: that of the sources where they agree."""
    total = sum(piece.size for piece in pieces)
    sizes = {piece.size for piece in pieces[:-1]}
    agreed = len(sizes) == 1 and pieces[-1].size <= max(sizes)
    if agreed and _smallest_copied(limits) <= max(sizes) <= limits.max_part_bytes:
        return [[piece] for piece in pieces]
    return _slices(pieces, part_size(total, wanted_bytes, limits))


def _smallest_copied(limits: Limits) -> int:
    """Return the smallest source, but the last, that makes a part by itself."""
    return max(limits.min_join_bytes, limits.min_part_bytes)


def _slices(pieces: list[Piece], size: int) -> list[list[Piece]]:
    """Cut the joined sources every ``size`` bytes, wherever that falls."""
    parts: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        start = piece.start
        while start < piece.stop:
            if not room:
                parts.append([])
                room = size
            stop = min(piece.stop, start + room)
            parts[-1].append(Piece(piece.source, start, stop))
            room -= stop - start
            start = stop
    return parts


def _legal_parts(pieces: list[Piece], wanted_bytes: int, limits: Limits) -> list[list[Piece]]:
    """Large sources alone, small neighbours together until they make a legal part."""
    parts: list[list[Piece]] = []
    group: list[Piece] = []
    room = min(max(wanted_bytes, limits.min_part_bytes), limits.max_part_bytes)
    for piece in pieces:
        rest = piece
        filled = sum(member.size for member in group)
        if group and filled < limits.min_part_bytes:
            # Borrow from this source what the group lacks, or all of it where the rest
            # would be too small to be a part of its own.
            take = min(limits.min_part_bytes - filled, rest.size)
            if rest.size - take < _smallest_copied(limits):
                take = rest.size
            group.append(Piece(rest.source, rest.start, rest.start + take))
            rest = Piece(rest.source, rest.start + take, rest.stop)
        if not rest.size:
            continue
        if rest.size >= _smallest_copied(limits):
            parts.extend([group] if group else [])
            parts.extend([cut] for cut in _cut(rest, limits))
            group = []
        elif sum(member.size for member in group) + rest.size <= room:
            group.append(rest)
        else:
            parts.extend([group] if group else [])
            group = [rest]
    return [*parts, group] if group else parts


def _cut(piece: Piece, limits: Limits) -> list[Piece]:
    """Cut a source into equal pieces no larger than a part may be."""
    count = -(-piece.size // limits.max_part_bytes)
    bounds = [piece.start + piece.size * index // count for index in range(count + 1)]
    return [Piece(piece.source, bounds[i], bounds[i + 1]) for i in range(count)]
