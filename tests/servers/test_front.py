"""Each way in which a `Front` misbehaves, seen through a plain `http.client`."""

import contextlib
import http.client
import multiprocessing
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fakes.front import Front, Request
from tests.servers.fake_gcs import GCSServer
from tests.servers.s3 import S3Server

BODY = b"0123456789"


class _Echo(BaseHTTPRequestHandler):
    """Answers `BODY` and counts; what it was sent comes back in headers."""

    protocol_version = "HTTP/1.1"
    hits = 0

    def do_GET(self) -> None:
        """Answer with what arrived."""
        type(self).hits += 1
        sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("X-Line", self.requestline)
        self.send_header("X-Host", self.headers["Host"])
        self.send_header("X-Sent", sent.decode())
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(BODY)

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def do_PUT(self) -> None:
        """Answer with what arrived."""
        self.do_GET()

    def log_request(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def front() -> Iterator[Front]:
    """A front before a server that tells what it was sent."""
    _Echo.hits = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        with Front(f"http://127.0.0.1:{server.server_port}") as front:
            yield front
        server.shutdown()
        thread.join()


@pytest.fixture
def connection(front: Front) -> Iterator[http.client.HTTPConnection]:
    """A kept-alive connection to the front."""
    with contextlib.closing(_connect(front)) as connection:
        yield connection


def _connect(front: Front) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(front.endpoint.removeprefix("http://"), timeout=10)


def _ask(
    connection: http.client.HTTPConnection, method: str = "GET", target: str = "/k"
) -> tuple[http.client.HTTPResponse, bytes]:
    connection.request(method, target)
    response = connection.getresponse()
    return response, response.read()


@pytest.mark.parametrize("target", ["//a//b/../c%2Fd%20e?x=%2F&y", "/?", "/a?b?c", "/."])
def test_target_and_host_pass_untouched(
    connection: http.client.HTTPConnection, target: str
) -> None:
    """The server gets the request line and Host as the client sent them."""
    response, body = _ask(connection, target=target)
    assert response.headers["X-Line"] == f"GET {target} HTTP/1.1"
    assert response.headers["X-Host"] == f"{connection.host}:{connection.port}"
    assert body == BODY


def test_requests_are_recorded(front: Front, connection: http.client.HTTPConnection) -> None:
    """Records tell what arrived, on which connection, and what was answered."""
    connection.request("PUT", "/a//b?c=d", body=b"xyz", headers={"X-Id": "7"})
    connection.getresponse().read()
    _ask(connection, "HEAD")
    first, second = front.requests
    assert (first.method, first.path, first.query) == ("PUT", "/a//b", "c=d")
    assert (first.headers["x-id"], first.body_size, first.status) == ("7", 3, 200)
    assert (second.method, second.connection) == ("HEAD", first.connection)


def test_chunked_request_passes_with_its_framing(fake_gcs: GCSServer, fake_gcs_bucket: str) -> None:
    """A body sent in chunks arrives whole."""
    upload = f"/upload/storage/v1/b/{fake_gcs_bucket}/o?uploadType=media&name=k"
    chunks = iter([b"hello ", b"world"])
    with Front(fake_gcs.endpoint) as front, contextlib.closing(_connect(front)) as connection:
        connection.request("POST", upload, body=chunks, encode_chunked=True)
        connection.getresponse().read()
        _, body = _ask(connection, target=f"/storage/v1/b/{fake_gcs_bucket}/o/k?alt=media")
        assert front.requests[0].body_size == len(b"hello world")
    assert body == b"hello world"


def test_answer_takes_the_servers_place(
    front: Front, connection: http.client.HTTPConnection
) -> None:
    """The front answers itself as often as it was told, then lets the server answer again."""
    front.answer(status=503, headers={"Retry-After": "1"}, body=b"slow down", times=2)
    response, body = _ask(connection)
    assert (response.status, response.headers["Retry-After"], body) == (503, "1", b"slow down")
    assert [_ask(connection)[0].status for _ in range(2)] == [503, 200]
    assert _Echo.hits == 1
    assert [record.status for record in front.requests] == [503, 503, 200]


def test_when_picks_requests(front: Front, connection: http.client.HTTPConnection) -> None:
    """A rule decides only the requests its condition agrees to, until the rules are cleared."""
    front.answer(404, times=None, when=lambda request: request.path == "/gone")
    targets = ["/k", "/gone", "/gone"]
    assert [_ask(connection, target=target)[0].status for target in targets] == [200, 404, 404]
    front.clear()
    assert _ask(connection, target="/gone")[0].status == 200


def test_drop_answer_lets_the_server_work(
    front: Front, connection: http.client.HTTPConnection
) -> None:
    """The server does its work, the client learns nothing."""
    front.drop_answer()
    with pytest.raises(http.client.RemoteDisconnected):
        _ask(connection)
    assert _Echo.hits == 1
    assert front.requests[0].status is None


def test_reset_breaks_the_connection(front: Front, connection: http.client.HTTPConnection) -> None:
    """The client's connection is reset and the server is never asked."""
    front.reset()
    with pytest.raises(ConnectionResetError) as caught:
        _ask(connection)
    assert not isinstance(caught.value, http.client.RemoteDisconnected)
    assert _Echo.hits == 0


def test_truncate_sends_less_than_promised(
    front: Front, connection: http.client.HTTPConnection
) -> None:
    """Headers promise the whole body, and the connection ends early."""
    front.truncate(4)
    connection.request("GET", "/k")
    response = connection.getresponse()
    assert response.headers["Content-Length"] == "10"
    with pytest.raises(http.client.IncompleteRead) as caught:
        response.read()
    assert caught.value.partial == BODY[:4]


def test_stall_waits(front: Front, connection: http.client.HTTPConnection) -> None:
    """The answer comes late, but comes."""
    front.stall(0.1)
    started = time.monotonic()
    assert _ask(connection)[1] == BODY
    assert time.monotonic() - started >= 0.1


def test_closing_wakes_a_stall(front: Front, connection: http.client.HTTPConnection) -> None:
    """A front that is closed does not wait for its stalls."""
    arrived = threading.Event()

    def has_arrived(_: Request) -> bool:
        arrived.set()
        return True

    front.stall(3600, when=has_arrived)
    connection.request("GET", "/k")
    assert arrived.wait(10)
    front.close()
    with pytest.raises(ConnectionError):
        connection.getresponse()


def test_rewrite_changes_the_answer(front: Front, connection: http.client.HTTPConnection) -> None:
    """A success turns into an error hidden in a 200."""
    front.rewrite(lambda answer: replace(answer.with_header("X-Line", "?"), body=b"<Error/>"))
    response, body = _ask(connection)
    assert (response.status, response.headers["X-Line"], body) == (200, "?", b"<Error/>")
    assert response.headers["Content-Length"] == str(len(body))


def test_head_keeps_the_servers_length(connection: http.client.HTTPConnection) -> None:
    """HEAD has no body, and the length the server gave."""
    response, body = _ask(connection, "HEAD")
    assert (response.headers["Content-Length"], body) == ("10", b"")


def test_signatures_stay_valid(juicefs: S3Server, juicefs_bucket: str) -> None:
    """A server that checks signatures accepts boto3's requests through the front."""
    with (
        Front(juicefs.endpoint) as front,
        contextlib.closing(replace(juicefs, endpoint=front.endpoint).client()) as client,
    ):
        client.put_object(Bucket=juicefs_bucket, Key="a b/%2F+é", Body=b"hello")
        with client.get_object(Bucket=juicefs_bucket, Key="a b/%2F+é")["Body"] as body:
            assert body.read() == b"hello"
        assert [record.status for record in front.requests] == [200, 200]


def test_many_connections_at_once(front: Front) -> None:
    """Every one of many clients gets its own answer, and no record is lost."""

    def ask() -> None:
        with contextlib.closing(_connect(front)) as connection:
            for _ in range(5):
                assert _ask(connection)[1] == BODY

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.status for record in front.requests] == [200] * 100
    assert len({record.connection for record in front.requests}) == 20


def test_missing_server_is_a_bad_gateway() -> None:
    """Without a server behind it the front answers 502 instead of hanging."""
    with Front("http://127.0.0.1:9") as front, contextlib.closing(_connect(front)) as connection:
        assert _ask(connection)[0].status == 502


def test_forked_child_holds_no_connection(
    front: Front, connection: http.client.HTTPConnection
) -> None:
    """A reset reaches the client even while a forked child lives."""
    _ask(connection)
    front.reset()
    context = multiprocessing.get_context("fork")
    release = context.Event()
    child = context.Process(target=release.wait, args=(30,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads, on purpose
        child.start()
    try:
        with pytest.raises(ConnectionResetError):
            _ask(connection)
    finally:
        release.set()
        child.join()
