"""Bodies that are short, damaged, of another range, or compressed."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from providers.bodies import Body
from providers.errors import (
    IntegrityError,
    LimitError,
    UnavailableError,
)
from providers.testing.harness import noise
from providers.values import ByteRange, ObjectInfo
from tests.providers.oss.stores import (
    BUCKET,
    store,
)

if TYPE_CHECKING:
    from providers.oss import OSSProvider
    from tests.fakes.front import Answer, Exchange, Front
    from tests.fakes.oss import OSSServer


@pytest.mark.parametrize("byte_range", [None, ByteRange(2, 9)])
def test_short_body_is_read_again(
    front: Front, server: OSSServer, provider: OSSProvider, byte_range: ByteRange | None
) -> None:
    """A body that ends early is continued from there; it is never returned short."""
    store(server, "key", b"0123456789")
    front.truncate(3)
    expected = b"0123456789" if byte_range is None else b"2345678"
    assert provider.get("key", byte_range) == expected
    assert front.requests[1].headers["range"] == ("bytes=3-" if byte_range is None else "bytes=5-8")
    assert front.requests[1].headers["if-match"].strip('"') == provider.head("key").etag
    front.truncate(0, times=None)
    with pytest.raises(UnavailableError, match="the connection broke"):
        provider.get("key", byte_range)


def test_body_shorter_than_its_range_is_read_again(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A body that agrees with its length but not with its range is short all the same."""
    store(server, "key", b"0123456789")
    front.rewrite(lambda answer: replace(answer, body=answer.body[:-1]))
    assert provider.get("key", ByteRange(2, 9)) == b"2345678"
    assert len(front.requests) == 2


def test_short_listing_is_read_again(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A listing whose document ends early is asked for again."""
    store(server, "a", b"x")
    front.truncate(100)
    assert [entry.key for entry in provider.list_objects()] == ["a"]
    assert len(front.requests) == 2


def test_damaged_body_is_read_again_once(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A bit flipped on the way costs one more read; one flipped in the store is an error."""
    store(server, "key", b"the body")
    front.rewrite(lambda answer: replace(answer, body=b"the bodx"))
    assert provider.get("key") == b"the body"
    assert len(front.requests) == 2
    front.rewrite(lambda answer: replace(answer, body=b"the bodx"), times=None)
    with pytest.raises(IntegrityError, match=r"get oss://the-bucket/key: the 8 bytes .* crc64"):
        provider.get("key")
    assert len(front.requests) == 4


def test_wrong_checksum_of_a_put_raises(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A put is a success only if what the service stored has the sum of what was sent."""
    front.rewrite(lambda answer: answer.with_header("x-oss-hash-crc64ecma", "1"))
    with pytest.raises(IntegrityError, match="put oss://the-bucket/key"):
        provider.put("key", b"body")
    assert len(server.requests) == 1


def test_wrong_checksum_of_a_part_sends_it_again(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """A part that arrived damaged is sent once more, and then given up."""
    with provider.start_multipart("whole") as upload:
        front.rewrite(lambda answer: answer.with_header("x-oss-hash-crc64ecma", "1"))
        upload.put_part(1, b"part")
        upload.complete()
    assert server.objects(BUCKET) == {"whole": b"part"}
    with provider.start_multipart("other") as upload:
        front.rewrite(lambda a: a.with_header("x-oss-hash-crc64ecma", "1"), times=2)
        with pytest.raises(IntegrityError, match="put_part"):
            upload.put_part(1, b"part")
        with pytest.raises(LimitError):
            upload.complete()
    assert server.unfinished_uploads(BUCKET) == []


def test_body_damaged_on_its_way_is_never_stored(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """The old object stands until the right bytes have arrived."""
    store(server, "key", b"old")
    seen = []

    def flip(exchange: Exchange) -> Answer:
        exchange.message = replace(exchange.message, body=b"bodx", framed_body=b"bodx")
        answer = exchange.forward()
        seen.append(server.objects(BUCKET)["key"])
        return answer

    front.apply(flip)
    provider.put("key", b"body")
    assert seen == [b"old"]
    assert server.objects(BUCKET) == {"key": b"body"}


@pytest.mark.parametrize(
    ("content_range", "told"),
    [
        ("bytes 0-3/10", "bytes=2-5 was asked for, 'bytes 0-3/10' came"),
        ("bytes 2-4/10", "4 bytes came instead of 3"),
        (None, "the answer has no Content-Range"),
    ],
)
def test_answer_to_another_range_raises(
    front: Front, server: OSSServer, provider: OSSProvider, content_range: str | None, told: str
) -> None:
    """Bytes of another range, or of an untold one, are not passed off as those asked for."""
    store(server, "key", b"0123456789")

    def moved(answer: Answer) -> Answer:
        others = tuple(pair for pair in answer.headers if pair[0] != "Content-Range")
        named = (("Content-Range", content_range),) if content_range else ()
        return replace(answer, headers=(*others, *named))

    front.rewrite(moved, times=None)
    with pytest.raises(IntegrityError, match=told):
        provider.get("key", ByteRange(2, 6))
    assert len(front.requests) == 2


def test_range_of_an_object_of_untold_size(
    front: Front, server: OSSServer, provider: OSSProvider
) -> None:
    """HTTP lets a server keep the whole size to itself, as long as the range fits."""
    store(server, "key", b"0123456789")
    front.rewrite(lambda answer: answer.with_header("Content-Range", "bytes 2-5/*"))
    assert provider.get("key", ByteRange(2, 6)) == b"2345"
    assert len(front.requests) == 1


def test_whole_object_is_no_range(front: Front, server: OSSServer, provider: OSSProvider) -> None:
    """A 200 to a request for a range is asked for once more, then an error, never the range."""
    store(server, "key", b"0123456789")

    def ignore_range(exchange: Exchange) -> Answer:
        head = re.sub(rb"(?i)\r\nrange: [^\r]*", b"", exchange.message.head)
        exchange.message = replace(exchange.message, head=head)
        return exchange.forward()

    front.apply(ignore_range, None)
    for byte_range in (ByteRange(2, 6), ByteRange(0), ByteRange(0, 10)):
        with pytest.raises(IntegrityError, match="drops or changes the Range header"):
            provider.get("key", byte_range)
    assert len(front.requests) == 6


def test_compressed_object_comes_as_stored(server: OSSServer, provider: OSSProvider) -> None:
    """Content-Encoding is the user's affair: bytes are those that were put, whole or ranged."""
    packed = gzip.compress(b"unpacked" * 100)
    store(server, "key", packed, Content_Encoding="gzip")
    assert provider.get("key") == packed
    assert provider.get("key", ByteRange(3, 30)) == packed[3:30]
    assert provider.head("key").size == len(packed)


def test_pin_without_an_etag_is_refused(provider: OSSProvider) -> None:
    """A version that cannot be pinned to is not read unpinned."""
    with pytest.raises(LimitError, match="no etag"):
        provider.get("key", if_match=ObjectInfo("key", size=4))


def test_body_leaves_in_pieces() -> None:
    """Each piece gets the socket's time limit anew, so that slow lines can send large parts."""
    data = noise(1_000_000)
    body = Body(memoryview(data))
    pieces = list(body)
    assert len(body) == len(data)
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 256 * 1024
    assert list(body) == pieces
