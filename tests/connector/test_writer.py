"""What is written arrives, byte for byte, in as few requests as it takes."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import pickle
import tracemalloc
import zipfile
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from connector.writer import ObjectWriter
from providers import LimitError, PreconditionError, UnsupportedError
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
    file = ObjectWriter(store.provider(), store.key("data"))
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


# ---- What can be written -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "buffer",
    [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"memoryview")[2:],
        array("d", [1.5, 2.5]),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.zeros((0, 3)),
        np.array(7.0),
        np.zeros(2, [("a", "<u2"), ("b", "u1", (3,))]),
        pickle.PickleBuffer(b"pickle buffer"),
        torch.arange(5).numpy(),
    ],
    ids=lambda buffer: type(buffer).__name__,
)
def test_any_contiguous_buffer(buffer: Any) -> None:
    """Every buffer's bytes are written and counted, whatever its format and shape."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    size = memoryview(buffer).nbytes
    with ObjectWriter(provider, "k") as file:
        assert file.write(buffer) == size
        assert file.tell() == size
    assert provider.held("k") == memoryview(buffer).tobytes()


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ("text", TypeError),
        (None, TypeError),
        (np.zeros((4, 4))[:, ::2], BufferError),
        (np.zeros((4, 4), order="F"), BufferError),
    ],
)
def test_other_things_are_refused_and_do_no_harm(refused: Any, error: type[Exception]) -> None:
    """What is no contiguous buffer is refused, and the writer goes on."""
    provider = Recorder()
    with ObjectWriter(provider, "k") as file:
        file.write(b"be")
        with pytest.raises(error):
            file.write(refused)
        file.write(b"fore")
    assert provider.held("k") == b"before"


def test_what_was_written_may_change() -> None:
    """The bytes are copied before ``write`` returns, and the buffer is free again."""
    provider = Recorder(part_size_bytes=4, multipart_threshold_bytes=4)
    buffer = bytearray(b"0123456789")
    with ObjectWriter(provider, "k") as file:
        file.write(buffer)
        buffer[:] = b"x" * 10
        buffer += b"resized"
    assert provider.held("k") == b"0123456789"


def test_memory_is_bounded_by_a_part() -> None:
    """Writing many parts holds about one of them, however the bytes are cut."""

    class Discarding(Recorder):
        def _watch(self, upload: Any, method: str, _: str) -> None:
            setattr(upload, method, lambda *_: b"")

    provider = Discarding(part_size_bytes=MIB, multipart_threshold_bytes=MIB)
    piece = bytes(10_000)
    large = bytes(5 * MIB)
    tracemalloc.start()
    try:
        file = ObjectWriter(provider, "k")
        for _ in range(2000):
            file.write(piece)
        file.write(large)
        _, peak = tracemalloc.get_traced_memory()
        file.abort()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * MIB


def test_what_writes_files_can_write_it() -> None:
    """torch, numpy, pickle, csv, gzip and zipfile write to it as to a file."""
    provider = Recorder(part_size_bytes=100, multipart_threshold_bytes=100)

    def written(write: Callable[[ObjectWriter], object]) -> io.BytesIO:
        with ObjectWriter(provider, "k") as file:
            write(file)
        return io.BytesIO(provider.held("k") or b"")

    def write_zip(file: ObjectWriter) -> None:
        with zipfile.ZipFile(file, "w") as zipped:
            zipped.writestr("name", b"body" * 100)

    def write_gzip(file: ObjectWriter) -> None:
        with gzip.GzipFile(fileobj=file, mode="wb") as zipped:
            zipped.write(b"body" * 100)

    def write_rows(file: ObjectWriter) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        csv.writer(text).writerows([["ä", 1]] * 99)
        text.close()

    tensor = torch.arange(1000)
    assert torch.equal(torch.load(written(lambda file: torch.save(tensor, file))), tensor)
    assert np.load(written(lambda file: np.save(file, np.arange(99)))).sum() == 99 * 49
    assert pickle.load(written(lambda file: pickle.dump([1] * 99, file))) == [1] * 99  # noqa: S301 ours
    assert zipfile.ZipFile(written(write_zip)).read("name") == b"body" * 100
    assert gzip.decompress(written(write_gzip).read()) == b"body" * 100
    assert written(write_rows).read() == "ä,1\r\n".encode() * 99


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
