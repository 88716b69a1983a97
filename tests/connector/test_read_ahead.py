"""Reading in sequence runs ahead, within bounds, and ends with the reader; jumps read little."""

from __future__ import annotations

import gc
import io
import json
import os
import random
import subprocess
import sys
import threading
import zipfile
import zlib
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from connector.checkpoint import Checkpoint
from connector.reader import ObjectReader
from providers import ByteRange, IntegrityError, ObjectInfo, UnavailableError
from providers.counters import snapshot
from tests.connector.store import S3Store
from tests.connector.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connector.store import Store
    from tests.servers.s3 import S3Server

KIB, MIB = 1 << 10, 1 << 20
PATIENCE_SECONDS = 60.0
BODY = bytes(range(256)) * (4 * KIB)
"""1 MiB."""
SMALL: dict[str, Any] = {"range_size_bytes": 64 * KIB, "read_ahead_bytes": 256 * KIB}
"""Pieces of 16 KiB, 12 of them under way and 4 that wait."""


def _threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "connector-prefetch"]


def _all_end(threads: list[threading.Thread]) -> bool:
    """Return whether all those threads end, waiting for them."""
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return not any(thread.is_alive() for thread in threads)


def _running(provider: Watched, data: bytes = BODY) -> tuple[ObjectReader, list[threading.Thread]]:
    """Return a reader for which a thread reads ahead, and that thread."""
    before = _threads()
    file = provider.open(data)
    while file._stream is None:
        assert file.read(KIB)
    return file, [each for each in _threads() if each not in before]


# ---- Running ahead -------------------------------------------------------------------------


def test_ranges_of_a_sequence_go_at_once() -> None:
    """Reads of one KiB each have several ranges under way."""
    provider = Watched(**SMALL)
    file = provider.open(BODY)
    meeting = threading.Barrier(4)

    def meet() -> None:
        # The last ranges may be fewer than those that meet.
        if 256 * KIB <= provider.reads[-1][0] < 512 * KIB:
            meeting.wait(PATIENCE_SECONDS)

    provider.before_get = meet
    assert b"".join(iter(lambda: file.read(KIB), b"")) == BODY
    assert provider.fetched() == len(BODY)


class _Overtaken(Watched):
    """A bucket in which one piece comes only after eight of those behind it."""

    late: int | None = None
    behind = 0

    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        assert byte_range is not None
        with self.turn:
            if self.late is None and byte_range.start >= 400 * KIB:
                self.late = byte_range.start
        if byte_range.start == self.late:
            with self.turn:
                assert self.turn.wait_for(lambda: self.behind >= 8, PATIENCE_SECONDS)
        body = super()._get(key, byte_range, if_match)
        with self.turn:
            self.behind += self.late is not None and byte_range.start > self.late
            self.turn.notify_all()
        return body

    def __init__(self) -> None:
        super().__init__(**SMALL)
        self.turn = threading.Condition()


def test_a_piece_that_comes_late_keeps_its_place() -> None:
    """Pieces that overtake one another are read in their order."""
    data = random.Random(5).randbytes(MIB)  # noqa: S311 not a secret
    provider = _Overtaken()
    file = provider.open(data)
    assert b"".join(iter(lambda: file.read(KIB), b"")) == data
    assert provider.late is not None


def test_what_is_held_stays_within_the_bound() -> None:
    """However slow its consumer, a reader asks for no more than it may hold."""
    provider = Watched(**SMALL)
    file = provider.open(BODY)
    ahead: list[int] = []
    provider.before_get = lambda: ahead.append(provider.reads[-1][1] - file.tell())
    while file.read(100):
        pass
    # One piece more is handed to a consumer that waits, one is the window.
    assert max(ahead) <= (256 + 2 * 16) * KIB


def test_no_read_ahead_where_it_is_switched_off() -> None:
    """With no bytes to hold there is no thread, and every read is the caller's own."""
    before = _threads()
    file = Watched(range_size_bytes=64 * KIB, read_ahead_bytes=0).open(BODY)
    assert b"".join(iter(lambda: file.read(KIB), b"")) == BODY
    assert [each for each in _threads() if each not in before] == []


def test_no_thread_for_jumps_or_bytes_in_memory() -> None:
    """Neither jumps nor an object whose bytes are here start a thread."""
    provider, before = Watched(**SMALL, max_gap_bytes=0), _threads()
    file = provider.open(BODY)
    for position in (900_000, 100_000, 500_000, 300_000):
        file.seek(position)
        assert file.read(70 * KIB) == BODY[position : position + 70 * KIB]
    held = ObjectReader(provider, provider.put("k", BODY), data=BODY)
    assert b"".join(iter(lambda: held.read(KIB), b"")) == BODY
    assert [each for each in _threads() if each not in before] == []


def test_a_large_read_takes_what_is_under_way_and_the_rest_itself() -> None:
    """Every byte comes once, whichever reads follow each other."""
    provider = Watched(**SMALL)
    file = provider.open(BODY)
    pieces = [file.read(size) for size in (KIB, 70 * KIB, 100 * KIB, 10, 600 * KIB, 10, -1)]
    assert b"".join(pieces) == BODY
    assert provider.fetched() == len(BODY)


# ---- How it ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        lambda file: file.close(),
        lambda file: (file.seek(5), file.read(3)),
        lambda file: (file.seek(900 * KIB), file.read(3)),
    ],
)
def test_the_thread_ends(end: Callable[[ObjectReader], object]) -> None:
    """A jump or ``close`` ends the thread."""
    file, threads = _running(Watched(**SMALL, max_gap_bytes=0), BODY * 4)
    assert threads
    end(file)
    assert _all_end(threads)


def test_the_thread_ends_with_its_reader() -> None:
    """A reader that nobody holds any more is collected, and its thread ends."""
    file, threads = _running(Watched(**SMALL), BODY * 4)
    assert threads
    del file
    gc.collect()
    assert _all_end(threads)


def test_a_failure_ahead_is_raised_where_it_happened_and_moves_nothing() -> None:
    """A range that fails ahead is raised when it is reached; the next read can have it."""
    provider = Watched(**SMALL, max_attempts=1)
    file = provider.open(BODY)

    def fail() -> None:
        if provider.reads[-1][1] > 600 * KIB:
            raise UnavailableError("down")

    provider.before_get = fail
    got = b"".join(file.read(KIB) for _ in range(500))
    assert got == BODY[: 500 * KIB]
    threads = _threads()
    with pytest.raises(UnavailableError):
        file.read(200 * KIB)
    assert file.tell() == 500 * KIB
    provider.before_get = lambda: None
    assert got + file.read() == BODY
    file.close()
    assert _all_end(threads)


_EXIT = """
from connector.reader import ObjectReader
from providers import open_provider
provider = open_provider("memory://b", range_size_bytes=10_000, read_ahead_bytes=100_000)
file = ObjectReader(provider, provider.put("k", bytes(10_000_000)))
for _ in range(200):
    assert file.read(1000)
assert file._stream is not None
"""


def test_a_process_ends_while_it_reads_ahead() -> None:
    """An open reader neither holds up nor disturbs the end of its process."""
    done = subprocess.run(
        [sys.executable, "-c", _EXIT], check=False, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_reads_on(store: Store) -> None:
    """Parent and child both read on where the parent was, each with requests of its own."""
    data = random.Random(3).randbytes(8 * store.part_bytes)  # noqa: S311 not a secret
    store.raw_put("data", data)
    provider = store.provider()
    transfer = store.transfer.model_copy(update={"read_ahead_bytes": store.part_bytes})
    file = ObjectReader(provider, provider.head(store.key("data")), transfer=transfer)
    first: list[bytes] = []
    while file._stream is None:
        first.append(file.read(store.part_bytes // 4))
        assert first[-1]
    child = os.fork()
    if not child:
        status = 3
        try:
            status = int(b"".join(first) + file.read() != data)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert b"".join(first) + file.read() == data


# ---- One version, and what it should hold --------------------------------------------------


def test_a_change_meanwhile_is_an_error(store: Store) -> None:
    """An object replaced while it is read in sequence ends in an error, never in a mixture."""
    data = random.Random(4).randbytes(8 * store.part_bytes)  # noqa: S311 not a secret
    store.raw_put("data", data)
    provider = store.provider()
    transfer = store.transfer.model_copy(update={"read_ahead_bytes": store.part_bytes})
    file = ObjectReader(provider, provider.head(store.key("data")), transfer=transfer)
    pieces = [file.read(store.part_bytes // 4) for _ in range(6)]
    store.raw_put("data", data[::-1])
    rest = iter(lambda: file.read(store.part_bytes // 4), b"")
    with pytest.raises(IntegrityError, match="changed"):
        pieces.extend(rest)
    assert data.startswith(b"".join(pieces))
    assert file.tell() < len(data)


def _told(file: ObjectReader, of: bytes | None) -> ObjectReader:
    """Return a reader of the same object, of which the service tells the checksum of ``of``."""
    crc = None if of is None else b64encode(zlib.crc32(of).to_bytes(4, "big")).decode()
    info = replace(file.info, checksum=crc and f"crc32:{crc}")
    return ObjectReader(file._ranges.provider, info)


@pytest.mark.parametrize("step", [KIB, 100 * KIB, 300 * KIB])
def test_a_whole_sequence_is_compared(step: int) -> None:
    """A sequence over the whole object is compared with its checksum, whatever its steps."""
    file = Watched(**SMALL).open(BODY)
    before = snapshot().unverified_reads
    right = _told(file, BODY)
    assert b"".join(iter(lambda: right.read(step), b"")) == BODY
    assert snapshot().unverified_reads == before
    wrong = _told(file, BODY[::-1])
    with pytest.raises(IntegrityError, match="do not match the checksum"):
        list(iter(lambda: wrong.read(step), b""))
    assert wrong.tell() < len(BODY)
    with pytest.raises(IntegrityError, match="do not match the checksum"):
        wrong.read()


def test_a_sequence_without_a_checksum_is_counted() -> None:
    """A whole that could not be compared is counted once; a part of it never."""
    file = Watched(**SMALL).open(BODY)
    unknown = _told(file, None)
    before = snapshot().unverified_reads
    while unknown.read(KIB):
        pass
    unknown.seek(0)
    unknown.read(KIB)
    part = _told(file, None)
    part.read(700 * KIB)
    assert snapshot().unverified_reads == before + 1


# ---- As io.BytesIO, on every store ---------------------------------------------------------


def _operation(chance: random.Random, size: int) -> tuple[str, tuple[Any, ...]]:
    name = chance.choice(["read", "read", "read", "readinto", "seek", "skip", "readline"])
    amount = chance.choice([1, 100, size // 40, size // 9, size // 3])
    return name, (chance.randrange(size + 9) if name == "seek" else chance.randrange(amount + 1),)


def _do(file: Any, name: str, amount: int) -> Any:
    if name == "readinto":
        buffer = bytearray(amount)
        return file.readinto(buffer), buffer
    if name == "skip":
        return file.seek(amount % 50, io.SEEK_CUR)
    return getattr(file, name)(amount)


@pytest.mark.parametrize("seed", range(3))
def test_any_operations_on_every_store(store: Store, seed: int) -> None:
    """On every store reading ahead gives what io.BytesIO gives."""
    chance = random.Random(seed)  # noqa: S311 not a secret
    unit = 64 * KIB
    data = chance.randbytes(40 * unit)
    store.raw_put("data", data)
    provider = store.provider()
    transfer = store.transfer.model_copy(
        update={"range_size_bytes": unit, "read_ahead_bytes": 4 * unit, "max_gap_bytes": 1000}
    )
    file = ObjectReader(provider, provider.head(store.key("data")), transfer=transfer)
    model = io.BytesIO(data)
    for _ in range(60):
        name, arguments = _operation(chance, len(data))
        assert _do(file, name, *arguments) == _do(model, name, *arguments)
        assert file.tell() == model.tell()
    file.close()


# ---- torch.load ----------------------------------------------------------------------------


def _saved(count: int, elements: int) -> tuple[dict[str, torch.Tensor], bytes]:
    state = {str(number): torch.full((elements,), number) for number in range(count)}
    with io.BytesIO() as file:
        torch.save(state, file)
        return state, file.getvalue()


@pytest.mark.parametrize(("count", "elements"), [(4000, 600), (40, 70_000), (3, 900_000)])
def test_torch_load_takes_each_byte_once(count: int, elements: int) -> None:
    """Tensors of any size are loaded by few requests, each byte once but for the directory."""
    state, saved = _saved(count, elements)
    provider = Watched(range_size_bytes=1 * MIB, read_ahead_bytes=4 * MIB)
    loaded = torch.load(provider.open(saved), weights_only=True)
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    assert provider.fetched() <= 1.02 * len(saved) + 192 * KIB


def test_a_partial_load_reads_what_it_uses() -> None:
    """One record of a zip file costs the directory, the record and a window at most."""
    _, saved = _saved(64, 40_000)
    provider = Watched()
    with zipfile.ZipFile(provider.open(saved)) as archive:
        body = archive.read("archive/data/31")
    assert torch.equal(
        torch.frombuffer(bytearray(body), dtype=torch.int64), torch.full((40_000,), 31)
    )
    assert provider.fetched() <= len(body) + 64 * KIB + 64 * KIB + 64 * KIB


def test_a_load_of_shapes_reads_no_weights() -> None:
    """Under FakeTensorMode torch.load tells shapes and reads next to none of the data."""
    _, saved = _saved(8, 200_000)
    provider = Watched()
    with FakeTensorMode():
        loaded = torch.load(provider.open(saved), weights_only=True)
    assert loaded["7"].shape == (200_000,)
    assert provider.fetched() <= 1 * MIB


_LOAD = """
import sys, torch
from connector import Checkpoint
from providers import S3Options
from providers.counters import snapshot

def peak(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) << 10

uri, options, small, large = sys.argv[1:]
checkpoint = Checkpoint(uri, options=S3Options.model_validate_json(options))
assert len(checkpoint.load(small)) == 1
before, read = peak("VmRSS"), snapshot().bytes_read
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
loaded = checkpoint.load(large)
print(peak("VmHWM") - before, snapshot().bytes_read - read, sum(t.nbytes for t in loaded.values()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak anew")
@pytest.mark.parametrize("count", [4, 64])
def test_a_load_holds_its_result_and_little_more(
    juicefs: S3Server, juicefs_bucket: str, count: int
) -> None:
    """A checkpoint of 256 MiB comes once, and takes its own memory and less than 64 MiB more."""
    store = S3Store.on(juicefs, juicefs_bucket)
    checkpoint = Checkpoint(store.uri, options=store.options)
    checkpoint.save({"a": 1}, "small.pt")
    tensor = torch.zeros((256 * MIB) // count // 4)
    checkpoint.save({str(number): tensor.clone() for number in range(count)}, "large.pt")
    assert store.options is not None
    options = store.options.model_dump(mode="json", exclude_none=True)
    options["secret_access_key"] = store.server.secret_key
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, store.uri, json.dumps(options), "small.pt", "large.pt"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    held, read, result = map(int, done.stdout.split())
    assert result == 256 * MIB
    assert read <= 1.02 * result
    assert held <= result + 64 * MIB
