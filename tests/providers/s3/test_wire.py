"""What goes over the wire: headers, paths, counts of requests, bodies."""

from __future__ import annotations

import base64
import hashlib
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from providers.errors import NotFoundError
from providers.testing.harness import noise
from providers.values import ByteRange
from tests.providers.s3.stores import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from providers.s3 import S3Provider
    from tests.fakes.front import Answer, Exchange, Front
    from tests.providers.s3.stores import Store


def use_every_verb(provider: S3Provider) -> None:
    """Send a request of each kind there is."""
    first = provider.put("a", noise(PART_BYTES), metadata={"colour": "blue"})
    provider.get("a", ByteRange(3, 7), if_match=first)
    provider.get("a")
    provider.head("a")
    list(provider.list_objects())
    provider.copy("a", "b")
    with provider.start_multipart("c") as upload:
        upload.put_part(1, noise(PART_BYTES))
        upload.copy_part(2, first, ByteRange(0, PART_BYTES))
        upload.complete()
    provider.start_multipart("d").abort()
    provider.delete(["a", "b", "c"])


def test_compatible_store_meets_no_checksum_of_amazon(provider: S3Provider, front: Front) -> None:
    """No request to another endpoint carries what only Amazon knows, or asks before it sends."""
    use_every_verb(provider)
    assert len(front.requests) >= 14
    for record in front.requests:
        names = set(record.headers)
        assert not {n for n in names if n.startswith(("x-amz-checksum", "x-amz-sdk-checksum"))}
        assert not names & {"x-amz-trailer", "transfer-encoding", "content-encoding", "expect"}
        assert len(record.headers["x-amz-content-sha256"]) == 64


def test_batch_delete_carries_its_md5(provider: S3Provider, front: Front, store: Store) -> None:
    """The one request that wants a checksum on every store carries the one every store knows."""
    bodies: list[bytes] = []

    def keep(exchange: Exchange) -> Answer:
        bodies.append(exchange.message.body)
        return exchange.forward()

    front.apply(keep)
    store.put("a", b"x")
    provider.delete(["a", "b"])
    (record,) = front.requests
    digest = hashlib.md5(bodies[0], usedforsecurity=False).digest()
    assert (record.method, record.query) == ("POST", "delete")
    assert record.headers["content-md5"] == base64.b64encode(digest).decode()
    assert store.keys() == []


def test_signature_covers_the_body(provider: S3Provider, front: Front) -> None:
    """A store knows a body by the hash in its signature; an MD5 besides would cost more."""
    body = noise(1_000_003)
    provider.put("key", body)
    (record,) = front.requests
    assert record.headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
    assert record.headers["content-length"] == str(len(body))
    assert "content-md5" not in record.headers


@pytest.mark.parametrize(
    ("verb", "requests"),
    [("put", 1), ("get", 1), ("range", 1), ("head", 1), ("list", 1), ("copy", 2), ("delete", 1),
     ("multipart", 5), ("compose", 7)],
)  # fmt: skip
def test_requests_of_a_verb(
    provider: S3Provider, front: Front, store: Store, verb: str, requests: int
) -> None:
    """Each verb costs as many requests as it must."""
    store.put("key", noise(PART_BYTES))

    def in_parts() -> None:
        with provider.start_multipart("whole") as upload:
            upload.put_part(1, noise(PART_BYTES))
            upload.put_part(2, b"x")
            upload.complete()

    calls: dict[str, Callable[[], object]] = {
        "put": lambda: provider.put("other", b"x"),
        "get": lambda: provider.get("key"),
        "range": lambda: provider.get("key", ByteRange(5)),
        "head": lambda: provider.head("key"),
        "list": lambda: list(provider.list_objects()),
        "copy": lambda: provider.copy("key", "other"),
        "delete": lambda: provider.delete(["key", "b", "c"]),
        "multipart": in_parts,
        "compose": lambda: provider.compose(["key", "key"], "whole"),
    }
    calls[verb]()
    assert len(front.requests) == requests


@pytest.mark.parametrize(
    "key",
    [
        "a/./b",
        "a/../b",
        "/a",
        "//",
        "a//b",
        ".",
        "..",
        "a/..",
        "a%2Fb",
        "a b+c",
        "\u00fc?#&=;",
        "a/",
    ],
)
def test_keys_go_byte_for_byte(strict: Store, strict_front: Front, key: str) -> None:
    """Nothing on the way decodes, folds or drops a part of a key."""
    provider = strict.opened(strict_front.endpoint)
    provider.put(key, b"body")
    assert provider.get(key) == b"body"
    assert [entry.key for entry in provider.list_objects()] == [key]
    provider.copy(key, f"{key}.copied")
    assert {
        record.path for record in strict_front.requests if record.method in {"PUT", "HEAD"}
    } == {f"/{strict.bucket}/{quote(name, safe='/-._~')}" for name in (key, f"{key}.copied")}
    provider.delete([key, f"{key}.copied"])
    assert strict.keys() == []


def test_bucket_goes_before_the_host(
    strict: Store, strict_front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With virtual addresses the host names the bucket and the path does not."""
    monkeypatch.setenv("http_proxy", strict_front.endpoint)
    provider = strict.opened("http://store.invalid", addressing_style="virtual")
    body = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    strict_front.answer(200, body=body)
    strict_front.answer(200, {"ETag": '"etag"'})
    assert list(provider.list_objects()) == []
    assert provider.put("a//b", b"body").etag == "etag"
    host = f"{strict.bucket}.store.invalid"
    assert [record.headers["host"] for record in strict_front.requests] == [host, host]
    assert [record.path for record in strict_front.requests] == [
        f"http://{host}/",
        f"http://{host}/a//b",
    ]


@pytest.mark.parametrize("key", ["a\x01b", "a\rb", "a\r\nb", "tab\t", "\x7f", "\x1f", "\ufffe"])
def test_keys_beyond_xml(store: Store, key: str) -> None:
    """Characters that XML cannot hold are listed and deleted as they are."""
    provider = store.opened()
    provider.put(key, b"body")
    provider.put("neighbour", b"body")
    assert key in [entry.key for entry in provider.list_objects()]
    assert provider.get(key) == b"body"
    provider.delete([key, "missing"])
    assert [entry.key for entry in provider.list_objects()] == ["neighbour"]
    with pytest.raises(NotFoundError):
        provider.get(key)


def test_bodies_are_not_copied(store: Store) -> None:
    """A body is signed and sent from where it lies."""
    provider = store.opened()
    body = bytearray(noise(PART_BYTES))
    provider.put("warm up", body[:1])
    upload = provider.start_multipart("whole")
    tracemalloc.start()
    try:
        provider.put("key", body)
        upload.put_part(1, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PART_BYTES // 4
    upload.complete()
    assert store.get("key") == store.get("whole") == body


def test_body_damaged_on_its_way_is_sent_again(
    provider: S3Provider, front: Front, store: Store
) -> None:
    """The store refuses what is not what was signed, and the next attempt brings it."""

    def damage(exchange: Exchange) -> Answer:
        damaged = b"\0\0" + exchange.message.body[2:]
        exchange.message = replace(exchange.message, body=damaged, framed_body=damaged)
        return exchange.forward()

    front.apply(damage)
    provider.put("key", noise(100_000))
    assert [record.status for record in front.requests] == [400, 200]
    assert store.get("key") == noise(100_000)
