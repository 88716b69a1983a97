"""Bodies fetched ahead of samples: order, ranges in parallel, checksums, and concurrency."""

from __future__ import annotations

import binascii
import gzip
import hashlib
import threading
from typing import TYPE_CHECKING, Any

import google_crc32c
import pytest

from connector.ahead import Ahead, Expectation, Fetched
from connector.table import ObjectRow
from providers import IntegrityError, NotFoundError, TransferOptions
from providers.counters import snapshot
from providers.retry import without_waiting
from tests.fakes.plane_provider import PlaneProvider
from tests.fakes.plane_server import PlaneServer, after, amended, answer, cut_after

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 30.0
ROOT = "plane://bucket/"
OBJECTS = {f"{number:02}": bytes([number]) * 1000 for number in range(40)}


@pytest.fixture
def server() -> Iterator[PlaneServer]:
    """A server with forty small objects and a large one."""
    with PlaneServer({**OBJECTS, "large": bytes(range(256)) * 400}) as server:
        yield server


def ahead(
    server: PlaneServer,
    keys: list[str],
    *,
    sized: bool = True,
    ordered: bool = True,
    **transfer: Any,
) -> Ahead:
    """Return a stream of objects of the server."""
    provider = PlaneProvider(server.endpoint)
    rows = [
        (at, ObjectRow(ROOT, key, len(server.objects.get(key, b"")) if sized else None))
        for at, key in enumerate(keys)
    ]
    options = TransferOptions(**transfer)
    return Ahead(rows, {ROOT: provider}, options, Expectation(1000), ordered=ordered)


def pinned(server: PlaneServer, key: str, **transfer: Any) -> Ahead:
    """Return a stream of one object whose version is known."""
    provider = PlaneProvider(server.endpoint)
    etag = hashlib.md5(server.objects[key], usedforsecurity=False).hexdigest()
    row = ObjectRow(ROOT, key, len(server.objects[key]), etag)
    return Ahead([(0, row)], {ROOT: provider}, TransferOptions(**transfer), Expectation(1000))


def bodies(fetched: Iterator[Fetched]) -> list[Any]:
    """Return what was fetched, without positions."""
    return [found.body for found in fetched]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("prefetched", [True, False])
def test_objects_come_in_order(server: PlaneServer, sized: bool, prefetched: bool) -> None:
    """Driven by the consumer or by a thread, one GET an object and the order of the rows."""
    stream = ahead(server, list(OBJECTS), sized=sized)
    fetched = list(stream.prefetched() if prefetched else stream.fetched())
    assert [found.body for found in fetched] == list(OBJECTS.values())
    assert [found.position for found in fetched] == list(range(40))
    assert len(server.seen) == 40


@pytest.mark.parametrize("prefetched", [True, False])
def test_a_slow_object_holds_up_nothing_without_order(
    server: PlaneServer, prefetched: bool
) -> None:
    """With ``ordered=False`` the others come while one is awaited, each with its own row."""
    gate = threading.Event()
    server.fault(after(gate), key="00")
    stream = ahead(server, list(OBJECTS), ordered=False)
    items = stream.prefetched() if prefetched else stream.fetched()
    early = [next(items) for _ in range(39)]
    gate.set()
    late = list(items)
    assert [found.row.key for found in late] == ["00"]
    for found in (*early, *late):
        assert found.body == OBJECTS[found.row.key]
        assert found.row.key == f"{found.position:02}"


def test_the_next_objects_travel_while_one_is_worked_on(server: PlaneServer) -> None:
    """A consumer that has taken one body finds that all others were asked for meanwhile."""
    items = ahead(server, list(OBJECTS)).prefetched()
    next(items)
    asked = threading.Event()
    while len(server.seen) < 40:
        assert not asked.wait(0.001)
    assert bodies(items) == list(OBJECTS.values())[1:]


def test_a_missing_object_is_an_error_in_its_place(server: PlaneServer) -> None:
    """The others come all the same."""
    first, missing, last = bodies(ahead(server, ["01", "missing", "02"]).fetched())
    assert (first, last) == (OBJECTS["01"], OBJECTS["02"])
    assert isinstance(missing, NotFoundError)


# ---- Large objects -------------------------------------------------------------------------


def test_a_large_object_comes_in_parallel_ranges(server: PlaneServer) -> None:
    """Ranges of ``range_size_bytes`` that cover it exactly, pinned to one version."""
    stream = pinned(server, "large", range_size_bytes=10_000)
    assert bodies(stream.fetched()) == [server.objects["large"]]
    spans = sorted(int(s.headers["range"][6:].split("-")[0]) for s in server.seen)
    assert spans == list(range(0, 102_400, 10_000))
    assert all("if-match" in seen.headers for seen in server.seen)


def test_an_object_of_two_ranges_comes_whole(server: PlaneServer) -> None:
    """One request more would save nothing."""
    assert bodies(pinned(server, "large", range_size_bytes=60_000).fetched()) == [
        server.objects["large"]
    ]
    assert len(server.seen) == 1


def test_ranges_of_an_object_whose_version_is_unknown_would_be_torn(server: PlaneServer) -> None:
    """It comes by one request."""
    assert bodies(ahead(server, ["large"], range_size_bytes=10_000).fetched()) == [
        server.objects["large"]
    ]
    assert len(server.seen) == 1


def test_a_range_that_breaks_off_is_resumed(server: PlaneServer) -> None:
    """Of a large object only what is missing is read again."""
    server.fault(cut_after(4_000), times=1)
    with without_waiting():
        stream = pinned(server, "large", range_size_bytes=10_000)
        assert bodies(stream.fetched()) == [server.objects["large"]]
    assert len(server.seen) == 12


def test_a_large_object_that_changes_is_an_error(server: PlaneServer) -> None:
    """It is never put together from two versions."""
    stream = pinned(server, "large", range_size_bytes=10_000, max_in_flight=1, adaptive=False)
    server.fault(answer(412, body=b"<Error><Code>PreconditionFailed</Code></Error>"), times=1)
    (error,) = bodies(stream.fetched())
    assert "412" in str(error)


@pytest.mark.parametrize("right", [True, False])
def test_ranges_together_are_compared_with_the_checksum(server: PlaneServer, right: bool) -> None:
    """Where each answer tells the whole object's checksum, the joined ranges must match it."""
    value = google_crc32c.value(server.objects["large"] if right else b"another")
    told = binascii.b2a_base64(value.to_bytes(4, "big"), newline=False).decode()
    server.fault(amended({"x-goog-hash": f"crc32c={told}"}), times=None)
    before = snapshot().unverified_reads
    (body,) = bodies(pinned(server, "large", range_size_bytes=10_000).fetched())
    assert snapshot().unverified_reads == before
    if right:
        assert body == server.objects["large"]
    else:
        assert isinstance(body, IntegrityError)


def test_what_nothing_vouches_for_is_counted(server: PlaneServer) -> None:
    """A read without a checksum of the service counts as unverified, whole or in ranges."""
    before = snapshot().unverified_reads
    assert len(bodies(ahead(server, ["01", "02"]).fetched())) == 2
    assert len(bodies(pinned(server, "large", range_size_bytes=10_000).fetched())) == 1
    assert snapshot().unverified_reads == before + 3


# ---- Compressed objects --------------------------------------------------------------------


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("sized", [True, False])
def test_compressed_objects_are_unpacked_by_option(
    server: PlaneServer, decode: bool, sized: bool
) -> None:
    """With ``decode_content`` an object stored with ``Content-Encoding: gzip`` comes unpacked."""
    server.objects["packed"] = gzip.compress(b"the text" * 100)
    server.fault(amended({"Content-Encoding": "gzip"}), times=None)
    (body,) = bodies(ahead(server, ["packed"], sized=sized, decode_content=decode).fetched())
    assert body == (b"the text" * 100 if decode else server.objects["packed"])


def test_what_is_labelled_wrongly_is_told(server: PlaneServer) -> None:
    """An object that is labelled as gzip and is none raises, with what to do."""
    server.fault(amended({"Content-Encoding": "gzip"}), times=None)
    (error,) = bodies(ahead(server, ["01"], decode_content=True).fetched())
    assert "decode_content=False" in str(error)
    assert "plane://bucket/01" in str(error)


# ---- Concurrency ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "processes", "share"),
    [(1, None, 256), (8, None, 128), (16, None, 64), (16, "8", 8)],
)
def test_workers_of_one_machine_share(
    server: PlaneServer, monkeypatch: pytest.MonkeyPatch, workers: int, processes: Any, share: int
) -> None:
    """What a machine may have under way is divided by its workers and its local ranks."""
    monkeypatch.setattr("connector.ahead.current_worker", lambda: (0, workers))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if processes:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert ahead(server, [])._transfer.max_in_flight == share
    fixed = ahead(server, [], adaptive=False, max_in_flight=50)
    assert fixed._transfer.max_in_flight == 50
