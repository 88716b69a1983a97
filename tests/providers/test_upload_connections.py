"""Uploads from many threads: connections that are kept, forks, descriptors, late parts."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from providers import LocalOptions, NotFoundError, Provider, UnavailableError
from providers.local import LocalProvider
from providers.memory import MemoryProvider
from providers.retry import without_waiting
from providers.testing.harness import noise
from tests.providers.gcs.access import provider as gcs_provider
from tests.providers.oss.stores import opened as oss_provider
from tests.providers.s3.stores import made as s3_provider

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.front import Answer, Exchange, Request
    from tests.providers.conftest import Fronted

THREADS = 6
PATIENCE_SECONDS = 60.0


def is_part(request: Request) -> bool:
    """Whether a request sends a part."""
    return "partNumber=" in request.query


def write(provider: Provider, key: str, parts: int = 1, size: int = 100) -> None:
    """Write an object in parts, one after the other."""
    with provider.start_multipart(key) as upload:
        for number in range(1, parts + 1):
            upload.put_part(number, noise(size, number))
        upload.complete()


def test_parts_of_many_threads_share_few_connections(fronted: Fronted) -> None:
    """No more connections than threads, for all parts of all uploads."""
    front, opened = fronted
    provider = opened()
    size = provider.limits.min_part_bytes
    for key in ("one", "two", "three"):
        bodies = [noise(size, number) for number in range(THREADS)]
        with provider.start_multipart(key) as upload, ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(upload.put_part, range(1, THREADS + 1), bodies))
            upload.complete()
        assert provider.get(key) == b"".join(bodies)
    used = {record.connection for record in front.requests if "partNumber=" in record.query}
    assert len(used) <= THREADS


def test_uploads_one_after_the_other_take_as_many_connections_as_one(fronted: Fronted) -> None:
    """Twenty uploads in turn open no connection that the first one did not."""
    front, opened = fronted
    provider = opened()
    write(provider, "first", parts=1)
    before = {record.connection for record in front.requests}
    for number in range(20):
        write(provider, f"{number}")
    assert {record.connection for record in front.requests} == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_uploads_over_its_own(fronted: Fronted) -> None:
    """A child writes over connections of its own while its parent's upload goes on over its."""
    front, opened = fronted
    provider = opened()
    size = provider.limits.min_part_bytes
    with provider.start_multipart("parent") as upload:
        upload.put_part(1, noise(size))
        (own,) = {record.connection for record in front.requests if is_part_of(record, "parent")}
        child = multiprocessing.get_context("fork").Process(
            target=write, args=(provider, "child", 2, size)
        )
        child.start()
        child.join(PATIENCE_SECONDS)
        assert child.exitcode == 0
        upload.put_part(2, b"tail")
        upload.complete()
    parents = {record.connection for record in front.requests if is_part_of(record, "parent")}
    children = {record.connection for record in front.requests if is_part_of(record, "child")}
    assert parents == {own}
    assert children.isdisjoint(parents)
    assert provider.get("parent") == noise(size) + b"tail"


def is_part_of(record: Any, key: str) -> bool:
    """Whether a recorded request sent a part of an object."""
    return is_part(record) and record.path.endswith(f"/{key}")


def descriptors() -> int:
    """Return how many descriptors are open."""
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 names of descriptors, no files


@pytest.fixture(params=["file", "oss_server", "fake_gcs", "moto"])
def store(request: pytest.FixtureRequest, bucket_name: str, tmp_path: Path) -> tuple[Provider, int]:
    """A fresh bucket on each kind of store, and how many uploads it takes in some seconds."""
    if request.param == "file":
        return LocalProvider(options=LocalOptions(root=str(tmp_path))), 1000
    server = request.getfixturevalue(request.param)
    server.make_bucket(bucket_name)
    if request.param == "fake_gcs":
        return gcs_provider(server.endpoint, bucket_name), 200
    fields = {"region": server.region, "access_key_id": server.access_key}
    if request.param == "moto":
        secret = server.secret_key
        endpoint = server.endpoint
        return s3_provider(bucket_name, endpoint=endpoint, secret_access_key=secret, **fields), 100
    secret = server.secret_key
    return oss_provider(server.endpoint, bucket_name, access_key_secret=secret, **fields), 1000


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="descriptors cannot be counted here")  # noqa: PTH110
def test_uploads_leak_no_descriptors(store: tuple[Provider, int], tmp_path: Path) -> None:
    """However many uploads were completed or aborted, as many descriptors are open as after two."""
    provider, count = store
    key = f"{str(tmp_path)[1:]}/object" if provider.scheme == "file" else "object"

    def once() -> None:
        write(provider, key)
        upload = provider.start_multipart(key)
        upload.put_part(1, b"x")
        upload.abort()

    once()
    once()
    before = descriptors()
    for _ in range(count // 2):
        once()
    assert descriptors() <= before


def test_broken_uploads_leak_no_descriptors(fronted: Fronted) -> None:
    """Connections that break under a part are closed."""
    front, opened = fronted
    provider = opened(max_attempts=2) if opened().scheme != "gs" else opened()

    def broken() -> None:
        with provider.start_multipart("key") as upload:
            front.reset(when=is_part, times=provider.transfer.max_attempts)
            with pytest.raises(UnavailableError):
                upload.put_part(1, b"x")

    with without_waiting():
        broken()
        # Both ends are in this process: the front's own go when its threads do.
        before = len(provider._puts.get()._idle)
        for _ in range(20):
            broken()
    idle = provider._puts.get()._idle
    assert len(idle) == before
    assert sum(map(len, idle.values())) <= 1


@pytest.mark.parametrize("arrives", ["before the abort", "after it"])
def test_a_part_under_way_leaves_nothing_after_an_abort(fronted: Fronted, arrives: str) -> None:
    """Whenever a part arrives that was under way as its upload was aborted, none is left."""
    front, opened = fronted
    provider = opened()
    arrived, aborted = threading.Event(), threading.Event()

    def delayed(exchange: Exchange) -> Answer:
        if arrives == "before the abort":
            answer = exchange.forward()
            arrived.set()
            aborted.wait(PATIENCE_SECONDS)
            return answer
        arrived.set()
        aborted.wait(PATIENCE_SECONDS)
        return exchange.forward()

    front.apply(delayed, when=is_part)
    upload = provider.start_multipart("key")
    with ThreadPoolExecutor(1) as pool:
        part = pool.submit(upload.put_part, 1, b"x")
        assert arrived.wait(PATIENCE_SECONDS)
        upload.abort()
        aborted.set()
        error = part.exception(PATIENCE_SECONDS)
    deletes = [record.status for record in front.requests if record.method == "DELETE"]
    if arrives == "before the abort":
        assert error is None
        assert len(deletes) == 2
    else:
        assert isinstance(error, NotFoundError)
    assert list(provider.list_uploads()) == []


def test_a_late_part_is_dropped_where_it_lies(bucket_name: str) -> None:
    """Only an abort after the last part can drop it; it comes by itself."""
    provider = MemoryProvider(bucket_name)
    upload: Any = provider.start_multipart("key")
    put_part = upload._put_part

    def slow(number: int, data: memoryview) -> bytes:
        body: bytes = put_part(number, data)
        upload.abort()
        provider._bucket.uploads[upload._id] = "the part"  # type: ignore[assignment]
        return body

    upload._put_part = slow
    upload.put_part(1, b"x")
    assert provider.unfinished_uploads() == []
