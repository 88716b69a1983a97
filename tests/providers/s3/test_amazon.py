"""What Amazon itself is sent, and told to be; its answers are canned, nothing leaves here."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore
import pytest

from providers.errors import IntegrityError, LimitError, SettingsError
from providers.s3_client import is_of_amazon
from providers.testing.harness import noise
from providers.values import ByteRange, ObjectInfo
from tests.providers.s3.amazon import Amazon, header
from tests.providers.s3.stores import PART_BYTES, made

if TYPE_CHECKING:
    from providers.s3 import S3Provider
    from tests.fakes.front import Front
    from tests.fakes.wire import Answer
    from tests.providers.s3.stores import Store

KEYS: dict[str, Any] = {"access_key_id": "AKID", "secret_access_key": "SECRET"}
BODY = noise(1000)


def crc(data: bytes) -> str:
    """Return a CRC32 as S3 writes it."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


@pytest.fixture
def provider() -> S3Provider:
    """A provider of a bucket in Frankfurt."""
    return made("bucket", region="eu-central-1", **KEYS)


@pytest.fixture
def amazon(provider: S3Provider) -> Amazon:
    """Whoever answers it."""
    return Amazon(provider)


def test_put_carries_a_crc_of_its_own(provider: S3Provider, amazon: Amazon) -> None:
    """The checksum is a header; the body goes as it is, unhashed, by TLS, to the bucket's host."""
    provider.put("a/../b c", BODY)
    (request,) = amazon.requests
    assert request.url == "https://bucket.s3.eu-central-1.amazonaws.com/a/../b%20c"
    assert header(request, "x-amz-checksum-crc32") == crc(BODY)
    assert header(request, "x-amz-content-sha256") == "UNSIGNED-PAYLOAD"
    assert header(request, "content-length") == "1000"
    assert amazon.bodies == [BODY]
    for name in ("content-encoding", "transfer-encoding", "x-amz-trailer", "expect", "content-md5"):
        assert header(request, name) == ""
    assert "/eu-central-1/s3/aws4_request" in header(request, "authorization")


def test_body_leaves_in_pieces() -> None:
    """By boto3 too, each piece gets the socket's time limit anew: slow lines can send parts."""
    provider = made("bucket--use1-az4--x-s3", region="us-east-1", **KEYS)
    amazon = Amazon(provider)
    provider.put("key", noise(1_000_000))
    assert amazon.bodies[-1] == noise(1_000_000)
    assert max(amazon.pieces) == 256 << 10


def test_empty_put_carries_a_crc(provider: S3Provider, amazon: Amazon) -> None:
    """An empty body is no exception."""
    provider.put("key", b"")
    assert header(amazon.requests[0], "x-amz-checksum-crc32") == "AAAAAA=="


def test_bodies_are_checked_as_they_come(strict: Store, strict_front: Front) -> None:
    """A checksum is asked for and compared; damage is read again once, then raised."""
    provider = strict.opened(strict_front.endpoint, checksums=True)
    provider.put("key", BODY)
    assert provider.get("key") == BODY
    read = strict_front.requests[-1]
    assert (read.method, read.headers["x-amz-checksum-mode"]) == ("GET", "ENABLED")
    strict_front.rewrite(damaged)
    assert provider.get("key") == BODY
    strict_front.rewrite(damaged, times=None)
    with pytest.raises(
        IntegrityError, match=f"get {provider.uri('key')}: .*do not match the crc32"
    ):
        provider.get("key")
    assert [record.method for record in strict_front.requests] == ["PUT", *["GET"] * 5]


def test_a_checksum_of_something_else_is_told(strict: Store, strict_front: Front) -> None:
    """It is the service's word that counts: right bytes under a wrong sum are no success."""
    provider = strict.opened(strict_front.endpoint, checksums=True)
    provider.put("key", BODY)
    strict_front.rewrite(
        lambda answer: answer.with_header("x-amz-checksum-crc32", crc(b"another")), times=None
    )
    with pytest.raises(IntegrityError, match="do not match the crc32"):
        provider.get("key")


def damaged(answer: Answer) -> Answer:
    """Change two bytes of an answer's body."""
    return replace(answer, body=b"\0\0" + answer.body[2:])


def test_head_asks_for_the_checksum(provider: S3Provider, amazon: Amazon) -> None:
    """A description holds the whole object's checksum."""
    amazon.headers |= {"x-amz-checksum-crc32": crc(BODY), "x-amz-checksum-type": "FULL_OBJECT"}
    amazon.headers["Content-Length"] = "1000"
    assert provider.head("key").checksum == f"crc32:{crc(BODY)}"
    assert header(amazon.requests[0], "x-amz-checksum-mode") == "ENABLED"


def test_batch_delete_carries_a_crc(provider: S3Provider, amazon: Amazon) -> None:
    """Amazon's own checksum is left as botocore sends it."""
    amazon.body = b"<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>"
    provider.delete(["a"])
    assert header(amazon.requests[0], "x-amz-checksum-crc32") == crc(amazon.bodies[0])


@pytest.mark.parametrize("bucket", ["bucket", "bucket--use1-az4--x-s3"])
def test_parts_carry_their_crc(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and completion carry CRCs, the whole object's where the bucket has such."""
    provider = made(bucket, region="us-east-1", **KEYS)
    sent: list[tuple[str, dict[str, Any]]] = []

    def call(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        sent.append((operation, arguments))
        told = {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {}}}
        return {"UploadId": "U", "ETag": '"e"', "ChecksumCRC32": crc(BODY), **told}

    amazon = Amazon(provider)
    amazon.headers["x-amz-checksum-crc32"] = crc(BODY)
    provider.access.get()
    for client in (provider.clients.usual, provider.clients.patient):
        monkeypatch.setattr(client, "_make_api_call", call)
    monkeypatch.setattr(provider, "head", lambda key: ObjectInfo(key, size=1000))
    with provider.start_multipart("key") as upload:
        upload.put_part(1, BODY)
        upload.complete()
    (_, start), *parts, (_, complete) = sent
    assert start["ChecksumAlgorithm"] == "CRC32"
    # What boto3 must sign goes through it, the rest does not.
    by_boto3 = [arguments["ChecksumCRC32"] for _, arguments in parts]
    signed_here = [header(request, "x-amz-checksum-crc32") for request in amazon.requests]
    assert by_boto3 + signed_here == [crc(BODY)]
    assert complete["MultipartUpload"]["Parts"][0]["ChecksumCRC32"] == crc(BODY)
    kind = None if bucket.endswith("--x-s3") else "FULL_OBJECT"
    assert (start.get("ChecksumType"), complete.get("ChecksumType")) == (kind, kind)


def test_checksums_by_option(strict: Store, strict_front: Front) -> None:
    """A compatible store that knows Amazon's checksums is sent and asked for them by option."""
    provider = strict.opened(strict_front.endpoint, checksums=True, conditional_put=True)
    info = provider.put("key", noise(PART_BYTES), if_absent=True)
    assert provider.head("key").checksum == f"crc32:{crc(noise(PART_BYTES))}"
    assert provider.get("key", ByteRange(5, 9)) == noise(PART_BYTES)[5:9]
    with provider.start_multipart("whole", if_absent=True) as upload:
        upload.put_part(1, noise(PART_BYTES))
        upload.copy_part(2, info, ByteRange(0, PART_BYTES))
        upload.put_part(3, b"end")
        upload.complete()
    assert provider.get("whole") == noise(PART_BYTES) * 2 + b"end"
    provider.delete(["key", "whole"])
    assert strict.keys() == []
    sent = "x-amz-checksum-crc32"
    for record in strict_front.requests:
        if record.body_size and record.method == "PUT":
            assert record.headers[sent]
        if record.method in {"GET", "HEAD"}:
            # Some stores answer a range with the sum of the whole, so ranges go without.
            mode = None if "range" in record.headers else "ENABLED"
            assert record.headers.get("x-amz-checksum-mode") == mode
        if record.query == "uploads":
            assert record.headers["x-amz-checksum-algorithm"] == "CRC32"
            assert record.headers["x-amz-checksum-type"] == "FULL_OBJECT"
        if record.query == "delete":
            assert record.headers[sent]
            assert "content-md5" not in record.headers
        assert "content-encoding" not in record.headers


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "https://bucket.s3.eu-central-1.amazonaws.com/key"),
        ({"addressing_style": "path"}, "https://s3.eu-central-1.amazonaws.com/bucket/key"),
        ({"bucket": "a.b"}, "https://s3.eu-central-1.amazonaws.com/a.b/key"),
        ({"region": "cn-north-1"}, "https://bucket.s3.cn-north-1.amazonaws.com.cn/key"),
        ({"endpoint": "https://minio.internal:9000"}, "https://minio.internal:9000/bucket/key"),
        (
            {"endpoint": "https://store.internal", "addressing_style": "virtual"},
            "https://bucket.store.internal/key",
        ),
        (
            {"endpoint": "https://s3.dualstack.us-west-2.amazonaws.com"},
            "https://bucket.s3.dualstack.us-west-2.amazonaws.com/key",
        ),
    ],
)
def test_address_of_a_bucket(fields: dict[str, str], url: str) -> None:
    """The bucket goes before Amazon's host where certificates cover it, else into the path."""
    merged: dict[str, Any] = {"bucket": "bucket", "region": "eu-central-1", **KEYS, **fields}
    provider = made(**merged)
    provider_amazon = Amazon(provider)
    provider.put("key", BODY)
    assert provider_amazon.requests[0].url == url


def test_region_by_default() -> None:
    """Without any region a custom endpoint is signed for us-east-1, as its makers expect."""
    assert made("bucket", endpoint="http://127.0.0.1:9", **KEYS).clients.region == "us-east-1"


# ---- Limits --------------------------------------------------------------------------------


def test_limits_follow_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amazon's own on Amazon, safe ones elsewhere, either overridden by option."""

    def capabilities(**fields: Any) -> tuple[bool, bool]:
        limits = made("bucket", **KEYS, **fields).limits
        return limits.conditional_put, limits.equal_parts

    elsewhere = "http://127.0.0.1:9"
    assert capabilities() == (True, False)
    assert capabilities(endpoint=elsewhere) == (False, True)
    assert capabilities(endpoint=elsewhere, conditional_put=True) == (True, True)
    assert capabilities(endpoint=elsewhere, equal_parts=False) == (False, False)
    assert capabilities(conditional_put=False, equal_parts=True) == (False, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", elsewhere)
    assert capabilities() == (False, True)


def test_directory_buckets_list_in_no_order() -> None:
    """S3 Express lists as it likes, and the limits say so."""
    assert made("bucket", endpoint="http://127.0.0.1:9").limits.lists_in_order
    assert not made("b--use1-az4--x-s3", endpoint="http://127.0.0.1:9").limits.lists_in_order


def test_limits_of_a_named_endpoint_load_no_sdk() -> None:
    """A worker that only asks for limits opens no client."""
    provider = made("bucket", endpoint="http://127.0.0.1:9")
    assert provider.limits.equal_parts
    assert provider._slot._token is None


def test_domains_are_those_of_botocore() -> None:
    """Every domain that botocore has for Amazon counts as Amazon's, and nothing like it does."""
    file = Path(botocore.__file__).parent / "data" / "partitions.json"
    for partition in json.loads(file.read_text())["partitions"]:
        for domain in ("dnsSuffix", "dualStackDnsSuffix"):
            assert is_of_amazon(f"https://s3.region.{partition['outputs'][domain]}")
    for endpoint in (
        "https://notamazonaws.com",
        "https://amazonaws.com.evil.org",
        "http://[::1]:9",
    ):
        assert not is_of_amazon(endpoint)


# ---- Settings ------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["minio:9000", "minio", "", "ftp://minio"])
def test_endpoint_that_is_no_url_raises(endpoint: str) -> None:
    """A mistake in the endpoint is told with the bucket, before anything is sent."""
    with pytest.raises(SettingsError, match="open s3://bucket/: the endpoint is no URL; write"):
        made("bucket", endpoint=endpoint, **KEYS).get("key")


def test_bucket_that_cannot_be_one_raises() -> None:
    """A refusal by botocore of a name comes out as one of ours."""
    with pytest.raises(SettingsError, match="Invalid bucket name"):
        made("not a bucket", **KEYS).get("key")


def test_missing_boto3_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without boto3 the error says what to install."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SettingsError, match=r"pip install 'torch-cloud-connector\[s3\]'"):
        made("bucket", **KEYS).get("key")


def test_pin_without_an_etag_is_refused(provider: S3Provider, amazon: Amazon) -> None:
    """A description that cannot pin is refused, for reads and copies alike."""
    info = ObjectInfo("key", size=5)
    with pytest.raises(LimitError, match="no etag"):
        provider.get("key", if_match=info)
    with pytest.raises(LimitError, match="no etag"):
        provider.compose([info], "other")
    assert amazon.requests == []
