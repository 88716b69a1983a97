"""What is written arrives, byte for byte, in as few requests as it takes."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.writer import ObjectWriter
from providers import PreconditionError, UnsupportedError
from tests.connector.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connector.store import Store

MIB = 1 << 20
OLD = b"the old object"


def _noise(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


# ---- On every store --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "more"), [(0, 0), (0, 1), (1, -1), (1, 0), (1, 1), (2, 0), (2, 17)]
)
def test_any_size_arrives_whole(store: Store, parts: int, more: int) -> None:
    """Objects of every size, in one put or in parts, are stored byte for byte."""
    data = _noise(parts * store.part_bytes + more)
    provider = store.provider()
    with ObjectWriter(provider, store.key("dir/data")) as file:
        cut = len(data) // 3
        assert file.write(data[:cut]) == cut
        file.write(memoryview(data)[cut:])
        assert file.tell() == len(data)
        assert store.raw_get("dir/data") is None
    assert store.raw_get("dir/data") == data
    assert store.unfinished("dir/data") == []
    assert file.info.size == len(data)
    assert file.info.etag == provider.head(store.key("dir/data")).etag


@pytest.mark.parametrize("parts", [0, 2])
def test_an_object_is_replaced_only_at_the_end(store: Store, parts: int) -> None:
    """Until the writer is closed, readers see the old object."""
    store.raw_put("data", OLD)
    data = _noise(parts * store.part_bytes + 9)
    with ObjectWriter(store.provider(), store.key("data")) as file:
        file.write(data)
        assert store.raw_get("data") == OLD
    assert store.raw_get("data") == data


def test_aborting_leaves_nothing_behind(store: Store) -> None:
    """What was sent before an abort is dropped on the store, and the old object stands."""
    store.raw_put("data", OLD)
    one_by_one = store.transfer.model_copy(update={"max_parts_in_flight": 1})
    file = ObjectWriter(store.provider(), store.key("data"), transfer=one_by_one)
    file.write(_noise(store.part_bytes + 9))
    assert len(store.unfinished("data")) == 1
    file.abort()
    assert store.unfinished("data") == []
    assert store.raw_get("data") == OLD


@pytest.mark.parametrize("parts", [0, 1])
def test_only_if_absent(store: Store, parts: int) -> None:
    """With ``if_absent`` an existing object stands; a store without the means says so at once."""
    data = _noise(parts * store.part_bytes + 9)
    provider = store.provider()

    def write(name: str) -> None:
        with ObjectWriter(provider, store.key(name), if_absent=True) as file:
            file.write(data)

    if not provider.limits.conditional_put:
        with pytest.raises(UnsupportedError, match="conditional_put"):
            ObjectWriter(provider, store.key("new"), if_absent=True)
        return
    write("new")
    assert store.raw_get("new") == data
    store.raw_put("old", OLD)
    with pytest.raises(PreconditionError):
        write("old")
    assert store.raw_get("old") == OLD
    assert store.unfinished("old") == []


@pytest.mark.parametrize("parts", [0, 1])
def test_metadata_stays_with_the_object(store: Store, parts: int) -> None:
    """The user's metadata is kept; a store that keeps none says so before anything is written."""
    provider, key = store.provider(), store.key("data")
    if not store.keeps_metadata:
        with pytest.raises(UnsupportedError, match="keeps_metadata"):
            ObjectWriter(provider, key, metadata={"epoch": "3"})
        return
    with ObjectWriter(provider, key, metadata={"epoch": "3"}) as file:
        file.write(_noise(parts * store.part_bytes + 9))
    assert provider.head(key).metadata == {"epoch": "3"}


# ---- In how many requests ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "threshold", "steps"),
    [
        (0, 10, [("put", 0)]),
        (10, 10, [("put", 10)]),
        (11, 10, [("start", 0), ("part", 10), ("part", 1), ("complete", 0)]),
        (20, 10, [("start", 0), ("part", 10), ("part", 10), ("complete", 0)]),
        (25, 25, [("put", 25)]),
        (26, 25, [("start", 0), ("part", 10), ("part", 10), ("part", 6), ("complete", 0)]),
        (4, 5, [("put", 4)]),
        (6, 5, [("start", 0), ("part", 6), ("complete", 0)]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_requests(
    size: int, threshold: int, steps: list[tuple[str, int]], *, at_once: bool
) -> None:
    """Up to the threshold one put, beyond it parts of the size asked for; never an extra one."""
    provider = Recorder(part_size_bytes=10, multipart_threshold_bytes=threshold)
    data = _noise(size)
    with ObjectWriter(provider, "k") as file:
        for at in range(0, size, size if at_once else 1) if size else ():
            file.write(data[at : at + (size if at_once else 1)])
    assert provider.held("k") == data
    made = provider.steps
    # The memory backend ends an upload by what also aborts it.
    assert [step for step in made if step[0] != "abort"] == steps


def test_the_stores_own_limits_win() -> None:
    """Parts are never smaller than the store takes, nor a put larger."""
    provider = Recorder({"min_part_bytes": 7, "max_put_bytes": 8}, part_size_bytes=1)
    with ObjectWriter(provider, "k") as file:
        file.write(bytes(20))
    assert provider.parts == [7, 7, 6]


@given(pieces=st.lists(st.integers(0, 30), max_size=20), part=st.integers(1, 12))
def test_any_pieces_make_the_same_object(pieces: list[int], part: int) -> None:
    """However the bytes are cut into writes, the object is their concatenation."""
    provider = Recorder(part_size_bytes=part, multipart_threshold_bytes=part)
    data = _noise(sum(pieces))
    at = 0
    with ObjectWriter(provider, "k") as file:
        for size in pieces:
            assert file.write(data[at : at + size]) == size
            at += size
            assert file.tell() == at
    assert provider.held("k") == data
    assert set(provider.parts[:-1]) <= {part}


# ---- As a file ---------------------------------------------------------------------------------


def test_it_is_a_file_for_writing() -> None:
    """It says that it writes only, cannot seek, and flush does nothing."""
    provider = Recorder()
    with ObjectWriter(provider, "k") as file:
        file.write(b"abc")
        assert (file.writable(), file.readable(), file.seekable()) == (True, False, False)
        for refused in (
            file.read, file.readline, file.detach, file.fileno, file.truncate,
            lambda: file.seek(0), lambda: file.readinto(bytearray(1)),
        ):  # fmt: skip
            with pytest.raises((io.UnsupportedOperation, OSError)):
                refused()
        file.flush()
        assert provider.steps == []
        assert file.tell() == 3
        assert repr(file) == f"<ObjectWriter 'memory://{provider.bucket}/k', open>"
    assert repr(file).endswith("closed>")


def test_it_keeps_the_scripts_uri() -> None:
    """The URI in its errors is the one that the script wrote, where there is one."""
    provider = Recorder()
    plain = ObjectWriter(provider, "k")
    assert (plain.uri, plain.key) == (f"memory://{provider.bucket}/k", "k")
    named = ObjectWriter(provider, "k", uri="gcs://bucket/k")
    with pytest.raises(ValueError, match="gcs://bucket/k is not published: its writer is open"):
        _ = named.info
    plain.abort()
    named.abort()


def test_it_does_not_travel() -> None:
    """A writer is neither pickled nor copied: two of them could publish."""
    with ObjectWriter(Recorder(), "k") as file:
        for travel in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                travel(file)


@pytest.mark.parametrize("end", [ObjectWriter.close, ObjectWriter.abort])
@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.write(b"x"),
        lambda file: file.tell(),
        lambda file: file.flush(),
        lambda file: file.writable(),
        lambda file: file.readable(),
        lambda file: file.seekable(),
        lambda file: file.__enter__(),
    ],
)
def test_closed_files_raise(
    end: Callable[[ObjectWriter], None], use: Callable[[ObjectWriter], object]
) -> None:
    """Every use of a closed or aborted writer is a ValueError."""
    file = ObjectWriter(Recorder(), "k")
    end(file)
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        use(file)
