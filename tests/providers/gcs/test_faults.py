"""What Google Cloud Storage does on a bad day: errors that pass, errors that stay, bad bodies."""

from __future__ import annotations

import gzip
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from providers.errors import (
    AccessDeniedError,
    IntegrityError,
    NotFoundError,
    RangeError,
    ServiceError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.gcs import GCSProvider
from providers.options import TransferOptions
from providers.values import ByteRange
from tests.providers.gcs.access import RawBucket, options, provider, upload

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.front import Front
    from tests.fakes.wire import Answer

BODY = bytes(range(256)) * 40


def damaged(answer: Answer) -> Answer:
    """Change two bytes of an answer's body."""
    return replace(answer, body=b"\0\0" + answer.body[2:])


# ---- Errors that pass, and those that do not -----------------------------------------------


@pytest.mark.parametrize("verb", ["get", "range", "head", "put", "list", "copy", "compose"])
def test_a_passing_failure_is_retried(
    gcs: GCSProvider, front: Front, raw: RawBucket, verb: str
) -> None:
    """503 twice, then success: the verb succeeds with exactly three requests for its last step."""
    raw.put("a", BODY)
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: gcs.get("a"),
        "range": lambda: gcs.get("a", ByteRange(3, 9)),
        "head": lambda: gcs.head("a"),
        "put": lambda: gcs.put("b", BODY),
        "list": lambda: list(gcs.list_objects()),
        "copy": lambda: gcs.copy("a", "b"),
        "compose": lambda: gcs.compose([source, source], "b"),
    }
    source = gcs.head("a")
    before = len(front.requests)
    front.answer(503, times=2)
    calls[verb]()
    statuses = [record.status for record in front.requests[before:]]
    assert statuses[:3] == [503, 503, 206 if verb == "range" else 200]
    assert len(statuses) == (4 if verb == "copy" else 3)


def test_throttling_for_ever_gives_up(gcs: GCSProvider, front: Front) -> None:
    """429 without end raises ThrottledError, which counts the attempts and names the request."""
    headers = {"Retry-After": "1", "X-GUploader-UploadID": "request-7"}
    front.answer(429, headers, times=None)
    with pytest.raises(ThrottledError, match="gave up after 10 attempts") as caught:
        gcs.get("a")
    assert len(front.requests) == 10
    assert caught.value.retry_after_seconds == 1
    assert caught.value.request_id == "request-7"


def test_a_refused_listing_is_no_empty_one(gcs: GCSProvider, front: Front) -> None:
    """503 and then 403 on a listing raises AccessDeniedError, even after a good first page."""
    body = b'{"error": {"code": 403, "message": "No.", "errors": [{"reason": "forbidden"}]}}'
    json = {"Content-Type": "application/json"}
    front.answer(503)
    front.answer(403, json, body)
    with pytest.raises(AccessDeniedError, match=r"list gs://.*No\. \(status 403, code forbidden"):
        list(gcs.list_objects())
    front.answer(200, json, b'{"items": [], "nextPageToken": "more"}')
    front.answer(403, json, body)
    with pytest.raises(AccessDeniedError):
        list(gcs.list_objects())


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"items": [', b"[]"])
def test_a_broken_listing_is_no_empty_one(gcs: GCSProvider, front: Front, body: bytes) -> None:
    """A page that is no whole document is asked for again, and raises if it stays so."""
    front.answer(200, {}, body, times=None)
    with pytest.raises(UnavailableError, match="gave up after 10 attempts"):
        list(gcs.list_objects())


def test_a_limit_of_rate_may_come_as_403(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """The JSON API's 403 rateLimitExceeded is throttling and is retried."""
    raw.put("a", b"x")
    front.answer(403, {}, b'{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}')
    assert [info.key for info in gcs.list_objects()] == ["a"]


def test_missing_object_and_missing_bucket(gcs: GCSProvider, front: Front) -> None:
    """Both raise NotFoundError, and the code tells which it was; deletes tell them apart."""
    with pytest.raises(NotFoundError) as caught:
        gcs.get("missing")
    assert caught.value.code == "NoSuchKey"
    gcs.delete(["missing"])
    gcs.delete(["missing", "missing too"])
    elsewhere = provider(front.endpoint, "no-such-bucket")
    for verb in (
        lambda: elsewhere.get("a"),
        lambda: elsewhere.delete(["a"]),
        lambda: elsewhere.delete(["a", "b"]),
        lambda: elsewhere.start_multipart("a"),
    ):
        with pytest.raises(NotFoundError) as caught:
            verb()
        assert "NoSuchBucket" in str(caught.value)
    with pytest.raises(NotFoundError):
        list(elsewhere.list_objects())


def test_nobody_there() -> None:
    """A refused connection raises UnavailableError that names the endpoint."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(
        UnavailableError,
        match=rf"get gs://bucket/a: .* 127\.0\.0\.1 port {port}|127\.0\.0\.1:{port}",
    ):
        provider(f"http://127.0.0.1:{port}", "bucket").get("a")


def test_a_redirect_is_told_and_not_followed(gcs: GCSProvider, front: Front) -> None:
    """A redirect would take the token to another host; the error says where it leads."""
    front.answer(307, {"Location": "http://elsewhere.invalid/a"}, times=None)
    for verb in (gcs.get, gcs.head):
        with pytest.raises(ServiceError, match=r"it leads to http://elsewhere\.invalid/a.*307"):
            verb("a")
    assert len(front.requests) == 2


def test_no_answer_in_time(front: Front, raw: RawBucket) -> None:
    """A silent server raises TimedOutError after the last attempt."""
    raw.put("a", BODY)
    times = TransferOptions(first_byte_timeout_seconds=0.05, max_attempts=2)
    front.stall(60, times=None)
    with pytest.raises(TimedOutError, match="gave up after 2 attempts"):
        GCSProvider(raw.name, options(front.endpoint), times).get("a")


def test_completion_may_take_longer(front: Front, raw: RawBucket) -> None:
    """Complete, compose and copy wait for their answer beyond the time of other requests."""
    times = TransferOptions(first_byte_timeout_seconds=0.7, max_attempts=1)
    slow = GCSProvider(raw.name, options(front.endpoint), times)
    front.stall(1.2, times=3, when=lambda request: request.method == "POST"
                and "uploads" not in request.query)  # fmt: skip
    upload(slow, "a", b"x")
    source = slow.head("a")
    slow.compose([source, source], "b")
    slow.copy("b", "c")
    assert raw.get("c") == b"xx"
    # Had any of them run out of patience, its connection would be gone; parts have their own.
    assert {record.connection for record in front.requests} == {1, 2}


# ---- Bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("byte_range", [None, ByteRange(10, 5000)])
def test_a_cut_body_is_read_again(
    gcs: GCSProvider, front: Front, raw: RawBucket, byte_range: ByteRange | None
) -> None:
    """A connection that ends early is retried, and raises if it always ends early."""
    raw.put("a", BODY)
    front.truncate(100, times=2)
    expected = BODY if byte_range is None else BODY[10:5000]
    assert gcs.get("a", byte_range) == expected
    front.truncate(100, times=None)
    with pytest.raises(UnavailableError, match="gave up after 10 attempts"):
        gcs.get("a", byte_range)


@pytest.mark.parametrize("byte_range", [None, ByteRange(10, 5000)])
def test_a_short_body_that_ends_well_is_read_again(
    gcs: GCSProvider, front: Front, raw: RawBucket, byte_range: ByteRange | None
) -> None:
    """A body that is short by its own `Content-Length` too is never returned."""
    raw.put("a", BODY)

    def shorten(answer: Answer) -> Answer:
        # The server leaves out this header, which the service sends.
        answer = answer.with_header("x-goog-stored-content-length", str(len(BODY)))
        return replace(answer, body=answer.body[:-1])

    front.rewrite(shorten, times=1)
    assert gcs.get("a", byte_range) == (BODY if byte_range is None else BODY[10:5000])
    front.rewrite(shorten, times=None)
    # Of a range the length is known; of the whole only the checksum tells that it is not.
    problem = "do not match the crc32c" if byte_range is None else "the body ended after"
    with pytest.raises((IntegrityError, UnavailableError), match=problem):
        gcs.get("a", byte_range)


def test_an_answer_for_another_range_is_refused(
    gcs: GCSProvider, front: Front, raw: RawBucket
) -> None:
    """Neither the whole object nor other bytes are taken for the range."""
    raw.put("a", BODY)
    front.answer(200, {}, BODY, times=2)
    with pytest.raises(IntegrityError, match="answered the whole object to a request for a range"):
        gcs.get("a", ByteRange(10, 20))
    front.answer(206, {"Content-Range": "bytes 0-9/10240"}, BODY[:10], times=2)
    with pytest.raises(IntegrityError, match="bytes=10-19 was asked for, 'bytes 0-9/10240' came"):
        gcs.get("a", ByteRange(10, 20))
    assert len(front.requests) == 4


def test_damaged_bytes_are_read_again_once(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """A body that does not fit its CRC32C is read once more, then raises IntegrityError."""
    raw.put("a", BODY)
    front.rewrite(damaged, times=1)
    assert gcs.get("a") == BODY
    assert len(front.requests) == 2
    front.rewrite(damaged, times=None)
    with pytest.raises(IntegrityError, match="do not match the crc32c"):
        gcs.get("a")
    assert len(front.requests) == 4


def test_damaged_uploads_are_refused(gcs: GCSProvider, front: Front) -> None:
    """Puts and parts carry the CRC32C that the service compares."""
    gcs.put("a", BODY)
    upload(gcs, "b", BODY)
    sent = [record.headers for record in front.requests if record.method == "PUT"]
    stored = gcs.head("a").checksum
    assert [headers["x-goog-hash"] for headers in sent] == [str(stored).replace(":", "=")] * 2


@pytest.mark.parametrize("encoding", ["gzip", "deflate", None])
def test_compressed_objects_are_read_as_stored(
    gcs: GCSProvider, front: Front, raw: RawBucket, encoding: str | None
) -> None:
    """Size, range and bytes are those of the stored object, whatever it claims to be."""
    data = gzip.compress(BODY)
    raw.put("a", data, encoding=encoding)
    assert gcs.get("a") == data
    assert gcs.get("a", ByteRange(5, 50)) == data[5:50]
    assert gcs.head("a").size == len(data)
    # Without it the service would decompress.
    assert {record.headers["accept-encoding"] for record in front.requests} == {"gzip"}


def test_an_empty_object_is_empty(gcs: GCSProvider, raw: RawBucket) -> None:
    """Its whole is no bytes; it has no range."""
    raw.put("a", b"")
    assert gcs.get("a") == b""
    with pytest.raises(RangeError, match=r"range cannot be satisfied.*status 416"):
        gcs.get("a", ByteRange(0, 1))
