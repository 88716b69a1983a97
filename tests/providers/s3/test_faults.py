"""What S3 does on a bad day: errors that pass, errors that stay, answers that are not whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from providers.errors import (
    AccessDeniedError,
    IntegrityError,
    ProviderError,
    ServiceError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.testing.harness import noise
from providers.values import ByteRange
from tests.providers.s3.stores import (
    DENIED,
    THROTTLED,
    verbs,
)

if TYPE_CHECKING:
    from providers.s3 import S3Provider
    from tests.fakes.front import Front
    from tests.fakes.wire import Answer
    from tests.providers.s3.stores import Store

VERBS = ["get", "put", "head", "list", "delete", "start"]
BODY = noise(100_000)


@pytest.mark.parametrize("verb", VERBS)
def test_a_passing_failure_is_tried_again(
    provider: S3Provider, front: Front, store: Store, verb: str
) -> None:
    """503 twice, then success: the verb succeeds, with exactly three requests."""
    store.put("key", BODY)
    front.answer(503, body=THROTTLED, times=2)
    verbs(provider)[verb]()
    assert [record.status for record in front.requests] == [503, 503, 200]


@pytest.mark.parametrize("verb", VERBS)
def test_a_reset_is_tried_again(
    provider: S3Provider, front: Front, store: Store, verb: str
) -> None:
    """A reset counts as one failed attempt, whatever the request."""
    store.put("key", BODY)
    front.reset()
    verbs(provider)[verb]()
    assert len(front.requests) == 2


def test_throttling_for_ever_gives_up(provider: S3Provider, front: Front) -> None:
    """SlowDown without end raises ThrottledError, which counts attempts and names the request."""
    headers = {"Retry-After": "1", "x-amz-request-id": "REQUEST-7"}
    front.answer(503, headers, THROTTLED, times=None)
    with pytest.raises(ThrottledError, match="gave up after 3 attempts") as caught:
        provider.get("key")
    assert len(front.requests) == 3
    assert (caught.value.status, caught.value.code) == (503, "SlowDown")
    assert (caught.value.request_id, caught.value.retry_after_seconds) == ("REQUEST-7", 1.0)
    assert str(caught.value).startswith(f"get {provider.uri('key')}: Please reduce your rate")


def test_too_many_requests_are_slowed_down(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """A 429 without a document is throttling: tried again, told with the pause it asked for."""
    store.put("key", BODY)
    front.answer(429, {"Retry-After": "7"}, times=4)
    with pytest.raises(ThrottledError, match=r"get s3://.*status 429.*after 3 attempts") as caught:
        provider.get("key")
    assert caught.value.retry_after_seconds == 7.0
    assert provider.get("key") == BODY
    assert [record.status for record in front.requests] == [429] * 4 + [200]


@pytest.mark.parametrize(("status", "attempts"), [(500, 3), (503, 3), (400, 1), (501, 1)])
def test_an_error_without_a_document(
    provider: S3Provider, front: Front, status: int, attempts: int
) -> None:
    """A proxy's own error page is judged by its status."""
    front.answer(status, {"Content-Type": "text/html"}, b"<html>Bad", times=None)
    with pytest.raises(ProviderError) as caught:
        provider.get("key")
    assert (caught.value.status, caught.value.code) == (status, None)
    assert len(front.requests) == attempts


# ---- Listings ------------------------------------------------------------------------------


def test_a_refused_listing_is_no_empty_one(provider: S3Provider, front: Front) -> None:
    """503 and then 403 on a listing raises AccessDeniedError."""
    front.answer(503, body=THROTTLED)
    front.answer(403, body=DENIED, times=None)
    with pytest.raises(AccessDeniedError, match=r"list s3://.*status 403, code AccessDenied"):
        list(provider.list_objects())
    assert len(front.requests) == 2


def test_a_listing_refused_half_way_raises(provider: S3Provider, front: Front) -> None:
    """A page that fails after others raises; what came before it came."""
    page = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
        b"</NextContinuationToken><Contents><Key>a</Key><Size>1</Size>"
        b"<LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>"
    )
    front.answer(200, body=page)
    front.answer(403, body=DENIED)
    entries = provider.list_objects()
    assert next(entries).key == "a"
    with pytest.raises(AccessDeniedError):
        next(entries)
    assert "continuation-token=t" in front.requests[1].query


@pytest.mark.parametrize("body", [b"", b"<html/>", b"<html>", b"<ListBucketResult/>"])
def test_another_document_is_no_empty_listing(
    provider: S3Provider, front: Front, body: bytes
) -> None:
    """A 200 of something on the way never reads as "no objects"; it is asked for again."""
    front.answer(200, body=body, times=None)
    with pytest.raises(UnavailableError, match=r"list s3://.*gave up after 3 attempts"):
        list(provider.list_objects())


@pytest.mark.parametrize("token", [b"", b"<NextContinuationToken>t</NextContinuationToken>"])
def test_a_listing_that_leads_nowhere_raises(
    provider: S3Provider, front: Front, token: bytes
) -> None:
    """A listing that goes on without saying where, or where it was, is neither cut nor endless."""
    body = b"<ListBucketResult><IsTruncated>true</IsTruncated>%s</ListBucketResult>"
    front.answer(200, body=body % token, times=5)
    with pytest.raises(ServiceError, match="does not say where"):
        list(provider.list_objects())
    assert len(front.requests) == (2 if token else 1)


def test_a_cut_listing_is_asked_for_again(provider: S3Provider, front: Front, store: Store) -> None:
    """A page that breaks off is not parsed."""
    store.put("key", BODY)
    front.truncate(150)
    assert [entry.key for entry in provider.list_objects()] == ["key"]
    assert len(front.requests) == 2


# ---- Bodies --------------------------------------------------------------------------------


@pytest.mark.parametrize("byte_range", [None, ByteRange(10), ByteRange(10, 90_000)])
@pytest.mark.parametrize("sent", [0, 1, 70_000])
def test_short_body_is_read_again(
    provider: S3Provider, front: Front, store: Store, byte_range: ByteRange | None, sent: int
) -> None:
    """A body that ends early, even by a clean close, is continued from there, of its version."""
    store.put("key", BODY)
    front.truncate(sent, times=2)
    start, stop = (byte_range.start, byte_range.stop) if byte_range else (0, None)
    assert provider.get("key", byte_range) == BODY[start:stop]
    # What is left after 70,000 bytes is less than that, and comes at once.
    assert len(front.requests) == (2 if sent == 70_000 else 3)
    if sent:
        last = front.requests[-1].headers
        reached = start + sent * (len(front.requests) - 1)
        assert last["range"] == ByteRange(reached, stop).header
        assert last["if-match"] == store.client.head_object(Bucket=store.bucket, Key="key")["ETag"]


def test_short_body_for_ever_raises(provider: S3Provider, front: Front, store: Store) -> None:
    """If nothing more comes however often it is asked for, the error says so."""
    store.put("key", BODY)
    front.truncate(0, times=None)
    with pytest.raises(UnavailableError, match="gave up after 3 attempts"):
        provider.get("key")


def test_whole_object_in_place_of_a_range_raises(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """An answer without the range is asked for once more, and then refused."""
    store.put("key", BODY)

    def whole(answer: Answer) -> Answer:
        kept = tuple(pair for pair in answer.headers if pair[0].lower() != "content-range")
        return replace(answer, status=200, headers=kept, body=BODY)

    front.rewrite(whole, times=None)
    with pytest.raises(IntegrityError, match="answered the whole object to a request for a range"):
        provider.get("key", ByteRange(5, 10))
    assert len(front.requests) == 2


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        ("bytes 4-8/100000", r"bytes=5-9 was asked for, 'bytes 4-8/100000' came"),
        ("bytes 5-8/100000", r"5 bytes came instead of 4"),
        ("bytes 5-10/100000", r"bytes=5-9 was asked for, 'bytes 5-10/100000' came"),
        ("x", r"the answer has no Content-Range"),
    ],
)
def test_another_range_raises(
    provider: S3Provider, front: Front, store: Store, answered: str, told: str
) -> None:
    """Bytes of another range are no answer; they are asked for once more."""
    store.put("key", BODY)
    front.rewrite(lambda answer: answer.with_header("Content-Range", answered), times=None)
    with pytest.raises(IntegrityError, match=told):
        provider.get("key", ByteRange(5, 10))
    assert len(front.requests) == 2


def test_range_of_an_object_of_untold_size(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """HTTP lets a server keep the whole size to itself, as long as the range fits."""
    store.put("key", BODY)
    front.rewrite(lambda answer: answer.with_header("Content-Range", "bytes 5-9/*"))
    assert provider.get("key", ByteRange(5, 10)) == BODY[5:10]
    assert len(front.requests) == 1


def test_compressed_object_comes_as_stored(provider: S3Provider, store: Store) -> None:
    """Content-Encoding is a label: bytes are neither unpacked nor refused."""
    body = b"\x1f\x8bno gzip at all"
    store.client.put_object(Bucket=store.bucket, Key="key", Body=body, ContentEncoding="gzip")
    assert provider.get("key") == body
    assert provider.get("key", ByteRange(2, 4)) == b"no"


# ---- Time ----------------------------------------------------------------------------------


def test_silent_server_times_out(store: Store, front: Front) -> None:
    """An answer that does not begin in time is a TimedOutError."""
    front.stall(60.0, times=None)
    impatient = store.opened(front.endpoint, max_attempts=2, first_byte_timeout_seconds=0.1)
    with pytest.raises(TimedOutError, match=r"no answer within 0\.1 s.*gave up after 2 attempts"):
        impatient.get("key")


# ---- Deletes -------------------------------------------------------------------------------


def result(*failures: tuple[str, str]) -> bytes:
    """Return the answer to a batch delete of two keys."""
    errors = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>No</Message></Error>"
        for key, code in failures
    )
    deleted = "<Deleted><Key>x</Key></Deleted>" * (2 - len(failures))
    return f"<DeleteResult>{errors}{deleted}</DeleteResult>".encode()


def test_delete_tells_which_keys_failed(provider: S3Provider, front: Front) -> None:
    """Failures of single keys come inside a success; the first is raised with the count."""
    front.answer(200, body=result(("a", "AccessDenied"), ("b", "AccessDenied")))
    with pytest.raises(AccessDeniedError, match="1 more keys failed") as caught:
        provider.delete(["a", "b"])
    assert provider.uri("a") in str(caught.value)
    assert len(front.requests) == 1


def test_delete_tries_passing_failures_again(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """A key that the service could not delete for now is asked for again; missing is deleted."""
    store.put("a", b"x")
    front.answer(200, body=result(("a", "InternalError")))
    front.answer(200, body=result(("a", "SlowDown")))
    provider.delete(["a", "b"])
    assert store.keys() == []
    front.answer(200, body=result(("a", "NoSuchKey")))
    provider.delete(["a", "b"])
    assert len(front.requests) == 4


@pytest.mark.parametrize("body", [b"", b"<html/>", b"<DeleteResult/>", result()[:-30] + b"sult>"])
def test_delete_believes_no_other_document(provider: S3Provider, front: Front, body: bytes) -> None:
    """A success that does not name what was deleted is none; it is asked for again."""
    front.answer(200, body=body, times=None)
    with pytest.raises(UnavailableError, match=r"delete s3://.*gave up after 3 attempts"):
        provider.delete(["a", "b"])
