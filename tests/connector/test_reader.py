"""An open object behaves as io.BytesIO does, and is never a mixture or short."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from connector.reader import ObjectReader
from providers import (
    ObjectInfo,
    S3Options,
)
from providers.memory import MemoryProvider
from tests.connector.watched import Watched, held

if TYPE_CHECKING:
    from collections.abc import Callable


KIB = 1 << 10


# ---- As io.BytesIO -----------------------------------------------------------------------

_SIZES = st.one_of(st.none(), st.integers(-3, 40))
_OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["read", "readline", "readlines", "read1"]), _SIZES),
    st.tuples(st.just("readinto"), st.integers(0, 40)),
    st.tuples(st.just("readinto1"), st.integers(0, 40)),
    st.tuples(st.just("seek"), st.tuples(st.integers(-45, 45), st.integers(-1, 3))),
    st.tuples(st.sampled_from(["tell", "next", "list", "peek"]), st.none()),
)
_BODIES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"def"]), max_size=16).map(
    b"".join
)


def _do(file: Any, name: str, argument: Any) -> Any:
    if name in {"readinto", "readinto1"}:
        buffer = bytearray(argument)
        return getattr(file, name)(buffer), bytes(buffer)
    if name in {"next", "list"}:
        return {"next": next, "list": list}[name](file)  # type: ignore[operator]
    arguments = argument if name == "seek" else () if name == "tell" else (argument,)
    return getattr(file, name)(*arguments)


def _result(file: Any, name: str, argument: Any) -> Any:
    """Do one operation; return what it gives, or the type of what it raises."""
    try:
        return _do(file, name, argument)
    except (ValueError, TypeError, StopIteration, io.UnsupportedOperation) as error:
        return type(error)


def _same(name: str, argument: Any, got: Any, file: ObjectReader, model: io.BytesIO) -> None:
    """Compare one result with the model's, at whose position the model still stands."""
    if name == "peek":
        rest = model.getvalue()[model.tell() :]
        assert rest.startswith(got)
        assert bool(got) == bool(rest)
    elif name == "read1" and file._lazy:
        # Fewer bytes are as right, but none only at the end.
        expected = model.read1(argument)
        assert expected.startswith(got)
        assert bool(got) == bool(expected)
        model.seek(model.tell() - len(expected) + len(got))
    elif name == "readinto1" and file._lazy:
        count, filled = got
        expected = model.read1(argument)
        assert expected.startswith(filled[:count])
        assert bool(count) == bool(expected)
        model.seek(model.tell() - len(expected) + count)
    else:
        assert got == _result(model, name, argument)
    assert file.tell() == model.tell()


@given(
    body=_BODIES,
    window=st.one_of(st.none(), st.integers(1, 7), st.just(100)),
    gap=st.sampled_from([0, 5]),
    operations=st.lists(_OPERATIONS, max_size=12),
)
def test_any_operations_give_what_bytesio_gives(
    body: bytes, window: int | None, gap: int, operations: list[tuple[str, Any]]
) -> None:
    """Any sequence of operations gives the bytes, positions and exceptions of io.BytesIO."""
    if window is None:
        file = held(body)
    else:
        file = Watched(range_size_bytes=window, max_gap_bytes=gap).open(body)
    model = io.BytesIO(body)
    for name, argument in operations:
        _same(name, argument, _result(file, name, argument), file, model)


@pytest.fixture(params=["held", "lazy"])
def text(request: pytest.FixtureRequest) -> ObjectReader:
    """A file of three lines, in memory or read on demand."""
    data = b"one\ntwo\nthree"
    return held(data) if request.param == "held" else Watched(range_size_bytes=4).open(data)


def test_past_the_end_is_the_end(text: ObjectReader) -> None:
    """Seeking past the end is allowed and reads nothing there."""
    assert text.seek(100) == 100
    assert (text.read(), text.read1(), text.readline(), text.peek(), list(text)) == (
        b"", b"", b"", b"", []
    )  # fmt: skip
    assert text.readinto(bytearray(3)) == 0
    assert text.tell() == 100


@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.read(0),
        lambda file: file.read1(),
        lambda file: file.readinto(bytearray(1)),
        lambda file: file.readline(),
        lambda file: file.readlines(),
        next,
        iter,
        lambda file: file.peek(),
        lambda file: file.seek(0),
        lambda file: file.tell(),
        lambda file: file.readable(),
        lambda file: file.seekable(),
        lambda file: file.writable(),
        lambda file: file.flush(),
        lambda file: file.__enter__(),
        pickle.dumps,
    ],
)
def test_closed_files_raise(text: ObjectReader, use: Callable[[ObjectReader], object]) -> None:
    """Every use of a closed file is a ValueError; closing it twice is not."""
    text.close()
    text.close()
    assert text.closed
    with pytest.raises(ValueError, match="closed"):
        use(text)


def test_it_is_a_file_for_reading(text: ObjectReader) -> None:
    """It says that it reads and seeks, refuses to write, and has no descriptor."""
    assert (text.readable(), text.seekable(), text.writable()) == (True, True, False)
    for refused in (lambda: text.write(b"x"), text.fileno, text.detach, text.truncate):
        with pytest.raises(io.UnsupportedOperation):
            refused()
    with text as same:
        assert same is text
    assert text.closed


@pytest.mark.parametrize("argument", ["x", 1.5, b"1"])
def test_sizes_are_integers(text: ObjectReader, argument: Any) -> None:
    """A size or an offset of another type is a TypeError."""
    for method in (text.read, text.read1, text.readline, text.readlines, text.seek):
        with pytest.raises(TypeError):
            method(argument)


def test_numpy_integers_are_integers(text: ObjectReader) -> None:
    """What numpy calls an integer works as a size and as an offset."""
    assert text.seek(np.int64(4)) == 4  # type: ignore[arg-type]
    assert text.read(np.uint8(3)) == b"two"  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["<i4", ">i2", "?", [("a", "<u2"), ("b", "u1", (3,))]])
def test_reading_into_any_format(kind: Any) -> None:
    """Arrays of every format and shape are filled byte for byte."""
    data = bytes(range(240))
    for file in (held(data), Watched(range_size_bytes=7).open(data)):
        array: Any = np.zeros((3, 4), kind)
        assert file.readinto(array) == array.nbytes
        assert array.tobytes() == data[: array.nbytes]


def test_reading_into_an_empty_array(text: ObjectReader) -> None:
    """An array without elements takes nothing."""
    nothing: Any = np.zeros((0, 3))
    assert text.readinto(nothing) == 0
    assert ObjectReader(Watched(), ObjectInfo("k"), data=b"").readinto(bytearray()) == 0


def test_reading_into_what_cannot_take_it(text: ObjectReader) -> None:
    """A read-only buffer, or one with gaps, is refused and nothing is read."""
    gaps: Any = np.zeros((4, 4), "u1")[:, ::2]
    columns: Any = np.zeros((2, 3), "u1", order="F")
    for buffer, error in ((b"abc", TypeError), (gaps, BufferError), (columns, BufferError)):
        with pytest.raises(error):
            text.readinto(buffer)
    assert text.tell() == 0


def test_a_buffer_is_free_after_reading_into_it(text: ObjectReader) -> None:
    """No view of the caller's buffer outlives the call."""
    buffer = bytearray(3)
    text.readinto(buffer)
    buffer += b"!"
    assert buffer == b"one!"


# ---- With what reads files -----------------------------------------------------------------


def test_text_wrapper(text: ObjectReader) -> None:
    """io.TextIOWrapper reads it, and gives it back by detach."""
    wrapper = io.TextIOWrapper(text, encoding="utf-8")
    assert wrapper.readline() == "one\n"
    assert list(wrapper) == ["two\n", "three"]
    wrapper.seek(4)
    assert wrapper.read() == "two\nthree"
    assert wrapper.detach() is text
    assert not text.closed
    with io.TextIOWrapper(text, encoding="utf-8"):
        pass
    assert text.closed


@pytest.mark.parametrize("lazy", [False, True])
def test_other_readers_of_files(*, lazy: bool) -> None:
    """csv, gzip, zipfile, numpy and io.BufferedReader read it as they read a file."""
    archive, array = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("a", b"1" * 1000)
        zipped.writestr("b", b"2")
    np.save(array, np.arange(100))

    def open_(data: bytes) -> ObjectReader:
        return Watched(range_size_bytes=10).open(data) if lazy else held(data)

    rows = csv.reader(io.TextIOWrapper(open_(b"a,b\r\n1,2\r\n"), encoding="utf-8", newline=""))
    assert list(rows) == [["a", "b"], ["1", "2"]]
    with gzip.open(open_(gzip.compress(b"text" * 100))) as unzipped:
        assert unzipped.read() == b"text" * 100
    with zipfile.ZipFile(open_(archive.getvalue())) as unpacked:
        assert unpacked.read("a") == b"1" * 1000
        assert unpacked.read("b") == b"2"
    assert np.array_equal(np.load(open_(array.getvalue())), np.arange(100))
    with io.BufferedReader(open_(b"abc")) as buffered:
        assert buffered.read() == b"abc"


# ---- What it knows -------------------------------------------------------------------------


def test_attributes() -> None:
    """A reader knows what the sample is, and keeps the script's own URI."""
    provider = Watched()
    info = provider.put("dir/key", b"data")
    plain = ObjectReader(provider, info)
    assert plain.uri == f"memory://{provider.bucket}/dir/key"
    assert (plain.bucket, plain.key, plain.size) == (provider.bucket, "dir/key", 4)
    assert (plain.etag, plain.info, plain.label, plain.fields) == (info.etag, info, None, {})
    named = ObjectReader(provider, info, uri="s3a://x/y", data=b"data", label=[7], fields={"a": 1})
    assert (named.uri, named.label, named.fields) == ("s3a://x/y", [7], {"a": 1})
    assert repr(named) == "<ObjectReader 's3a://x/y', 4 bytes>"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_bytes_in_memory_are_not_fetched(kind: Any) -> None:
    """With its bytes in memory, a reader asks the store for nothing."""
    provider = Watched()
    info = provider.put("k", b"data")
    data = np.frombuffer(b"data", "u1") if kind is np.frombuffer else kind(b"data")
    file = ObjectReader(provider, info, data=data)
    assert (file.read(), file.size) == (b"data", 4)
    assert (provider.reads, provider.heads) == ([], 0)


# ---- Pickling ------------------------------------------------------------------------------


def _again(file: ObjectReader, protocol: int) -> ObjectReader:
    arrived = pickle.loads(pickle.dumps(file, protocol))  # noqa: S301 our own bytes
    assert isinstance(arrived, ObjectReader)
    return arrived


def test_it_pickles_with_its_bytes() -> None:
    """A reader with its bytes arrives open, at position 0, with all that it knows."""
    file = held(b"one\ntwo", label={"a": [1]}, fields={"split": "train"}, uri="gcs://b/k")
    file.read(2)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        arrived = _again(file, protocol)
        assert not arrived.closed
        assert (arrived.tell(), arrived.read(), arrived.size) == (0, b"one\ntwo", 7)
        for name in ("uri", "bucket", "key", "etag", "info", "label", "fields"):
            assert getattr(arrived, name) == getattr(file, name)
        assert _again(arrived, protocol).read() == b"one\ntwo"
    assert copy.copy(file).read() == b"one\ntwo"
    assert file.tell() == 2


def test_a_pickle_holds_no_options() -> None:
    """Neither a provider nor its options, secrets least of all, travel with a sample."""
    options = S3Options(
        access_key_id="key-id", secret_access_key="hidden-secret", pickle_secrets=True
    )
    provider = MemoryProvider("secretive", options)
    pickled = pickle.dumps(ObjectReader(provider, provider.put("k", b"data"), data=b"data"))
    for hidden in (b"hidden-secret", b"key-id", b"S3Options", b"MemoryProvider"):
        assert hidden not in pickled


def test_a_lazy_reader_does_not_pickle() -> None:
    """What is read on demand says, instead of travelling, what to do."""
    file = Watched().open(b"data")
    with pytest.raises(TypeError, match=r"watched-\d+/dir/key \(4 bytes\).*lazy_above_bytes"):
        pickle.dumps(file)
    with pytest.raises(TypeError, match="read on demand"):
        copy.copy(file)


class _Samples(Dataset[ObjectReader]):
    def __getitem__(self, index: int) -> ObjectReader:
        return held(b"sample %d" % index, label=index)

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_it_arrives_from_workers(start: str) -> None:
    """A DataLoader's workers hand over readers that are open and at position 0."""
    loader = DataLoader(
        _Samples(), batch_size=2, num_workers=1, collate_fn=list, multiprocessing_context=start
    )
    samples = [sample for batch in loader for sample in batch]
    assert [(sample.read(), sample.label) for sample in samples] == [
        (b"sample 0", 0), (b"sample 1", 1), (b"sample 2", 2)
    ]  # fmt: skip
