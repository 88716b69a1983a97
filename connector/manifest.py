"""Manifests: files that name objects, one a row, with labels and whatever else is known.

| form | rows |
|---|---|
| JSON Lines | an object with ``uri`` or ``key``; ``label``, ``size``, ``etag`` or ``generation`` |
| CSV with a header | the same names; the header is a first row that holds ``uri`` or ``key`` |
| CSV without | key, label |
| tab-separated | key, label; further columns are ignored |

The suffix tells which, after a ``.gz`` is taken off: ``.jsonl``, ``.ndjson``, ``.json``; ``.csv``;
``.tsv``, ``.txt``. With any other, the first line does: one that begins with ``{`` is JSON, one
with a tab is tab-separated, one with a comma is CSV, and any other is a key alone. What is
gzipped is told by its first two bytes. Blank lines, a byte-order mark and CRLF are no rows.

Labels of JSON keep their type. Cells of CSV and tab-separated files are text as written: ``007``
and ``NA`` stay what they are.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from connector.failures import told
from connector.finding import place_of
from connector.reader import ObjectReader
from connector.stores import root_of
from connector.table import ObjectRow
from providers import ObjectURI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.stores import Stores

    Entries = Iterator[tuple[int, dict[str, Any]]]  # line number and fields of each row

__all__ = ["ManifestError", "Parser", "manifest_rows"]

Parser = Callable[[Any], Iterable[tuple[str, Any]]]
"""Reads an open binary file, as it is stored, and yields (key, label) pairs."""

_Form = Literal["json", "csv", "tab"]
_FORMS: tuple[tuple[str, _Form], ...] = (
    (".jsonl", "json"),
    (".ndjson", "json"),
    (".json", "json"),
    (".csv", "csv"),
    (".tsv", "tab"),
    (".txt", "tab"),
)
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 20
_KEY_AND_LABEL = 2


class ManifestError(ValueError):
    """A manifest, or a row of it, is not what it should be; the message says where and why."""


def manifest_rows(
    stores: Stores, uri: str, parser: Parser | None = None, base: str | None = None
) -> Iterator[ObjectRow]:
    """Yield the objects that a manifest names, reading it as they are taken.

    Args:
        stores: opens the manifest's bucket.
        uri: the manifest.
        parser: reads a format of the user's own.
        base: goes before every key, as it is; None: keys that are no URIs belong to the
            manifest's own directory.

    Raises:
        ManifestError: a row is not what it should be.
    """
    manifest = ObjectURI.parse(uri)
    provider = stores.open(manifest, alone=True)
    with ObjectReader(provider, provider.head(manifest.key), uri=uri) as reader:
        rows = _Rows(manifest, base)
        if parser is not None:
            yield from rows.of_parser(parser, reader)
        else:
            yield from rows.of_file(reader)


class _Lines:
    """The lines of a file, gzipped or not, as text with their ends, and the number of each.

    Args:
        reader: the file.
        where: its URI.
    """

    def __init__(self, reader: ObjectReader, where: ObjectURI) -> None:
        gzipped = reader.read(len(_GZIP)) == _GZIP
        reader.seek(0)
        self._file: Any = gzip.GzipFile(fileobj=cast("BinaryIO", reader)) if gzipped else reader
        self._where = where
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._raw():
            self.number += 1
            raw = line.removeprefix(_BYTE_ORDER_MARK) if self.number == 1 else line
            try:
                yield raw.decode()
            except UnicodeDecodeError as error:
                raise self.error(f"it is not valid UTF-8 ({error})") from None

    def _raw(self) -> Iterator[bytes]:
        rest = b""
        while chunk := self._chunk():
            *lines, last = (rest + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n"
            rest = last
        if rest:
            yield rest

    def _chunk(self) -> bytes:
        try:
            chunk: bytes = self._file.read(_CHUNK_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self.error(f"the gzip data after it is damaged ({error})") from error
        return chunk

    def error(self, fault: str, number: int | None = None) -> ManifestError:
        """Return the error of a line, the current one by default."""
        return ManifestError(f"{self._where} line {number or self.number}: {fault}")


class _Rows:
    """Makes rows of what a manifest holds.

    Args:
        manifest: its place.
        base: goes before every key; None: the manifest's own directory does.
    """

    def __init__(self, manifest: ObjectURI, base: str | None) -> None:
        self._manifest = manifest
        self._base = base
        self._before = str(manifest).rpartition("/")[0] + "/" if base is None else base
        self._folder: tuple[str, str] | None = None
        if "/" in self._before.partition("://")[2]:
            folder = ObjectURI.parse(self._before)
            self._folder = root_of(folder), folder.key

    def of_parser(self, parser: Parser, reader: ObjectReader) -> Iterator[ObjectRow]:
        """Yield what the user's parser finds."""
        number = 0
        try:
            for pair in parser(reader):
                number += 1
                yield self._row(_entry_of(pair))
        except Exception as error:  # noqa: BLE001 a parser may raise anything
            raise told(error, f"{self._manifest} row {number}")  # noqa: B904 it is the same error

    def of_file(self, reader: ObjectReader) -> Iterator[ObjectRow]:
        """Yield what a manifest in one of the known forms names."""
        lines = _Lines(reader, self._manifest)
        left = iter(lines)
        first = next((line for line in left if line.strip()), None)
        if first is None:
            return
        entries = {"json": _json_entries, "csv": _csv_entries, "tab": _tab_entries}
        for number, entry in entries[self._form(first)](lines, chain([first], left)):
            try:
                row = self._row(entry)
            except ValueError as error:
                raise lines.error(str(error), number) from None
            yield row

    def _form(self, first: str) -> _Form:
        name = self._manifest.key.removesuffix(".gz")
        for suffix, form in _FORMS:
            if name.endswith(suffix):
                return form
        if first.lstrip().startswith("{"):
            return "json"
        return "csv" if "," in first and "\t" not in first else "tab"

    def _row(self, entry: dict[str, Any]) -> ObjectRow:
        uri, key = entry.pop("uri", None) or None, entry.pop("key", None) or None
        for name, value in (("uri", uri), ("key", key)):
            if value is not None and not isinstance(value, str):
                raise ManifestError(f"{name} is {value!r}, which is no text")
        if uri is None and key is None:
            raise ManifestError("it names no object: uri and key are missing or empty")
        root, name = self._place(key or "") if uri is None else place_of(uri)
        label, size = entry.pop("label", None), _size(entry.pop("size", None))
        etag, version = entry.pop("etag", None), entry.pop("generation", None)
        return ObjectRow(root, name, size, _stamp(etag), _stamp(version), label, entry)

    def _place(self, key: str) -> tuple[str, str]:
        """Return root and key of what a row calls ``key``."""
        whole = self._base is None and "://" in key
        if self._folder is None or whole or not key.isascii():
            return place_of(key if whole else self._before + key)
        root, folder = self._folder
        return root, folder + key


def _entry_of(pair: Any) -> dict[str, Any]:
    """Check what a parser gave."""
    if not isinstance(pair, tuple | list) or len(pair) != _KEY_AND_LABEL:
        raise ManifestError(f"the parser gave {pair!r}, which is no (key, label)")
    key, label = pair
    json.dumps(label)  # A label that is no JSON value could not be kept.
    return {"key": key, "label": label}


def _size(value: Any) -> int | None:
    if value is None or value == "":
        return None
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        raise ManifestError(f"size is {value!r}, which is no number of bytes")
    return int(text)


def _stamp(value: Any) -> str | None:
    """Read an etag, with or without its quotes, or a generation, a number or text."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ManifestError(f"etag or generation is {value!r}, which is no text")
    return str(value).strip('"')


def _json_entries(lines: _Lines, text: Iterable[str]) -> Entries:
    for line in text:
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise lines.error(f"it is not one JSON object a line ({error})") from None
        if not isinstance(entry, dict):
            raise lines.error(f"it holds a JSON {type(entry).__name__}, not an object")
        yield lines.number, entry


def _tab_entries(lines: _Lines, text: Iterable[str]) -> Entries:
    for line in text:
        if line.strip():
            key, *rest = line.removesuffix("\n").removesuffix("\r").split("\t")
            yield lines.number, {"key": key, "label": rest[0] if rest else None}


def _csv_entries(lines: _Lines, text: Iterable[str]) -> Entries:
    header: list[str] | None = None
    for number, cells in _csv_rows(lines, text):
        if header is None:
            names = [cell.strip() for cell in cells]
            if "uri" in names or "key" in names:
                header = _checked_header(lines, names)
                continue
            header = ["key", "label"][: len(cells)]
        if len(cells) != len(header):
            raise lines.error(
                f"it has {len(cells)} columns, not {len(header)} ({', '.join(header)})", number
            )
        yield number, dict(zip(header, cells, strict=True))


def _checked_header(lines: _Lines, names: list[str]) -> list[str]:
    if len(set(names)) < len(names) or "" in names:
        raise lines.error(f"the header names a column twice, or not at all: {', '.join(names)}")
    return names


def _csv_rows(lines: _Lines, text: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each row's first line, and its cells."""
    reader = csv.reader(text, strict=True)
    start = lines.number
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield start, cells
            start = lines.number + 1
    except csv.Error as error:
        raise lines.error(f"it is no CSV ({error})", start) from None
