"""Manifests in every form, from anywhere, with labels as they were written."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector import IterableDataset, MapDataset, bytes_of
from connector.manifest import ManifestError
from providers import NotFoundError, open_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.connector.store import Store

_JSON_LINES = b"""{"key": "1.jpg", "label": 7, "size": 1, "split": "train"}
{"uri": "gs://other/2.jpg", "label": ["a", null, {"x": 1.5}], "generation": 17}
{"key": "sub/3.jpg", "etag": "\\"abc\\""}
"""


@pytest.fixture
def folder(bucket_name: str) -> str:
    """A folder in this process's memory."""
    return f"memory://{bucket_name}/data/"


def _put(uri: str, data: bytes) -> str:
    bucket, _, key = uri.removeprefix("memory://").partition("/")
    open_provider(f"memory://{bucket}").put(key, data)
    return uri


def _pairs(uri: str, **keywords: Any) -> list[tuple[str, Any]]:
    table = MapDataset.from_manifest_file(uri, **keywords).table
    return [(row.uri, row.label) for row in table]


def _fault(uri: str, data: bytes, **keywords: Any) -> str:
    """Return what is said of a manifest that is wrong."""
    _put(uri, data)
    with pytest.raises(ManifestError) as caught:
        MapDataset.from_manifest_file(uri, **keywords)
    assert str(caught.value).startswith(uri)
    return str(caught.value).removeprefix(uri)


def test_json_lines(folder: str) -> None:
    """Every field has its place: URI, label of any type, size, etag without quotes, the rest."""
    table = MapDataset.from_manifest_file(_put(f"{folder}m.jsonl", _JSON_LINES)).table
    assert [row.uri for row in table] == [
        f"{folder}1.jpg",
        "gs://other/2.jpg",
        f"{folder}sub/3.jpg",
    ]
    assert table.labels == [7, ["a", None, {"x": 1.5}], None]
    assert [row.size for row in table] == [1, None, None]
    assert [row.version for row in table] == [None, "17", None]
    assert [row.etag for row in table] == [None, None, "abc"]
    assert [row.fields for row in table] == [{"split": "train"}, {}, {}]


def test_csv_with_a_header(folder: str) -> None:
    """A header's names mean what they do in JSON; labels and other cells stay text."""
    text = 'label,key,size,note\n007,1.jpg,5,"a, ""b""\r\nc"\nNA,2.jpg,,\n'
    table = MapDataset.from_manifest_file(_put(f"{folder}m.csv", text.encode())).table
    assert [row.uri for row in table] == [f"{folder}1.jpg", f"{folder}2.jpg"]
    assert table.labels == ["007", "NA"]
    assert [row.size for row in table] == [5, None]
    assert [row.fields for row in table] == [{"note": 'a, "b"\r\nc'}, {"note": ""}]


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("m.csv", "1.jpg,007\n2.jpg,\n", ["007", ""]),
        ("m.csv", "1.jpg\n2.jpg\n", [None, None]),
        ("m.tsv", "1.jpg\t007\n2.jpg\t\n", ["007", ""]),
        ("m.txt", "1.jpg\ta,b\textra\n2.jpg\n", ["a,b", None]),
        ("m.ndjson", '{"key": "1.jpg"}\n{"key": "2.jpg", "label": false}\n', [None, False]),
        ("m.json", '{"key": "1.jpg", "label": "x"}\n{"key": "2.jpg"}', ["x", None]),
        ("m", '{"key": "1.jpg", "label": 0}\n{"key": "2.jpg"}\n', [0, None]),
        ("m.list", "1.jpg\tone, two\n2.jpg\tx\n", ["one, two", "x"]),
        ("m.list", "1.jpg,x\n2.jpg,y\n", ["x", "y"]),
        ("m.list", "1.jpg\n2.jpg\n", [None, None]),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("windows", [False, True])
def test_forms(
    folder: str, name: str, text: str, labels: list[Any], zipped: bool, windows: bool
) -> None:
    """The suffix, or else the first line, tells the form; gzip, BOM, CRLF, blanks are no rows."""
    data = text.encode()
    if windows:
        data = b"\xef\xbb\xbf\r\n" + data.replace(b"\n", b"\r\n \r\n\r\n")
    uri = f"{folder}{name}{'.gz' if zipped else ''}"
    _put(uri, gzip.compress(data, mtime=0) if zipped else data)
    assert _pairs(uri) == [(f"{folder}1.jpg", labels[0]), (f"{folder}2.jpg", labels[1])]


def test_gzip_is_told_by_its_bytes(folder: str) -> None:
    """A gzipped manifest needs no suffix, and one with the suffix need not be gzipped."""
    assert _pairs(_put(f"{folder}a.csv", gzip.compress(b"k,v\n", mtime=0))) == [(f"{folder}k", "v")]
    assert _pairs(_put(f"{folder}b.csv.gz", b"k,v\n")) == [(f"{folder}k", "v")]


def test_keys_keep_every_character(folder: str) -> None:
    """Nothing in a key is decoded, normalised or stripped."""
    keys = ["a b ", "a%20b", "ü/?#", "x//y", "../z", "  "]
    rows = "".join(f"{key}\tl\n" for key in keys)
    assert [uri for uri, _ in _pairs(_put(f"{folder}m.tsv", rows.encode()))] == [
        folder + key for key in keys
    ]


@pytest.mark.parametrize(
    ("base", "key", "uri"),
    [
        ("s3://b/p/", "k", "s3://b/p/k"),
        ("s3://b/p", "k", "s3://b/pk"),
        ("", "s3://b/k", "s3://b/k"),
        (None, "s3://b/k", "s3://b/k"),
        (None, "gcs://b/k", "gs://b/k"),
    ],
)
def test_base_goes_before_the_key(folder: str, base: str | None, key: str, uri: str) -> None:
    """``base`` is put before each key as it is; without it, a key may be a whole URI."""
    for name in ("m.tsv", "m.jsonl"):
        row = f"{key}\tlabel\n" if name == "m.tsv" else json.dumps({"key": key, "label": "label"})
        _put(folder + name, row.encode())
        assert _pairs(folder + name, base=base) == [(uri, "label")]


def test_base_leaves_uris_alone(folder: str) -> None:
    """A row's ``uri`` is whole as it is."""
    _put(f"{folder}m.jsonl", b'{"uri": "s3://b/k"}')
    assert _pairs(f"{folder}m.jsonl", base="gs://x/") == [("s3://b/k", None)]


_ROW = b'{"key": "1.jpg"}\n'


@pytest.mark.parametrize(
    ("name", "data", "line", "said"),
    [
        ("m.jsonl", _ROW + b"\n{oops}\n", 3, "not one JSON object"),
        ("m.jsonl", _ROW + b"[1]\n", 2, "JSON list, not an object"),
        ("m.json", b'[\n{"key": "1.jpg"}\n]', 1, "not one JSON object"),
        ("m.jsonl", _ROW + b'{"label": 1}\n', 2, "uri and key are missing or empty"),
        ("m.jsonl", _ROW + b'{"key": ""}\n', 2, "uri and key are missing or empty"),
        ("m.jsonl", _ROW + b'{"key": 5}\n', 2, "key is 5"),
        ("m.jsonl", b'{"key": "\\ud800"}\n', 1, "UTF-8"),
        ("m.jsonl", b'{"key": "k", "size": "many"}\n', 1, "size is 'many'"),
        ("m.jsonl", b'{"key": "k", "size": -1}\n', 1, "size is -1"),
        ("m.jsonl", b'{"key": "k", "size": 1.5}\n', 1, "size is 1.5"),
        ("m.jsonl", b'{"key": "k", "size": true}\n', 1, "size is True"),
        ("m.jsonl", b'{"key": "k", "etag": []}\n', 1, "etag or generation is []"),
        ("m.jsonl", b'{"uri": "k"}\n', 1, "no scheme"),
        ("m.jsonl", b'{"uri": "s3://b"}\n', 1, "names a bucket"),
        ("m.jsonl", _ROW + b'{"key": "\xff"}\n', 2, "UTF-8"),
        ("m.csv", b"key,size\nk,1\nl,x\n", 3, "size is 'x'"),
        ("m.csv", b"key,size\nk,1,2\n", 2, "3 columns, not 2 (key, size)"),
        ("m.csv", b"key,label\nk\n", 2, "1 columns, not 2"),
        ("m.csv", b"key,key\n", 1, "twice"),
        ("m.csv", b"k,l,m\n", 1, "3 columns, not 2"),
        ("m.csv", b"k,l\nk\n", 2, "1 columns, not 2"),
        ("m.csv", b"k,l\n,m\n", 2, "uri and key are missing or empty"),
        ("m.csv", b'key,label\nk,"a\nb"\nl,"open\n\n', 4, "no CSV"),
        ("m.csv", b'k,"a"b\n', 1, "no CSV"),
        ("m.tsv", b"k\tl\n\tm\n", 2, "uri and key are missing or empty"),
        ("m.tsv", b"k\tl\n\xfc\n", 2, "UTF-8"),
        ("m.csv.gz", gzip.compress(b"k,l\n" * 9, mtime=0)[:-9], 0, "gzip"),
        ("m.csv.gz", gzip.compress(b"k,l\n", mtime=0)[:-8] + bytes(8), 0, "gzip"),
    ],
)
def test_a_bad_row_is_an_error(folder: str, name: str, data: bytes, line: int, said: str) -> None:
    """A row that is not what it should be raises, with file and line."""
    fault = _fault(folder + name, data)
    assert fault.startswith(f" line {line}: ")
    assert said in fault


def test_lines_are_counted_across_quoted_line_ends(folder: str) -> None:
    """An error in CSV names the line on which its row begins, whatever lies before it."""
    fault = _fault(f"{folder}m.csv", b'k,"1\n2\n3"\n\nl,m,n\n')
    assert fault.startswith(" line 5: ")


def _like_the_shipped_one(reader: BinaryIO) -> Iterator[tuple[str, str]]:
    """Parse ``key<TAB>label`` as scripts written for another connector do."""
    for line in reader.read().decode("utf-8").strip().split("\n"):
        items = line.strip().split("\t")
        yield (items[0], items[1] if len(items) > 1 else "")


def test_a_parser_of_ones_own(folder: str) -> None:
    """A parser takes a binary file and gives keys and labels; ``base`` goes before the keys."""
    uri = _put(f"{folder}m.tsv", b"1.jpg\tn01440764\n2.jpg\n")
    pairs = [("memory://other/train/1.jpg", "n01440764"), ("memory://other/train/2.jpg", "")]
    assert _pairs(uri, parser=_like_the_shipped_one, base="memory://other/train/") == pairs
    assert _pairs(uri, parser=_like_the_shipped_one) == [(folder + "1.jpg", "n01440764"),
                                                         (folder + "2.jpg", "")]  # fmt: skip


def test_a_parser_gets_the_file_as_it_is_stored(folder: str) -> None:
    """A parser may unzip, seek, read lines and wrap the file as any other."""

    def parse(reader: BinaryIO) -> Iterator[tuple[str, list[str]]]:
        assert reader.read(2) == b"\x1f\x8b"
        reader.seek(0)
        with gzip.open(reader, "rt") as text:
            for key, *label in csv.reader(text):
                yield key, label

    uri = _put(f"{folder}m", gzip.compress(b"1.jpg,a,b\n", mtime=0))
    assert _pairs(uri, parser=parse) == [(f"{folder}1.jpg", ["a", "b"])]


@pytest.mark.parametrize(
    ("given_by_parser", "said"),
    [
        ([("k", 1), "k"], "no (key, label)"),
        ([("k", 1), ("l", 2, 3)], "no (key, label)"),
        ([("k", 1), ("", 2)], "missing or empty"),
        ([("k", 1), (b"l", 2)], "no text"),
    ],
)
def test_what_a_parser_gives_is_checked(folder: str, given_by_parser: Any, said: str) -> None:
    """What is no key and label raises, with file and row."""
    uri = _put(f"{folder}m", b"x")
    with pytest.raises(ManifestError) as caught:
        MapDataset.from_manifest_file(uri, parser=lambda _: given_by_parser)
    assert said in str(caught.value)
    assert f"{uri} row 2" in str(caught.value)


def test_labels_of_a_parser_are_json_values(folder: str) -> None:
    """A label that could not be kept raises; it is not turned into something else."""
    uri = _put(f"{folder}m", b"x")
    with pytest.raises(TypeError, match=f"bytes.*{uri} row 1"):
        MapDataset.from_manifest_file(uri, parser=lambda _: [("k", b"label")])


def test_an_error_of_a_parser_says_which_manifest(folder: str) -> None:
    """What a parser raises keeps its type and names the manifest."""
    uri = _put(f"{folder}m", b"x")

    def parse(reader: BinaryIO) -> Iterator[tuple[str, str]]:
        yield "k", "l"
        raise LookupError(f"no column in {len(reader.read())} bytes")

    with pytest.raises(LookupError, match=f"no column in 1 bytes.*{uri} row 1"):
        MapDataset.from_manifest_file(uri, parser=parse)


def test_a_manifest_that_is_not_there(folder: str) -> None:
    """A missing manifest is an error that names it."""
    with pytest.raises(NotFoundError, match=f"{folder}none.csv"):
        MapDataset.from_manifest_file(f"{folder}none.csv")


@pytest.mark.parametrize("data", [b"", b"\r\n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_a_manifest_without_rows(folder: str, data: bytes) -> None:
    """No row is no object, which is an error unless it is permitted."""
    uri = _put(f"{folder}m.csv", data)
    with pytest.raises(NotFoundError, match="0 found"):
        MapDataset.from_manifest_file(uri)
    assert len(MapDataset.from_manifest_file(uri, allow_empty=True)) == 0


def test_filters_apply_to_a_manifest(folder: str) -> None:
    """``include`` and ``exclude`` see the whole key, the manifest's folder included."""
    uri = _put(f"{folder}m.csv", b"a/1.jpg,x\na/2.png,y\nb/1.jpg,z\n")
    assert _pairs(uri, include="data/*.jpg", exclude="*/b/*") == [(f"{folder}a/1.jpg", "x")]


@given(
    st.lists(
        st.tuples(st.text(min_size=1), st.text()).filter(
            # csv.reader refuses NUL before 3.11; a lone surrogate is no UTF-8.
            lambda row: all("\0" not in cell and cell.isprintable() for cell in row)
        ),
        min_size=1,
        max_size=20,
    )
)
def test_csv_labels_are_text_as_written(rows: list[tuple[str, str]]) -> None:
    """Whatever Python's csv module writes comes back as it was, never as a number."""
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([("key", "label"), *rows])
    uri = _put("memory://csv-labels/m.csv", stream.getvalue().encode())
    expected = [row for row in rows if any(cell.strip() for cell in row)]
    if expected:
        found = [
            (row.key, row.label) for row in MapDataset.from_manifest_file(uri, base="s3://b/").table
        ]
        assert found == expected


def test_labels_reach_the_samples(store: Store) -> None:
    """On every store: labels and fields of a manifest beside its objects reach the transform."""
    store.raw_put("train/1.txt", b"one")
    store.raw_put("train/2.txt", b"")
    store.raw_put("train/m.jsonl", b'{"key":"1.txt","label":{"a":[1]},"x":2}\n{"key":"2.txt"}\n')
    uri = f"{store.uri}train/m.jsonl"
    for kind in (MapDataset, IterableDataset):
        dataset = kind.from_manifest_file(
            uri,
            options=store.options,
            transform=lambda sample: (sample.uri, sample.label, sample.fields, sample.read()),
        )
        assert dataset.labels == [{"a": [1]}, None]
        assert list(dataset) == [
            (f"{store.uri}train/1.txt", {"a": [1]}, {"x": 2}, b"one"),
            (f"{store.uri}train/2.txt", None, {}, b""),
        ]


def test_a_manifest_of_files_elsewhere(store: Store) -> None:
    """A manifest may name objects outside of its own folder, files included."""
    store.raw_put("here/1.txt", b"1")
    store.raw_put("there/2.txt", b"2")
    rows = [{"uri": f"{store.uri}{name}"} for name in ("here/1.txt", "there/2.txt")]
    store.raw_put("lists/m.jsonl", "\n".join(map(json.dumps, rows)).encode())
    dataset = MapDataset.from_manifest_file(
        f"{store.uri}lists/m.jsonl", options=store.options, transform=bytes_of
    )
    assert list(dataset) == [b"1", b"2"]
