"""What the OSS server does with objects, seen through the vendor's two SDKs."""

import hashlib
import io
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import alibabacloud_oss_v2 as oss_v2
import oss2
import pytest

from tests.fakes.oss import OSSServer, ServiceLimits
from tests.fakes.oss.clients import ACCESS_KEY_ID, SECRET, Access, first_sdk, second_sdk

BUCKET = "the-bucket"
ODD_KEYS = [
    *["a//b", "a/./b", "a/../b", "./a", "a?b=c", "a#b", "%20", "%2F", "a+b", "a b", " a "],
    *["é/中文/\U0001f600", "&<>'\"", "a\x01b", "a\rb\nc", "a\\b", "a=b&c", "dir/", "~._-", "*:;,"],
]


@pytest.fixture
def server() -> Iterator[OSSServer]:
    """A server with one empty bucket."""
    with OSSServer({ACCESS_KEY_ID: SECRET}, region="cn-test") as running:
        running.create_bucket(BUCKET)
        yield running


@pytest.fixture(params=["v1", "v4"])
def bucket(server: OSSServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The bucket through oss2, with either signature."""
    with first_sdk(Access(server.endpoint, request.param), BUCKET) as found:
        yield found


@pytest.fixture(params=["v1", "v4"])
def client(server: OSSServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The server through alibabacloud-oss-v2, with either signature."""
    with second_sdk(Access(server.endpoint, request.param)) as found:
        yield found


def own_crc(data: bytes) -> int:
    """CRC-64 as oss2 computes it."""
    total = oss2.utils.Crc64()
    total.update(data)
    return int(total.crc)


def code_of(error: Any) -> str:
    """The service's code inside an error of the second SDK."""
    return str(error.value.unwrap().code)


@pytest.mark.parametrize("key", ODD_KEYS)
def test_first_sdk_stores_any_key(server: OSSServer, bucket: Any, key: str) -> None:
    """A key with any character is put, read, described and deleted as itself."""
    data = key.encode()
    bucket.put_object(key, data)
    assert server.objects(BUCKET) == {key: data}
    assert bucket.get_object(key).read() == data
    assert bucket.head_object(key).content_length == len(data)
    bucket.delete_object(key)
    assert server.objects(BUCKET) == {}


@pytest.mark.parametrize("key", ["a//b", "a?b", "a#b", "%20", "a+b", "a b", "é中", "&<>", "a\x01"])
def test_second_sdk_stores_odd_keys(client: Any, key: str) -> None:
    """The second SDK's keys survive too, except for dot segments, which it merges itself."""
    client.put_object(oss_v2.PutObjectRequest(bucket=BUCKET, key=key, body=b"data"))
    answer = client.get_object(oss_v2.GetObjectRequest(bucket=BUCKET, key=key))
    assert answer.body.read() == b"data"
    answer.body.close()


def test_put_gives_the_sums_both_sdks_compute(bucket: Any, client: Any) -> None:
    """ETag is the upper-case MD5 and the CRC is the one oss2 computes, on put, get and head."""
    data = random.Random(1).randbytes(300_000)  # noqa: S311 (data, not a secret)
    stored = bucket.put_object("key", data)
    assert stored.crc == own_crc(data)
    assert stored.etag == hashlib.md5(data, usedforsecurity=False).hexdigest().upper()
    assert bucket.head_object("key").server_crc == own_crc(data)
    described = client.head_object(oss_v2.HeadObjectRequest(bucket=BUCKET, key="key"))
    assert described.hash_crc64 == str(own_crc(data))
    assert described.etag == f'"{stored.etag}"'


def test_empty_object(bucket: Any) -> None:
    """An object of no bytes has a CRC of zero and reads as no bytes."""
    assert bucket.put_object("key", b"").crc == 0
    assert bucket.get_object("key").read() == b""


def test_description_survives(bucket: Any) -> None:
    """Content type, user metadata, type and storage class come back on head and get."""
    headers = {"Content-Type": "a/b", "x-oss-meta-run": "7", "x-oss-storage-class": "IA"}
    bucket.put_object("key", b"data", headers=headers)
    for answer in (bucket.head_object("key"), bucket.get_object("key")):
        assert answer.content_type == "a/b"
        assert answer.object_type == "Normal"
        assert answer.headers["x-oss-meta-run"] == "7"
        assert answer.headers["x-oss-storage-class"] == "IA"
        assert answer.request_id
    meta = bucket.get_object_meta("key")
    assert meta.content_length == 4
    assert "x-oss-meta-run" not in meta.headers


def test_ranges_that_fit(bucket: Any) -> None:
    """A range is answered with 206, its place, and the CRC of the whole object."""
    bucket.put_object("key", b"0123456789")
    answer = bucket.get_object("key", byte_range=(2, 4))
    assert (answer.status, answer.content_range) == (206, "bytes 2-4/10")
    assert answer.server_crc == own_crc(b"0123456789")
    assert answer.read() == b"234"
    assert bucket.get_object("key", byte_range=(7, None)).read() == b"789"
    assert bucket.get_object("key", byte_range=(None, 3)).read() == b"789"


@pytest.mark.parametrize("wanted", [(5, 20), (10, 12), (10, None), (None, 11)])
def test_ranges_that_do_not_fit_are_ignored(bucket: Any, wanted: tuple[Any, Any]) -> None:
    """Unless told otherwise the server sends the whole object, with 200, for a bad range."""
    bucket.put_object("key", b"0123456789")
    answer = bucket.get_object("key", byte_range=wanted)
    assert (answer.status, answer.read()) == (200, b"0123456789")


def test_standard_range_behaviour(bucket: Any) -> None:
    """Asked for standard behaviour, it clips the end and refuses a start past it."""
    standard = {"x-oss-range-behavior": "standard"}
    bucket.put_object("key", b"0123456789")
    bucket.put_object("empty", b"")
    clipped = bucket.get_object("key", byte_range=(5, 20), headers=standard)
    assert (clipped.status, clipped.read()) == (206, b"56789")
    assert bucket.get_object("key", byte_range=(None, 20), headers=standard).status == 206
    for key, start in (("key", 10), ("empty", 0)):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.get_object(key, byte_range=(start, None), headers=standard)
        assert (error.value.status, error.value.code) == (416, "InvalidRange")


def test_missing_things(bucket: Any, client: Any) -> None:
    """A missing key and bucket have codes of their own, for HEAD inside a header."""
    with pytest.raises(oss2.exceptions.NoSuchKey) as error:
        bucket.get_object("nothing")
    assert error.value.request_id
    with pytest.raises(oss2.exceptions.NoSuchKey):
        bucket.head_object("nothing")
    with pytest.raises(oss_v2.exceptions.OperationError) as failure:
        client.head_object(oss_v2.HeadObjectRequest(bucket="no-bucket", key="nothing"))
    assert code_of(failure) == "NoSuchBucket"


@pytest.mark.parametrize("key", ["/a", "\\a", "a" * 1024, "é" * 512])
def test_keys_the_service_refuses(bucket: Any, key: str) -> None:
    """A key that is too long or begins with a slash of either kind is refused."""
    bucket.is_verify_object_strict = False
    with pytest.raises(oss2.exceptions.InvalidObjectName):
        bucket.put_object(key, b"")


def test_content_md5_is_checked(bucket: Any) -> None:
    """A digest that is malformed or of other bytes refuses the put."""
    for digest, code in (("nonsense", "InvalidDigest"), ("1B2M2Y8AsgTpgAmY7PhCfg==", "BadDigest")):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.put_object("key", b"data", headers={"Content-MD5": digest})
        assert (error.value.status, error.value.code) == (400, code)


def test_conditional_get(bucket: Any) -> None:
    """If-Match answers 412 and If-None-Match 304, on get and head."""
    etag = bucket.put_object("key", b"data").etag
    assert bucket.get_object("key", headers={"If-Match": f'"{etag}"'}).read() == b"data"
    for read in (bucket.get_object, bucket.head_object):
        with pytest.raises(oss2.exceptions.PreconditionFailed):
            read("key", headers={"If-Match": '"other"'})
        with pytest.raises(oss2.exceptions.NotModified):
            read("key", headers={"If-None-Match": f'"{etag}"'})
        with pytest.raises(oss2.exceptions.NotModified):
            read("key", headers={"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"})


def test_forbid_overwrite(bucket: Any) -> None:
    """Put and copy refuse to replace an object when told to."""
    forbid = {"x-oss-forbid-overwrite": "true"}
    bucket.put_object("key", b"old", headers=forbid)
    for write in (
        partial(bucket.put_object, "key", b"new", headers=forbid),
        partial(bucket.copy_object, BUCKET, "key", "key", headers=forbid),
    ):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            write()
        assert (error.value.status, error.value.code) == (409, "FileAlreadyExists")
    assert bucket.get_object("key").read() == b"old"


@pytest.mark.parametrize("storage_class", ["Archive", "ColdArchive"])
def test_archived_objects_are_not_read(bucket: Any, storage_class: str) -> None:
    """An archived object can be described and listed but not read."""
    bucket.put_object("key", b"data", headers={"x-oss-storage-class": storage_class})
    assert bucket.head_object("key").headers["x-oss-storage-class"] == storage_class
    with pytest.raises(oss2.exceptions.ServerError) as error:
        bucket.get_object("key")
    assert (error.value.status, error.value.code) == (403, "InvalidObjectState")


def test_copy(bucket: Any, client: Any) -> None:
    """A copy keeps metadata unless told to replace it, and a condition holds it to one source."""
    etag = bucket.put_object("a b", b"data", headers={"x-oss-meta-run": "7"}).etag
    bucket.copy_object(BUCKET, "a b", "kept", headers={"x-oss-copy-source-if-match": etag})
    assert bucket.head_object("kept").headers["x-oss-meta-run"] == "7"
    request = oss_v2.CopyObjectRequest(
        bucket=BUCKET, key="new", source_key="a b", metadata_directive="REPLACE"
    )
    assert client.copy_object(request).etag == f'"{etag}"'
    assert "x-oss-meta-run" not in bucket.head_object("new").headers
    with pytest.raises(oss2.exceptions.PreconditionFailed):
        bucket.copy_object(BUCKET, "a b", "new", headers={"x-oss-copy-source-if-match": "other"})


def test_copy_of_a_large_object_is_refused() -> None:
    """A source as large as the limit must be copied in parts."""
    limits = ServiceLimits(copy_max_bytes=10)
    with (
        OSSServer({ACCESS_KEY_ID: SECRET}, limits=limits) as server,
        first_sdk(Access(server.endpoint), server.create_bucket(BUCKET)) as bucket,
    ):
        bucket.put_object("small", b"x" * 9)
        bucket.put_object("large", b"x" * 10)
        bucket.copy_object(BUCKET, "small", "copy")
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.copy_object(BUCKET, "large", "copy")
        assert error.value.code == "EntityTooLarge"


def test_append(bucket: Any, client: Any) -> None:
    """Appending needs the right position and an appendable object."""
    first = bucket.append_object("log", 0, b"one")
    assert first.next_position == 3
    second = client.append_object(
        oss_v2.AppendObjectRequest(bucket=BUCKET, key="log", position=3, body=b"two")
    )
    assert second.hash_crc64 == str(own_crc(b"onetwo"))
    assert bucket.head_object("log").object_type == "Appendable"
    with pytest.raises(oss2.exceptions.PositionNotEqualToLength) as error:
        bucket.append_object("log", 0, b"three")
    assert error.value.next_position == 6
    bucket.put_object("key", b"data")
    with pytest.raises(oss2.exceptions.ObjectNotAppendable):
        bucket.append_object("key", 4, b"more")


def test_stream_of_unknown_length(bucket: Any) -> None:
    """A body in chunks arrives whole."""
    bucket.put_object("key", iter([b"one", b"two" * 50_000]))
    assert bucket.get_object("key").read() == b"one" + b"two" * 50_000


def test_batch_delete(server: OSSServer, bucket: Any, client: Any) -> None:
    """Both SDKs delete many keys in one request, missing ones too, loudly or quietly."""
    # XML cannot carry one of these, and turns the other into a newline unless it is escaped.
    keys = [key for key in ODD_KEYS if not {"\x01", "\r"} & set(key)]
    for key in keys:
        bucket.put_object(key, b"")
    assert bucket.batch_delete_objects([*keys, "missing"]).deleted_keys == [*keys, "missing"]
    assert server.objects(BUCKET) == {}
    bucket.put_object("key", b"")
    delete = oss_v2.Delete(objects=[oss_v2.ObjectIdentifier(key="key")], quiet=True)
    client.delete_multiple_objects(
        oss_v2.DeleteMultipleObjectsRequest(bucket=BUCKET, delete=delete, encoding_type="url")
    )
    assert server.objects(BUCKET) == {}


def test_buckets(server: OSSServer, client: Any) -> None:
    """A bucket is made, described and deleted, but not while it holds anything."""
    client.put_bucket(oss_v2.PutBucketRequest(bucket="other-bucket"))
    info = client.get_bucket_info(oss_v2.GetBucketInfoRequest(bucket="other-bucket"))
    assert (info.bucket_info.name, info.bucket_info.acl) == ("other-bucket", "private")
    location = client.get_bucket_location(oss_v2.GetBucketLocationRequest(bucket="other-bucket"))
    assert location.location == "oss-cn-test"
    client.put_object(oss_v2.PutObjectRequest(bucket="other-bucket", key="key", body=b"data"))
    with pytest.raises(oss_v2.exceptions.OperationError) as error:
        client.delete_bucket(oss_v2.DeleteBucketRequest(bucket="other-bucket"))
    assert code_of(error) == "BucketNotEmpty"
    client.delete_object(oss_v2.DeleteObjectRequest(bucket="other-bucket", key="key"))
    client.delete_bucket(oss_v2.DeleteBucketRequest(bucket="other-bucket"))
    with pytest.raises(oss_v2.exceptions.OperationError):
        client.get_bucket_info(oss_v2.GetBucketInfoRequest(bucket="other-bucket"))
    assert server.requests[-1].code == "NoSuchBucket"


def test_batch_delete_knows_an_escaped_carriage_return(server: OSSServer, bucket: Any) -> None:
    """A key with a carriage return can be deleted in a batch when it is written as a reference."""
    bucket.put_object("a\rb", b"")
    body = b"<Delete><Object><Key>a&#13;b</Key></Object></Delete>"
    digest = {"Content-MD5": oss2.utils.content_md5(body)}
    bucket._do("POST", BUCKET, "", params={"delete": ""}, data=body, headers=digest)
    assert server.objects(BUCKET) == {}


def test_requests_are_recorded(server: OSSServer, bucket: Any) -> None:
    """A test can look up what was asked and how it was answered."""
    bucket.put_object("key", io.BytesIO(b"data"))
    bucket.get_object("key", byte_range=(1, 2)).read()
    put, get = server.requests
    assert (put.method, put.bucket, put.key, put.status) == ("PUT", BUCKET, "key", 200)
    assert (put.bytes_in, put.bytes_out) == (4, 0)
    assert (get.status, get.bytes_out, get.headers["range"]) == (206, 2, "bytes=1-2")
