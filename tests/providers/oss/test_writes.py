"""Writes whose answers are lost, wrong or half a success; odd keys among them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from providers.errors import (
    LimitError,
    PreconditionError,
    ServiceError,
    UnavailableError,
)
from providers.testing.harness import narrowed, noise
from providers.values import ByteRange
from tests.providers.oss.stores import (
    BUCKET,
    FAILED,
    completing,
    opened,
    store,
)

if TYPE_CHECKING:
    from providers.oss import OSSProvider
    from tests.fakes.front import Front
    from tests.fakes.oss import OSSServer


def test_lost_answer_to_complete_is_settled(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """The published object is found to be ours, not called a missing upload."""
    front.drop_answer(when=completing)
    with provider.start_multipart("whole", if_absent=True) as upload:
        upload.put_part(1, b"body")
        info = upload.complete()
    assert info.size == 4
    assert server.objects(BUCKET) == {"whole": b"body"}
    assert len([r for r in front.requests if r.method == "POST" and "uploadId=" in r.query]) == 2


def test_lost_answer_to_put_if_absent_is_settled(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """The object that forbids the second attempt is found to be the first one's."""
    front.drop_answer(when=lambda request: request.method == "PUT")
    assert provider.put("key", b"mine", if_absent=True).size == 4
    assert server.objects(BUCKET) == {"key": b"mine"}
    with pytest.raises(PreconditionError, match="code FileAlreadyExists"):
        provider.put("key", b"other", if_absent=True)


def test_failing_complete_leaves_the_old_object(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """After a complete that fails for good the old object stands and no upload is left."""
    store(server, "whole", b"old")
    front.answer(500, body=FAILED, times=None, when=completing)
    with provider.start_multipart("whole") as upload:
        upload.put_part(1, b"new")
        with pytest.raises(UnavailableError, match="gave up after 3"):
            upload.complete()
    assert server.objects(BUCKET) == {"whole": b"old"}
    assert server.unfinished_uploads(BUCKET) == []


def test_if_absent_is_settled_at_both_ends_of_an_upload(
    server: OSSServer, provider: OSSProvider
) -> None:
    """An object that is there spares the parts; one that appears meanwhile stands."""
    with provider.start_multipart("whole", if_absent=True) as upload:
        upload.put_part(1, b"mine")
        store(server, "whole", b"theirs")
        with pytest.raises(PreconditionError, match="complete oss://the-bucket/whole"):
            upload.complete()
    with pytest.raises(PreconditionError, match="start_multipart oss://the-bucket/whole"):
        provider.start_multipart("whole", if_absent=True)
    assert server.objects(BUCKET) == {"whole": b"theirs"}
    assert server.unfinished_uploads(BUCKET) == []


@pytest.mark.parametrize("body", [FAILED, b"", b"<html>Fine</html>"])
def test_success_is_what_the_body_says(front: Front, server: OSSServer, body: bytes) -> None:
    """A 200 to complete, copy or a copied part that does not say so is none."""
    store(server, "key", b"body")
    once = opened(front.endpoint, max_attempts=1)
    front.answer(200, body=body, when=lambda r: "x-oss-copy-source" in r.headers, times=None)
    front.answer(200, body=body, when=completing)
    source = once.head("key")
    with pytest.raises(UnavailableError):
        once.copy("key", "copied")
    with once.start_multipart("whole") as upload:
        with pytest.raises(UnavailableError):
            upload.copy_part(1, source, ByteRange(0))
        upload.put_part(1, b"body")
        with pytest.raises(UnavailableError):
            upload.complete()
    assert server.objects(BUCKET) == {"key": b"body"}
    assert server.unfinished_uploads(BUCKET) == []


def test_large_object_is_copied_in_parts(
    server: OSSServer, provider: OSSProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the largest single copy the service copies parts; metadata comes along."""
    narrowed(monkeypatch, provider, max_copy_bytes=1000)
    provider.put("key", noise(1001), metadata={"colour": "blue"})
    provider.copy("key", "copied")
    assert server.objects(BUCKET)["copied"] == noise(1001)
    assert provider.head("copied").metadata == {"colour": "blue"}
    assert [r.method for r in server.requests if "partNumber" in r.query] == ["PUT"]


@pytest.mark.parametrize("key", ["/a", "\\a", "//", ".", ".."])
def test_key_that_oss_or_http_would_change_is_refused(
    server: OSSServer, provider: OSSProvider, key: str
) -> None:
    """Such keys are refused before anything is sent."""
    for verb in (
        lambda: provider.put(key, b"x"),
        lambda: provider.get(key),
        lambda: provider.delete([key]),
    ):
        with pytest.raises(LimitError, match="key"):
            verb()
    assert server.requests == []


def test_delete_takes_keys_that_xml_cannot_hold(server: OSSServer, provider: OSSProvider) -> None:
    """Control characters do not turn into others, and thereby into other keys."""
    odd = ["a\r", "a\x01", "a\ufffe"]
    for key in (*odd, "a\n", "a"):
        provider.put(key, b"x")
    provider.delete([*odd, "missing\r"])
    assert set(server.objects(BUCKET)) == {"a\n", "a"}


def test_delete_that_is_not_confirmed_raises(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A key the answer does not name counts as not deleted."""
    store(server, "a", b"x")
    front.rewrite(lambda a: replace(a, body=a.body.replace(b"<Key>b</Key>", b"<Key>c</Key>")))
    with pytest.raises(ServiceError, match=r"oss://the-bucket/b: .*does not say"):
        provider.delete(["a", "b"])
    assert server.objects(BUCKET) == {}
