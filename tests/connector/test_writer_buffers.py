"""Whatever has bytes can be written, and belongs to its owner again at once."""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import zipfile
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from connector.writer import ObjectWriter
from tests.connector.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def _array(*shape: int, kind: str = "i8") -> Any:
    return np.arange(np.prod(shape)).astype(kind).reshape(shape)


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
        memoryview(_array(7, kind=">f8")),
        memoryview(b"every other")[::2],
        memoryview(_array(2, 3, 4, kind="i2").T),
        _array(3, 4)[:, ::2],
        np.asfortranarray(_array(3, 4, kind=">f4")),
        np.arange(9)[::-1],
        np.broadcast_to(np.arange(3), (4, 3)),
        pickle.PickleBuffer(_array(2, 3).T),
    ],
    ids=lambda buffer: type(buffer).__name__,
)
def test_any_buffer(buffer: Any) -> None:
    """Every buffer's bytes are written and counted, whatever its format, shape and layout."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    size = memoryview(buffer).nbytes
    with ObjectWriter(provider, "k") as file:
        assert file.write(buffer) == size
        assert file.tell() == size
    assert provider.held("k") == memoryview(buffer).tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.default_rng(1).random((300, 1000), "f4").T,
        lambda: np.random.default_rng(2).random((2, 700, 500), "f4")[:, ::2, ::-1],
        lambda: np.random.default_rng(3).random((3 * MIB,), "f4")[::3],
        lambda: memoryview(np.random.default_rng(4).bytes(5 * MIB))[::2],
        lambda: np.asfortranarray(np.random.default_rng(5).random((1, 2, 600_000))),
    ],
)
def test_large_buffers_in_no_one_piece(make: Callable[[], Any]) -> None:
    """Those are gathered piece by piece, in C order."""
    provider = Recorder()
    buffer = make()
    with ObjectWriter(provider, "k") as file:
        assert file.write(buffer) == buffer.nbytes
    assert provider.held("k") == buffer.tobytes()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages_of_tensors() -> None:
    """A storage, typed or not, is written like a buffer; that of a tensor's view is all of it."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    tensor = torch.arange(6, dtype=torch.int32)
    with ObjectWriter(provider, "k") as file:
        assert file.write(tensor[2:].untyped_storage()) == 24
        assert file.write(tensor.storage()) == 24
        assert file.write(torch.empty(0).untyped_storage()) == 0
    assert provider.held("k") == 2 * tensor.numpy().tobytes()


@pytest.mark.parametrize(
    "refused",
    [
        "text",
        None,
        torch.zeros(3),
        np.array([object()]),
        torch.empty(3, device="meta").untyped_storage(),
    ],
    ids=lambda refused: type(refused).__name__,
)
def test_other_things_are_refused_and_do_no_harm(refused: Any) -> None:
    """What has no bytes to view is refused, and the writer goes on."""
    provider = Recorder()
    with ObjectWriter(provider, "k") as file:
        file.write(b"be")
        with pytest.raises(TypeError):
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
