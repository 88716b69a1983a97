"""What OSS refuses, and for how long it is asked again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from providers.errors import (
    AccessDeniedError,
    ArchivedError,
    NotFoundError,
    ProviderError,
    ServiceError,
    ThrottledError,
)
from tests.providers.oss.stores import (
    BUCKET,
    DENIED,
    FAILED,
    THROTTLED,
    opened,
    store,
)

if TYPE_CHECKING:
    from providers.oss import OSSProvider
    from tests.fakes.front import Answer, Front
    from tests.fakes.oss import OSSServer


def test_throttled_twice_succeeds(front: Front, server: OSSServer, provider: OSSProvider) -> None:
    """503 QpsLimitExceeded is tried again, by one layer only."""
    store(server, "key", b"body")
    front.answer(503, body=THROTTLED, times=2)
    assert provider.get("key") == b"body"
    assert [record.status for record in front.requests] == [503, 503, 200]


def test_throttled_for_ever_raises(front: Front, provider: OSSProvider) -> None:
    """The last of the allowed attempts tells their number, the code and the request id."""
    front.answer(503, {"x-oss-request-id": "THE-ID"}, THROTTLED, times=None)
    with pytest.raises(ThrottledError, match="gave up after 3 attempts") as caught:
        provider.get("key")
    assert len(front.requests) == 3
    error = caught.value
    assert (error.status, error.code) == (503, "QpsLimitExceeded")
    assert (error.request_id, error.operation) == ("THE-ID", "get")
    assert str(error).startswith(f"get oss://{BUCKET}/key: Too fast")


def test_list_refused_after_a_failure_raises(front: Front, provider: OSSProvider) -> None:
    """503 and then 403 is an error, never an empty bucket."""
    front.answer(503, body=FAILED)
    front.answer(403, body=DENIED)
    with pytest.raises(AccessDeniedError, match="Not yours"):
        list(provider.list_objects())
    assert len(front.requests) == 2


def test_list_refused_on_a_later_page_raises(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A listing that breaks off raises instead of ending early."""
    store(server, "a", b"x")

    def cut(answer: Answer) -> Answer:
        body = answer.body.replace(b">false</IsTruncated>", b">true</IsTruncated>").replace(
            b"</ListBucketResult>",
            b"<NextContinuationToken>a</NextContinuationToken></ListBucketResult>",
        )
        return replace(answer, body=body)

    front.rewrite(cut)
    front.answer(403, body=DENIED)
    entries = provider.list_objects()
    assert next(entries).key == "a"
    with pytest.raises(AccessDeniedError):
        next(entries)


def test_list_starts_where_it_is_told(server: OSSServer, provider: OSSProvider) -> None:
    """The service leaves out what comes before, instead of sending it to be dropped."""
    for key in ("a", "b", "c"):
        store(server, key, b"x")
    server.requests.clear()
    assert [entry.key for entry in provider.list_objects(start_after="b")] == ["c"]
    assert [r.query["start-after"] for r in server.requests] == ["b"]


def test_list_that_says_it_goes_on_but_not_where_raises(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A page cut off without a token is no end of the listing."""
    store(server, "a", b"x")
    front.rewrite(
        lambda answer: replace(
            answer,
            body=answer.body.replace(
                b">false</IsTruncated>", b">true</IsTruncated><NextContinuationToken/>"
            ),
        )
    )
    with pytest.raises(ServiceError, match="goes on"):
        list(provider.list_objects())


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b"no markup", b""])
def test_list_of_another_kind_raises(front: Front, provider: OSSProvider, body: bytes) -> None:
    """A page of some proxy is no empty listing."""
    front.answer(200, body=body, times=None)
    with pytest.raises(ProviderError, match="list oss://"):
        list(provider.list_objects())


def test_archived_object_raises(front: Front, server: OSSServer, provider: OSSProvider) -> None:
    """An archived object is named with its class and not tried again."""
    store(server, "old", b"x", x_oss_storage_class="ColdArchive")
    with pytest.raises(ArchivedError, match=r"oss://the-bucket/old: .*ColdArchive.*restore"):
        provider.get("old")
    assert len(front.requests) == 1


def test_wrong_secret_raises(front: Front) -> None:
    """Refused signatures are told with the code and without secret or signature."""
    with pytest.raises(AccessDeniedError, match="code SignatureDoesNotMatch") as caught:
        opened(front.endpoint, access_key_secret="not-the-secret").get("key")
    assert "not-the-secret" not in str(caught.value)
    assert "AWS" not in str(caught.value)
    assert len(front.requests) == 1


def test_refusal_of_a_long_key_is_understood(front: Front) -> None:
    """The code survives an error document that oss2 cuts off."""
    with pytest.raises(AccessDeniedError, match="code SignatureDoesNotMatch"):
        opened(front.endpoint, access_key_secret="wrong").get("é" * 500)


def test_missing_bucket_is_told_by_head(front: Front) -> None:
    """HEAD has no body; what is missing is read from its headers."""
    with pytest.raises(NotFoundError, match="code NoSuchBucket") as caught:
        opened(front.endpoint, "no-bucket").head("key")
    assert caught.value.request_id
    with pytest.raises(NotFoundError, match="code NoSuchKey"):
        opened(front.endpoint).head("key")


def test_head_without_a_size_raises(front: Front, server: OSSServer, provider: OSSProvider) -> None:
    """An answer that tells no size is not taken for that of an empty object."""
    store(server, "key", b"body")

    def strip(answer: Answer) -> Answer:
        kept = tuple(pair for pair in answer.headers if pair[0].lower() != "content-length")
        return replace(answer, headers=kept)

    front.rewrite(strip)
    with pytest.raises(ServiceError, match="does not tell the object's size"):
        provider.head("key")
