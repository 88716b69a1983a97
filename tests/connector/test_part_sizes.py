"""Parts are as large as it takes for all of an object to fit, and no larger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.part_sizes import PartSizes
from connector.writer import ObjectWriter
from providers import LimitError, TransferOptions
from providers.memory import MemoryProvider
from tests.connector.recorder import Recorder

MIB = 1 << 20
TIB = 1 << 40

_CLOUD = replace(
    MemoryProvider("bucket").limits,
    min_part_bytes=5 * MIB,
    max_part_bytes=5 << 30,
    max_parts=10_000,
)


def test_parts_of_an_unknown_size_double_every_thousand() -> None:
    """From 16 MiB on, doubling after each 1,000 parts, 10,000 parts hold 12 TiB."""
    sizes = PartSizes(_CLOUD, TransferOptions(), 0)
    assert [sizes.of(number) for number in (1, 1000, 1001, 2000, 2001, 10_000)] == [
        16 * MIB, 16 * MIB, 32 * MIB, 32 * MIB, 64 * MIB, 5 << 30,
    ]  # fmt: skip
    assert sum(sizes.of(number) for number in range(1, 10_001)) > 12 * TIB


def test_parts_stop_growing_at_the_largest_allowed() -> None:
    """No part is larger than the store takes."""
    sizes = PartSizes(_CLOUD, TransferOptions(part_size_bytes=1 << 30), 0)
    assert [sizes.of(number) for number in (1, 1001, 2001, 3001, 9999)] == [
        1 << 30, 2 << 30, 4 << 30, 5 << 30, 5 << 30,
    ]  # fmt: skip


@given(size=st.integers(1, 40 * TIB))
def test_a_hint_fixes_the_size_from_the_start(size: int) -> None:
    """All of a hinted size, and an eighth more, fits into 10,000 parts of one size."""
    sizes = PartSizes(_CLOUD, TransferOptions(), size)
    assert sizes.of(1) == sizes.of(-(-size // sizes.first)) == sizes.first
    assert sizes.first * 10_000 >= size + size // 8
    assert sizes.first == 16 * MIB or sizes.first * 10_000 < size + size // 8 + 10_000


@given(hint=st.integers(1, TIB))
def test_an_object_three_times_its_hint_fits(hint: int) -> None:
    """A hint that is far too small, up to 1 TiB, costs larger parts, never the object."""
    sizes = PartSizes(_CLOUD, TransferOptions(), hint)
    assert sum(sizes.of(number) for number in range(1, 10_001)) > 3 * hint


def test_a_size_hint_makes_parts_large_enough() -> None:
    """With a hint all parts have one size, so that they suffice, and some are left over."""
    provider = Recorder({"max_parts": 10}, part_size_bytes=2, multipart_threshold_bytes=2)
    with ObjectWriter(provider, "k", size_hint=80) as file:
        file.write(bytes(88))
    assert provider.parts == [9] * 9 + [7]


def test_a_size_hint_that_is_exceeded_is_only_a_hint() -> None:
    """An object larger than its hint goes on in parts that double."""
    provider = Recorder({"max_parts": 10}, part_size_bytes=2, multipart_threshold_bytes=2)
    with ObjectWriter(provider, "k", size_hint=6) as file:
        file.write(bytes(40))
    assert provider.parts == [2, 2, 2, 2, 4, 8, 16, 4]


def test_parts_grow_where_the_size_is_unknown() -> None:
    """Without a hint parts double with every tenth of those allowed, up to the largest."""
    provider = Recorder(
        {"max_parts": 20, "max_part_bytes": 30}, part_size_bytes=4, multipart_threshold_bytes=4
    )
    with ObjectWriter(provider, "k") as file:
        file.write(bytes(300))
    assert provider.parts == [4, 4, 8, 8, 16, 16, *[30] * 8, 4]


def test_equal_parts_do_not_grow() -> None:
    """Where parts must be equal, an object that is too large names the option and a value."""
    provider = Recorder(
        {"max_parts": 4, "equal_parts": True}, part_size_bytes=3, multipart_threshold_bytes=3
    )
    with ObjectWriter(provider, "k") as file:
        file.write(bytes(12))
    assert provider.parts == [3] * 4
    with pytest.raises(LimitError, match=r"part_size_bytes to 6 for up to 24 bytes.*size_hint"):
        _write(provider, bytes(13))
    assert provider.unfinished_uploads() == []
    with ObjectWriter(provider, "k", size_hint=20) as file:
        file.write(bytes(22))
    assert provider.parts[-4:] == [6, 6, 6, 4]


def _write(provider: Recorder, data: bytes) -> None:
    with ObjectWriter(provider, "other") as file:
        file.write(data)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"size_hint": 10_000}, LimitError, r"write memory://recorded-\d+/k: 11250 bytes need"),
        ({"size_hint": -1}, ValueError, "size_hint -1 is negative"),
        ({"key": ""}, LimitError, "a key has 1 to"),
        ({"key": "k" * 1025}, LimitError, "a key has 1 to"),
    ],
)
def test_impossible_writes_are_refused_at_once(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    """What the store will never take is refused before anything is written."""
    provider = Recorder({"max_parts": 10, "max_part_bytes": 100})
    with pytest.raises(error, match=words):
        ObjectWriter(provider, **{"key": "k", **arguments})
    assert provider.steps == []
