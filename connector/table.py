"""Objects by the million in packed arrays, which forked workers share and pickles copy whole."""

from __future__ import annotations

import json
from array import array
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np

from connector.mapping import MappedFile, can_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["ObjectRow", "ObjectTable", "TableBuilder"]

_to_json = json.JSONEncoder(separators=(",", ":")).encode

Numbers = TypeVar("Numbers", bound="npt.NDArray[Any]")

NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
"""Of a row that did not come from a manifest."""
_OPTIONAL = ("etag", "version", "label", "fields")
_BUCKETS_SHOWN = 3
_MAPPED_FROM_BYTES = 1 << 20
"""Below it, a file is not worth its while."""


class ObjectRow(NamedTuple):
    """What a table knows of one object.

    Attributes:
        root: ``scheme://bucket/``.
        key: the object's key, byte for byte.
        size: bytes; None: unknown.
        etag: as listed, without its quotes; None: unknown.
        version: generation or version stamp that pins reads; None: unknown.
        label: any JSON value; None without one.
        fields: the other fields of its manifest row.
    """

    root: str
    key: str
    size: int | None = None
    etag: str | None = None
    version: str | None = None
    label: Any = None
    fields: Mapping[str, Any] = NO_FIELDS

    @property
    def uri(self) -> str:
        """``scheme://bucket/key``."""
        return self.root + self.key


class _Texts:
    """UTF-8 texts in one blob; an absent one is empty.

    Args:
        blob: uint8, shape (bytes,).
        starts: int64, shape (texts,): first byte of each text.
        stops: int64, shape (texts,): one past its last byte.
    """

    __slots__ = ("blob", "starts", "stops")

    def __init__(self, blob: npt.NDArray[np.uint8], starts: Integers, stops: Integers) -> None:
        self.blob = _read_only(blob)
        self.starts = _read_only(starts)
        self.stops = _read_only(stops)

    @classmethod
    def packed(cls, blob: npt.NDArray[np.uint8], offsets: Integers) -> _Texts:
        """Make the column of texts that lie one after the other."""
        return cls(blob, offsets[:-1], offsets[1:])

    def __reduce__(self) -> tuple[Any, ...]:
        return _Texts.packed, self._pack()

    def _pack(self) -> tuple[npt.NDArray[np.uint8], Integers]:
        """Return a blob that holds these texts only, in this order, and its offsets."""
        lengths = self.stops - self.starts
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64, copy=False)
        if len(self.starts) and np.array_equal(self.starts[1:], self.stops[:-1]):
            return self.blob[self.starts[0] : self.stops[-1]], offsets
        blob = np.empty(offsets[-1], np.uint8)
        at = 0
        for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            blob[at : at + stop - start] = self.blob[start:stop]
            at += stop - start
        return blob, offsets

    def __getitem__(self, index: int) -> str:
        return self.bytes(index).decode()

    def bytes(self, index: int) -> bytes:
        return self.blob[self.starts.item(index) : self.stops.item(index)].tobytes()

    def take(self, rows: slice | Integers) -> _Texts:
        return _Texts(self.blob, self.starts[rows], self.stops[rows])


class ObjectTable:
    """Objects in order: keys in one blob, sizes and the rest in arrays.

    A table takes the bytes of its keys and 24 more an object, and what its optional columns
    (etag, version, label, fields) hold. It is read-only and keeps no Python object for any
    row: forked processes share its pages. Slices and ``take`` share the blobs; a pickle holds
    what the rows need, as a few buffers. All spawned processes map one file of a large table.

    Made by a ``TableBuilder``.
    """

    __slots__ = ("_keys", "_mapped", "_root_of", "_sizes", "_texts", "roots")

    def __init__(
        self,
        roots: tuple[str, ...],
        root_of: npt.NDArray[np.unsignedinteger[Any]] | None,
        keys: _Texts,
        sizes: Integers,
        texts: Mapping[str, _Texts],
    ) -> None:
        self.roots = roots
        self._root_of = None if root_of is None else _read_only(root_of)
        self._keys = keys
        self._sizes = _read_only(sizes)
        self._texts = texts
        self._mapped: MappedFile | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.roots, self._root_of, self._keys, self._sizes, self._texts)
        if self.nbytes < _MAPPED_FROM_BYTES or not can_map():
            return ObjectTable, state
        if self._mapped is None:
            self._mapped = MappedFile(state)
        return _unpacked, (self._mapped,)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"ObjectTable({self.summary})"

    @property
    def summary(self) -> str:
        """How many objects, and where."""
        where = ", ".join(self.roots[:_BUCKETS_SHOWN]) or "no bucket"
        more = ", ..." if len(self.roots) > _BUCKETS_SHOWN else ""
        return f"{len(self):,} objects in {where}{more}"

    def __iter__(self) -> Iterator[ObjectRow]:
        return map(self._row, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> ObjectRow: ...
    @overload
    def __getitem__(self, index: slice) -> ObjectTable: ...
    def __getitem__(self, index: int | slice) -> ObjectRow | ObjectTable:
        if isinstance(index, slice):
            return self._take(index)
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of range for {count} objects")
        return self._row(index % count)

    def _row(self, index: int) -> ObjectRow:
        size = self._sizes.item(index)
        told = {name: column[index] or None for name, column in self._texts.items()}
        label, fields = told.get("label"), told.get("fields")
        return ObjectRow(
            self.roots[0 if self._root_of is None else self._root_of.item(index)],
            self._keys[index],
            None if size < 0 else size,
            told.get("etag"),
            told.get("version"),
            None if label is None else json.loads(label),
            {} if fields is None else json.loads(fields),
        )

    def take(self, indices: Sequence[int] | Integers) -> ObjectTable:
        """Return the rows at these indices (0 or more), in that order."""
        return self._take(np.asarray(indices, np.int64))

    def _take(self, rows: slice | Integers) -> ObjectTable:
        return ObjectTable(
            self.roots,
            None if self._root_of is None else self._root_of[rows],
            self._keys.take(rows),
            self._sizes[rows],
            {name: column.take(rows) for name, column in self._texts.items()},
        )

    @property
    def keys(self) -> Iterator[str]:
        """The keys, in order."""
        return map(self._keys.__getitem__, range(len(self)))

    def keys_in(self, root: str) -> Iterator[str]:
        """The keys of one root, in order."""
        if self._root_of is None:
            return self.keys if root in self.roots else iter(())
        rows = np.flatnonzero(self._root_of == self.roots.index(root))
        return map(self._keys.__getitem__, rows.tolist())

    @property
    def sizes(self) -> Integers:
        """Bytes of each object, int64, shape (objects,); -1: unknown."""
        return self._sizes

    @property
    def labels(self) -> list[Any]:
        """The labels, in order; None where there is none."""
        labels = self._texts.get("label")
        if labels is None:
            return [None] * len(self)
        text = b",".join(labels.bytes(index) or b"null" for index in range(len(self)))
        made: list[Any] = json.loads(b"[" + text + b"]")
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the arrays hold on to."""
        arrays = [self._sizes, *([] if self._root_of is None else [self._root_of])]
        columns = [self._keys, *self._texts.values()]
        bases: dict[int, int] = {}
        for part in (*arrays, *(a for c in columns for a in (c.blob, c.starts, c.stops))):
            owner: Any = part
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            bases[id(owner)] = owner.nbytes
        return sum(bases.values())


def _unpacked(state: tuple[Any, ...]) -> ObjectTable:
    return ObjectTable(*state)


def _read_only(values: Numbers) -> Numbers:
    """Return a view that nobody can write through."""
    view = values.view()
    view.flags.writeable = False
    return view


class _TextsBuilder:
    """Grows one column of texts."""

    def __init__(self) -> None:
        self._blob = bytearray()
        self._offsets = array("q", [0])

    def put(self, row: int, text: bytes) -> None:
        """Give a row its text; those between the last and this one have none."""
        self._skip_to(row)
        self._blob += text
        self._offsets.append(len(self._blob))

    def _skip_to(self, row: int) -> None:
        skipped = row + 1 - len(self._offsets)
        if skipped:
            self._offsets.extend(repeat(len(self._blob), skipped))

    def finish(self, count: int) -> _Texts:
        """Return the column of ``count`` rows, and let go of what it was made from."""
        self._skip_to(count)
        blob, self._blob = np.array(self._blob, np.uint8), bytearray()
        offsets, self._offsets = np.array(self._offsets, np.int64), array("q")
        return _Texts.packed(blob, offsets)


class TableBuilder:
    """Takes objects one at a time and packs them; ``finish`` gives the table."""

    def __init__(self) -> None:
        self._roots: dict[str, int] = {}
        self._root_of = array("I")
        self._keys = _TextsBuilder()
        self._sizes = array("q")
        self._texts: dict[str, _TextsBuilder] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def append(self, row: ObjectRow) -> None:
        """Add one object.

        Raises:
            UnicodeEncodeError: its key is not Unicode text.
            TypeError: its label or a field is no JSON value.
        """
        number, key = len(self), row.key.encode()
        label = None if row.label is None else _to_json(row.label)
        fields = _to_json(row.fields) if row.fields else None
        self._put("etag", number, row.etag)
        self._put("version", number, row.version)
        self._put("label", number, label)
        self._put("fields", number, fields)
        self._keys.put(number, key)
        self._add_root(row.root)
        self._sizes.append(-1 if row.size is None else row.size)

    def _put(self, name: str, row: int, text: str | None) -> None:
        if text:
            if name not in self._texts:
                self._texts[name] = _TextsBuilder()
            self._texts[name].put(row, text.encode())

    def _add_root(self, root: str) -> None:
        number = self._roots.setdefault(root, len(self._roots))
        if len(self._roots) > 1:
            self._root_of.extend([0] * (len(self) - len(self._root_of)))
            self._root_of.append(number)

    def finish(self) -> ObjectTable:
        """Return the table; the builder is used up."""
        kind = np.min_scalar_type(max(0, len(self._roots) - 1))
        return ObjectTable(
            tuple(self._roots),
            np.array(self._root_of, kind) if len(self._roots) > 1 else None,
            self._keys.finish(len(self)),
            np.array(self._sizes, np.int64),
            {name: column.finish(len(self)) for name, column in self._texts.items()},
        )
