"""Bytes that change on their way to a store: found, and only those sent again."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fastcrc import crc64
from typing_extensions import override

from providers import IntegrityError
from providers.gcs_client import crc32c
from providers.memory import MemoryProvider
from providers.retry import without_waiting
from providers.testing.harness import noise
from tests.fakes.front import Answer, Front
from tests.providers.conftest import fronted_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from providers import ObjectInfo, Provider
    from tests.fakes.front import Exchange, Record, Request
    from tests.providers.conftest import Fronted

PART = 5 << 20
BODIES = [noise(PART, 1), noise(PART, 2), noise(1000, 3)]
WHOLE = b"".join(BODIES)


@pytest.fixture(autouse=True)
def _without_waiting() -> Iterator[None]:
    """No pauses between attempts."""
    with without_waiting():
        yield


@pytest.fixture
def amazon(
    request: pytest.FixtureRequest, bucket_name: str
) -> Iterator[tuple[Fronted, list[bytes]]]:
    """A bucket that is sent Amazon's checksums and keeps its rule: what differs is refused."""
    server = request.getfixturevalue("moto")
    server.make_bucket(bucket_name)
    refused: list[bytes] = []

    class Checking(Front):
        """Does as Amazon does, where moto takes anything."""

        @override
        def respond(self, message: Any, upstream: Any) -> Answer:
            told = message.request.headers.get("x-amz-checksum-crc32")
            if message.request.method == "PUT" and told != crc32(message.body):
                refused.append(message.body)
                return Answer(400, (), b"<Error><Code>BadDigest</Code></Error>")
            return super().respond(message, upstream)

    with Checking(server.endpoint) as front:
        reached = fronted_by(front, "moto", server, bucket_name)
        yield reached, refused


def crc32(data: bytes) -> str:
    """Return a CRC-32 as Amazon writes it."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def flipped(exchange: Exchange) -> None:
    """Change one byte of a request on its way."""
    body = bytearray(exchange.message.body)
    body[len(body) // 2] ^= 0x10
    exchange.message = replace(exchange.message, body=bytes(body), framed_body=bytes(body))


def without(exchange: Exchange, *names: str) -> None:
    """Take headers off a request on its way."""
    head = exchange.message.head
    for name in names:
        head = re.sub(rb"(?i)\r\n%s: [^\r]*" % name.encode(), b"", head)
    kept = {n: v for n, v in exchange.message.request.headers.items() if n not in names}
    request = replace(exchange.message.request, headers=kept)
    exchange.message = replace(exchange.message, head=head, request=request)


def is_part(number: int) -> Any:
    """Return what picks the requests that send a part."""
    return lambda request: f"partNumber={number}" in request.query


def completing(request: Request | Record) -> bool:
    """Whether a request publishes an upload."""
    return request.method == "POST" and "uploadId=" in request.query


def heading(request: Request) -> bool:
    """Whether a request looks an object up."""
    return request.method == "HEAD"


def lying(answer: Answer) -> Answer:
    """Tell other checksums of an object."""
    for name, value in {
        "x-goog-hash": "crc32c=AAAAAA==",
        "x-oss-hash-crc64ecma": "1",
        "x-amz-checksum-crc32": "AAAAAA==",
        "x-amz-checksum-type": "FULL_OBJECT",
    }.items():
        answer = answer.with_header(name, value)
    return answer


def upload(provider: Provider, key: str = "key") -> ObjectInfo:
    """Write an object in three parts."""
    with provider.start_multipart(key) as parts:
        for number, body in enumerate(BODIES, 1):
            parts.put_part(number, body)
        return parts.complete()


def sent_parts(front: Front) -> list[str]:
    """Return the numbers of the parts that were sent, in order."""
    found = [re.search(r"partNumber=(\d+)", record.query) for record in front.requests]
    return [match[1] for match in found if match]


def damage_once(front: Front, number: int) -> None:
    """Have one part arrive damaged, once."""

    def fault(exchange: Exchange) -> Answer:
        flipped(exchange)
        return exchange.forward()

    front.apply(fault, when=is_part(number))


@pytest.mark.parametrize("number", [1, 3])
def test_only_the_damaged_part_is_sent_again(fronted: Fronted, number: int) -> None:
    """A byte flipped on the way costs one more request for that part, and no wrong object."""
    damage_once(fronted.front, number)
    provider = fronted.opened()
    upload(provider)
    assert sent_parts(fronted.front) == sorted(["1", "2", "3", str(number)])
    assert provider.get("key") == WHOLE


def test_amazon_refuses_a_damaged_part_by_its_crc(
    amazon: tuple[Fronted, list[bytes]],
) -> None:
    """The CRC-32 that goes with a part lets the service find it damaged."""
    (front, opened), refused = amazon
    damage_once(front, 2)
    provider = opened(checksums=True)
    upload(provider)
    assert sent_parts(front) == ["1", "2", "2", "3"]
    assert len(refused) == 1
    assert provider.get("key") == WHOLE


def test_amazon_is_told_what_the_whole_must_be(
    amazon: tuple[Fronted, list[bytes]],
) -> None:
    """Complete carries size and CRC-32 of the whole, which the service compares first."""
    (front, opened), _ = amazon
    info = upload(opened(checksums=True))
    (complete,) = [record for record in front.requests if completing(record)]
    assert complete.headers["x-amz-checksum-crc32"] == crc32(WHOLE)
    assert complete.headers["x-amz-checksum-type"] == "FULL_OBJECT"
    assert complete.headers["x-amz-mp-object-size"] == str(len(WHOLE))
    assert info.size == len(WHOLE)


def test_a_whole_that_amazon_refuses_leaves_the_old_object(
    amazon: tuple[Fronted, list[bytes]],
) -> None:
    """A refused checksum of the whole is told at once, and nothing is published or left."""
    (front, opened), _ = amazon
    provider = opened(checksums=True)
    provider.put("key", b"old")
    body = b"<Error><Code>BadDigest</Code><Message>The CRC32 did not match</Message></Error>"
    front.answer(400, body=body, when=completing, times=None)
    with pytest.raises(IntegrityError, match=r"complete s3://.*published nothing.*old object"):
        upload(provider)
    assert sum(completing(record) for record in front.requests) == 1
    assert provider.get("key") == b"old"
    assert list(provider.list_uploads()) == []


def test_a_damaged_whole_is_told(fronted: Fronted) -> None:
    """Where the service tells another checksum of the whole, the error says what is there now."""
    provider = fronted.opened(**({"checksums": True} if _is_s3(fronted) else {}))
    fronted.front.rewrite(lying, when=heading)
    with pytest.raises(IntegrityError, match=r"complete .*damaged, and published .*write it anew"):
        upload(provider)
    assert list(provider.list_uploads()) == []


def test_a_lost_answer_to_complete_is_checked_too(fronted: Fronted) -> None:
    """What is looked up instead of an answer is compared with what was sent."""
    provider = fronted.opened(**({"checksums": True} if _is_s3(fronted) else {}))
    fronted.front.drop_answer(when=completing)
    assert upload(provider).size == len(WHOLE)
    fronted.front.drop_answer(when=completing)
    fronted.front.rewrite(lying, when=heading)
    with pytest.raises(IntegrityError, match="damaged"):
        upload(provider, "other")


def _is_s3(fronted: Fronted) -> bool:
    return fronted.opened().scheme == "s3"


def test_google_finds_what_lost_its_checksum_on_the_way(
    request: pytest.FixtureRequest, bucket_name: str
) -> None:
    """Something that changes a body and drops its checksum is found by the answer's, or the end."""
    server = request.getfixturevalue("fake_gcs")
    server.make_bucket(bucket_name)
    with Front(server.endpoint) as front:
        provider = fronted_by(front, "fake_gcs", server, bucket_name).opened()

        def change(exchange: Exchange) -> Answer:
            flipped(exchange)
            without(exchange, "x-goog-hash")
            return exchange.forward()

        front.apply(change, when=is_part(2))
        upload(provider)
        assert sent_parts(front) == ["1", "2", "2", "3"]
        assert provider.get("key") == WHOLE
        untold = f"crc32c={crc32c(BODIES[1])}"
        front.apply(
            lambda exchange: change(exchange).with_header("x-goog-hash", untold), when=is_part(2)
        )
        with pytest.raises(IntegrityError, match="the crc32c of the parts is not"):
            upload(provider)


def test_google_tells_of_a_put_that_lost_its_checksum(
    request: pytest.FixtureRequest, bucket_name: str
) -> None:
    """A put changed on its way, its checksum dropped, is an error and no success."""
    server = request.getfixturevalue("fake_gcs")
    server.make_bucket(bucket_name)
    with Front(server.endpoint) as front:
        provider = fronted_by(front, "fake_gcs", server, bucket_name).opened()

        def change(exchange: Exchange) -> Answer:
            flipped(exchange)
            without(exchange, "x-goog-hash")
            return exchange.forward()

        front.apply(change)
        with pytest.raises(IntegrityError, match=r"put gs://.*arrived damaged"):
            provider.put("key", BODIES[2])


def test_alibaba_finds_what_only_the_end_can_tell(
    request: pytest.FixtureRequest, bucket_name: str
) -> None:
    """A part damaged under an answer that hides it is found by the CRC-64 of the whole."""
    server = request.getfixturevalue("oss_server")
    server.make_bucket(bucket_name)
    with Front(server.endpoint) as front:
        provider = fronted_by(front, "oss_server", server, bucket_name).opened()

        def change(exchange: Exchange) -> Answer:
            flipped(exchange)
            told = str(crc64.xz(BODIES[0]))
            return exchange.forward().with_header("x-oss-hash-crc64ecma", told)

        front.apply(change, when=is_part(1))
        with pytest.raises(IntegrityError, match="the crc64ecma of the parts is not"):
            upload(provider)


def test_joined_sources_are_checked(request: pytest.FixtureRequest, bucket_name: str) -> None:
    """The sum of copied parts is compared too, where their sources' sums are known."""
    server = request.getfixturevalue("oss_server")
    server.make_bucket(bucket_name)
    with Front(server.endpoint) as front:
        provider = fronted_by(front, "oss_server", server, bucket_name).opened()
        for number, body in enumerate(BODIES):
            provider.put(f"{number}", body)
        assert provider.compose(["0", "1", "2"], "joined").size == len(WHOLE)
        sources = [provider.head(f"{number}") for number in range(3)]
        front.rewrite(lying, when=heading)
        with pytest.raises(IntegrityError, match="the crc64ecma of the parts is not"):
            provider.compose(sources, "joined")


def test_composed_sources_are_checked(request: pytest.FixtureRequest, bucket_name: str) -> None:
    """What a compose made is compared with its sources, in size and checksum."""
    server = request.getfixturevalue("fake_gcs")
    server.make_bucket(bucket_name)
    with Front(server.endpoint) as front:
        provider = fronted_by(front, "fake_gcs", server, bucket_name).opened()
        for number, body in enumerate(BODIES):
            provider.put(f"{number}", body)
        assert provider.compose(["0", "1", "2"], "joined").size == len(WHOLE)

        def told(old: str, new: str) -> None:
            front.rewrite(
                lambda answer: replace(
                    answer, body=answer.body.replace(old.encode(), new.encode())
                ),
                when=lambda request: request.path.endswith("/compose"),
            )

        told(crc32c(WHOLE), "AAAAAA==")
        with pytest.raises(IntegrityError, match=r"compose gs://.*the crc32c of the parts is not"):
            provider.compose(["0", "1", "2"], "joined")
        told(f'"{len(WHOLE)}"', '"7"')
        with pytest.raises(IntegrityError, match=r"compose gs://.*the object has 7"):
            provider.compose(["0", "1", "2"], "joined")


class Shortening(MemoryProvider):
    """A store that loses a byte of what it joins."""

    @override
    def store(
        self, key: str, data: bytes, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        return super().store(key, data[:-1], if_absent=if_absent, metadata=metadata)


def test_a_shortened_whole_is_told(bucket_name: str) -> None:
    """An object that is not as long as its parts is an error, which says what is there now."""
    provider = Shortening(bucket_name)
    parts = provider.start_multipart("key")
    parts.put_part(1, b"abc")
    with pytest.raises(IntegrityError, match=r"have 3 bytes, the object has 2: .*published"):
        parts.complete()
