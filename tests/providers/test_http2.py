"""HTTP/2 by option: the same bytes and the same errors."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import providers.pacing
from providers.connections import Connection
from providers.errors import NotFoundError
from providers.gcs import GCSProvider
from providers.options import GCSOptions, S3Options
from providers.retry import without_waiting
from providers.s3 import S3Provider
from providers.transfer import read_into
from providers.values import ByteRange, ObjectInfo
from tests.fakes.http2_server import Answer, Http2Server
from tests.fakes.plane_certificate import make_certificate
from tests.fakes.plane_provider import PlaneProvider, Read, read_all, read_one, steady

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from providers.http_provider import HttpProvider

HOST = "h2.test"
SMALL = {f"small/{number}": bytes([number % 251]) * (number * 7) for number in range(300)}
LARGE = bytes(range(256)) * 4096 * 4
ETAG = hashlib.md5(LARGE, usedforsecurity=False).hexdigest()
LARGE_INFO = ObjectInfo("large", len(LARGE), ETAG)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of the server's name."""
    return make_certificate(tmp_path, HOST)


@pytest.fixture
def server(certificate: Path) -> Iterator[Http2Server]:
    """A server of small objects and a large one."""
    providers.pacing._start_afresh()
    with (
        Http2Server({**SMALL, "large": LARGE}, certificate, HOST) as server,
        without_waiting(),
    ):
        yield server


def opened(server: Http2Server, certificate: Path, *, http2: bool = True) -> PlaneProvider:
    """Return a provider that offers HTTP/2, or does not."""
    names = (f"{HOST}:{server.port}:127.0.0.1",)
    connection = Connection(str(certificate), addresses=names, http2=http2)
    return PlaneProvider(server.endpoint, connection=connection)


@pytest.fixture
def provider(server: Http2Server, certificate: Path) -> PlaneProvider:
    """A provider that offers HTTP/2."""
    return opened(server, certificate)


@pytest.mark.parametrize("ordered", [True, False])
def test_hundreds_of_objects(server: Http2Server, provider: PlaneProvider, ordered: bool) -> None:
    """They come right, on no more connections than there are requests at once."""
    reads = [Read(provider, key) for key in SMALL]
    found = read_all(reads, steady(max_in_flight=32), ordered=ordered)
    if ordered:
        assert found == list(SMALL.values())
    assert sorted(map(repr, found)) == sorted(map(repr, SMALL.values()))
    assert set(server.seen.protocols) == {"h2"}
    assert len(server.seen.paths) == len(SMALL)
    assert server.connections <= 32


def test_without_the_option_the_same_server_is_spoken_to_in_1_1(
    server: Http2Server, certificate: Path
) -> None:
    """One request a connection at a time."""
    provider = opened(server, certificate, http2=False)
    assert read_all([Read(provider, key) for key in SMALL]) == list(SMALL.values())
    assert set(server.seen.protocols) == {"http/1.1"}


def test_a_large_object_in_parallel_ranges(server: Http2Server, provider: PlaneProvider) -> None:
    """Flow control lets every range through, into the caller's buffer."""
    buffer = bytearray(len(LARGE))
    transfer = steady(range_size_bytes=1 << 20)
    assert read_into(provider, LARGE_INFO, buffer, transfer=transfer) == len(LARGE)
    assert buffer == LARGE
    assert len(server.seen.ranges) == 4
    assert set(server.seen.protocols) == {"h2"}


@pytest.mark.parametrize("how", ["reset", "goaway", "close"])
@pytest.mark.parametrize("into", [False, True])
def test_a_broken_body_goes_on_from_where_it_stopped(
    server: Http2Server, provider: PlaneProvider, how: str, into: bool
) -> None:
    """Whether a stream ends early or its whole connection."""

    def broken(answer: Answer) -> None:
        answer.broken_at, answer.how = 100_000, how

    server.change("large", broken)
    read = Read(provider, "large", into=memoryview(bytearray(len(LARGE))) if into else None)
    assert read_one(read) == LARGE
    assert server.seen.ranges[0] == ""
    # What lay in libcurl's buffers when the connection went is asked for again.
    start = int(server.seen.ranges[1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < start <= 100_000
    assert len(server.seen.ranges) == 2


def test_all_streams_of_a_lost_connection_come_again(
    server: Http2Server, provider: PlaneProvider
) -> None:
    """One connection's end takes many reads with it; each is sent once more."""

    def lost(answer: Answer) -> None:
        answer.broken_at, answer.how = 0, "goaway"

    for number in (50, 150, 250):
        server.change(f"small/{number}", lost)
    assert read_all([Read(provider, key) for key in SMALL]) == list(SMALL.values())


def test_a_body_without_a_length(server: Http2Server, provider: PlaneProvider) -> None:
    """The end of the stream is the end of the body; one that breaks is not."""

    def untold(answer: Answer) -> None:
        answer.told = False

    def broken(answer: Answer) -> None:
        answer.told, answer.broken_at = False, 50_000

    server.change("large", untold)
    assert read_one(Read(provider, "large")) == LARGE
    server.change("large", broken)
    assert read_one(Read(provider, "large")) == LARGE
    assert len(server.seen.paths) == 3


def test_refusals_are_explained(server: Http2Server, provider: PlaneProvider) -> None:
    """Errors are errors; what passes is tried again."""

    def busy(answer: Answer) -> None:
        answer.status, answer.body = 503, b"<Error><Code>SlowDown</Code></Error>"

    assert isinstance(read_one(Read(provider, "missing")), NotFoundError)
    server.change("small/9", busy)
    assert read_one(Read(provider, "small/9")) == SMALL["small/9"]
    assert server.seen.paths.count("/bucket/small/9") == 2


def test_a_short_range_is_no_result(server: Http2Server, provider: PlaneProvider) -> None:
    """A stream that ends properly, and early, is read on."""

    def short(answer: Answer) -> None:
        answer.body, answer.told = answer.body[:10], False

    server.change("large", short)
    assert read_one(Read(provider, "large", ByteRange(5, 105))) == LARGE[5:105]


@pytest.mark.parametrize("cloud", ["s3", "gs"])
def test_clouds(server: Http2Server, certificate: Path, cloud: str) -> None:
    """S3 and Google Cloud Storage take the option as it is."""
    shared: dict[str, Any] = {
        "endpoint": server.endpoint,
        "ca_file": str(certificate),
        "http2": True,
    }
    provider: HttpProvider
    if cloud == "s3":
        options = S3Options(access_key_id="id", secret_access_key="secret", region="r", **shared)
        provider = S3Provider("bucket", options)
    else:
        provider = GCSProvider("bucket", GCSOptions(anonymous=True, **shared))
    names = (f"{HOST}:{server.port}:127.0.0.1",)
    provider.connection = replace(provider.connection, addresses=names)
    assert provider.get("small/9") == SMALL["small/9"]
    assert provider.get("large", ByteRange(3, 9)) == LARGE[3:9]
    assert set(server.seen.protocols) == {"h2"}
