"""Objects by the million take little memory, and are what went in."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import pickle
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.table import ObjectRow, ObjectTable, TableBuilder

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
_names = st.text(min_size=1).filter(lambda text: text.isprintable())
_rows = st.builds(
    ObjectRow,
    root=st.sampled_from(["s3://a/", "gs://b/", "file:///"]),
    key=_names,
    size=st.none() | st.integers(0, 1 << 50),
    etag=st.none() | _names,
    version=st.none() | _names,
    label=_json_values,
    fields=st.dictionaries(st.text(), _json_values, max_size=2),
)


def _table(rows: list[ObjectRow]) -> ObjectTable:
    builder = TableBuilder()
    for row in rows:
        builder.append(row)
    return builder.finish()


def _many(count: int, roots: int = 1) -> ObjectTable:
    builder = TableBuilder()
    for number in range(count):
        builder.append(ObjectRow(f"s3://b{number % roots}/", f"train/{number:08}.jpg", number))
    return builder.finish()


def _key_bytes(table: ObjectTable) -> int:
    return sum(len(key.encode()) for key in table.keys)


@given(st.lists(_rows, max_size=8), st.data())
def test_rows_come_out_as_they_went_in(rows: list[ObjectRow], data: st.DataObject) -> None:
    """Rows, slices, chosen rows, labels and pickles of all of them agree with a list."""
    table = _table(rows)
    assert list(table) == rows
    assert table.labels == [row.label for row in rows]
    cut = data.draw(st.slices(len(rows)))
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    for part, expected in (
        (table, rows),
        (table[cut], rows[cut]),
        (table.take(chosen), [rows[index] for index in chosen]),
    ):
        assert list(part) == expected
        assert part.labels == [row.label for row in expected]
        for protocol in (4, 5):
            assert list(pickle.loads(pickle.dumps(part, protocol))) == expected  # noqa: S301 ours


@given(st.lists(_rows, min_size=1, max_size=8))
def test_keys_of_one_root(rows: list[ObjectRow]) -> None:
    """The keys of a root are those of its rows, in order."""
    table = _table(rows)
    for root in table.roots:
        assert list(table.keys_in(root)) == [row.key for row in rows if row.root == root]


def test_index_out_of_range() -> None:
    """Indices count from either end, and one past them says how many there are."""
    table = _many(3)
    assert table[-3] == table[0]
    for index in (3, -4):
        with pytest.raises(IndexError, match="3 objects"):
            table[index]


def test_what_is_unknown_stays_unknown() -> None:
    """No size, no etag, no version and no label are None, not zero and not empty."""
    row = _table([ObjectRow("s3://b/", "k")])[0]
    assert (row.size, row.etag, row.version, row.label, row.fields) == (None, None, None, None, {})
    assert row.uri == "s3://b/k"


@pytest.mark.parametrize("roots", [1, 2])
def test_memory_of_a_table(roots: int) -> None:
    """A table takes the bytes of its keys and at most 24 more an object, whoever counts."""
    count = 50_000
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    table = _many(count, roots)
    gc.collect()
    grown = sum(s.size_diff for s in tracemalloc.take_snapshot().compare_to(before, "filename"))
    tracemalloc.stop()
    allowed = _key_bytes(table) + 24 * count
    assert table.nbytes <= allowed
    assert grown <= allowed + 100_000


def test_slices_share_memory() -> None:
    """A part of a table shares its keys' blob; its pickle holds no more than its own rows."""
    table = _many(10_000)
    for part in (table[100:200], table[::-100], table.take(range(100))):
        assert np.shares_memory(part._keys.blob, table._keys.blob)
        assert len(pickle.dumps(part, 5)) < 100 * (len("train/00000000.jpg") + 24) + 1000


def test_pickling_is_a_few_buffers() -> None:
    """Protocol 5 hands the arrays out as they are; no object is pickled one by one."""
    table = _many(10_000, roots=2)
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(table, 5, buffer_callback=buffers.append)
    assert len(buffers) <= 4
    assert len(rest) < 1000
    assert list(pickle.loads(rest, buffers=buffers)) == list(table)  # noqa: S301 our own


def _tell(table: ObjectTable, connection: Connection) -> None:
    """Say where the memory of a table is, and what is in it."""
    owner: Any = table._keys.blob
    while isinstance(owner, np.ndarray):
        owner = owner.base
    mapped = isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap)
    connection.send((mapped, table[len(table) // 2], len(table)))
    connection.close()


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_spawned_processes_map_a_large_table(start: str) -> None:
    """Spawned processes share the pages of one file that has no name, and read the same rows."""
    context: Any = multiprocessing.get_context(start)
    tables = [_many(100_000), _many(200_000)[50_000:150_000]]
    for table in tables:
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=_tell, args=(table, sending))
        child.start()
        sending.close()
        assert receiving.recv() == (True, table[50_000], 100_000)
        child.join()
        assert child.exitcode == 0
        receiving.close()
        child.close()


def test_a_table_is_read_only() -> None:
    """What all readers share cannot be changed through it."""
    with pytest.raises(ValueError, match="read-only"):
        _many(1).sizes[0] = 5
