"""Writes on a bad day: whole or absent, settled by the write id, never guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from providers.errors import (
    AccessDeniedError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from providers.testing.harness import noise
from tests.providers.s3.stores import (
    DENIED,
    FAILED,
    PART_BYTES,
    THROTTLED,
    completing,
    copying,
)

if TYPE_CHECKING:
    from providers.s3 import S3Provider
    from tests.fakes.front import Exchange, Front
    from tests.providers.s3.stores import Store

BODY = noise(100_000)


def upload(provider: S3Provider, key: str, body: bytes) -> Any:
    """Upload in one part."""
    with provider.start_multipart(key, metadata={"colour": "blue"}) as parts:
        parts.put_part(1, body)
        return parts.complete()


@pytest.mark.parametrize("lost", [1, 2])
def test_lost_answer_to_complete_is_settled(
    provider: S3Provider, front: Front, store: Store, lost: int
) -> None:
    """An object that was published though nobody heard of it is found to be one's own."""
    front.drop_answer(when=completing, times=lost)
    info = upload(provider, "key", BODY)
    assert (info.size, info.metadata) == (len(BODY), {"colour": "blue"})
    assert store.get("key") == BODY
    assert store.keys() == ["key"]
    assert store.unfinished() == []
    assert sum(r.method == "POST" and "uploadId" in r.query for r in front.requests) == lost + 1


def test_lost_answers_to_complete_for_ever_are_settled(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """Even when no answer ever comes, the object tells."""
    front.drop_answer(when=completing, times=None)
    assert upload(provider, "key", BODY).size == len(BODY)
    assert store.get("key") == BODY


def test_another_writer_is_not_taken_for_oneself(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """What somebody else published under the key is no proof of one's own success."""
    store.put("key", b"another's")
    front.answer(404, body=b"<Error><Code>NoSuchUpload</Code></Error>", when=completing)
    with pytest.raises(NotFoundError, match="NoSuchUpload"):
        upload(provider, "key", BODY)
    assert store.get("key") == b"another's"


def test_failing_complete_publishes_nothing(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """The old object stands, no upload is left, and the error says what happened."""
    store.put("key", b"old")
    front.answer(500, body=FAILED, when=completing, times=None)
    with pytest.raises(UnavailableError, match=r"complete s3://.*gave up after 3 attempts"):
        upload(provider, "key", BODY)
    assert store.get("key") == b"old"
    assert store.unfinished() == []


@pytest.mark.parametrize("body", [FAILED, b"", b"<html/>", b'<?xml version="1.0"?>\n  ' + FAILED])
def test_success_without_a_result_is_an_error_of_complete(
    provider: S3Provider, front: Front, store: Store, body: bytes
) -> None:
    """A 200 to complete is a success only if its body says so."""
    store.put("key", b"old")
    front.answer(200, body=body, when=completing, times=None)
    with pytest.raises(UnavailableError, match="complete s3://"):
        upload(provider, "key", BODY)
    assert store.get("key") == b"old"
    assert store.unfinished() == []


@pytest.mark.parametrize("body", [FAILED, b"", b"<html/>"])
def test_success_without_a_result_is_an_error_of_copy(
    provider: S3Provider, front: Front, store: Store, body: bytes
) -> None:
    """The same holds for a copy, and for the copy of a part."""
    store.put("key", noise(PART_BYTES))
    front.answer(200, body=body, when=copying, times=None)
    with pytest.raises(UnavailableError, match="copy s3://"):
        provider.copy("key", "other")
    with pytest.raises(UnavailableError, match="copy_part s3://"):
        provider.compose(["key", "key"], "other")
    assert store.keys() == ["key"]
    assert store.unfinished() == []


def test_error_inside_a_success_may_pass(provider: S3Provider, front: Front, store: Store) -> None:
    """What S3 says in the body of a 200 is retried like what it says by the status."""
    store.put("key", noise(PART_BYTES))
    front.answer(200, body=THROTTLED, when=copying)
    provider.copy("key", "other")
    front.answer(200, body=FAILED, when=completing)
    upload(provider, "third", BODY)
    assert store.keys() == ["key", "other", "third"]


def test_lost_answer_to_put_if_absent_is_settled(strict: Store, strict_front: Front) -> None:
    """A conditional put that meets its own first attempt is a success; another's is not."""
    provider = strict.opened(strict_front.endpoint, conditional_put=True)
    strict_front.drop_answer(when=lambda request: request.method == "PUT")
    assert provider.put("key", BODY, if_absent=True).size == len(BODY)
    assert [record.method for record in strict_front.requests] == ["PUT", "PUT", "HEAD"]
    assert strict.get("key") == BODY


def test_another_put_if_absent_is_not_ones_own(strict: Store, strict_front: Front) -> None:
    """Who comes second after a lost request is told so, and changes nothing."""
    provider = strict.opened(strict_front.endpoint, conditional_put=True)

    def overtake(_: Exchange) -> None:
        strict.put("key", b"another's")

    strict_front.apply(overtake)
    with pytest.raises(PreconditionError, match=r"put s3://.*status 412"):
        provider.put("key", BODY, if_absent=True)
    assert strict.get("key") == b"another's"


def test_failing_abort_lets_the_first_error_through(
    provider: S3Provider, front: Front, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """What went wrong first is raised; that parts were left is logged, with what removes them."""
    store.put("key", b"old")
    front.answer(403, body=DENIED, when=completing, times=None)
    front.answer(500, body=FAILED, when=lambda request: request.method == "DELETE", times=None)
    with pytest.raises(AccessDeniedError, match="complete s3://"):
        upload(provider, "key", BODY)
    (warning,) = [r for r in caplog.records if "could not abort" in r.getMessage()]
    assert warning.levelname == "WARNING"
    assert provider.uri("key") in warning.getMessage()
    assert "lifecycle rule" in warning.getMessage()
    assert "abort s3://" in caplog.text
    assert store.get("key") == b"old"
    assert len(store.unfinished()) == 1


def test_failing_abort_alone_raises(provider: S3Provider, front: Front) -> None:
    """Where nothing else failed, a failing abort is the error."""
    front.answer(403, body=DENIED, when=lambda request: request.method == "DELETE")
    with pytest.raises(AccessDeniedError, match="abort s3://"):
        provider.start_multipart("key").abort()


def test_completing_may_take_long(store: Store, front: Front) -> None:
    """Complete and copy wait for the completion timeout, not for the first byte's."""
    store.put("key", noise(PART_BYTES))
    impatient = store.opened(front.endpoint, first_byte_timeout_seconds=2.0, max_attempts=1)
    front.stall(3.0, when=completing)
    front.stall(3.0, when=copying, times=2)
    impatient.copy("key", "other")
    impatient.compose(["key", "key"], "third")
    assert store.get("third") == noise(PART_BYTES) * 2
