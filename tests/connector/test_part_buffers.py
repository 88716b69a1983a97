"""Parts lie in as little memory as it takes to send them at once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from connector.part_buffers import PartBuffers
from providers import TransferOptions


def test_writers_share_memory() -> None:
    """A second writer takes half of what a first one may hold; when it ends, all is the first's."""
    transfer = TransferOptions(max_parts_in_flight=8, max_unsent_bytes=80)
    first, second = PartBuffers(transfer), PartBuffers(transfer)

    def take(buffers: PartBuffers) -> list[Any]:
        return list(iter(lambda: buffers.take(10), None))

    held = take(first)
    assert len(held) == 8
    others = take(second)
    assert len(others) == 4
    for buffer in held:
        first.give_back(buffer)
    assert len(take(first)) == 4
    second.drop()
    assert len(take(first)) == 4
    first.drop()


def test_a_writer_never_stands_still() -> None:
    """However little memory there is to share, a part fills while another travels."""
    buffers = PartBuffers(TransferOptions(max_parts_in_flight=8, max_unsent_bytes=1))
    assert [buffers.take(10) is None for _ in range(3)] == [False, False, True]
    buffers.drop()


def test_one_part_at_a_time_takes_one_buffer() -> None:
    """Where only one part may be under way, the next is not filled before it has been sent."""
    buffers = PartBuffers(TransferOptions(max_parts_in_flight=1))
    assert [buffers.take(10) is None for _ in range(2)] == [False, True]
    buffers.drop()


_CEILING = """
import threading
from connector.writer import ObjectWriter
from providers import TransferOptions
from providers.memory import MemoryProvider

MIB, AT_ONCE = 1 << 20, 6
together = threading.Barrier(AT_ONCE)

def peak(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) << 10

provider = MemoryProvider("bucket", None, TransferOptions(
    part_size_bytes=8 * MIB, multipart_threshold_bytes=8 * MIB, max_parts_in_flight=AT_ONCE))
start = provider._start_multipart

def discarding(*arguments, **keywords):
    upload = start(*arguments, **keywords)
    def put_part(number, data):
        if number <= AT_ONCE:
            together.wait(60)
        return b""
    upload._put_part = put_part
    return upload

provider._start_multipart = discarding
piece = bytes(MIB)
ObjectWriter(provider, "warm").abort()
before = peak("VmRSS")
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
file = ObjectWriter(provider, "k")
for _ in range(800):
    file.write(piece)
print(peak("VmHWM") - before, 8 * MIB * AT_ONCE)
file.abort()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak anew")
def test_memory_has_a_ceiling() -> None:
    """Of 800 MiB in parts of 8 MiB, six at once, no more than 1.5 times those lie in memory."""
    done = subprocess.run(
        [sys.executable, "-c", _CEILING], check=True, capture_output=True, text=True, timeout=100
    )
    taken, under_way = map(int, done.stdout.split())
    assert under_way < taken < 1.5 * under_way
