"""What is read on demand takes few requests, and is whole or an error."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from connector.reader import ObjectReader
from providers import (
    IntegrityError,
    NotFoundError,
    ObjectInfo,
    UnavailableError,
)
from tests.connector.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connector.store import Store

KIB = 1 << 10

# ---- Reading on demand ---------------------------------------------------------------------

BODY = bytes(range(256)) * (4 * KIB)
"""1 MiB."""


def test_reading_in_sequence_takes_few_requests() -> None:
    """Small reads in sequence are served by windows that grow to the range size, no further."""
    provider = Watched(range_size_bytes=256 * KIB)
    file = provider.open(BODY)
    assert b"".join(iter(lambda: file.read(1000), b"")) == BODY
    assert [stop - start for start, stop in sorted(provider.reads)] == [
        64 * KIB, 256 * KIB, 256 * KIB, 256 * KIB, 192 * KIB
    ]  # fmt: skip
    assert provider.fetched() == len(BODY)


def test_the_window_stays_within_the_range_size() -> None:
    """However it is read, a lazy reader holds no more than one range."""
    provider = Watched(range_size_bytes=10 * KIB, max_gap_bytes=100)
    file = provider.open(BODY)
    for position, size in ((0, 1), (1, 9000), (20_000, 300_000), (320_000, 10_239), (5, 3)):
        file.seek(position)
        assert file.read(size) == BODY[position : position + size]
        file.readline()
        assert len(file._window) <= 10 * KIB


def test_a_large_read_fetches_exactly_what_is_wanted() -> None:
    """A read beyond the range size is cut into ranges; no byte more is asked for."""
    provider = Watched(range_size_bytes=100 * KIB)
    file = provider.open(BODY)
    file.seek(5)
    assert file.read(250 * KIB) == BODY[5 : 5 + 250 * KIB]
    buffer = bytearray(150 * KIB)
    file.seek(700 * KIB)
    assert file.readinto(buffer) == len(buffer)
    assert buffer == BODY[700 * KIB : 850 * KIB]
    assert provider.fetched() == 400 * KIB
    assert max(stop - start for start, stop in provider.reads) == 100 * KIB


def test_the_ranges_of_a_large_read_go_at_once() -> None:
    """Several ranges of one read are under way at the same time."""
    provider = Watched(range_size_bytes=256 * KIB)
    file = provider.open(BODY)
    meeting = threading.Barrier(4)
    provider.before_get = lambda: meeting.wait(60) and None  # type: ignore[assignment]
    assert file.read() == BODY


def test_what_the_window_holds_is_not_fetched_again() -> None:
    """Going back within the window costs no request, and a large read starts at its end."""
    provider = Watched(range_size_bytes=128 * KIB)
    file = provider.open(BODY)
    file.read(10)
    file.seek(0)
    assert file.read(200 * KIB) == BODY[: 200 * KIB]
    assert provider.fetched() == 200 * KIB


def test_jumping_about_reads_little() -> None:
    """After a jump little is read; a jump to the end reads the whole tail at once."""
    provider = Watched(range_size_bytes=1024 * KIB, max_gap_bytes=0)
    file = provider.open(BODY * 4)
    for position in (3_000_000, 1_000_000, 2_000_000):
        file.seek(position)
        assert file.read(30) == (BODY * 4)[position : position + 30]
    assert provider.fetched() == 3 * 64 * KIB
    file.seek(-22, io.SEEK_END)
    file.read()
    file.seek(-50 * KIB, io.SEEK_END)
    file.read()
    assert provider.fetched() == 4 * 64 * KIB


def test_lines_do_not_cost_a_request_each() -> None:
    """Lines come out of the window, also those that cross its end."""
    lines = [b"%d\n" % number for number in range(50_000)]
    provider = Watched()
    file = provider.open(b"".join(lines))
    assert list(file) == lines
    assert len(provider.reads) == 2
    assert provider.fetched() == file.size


def test_torch_load_of_one_small_part_reads_little() -> None:
    """torch.load of a mapped zip file reads each record once, and its directory."""
    saved = io.BytesIO()
    state = {str(number): torch.full((40_000,), number) for number in range(20)}
    torch.save(state, saved)
    provider = Watched(range_size_bytes=64 * KIB)
    file = provider.open(saved.getvalue())
    loaded = torch.load(file, weights_only=True)
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    assert provider.fetched() <= file.size + 3 * 64 * KIB


# ---- Whole, or an error ----------------------------------------------------------------------


def _patterned(size: int) -> bytes:
    return b"".join(b"%08d\n" % number for number in range(size // 9 + 1))[:size]


def test_reading_on_every_store(store: Store) -> None:
    """The same bytes come from every store, however they are asked for."""
    data = _patterned(3 * store.part_bytes + 17)
    store.raw_put("dir/data", data)
    provider = store.provider()
    file = ObjectReader(provider, provider.head(store.key("dir/data")), transfer=store.transfer)
    assert file.read() == data
    file.seek(store.part_bytes - 4)
    assert file.readline() == data[store.part_bytes - 4 :].partition(b"\n")[0] + b"\n"
    buffer = bytearray(len(data))
    file.seek(5)
    assert file.readinto(buffer) == len(data) - 5
    assert buffer[:-5] == data[5:]
    assert file.seek(-9, io.SEEK_END) == len(data) - 9
    assert file.read(100) == data[-9:]


@pytest.mark.parametrize("read", [lambda file: file.read(9), lambda file: file.read()])
def test_a_replaced_object_is_no_mixture(
    store: Store, read: Callable[[ObjectReader], bytes]
) -> None:
    """An object replaced between two reads is an IntegrityError with the script's URI."""
    data = _patterned(3 * store.part_bytes)
    store.raw_put("data", data)
    provider = store.provider()
    file = ObjectReader(
        provider, provider.head(store.key("data")), uri="gcs://as/written", transfer=store.transfer
    )
    assert file.read(9) == data[:9]
    store.raw_put("data", data[::-1])
    file.seek(2 * store.part_bytes - 100)
    with pytest.raises(IntegrityError, match="gcs://as/written: the object changed"):
        read(file)
    assert file.tell() == 2 * store.part_bytes - 100


def test_a_shrunk_object_is_an_error(store: Store) -> None:
    """An object that became shorter is an IntegrityError, also where only its size is known."""
    store.raw_put("data", _patterned(2 * store.part_bytes))
    provider = store.provider()
    info = provider.head(store.key("data"))
    pinned = ObjectReader(provider, info, transfer=store.transfer)
    store.raw_put("data", _patterned(100))
    with pytest.raises(IntegrityError, match="changed"):
        pinned.read()
    with pytest.raises(IntegrityError, match="now it has 100"):
        ObjectReader(provider, ObjectInfo(info.key, size=info.size), transfer=store.transfer)


def test_a_deleted_object_is_not_found(store: Store) -> None:
    """An object that is gone is NotFoundError, not an end of file."""
    store.raw_put("data", _patterned(2 * store.part_bytes))
    provider = store.provider()
    file = ObjectReader(provider, provider.head(store.key("data")), transfer=store.transfer)
    provider.delete([file.key])
    with pytest.raises(NotFoundError):
        file.read()


def test_without_a_version_the_store_is_asked_for_it() -> None:
    """Ranges of an object known by its key alone, or its size, are pinned all the same."""
    provider = Watched(range_size_bytes=4)
    info = provider.put("k", b"0123456789")
    files = [ObjectReader(provider, ObjectInfo("k", size=size)) for size in (0, 10)]
    for file in files:
        assert (file.size, file.info, file.read(3)) == (10, info, b"012")
    assert provider.heads == 2
    provider.put("k", b"abcdefghij")
    for file in files:
        with pytest.raises(IntegrityError):
            file.read()


def test_a_version_without_a_size_is_what_is_read() -> None:
    """Where a manifest gives the version alone, another version is not read in its place."""
    provider = Watched()
    info = provider.put("k", b"0123456789")
    known = replace(info, size=0)
    assert ObjectReader(provider, known).read() == b"0123456789"
    provider.put("k", b"abcdefghij")
    with pytest.raises(IntegrityError):
        ObjectReader(provider, known).read()


def test_an_empty_object_reads_as_empty() -> None:
    """An empty object is asked for once, and never read."""
    provider = Watched()
    file = provider.open(b"")
    assert (file.read(), file.readline(), file.peek(), list(file)) == (b"", b"", b"", [])
    assert (provider.heads, provider.reads) == (1, [])


@pytest.mark.parametrize("size", [2, 8])
def test_a_short_answer_is_an_error(size: int) -> None:
    """Fewer bytes than asked for are never taken for the end of the file."""
    provider = Watched(range_size_bytes=4)
    file = provider.open(b"0123456789")
    provider.change = lambda body: body[:-1]
    for _ in range(2):
        with pytest.raises(IntegrityError, match="as 3 bytes"):
            file.read(size)
    assert file.tell() == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda file: file.read(3),
        lambda file: file.read(),
        lambda file: file.readinto(bytearray(9)),
        lambda file: file.read1(5),
        lambda file: file.readline(),
    ],
)
def test_a_failed_read_moves_nothing(read: Callable[[ObjectReader], bytes]) -> None:
    """After an error the next read starts at the same byte, so that nothing is lost."""
    provider = Watched(range_size_bytes=4, max_attempts=1)
    file = provider.open(b"0123456789\n")
    assert file.read(2) == b"01"
    file.seek(5)

    def fail() -> None:
        raise UnavailableError("down")

    provider.before_get = fail
    for _ in range(2):
        with pytest.raises(UnavailableError):
            read(file)
        assert file.tell() == 5
    provider.before_get = lambda: None
    assert file.read() == b"56789\n"


def test_a_read_that_fails_late_moves_nothing() -> None:
    """A read that fails at its last range gives nothing away, and can be had whole after it."""
    provider = Watched(range_size_bytes=4, max_attempts=1, max_in_flight=1)
    file = provider.open(b"0123456789")

    def fail_late() -> None:
        if provider.reads[-1][0] == 8:
            raise UnavailableError("down")

    provider.before_get = fail_late
    with pytest.raises(UnavailableError):
        file.read()
    assert (len(provider.reads), file.tell()) == (3, 0)
    provider.before_get = lambda: None
    assert file.read() == b"0123456789"


_CRASH = """
import gc
from io import BytesIO
import torch
from connector.reader import ObjectReader
from providers import ProviderError, open_provider
provider = open_provider("memory://b", range_size_bytes=100_000)
saved = BytesIO()
torch.save(torch.zeros(1_000_000), saved)
for _ in range(5):
    file = ObjectReader(provider, provider.put("k", saved.getvalue()))
    file.read(4)
    provider.put("k", saved.getvalue())
    file.seek(0)
    try:
        torch.load(file)
    except ProviderError:
        continue
    finally:
        gc.collect()
    raise SystemExit("it was read all the same")
"""


def test_a_failed_read_into_torchs_memory_is_collected() -> None:
    """What a failed read leaves in its traceback does not crash the interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", _CRASH], check=False, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
