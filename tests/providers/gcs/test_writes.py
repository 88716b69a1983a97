"""Writes to Google Cloud Storage that go wrong: nothing is lost, doubled, made up or left over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from providers.base import WRITE_ID
from providers.errors import AccessDeniedError, PreconditionError, ProviderError, UnavailableError
from providers.transfer import compose_many
from tests.providers.gcs.access import RawBucket, is_complete, is_compose, is_method, upload

if TYPE_CHECKING:
    from providers.gcs import GCSProvider
    from providers.values import ObjectInfo
    from tests.fakes.front import Front

MIB = 1 << 20
BODY = bytes(range(256)) * 40
ERROR = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>As asked.</Message></Error>"


# ---- Lost answers ---------------------------------------------------------------------------


def test_a_lost_answer_to_a_conditional_put(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """The second attempt meets the first one's object and knows it for its own."""
    front.drop_answer(when=is_method("PUT"))
    info = gcs.put("a", BODY, if_absent=True, metadata={"colour": "blue"})
    assert (info.size, info.metadata) == (len(BODY), {"colour": "blue"})
    assert [r.status for r in front.requests if r.method == "PUT"] == [None, 412]
    raw.put("b", b"another's")
    with pytest.raises(PreconditionError):
        gcs.put("b", BODY, if_absent=True)


@pytest.mark.parametrize("if_absent", [False, True])
def test_a_lost_answer_to_complete(
    gcs: GCSProvider, front: Front, raw: RawBucket, if_absent: bool
) -> None:
    """The upload is gone at the second attempt, and the object is known by its mark."""
    front.drop_answer(when=is_complete)
    with gcs.start_multipart("a", if_absent=if_absent) as unfinished:
        unfinished.put_part(1, BODY)
        info = unfinished.complete()
    assert (info.size, raw.get("a"), raw.uploads()) == (len(BODY), BODY, [])
    assert [r.status for r in front.requests if is_complete(r)] == [None, 404]


def test_a_lost_answer_to_compose_onto_a_source(
    gcs: GCSProvider, front: Front, raw: RawBucket
) -> None:
    """The destination is not appended to twice when it is among the sources."""
    raw.put("log", b"old,")
    raw.put("more", b"new")
    front.drop_answer(when=is_compose)
    info = gcs.compose(["log", "more"], "log")
    assert raw.get("log") == b"old,new"
    assert info.size == 7
    assert [r.status for r in front.requests if is_compose(r)] == [None, 412]


def test_compose_pins_what_nobody_described(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """A source without a version is looked up first, so that it is pinned all the same."""
    raw.put("log", b"old,")
    raw.put("more", b"new")
    sources: list[ObjectInfo | str] = [replace(gcs.head("log"), version=None), "more"]
    front.drop_answer(when=is_compose)
    gcs.compose(sources, "log")
    assert raw.get("log") == b"old,new"


def test_a_lost_answer_to_copy_and_delete(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """Both may be done twice, with the same end."""
    raw.put("a", BODY)
    front.drop_answer(when=lambda request: "rewriteTo" in request.path)
    gcs.copy("a", "b")
    assert raw.get("b") == BODY
    front.drop_answer(when=is_method("DELETE"))
    gcs.delete(["a"])
    assert raw.keys() == {"b"}


# ---- Nothing half-written -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b""), (503, ERROR % b"SlowDown"), (200, ERROR % b"InternalError"), (200, b"<Compl")],
)
def test_a_failed_completion_publishes_nothing(
    gcs: GCSProvider, front: Front, raw: RawBucket, status: int, body: bytes
) -> None:
    """It raises, a 200 that says it failed too; no upload is left and the old object stands."""
    raw.put("a", b"old")
    front.answer(status, {}, body, times=None, when=is_complete)
    with pytest.raises(ProviderError, match="gave up after 10"):
        upload(gcs, "a", BODY)
    assert (raw.get("a"), raw.uploads()) == (b"old", [])


def test_a_completion_that_failed_at_first(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """A 200 with an error in it is asked again, and the object is published once."""
    front.answer(200, {}, ERROR % b"InternalError", when=is_complete)
    upload(gcs, "a", BODY)
    assert (raw.get("a"), raw.uploads()) == (BODY, [])


def test_an_upload_that_began_without_a_name(gcs: GCSProvider, front: Front) -> None:
    """An answer to the start that names no upload is no start."""
    front.answer(200, {}, b"<InitiateMultipartUploadResult/>", times=None)
    with pytest.raises(UnavailableError, match="has no UploadId"):
        gcs.start_multipart("a")


def test_a_broken_part_is_sent_again_alone(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """One reset costs one part, not the upload."""
    front.reset(when=lambda request: "partNumber=2" in request.query)
    upload(gcs, "a", b"\1" * 5 * MIB, b"\2" * 5 * MIB)
    numbers = [r.query.partition("&")[0] for r in front.requests if r.method == "PUT"]
    assert numbers == ["partNumber=1", "partNumber=2", "partNumber=2"]
    assert raw.get("a") == b"\1" * 5 * MIB + b"\2" * 5 * MIB


def test_many_sources_leave_nothing_behind(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """Seventy objects become one by a tree of composes, one of whose answers is lost."""
    keys = [f"part-{number:02}" for number in range(70)]
    raw.put_many(keys)
    front.drop_answer(when=is_compose)
    composed = compose_many(gcs, keys, "whole", metadata={"colour": "blue"})
    assert (composed.way, composed.client_bytes) == ("server", 0)
    assert raw.get("whole") == b"x" * 70
    assert raw.keys() == {*keys, "whole"}
    assert gcs.head("whole").metadata == {"colour": "blue"}


def test_a_failed_tree_leaves_nothing_behind(
    gcs: GCSProvider, front: Front, raw: RawBucket
) -> None:
    """If the last compose fails, the temporaries are removed and there is no object."""
    keys = [f"part-{number:02}" for number in range(40)]
    raw.put_many(keys)
    front.answer(403, times=None, when=lambda request: request.path.endswith("/whole/compose"))
    with pytest.raises(AccessDeniedError):
        compose_many(gcs, keys, "whole")
    assert raw.keys() == set(keys)


def test_a_long_copy_takes_several_calls(gcs: GCSProvider, front: Front, raw: RawBucket) -> None:
    """A rewrite that is not done goes on with its token."""
    raw.put("a", BODY, {"colour": "blue", WRITE_ID: "0123"})
    front.answer(
        200, {}, b'{"done": false, "rewriteToken": "go on"}',
        when=lambda request: "rewriteTo" in request.path,
    )  # fmt: skip
    info = gcs.copy("a", "b/c")
    queries = [r.query for r in front.requests if "rewriteTo" in r.path]
    assert queries[1].endswith("&rewriteToken=go%20on")
    assert all(query.startswith("ifSourceGenerationMatch=") for query in queries)
    assert (info.key, info.size, info.metadata) == ("b/c", len(BODY), {"colour": "blue"})


def test_deletes_go_at_once_and_all_are_tried(
    gcs: GCSProvider, front: Front, raw: RawBucket
) -> None:
    """More keys than a batch: one is refused, one fails at first, the others go."""
    keys = [f"key-{number:03}" for number in range(130)]
    raw.put_many(keys)
    front.answer(403, times=None, when=lambda request: request.path.endswith("/key-007"))
    front.answer(503, times=1, when=lambda request: request.path.endswith("/key-100"))
    with pytest.raises(AccessDeniedError, match="key-007"):
        gcs.delete(keys)
    assert raw.keys() == {"key-007"}
