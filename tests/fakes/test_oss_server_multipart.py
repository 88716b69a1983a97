"""Multipart uploads and listings of the OSS server, seen through the vendor's two SDKs."""

import io
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import alibabacloud_oss_v2 as oss_v2
import oss2
import pytest

from tests.fakes.oss import OSSServer
from tests.fakes.oss.clients import ACCESS_KEY_ID, SECRET, Access, first_sdk, second_sdk

BUCKET = "the-bucket"
PART_BYTES = 100 * 1024
ODD_KEYS = ["a//b", "a/./b", "a?b=c", "%20", "a+b", "a b", "é中", "\U0001f600", "&<>", "a\x01b"]


@pytest.fixture
def server() -> Iterator[OSSServer]:
    """A server with one empty bucket."""
    with OSSServer({ACCESS_KEY_ID: SECRET}) as running:
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


def data_of(size_bytes: int) -> bytes:
    """Bytes that differ from place to place."""
    return random.Random(size_bytes).randbytes(size_bytes)  # noqa: S311 (data, not a secret)


def upload(bucket: Any, upload_id: str, *parts: bytes) -> list[Any]:
    """Upload parts from number 1 on."""
    return [
        oss2.models.PartInfo(number, bucket.upload_part("key", upload_id, number, data).etag)
        for number, data in enumerate(parts, 1)
    ]


def refused(call: Callable[[], object]) -> tuple[int, str]:
    """Status and code of the error a call of the first SDK raises."""
    with pytest.raises(oss2.exceptions.ServerError) as error:
        call()
    return error.value.status, error.value.code


def test_multipart(server: OSSServer, bucket: Any) -> None:
    """Parts join in the order of their numbers, with the CRC and metadata of the whole."""
    parts = [data_of(PART_BYTES), data_of(PART_BYTES + 1), b"end"]
    upload_id = bucket.init_multipart_upload("key", headers={"x-oss-meta-run": "7"}).upload_id
    infos = upload(bucket, upload_id, *parts)
    assert [info.part_number for info in bucket.list_parts("key", upload_id).parts] == [1, 2, 3]
    assert server.unfinished_uploads(BUCKET) == [("key", upload_id)]
    assert server.objects(BUCKET) == {}
    done = bucket.complete_multipart_upload("key", upload_id, infos)
    total = oss2.utils.Crc64()
    total.update(b"".join(parts))
    assert done.crc == total.crc
    assert done.etag.endswith("-3")
    head = bucket.head_object("key")
    assert (head.object_type, head.headers["x-oss-meta-run"]) == ("Multipart", "7")
    assert server.objects(BUCKET) == {"key": b"".join(parts)}
    assert server.unfinished_uploads(BUCKET) == []


def test_second_sdk_uploads_in_parts(server: OSSServer, client: Any) -> None:
    """The second SDK's uploader works against the server."""
    data = data_of(350_000)
    uploader = client.uploader(part_size=PART_BYTES, parallel_num=3)
    uploader.upload_from(oss_v2.PutObjectRequest(bucket=BUCKET, key="é b"), io.BytesIO(data))
    assert server.objects(BUCKET) == {"é b": data}


def test_upload_part_copy(server: OSSServer, bucket: Any, client: Any) -> None:
    """Parts may be ranges of other objects, pinned to one version by their ETag."""
    source = data_of(3 * PART_BYTES)
    etag = bucket.put_object("a//b c", source).etag
    upload_id = bucket.init_multipart_upload("key").upload_id
    first = bucket.upload_part_copy(
        *(BUCKET, "a//b c", (PART_BYTES, 2 * PART_BYTES - 1), "key", upload_id, 1),
        headers={"x-oss-copy-source-if-match": etag},
    )
    request = oss_v2.UploadPartCopyRequest(
        bucket=BUCKET, key="key", upload_id=upload_id, part_number=2, source_key="a//b c"
    )
    second = client.upload_part_copy(request)
    infos = [
        oss2.models.PartInfo(1, first.etag),
        oss2.models.PartInfo(2, second.etag.strip('"')),
    ]
    bucket.complete_multipart_upload("key", upload_id, infos)
    assert server.objects(BUCKET)["key"] == source[PART_BYTES : 2 * PART_BYTES] + source


def test_upload_part_copy_refusals(bucket: Any) -> None:
    """A changed source, a range past its end and an appendable source are refused."""
    etag = bucket.put_object("source", b"0123456789").etag
    bucket.append_object("log", 0, b"0123456789")
    upload_id = bucket.init_multipart_upload("key").upload_id

    def copy(key: str, byte_range: Any = None, headers: Any = None) -> Callable[[], object]:
        target = ("key", upload_id, 1)
        return partial(bucket.upload_part_copy, BUCKET, key, byte_range, *target, headers=headers)

    changed = copy("source", headers={"x-oss-copy-source-if-match": '"other"'})
    assert refused(changed) == (412, "PreconditionFailed")
    unchanged = copy("source", headers={"x-oss-copy-source-if-none-match": etag})
    assert refused(unchanged) == (412, "PreconditionFailed")
    assert refused(copy("source", (5, 10))) == (416, "InvalidRange")
    assert refused(copy("missing")) == (404, "NoSuchKey")
    assert refused(copy("log")) == (400, "OperationNotSupported")


def test_complete_refusals(server: OSSServer, bucket: Any) -> None:
    """Complete checks sizes, order and ETags, and publishes nothing when one is wrong."""
    upload_id = bucket.init_multipart_upload("key").upload_id
    infos = upload(bucket, upload_id, data_of(PART_BYTES), data_of(PART_BYTES - 1), b"end")
    wrong = oss2.models.PartInfo(2, infos[0].etag)
    absent = oss2.models.PartInfo(4, infos[0].etag)

    def complete(chosen: list[Any]) -> Callable[[], object]:
        return partial(bucket.complete_multipart_upload, "key", upload_id, chosen)

    assert refused(complete(infos)) == (400, "EntityTooSmall")
    assert refused(complete([infos[0], wrong])) == (400, "InvalidPart")
    assert refused(complete([infos[0], absent])) == (400, "InvalidPart")
    assert refused(complete([infos[0], infos[0]])) == (400, "InvalidPartOrder")
    assert refused(complete([])) == (400, "MalformedXML")
    assert server.objects(BUCKET) == {}
    complete(infos[:2])()
    assert refused(complete(infos[:2])) == (404, "NoSuchUpload")


def test_parts_out_of_order(bucket: Any, client: Any) -> None:
    """The list of parts must be in ascending order."""
    upload_id = bucket.init_multipart_upload("key").upload_id
    infos = upload(bucket, upload_id, data_of(PART_BYTES), data_of(PART_BYTES))
    parts = [oss_v2.UploadPart(part_number=i.part_number, etag=i.etag) for i in reversed(infos)]
    request = oss_v2.CompleteMultipartUploadRequest(
        bucket=BUCKET,
        key="key",
        upload_id=upload_id,
        complete_multipart_upload=oss_v2.CompleteMultipartUpload(parts=parts),
    )
    with pytest.raises(oss_v2.exceptions.OperationError) as error:
        client.complete_multipart_upload(request)
    assert error.value.unwrap().code == "InvalidPartOrder"


def test_complete_may_not_overwrite(server: OSSServer, bucket: Any) -> None:
    """Complete refuses to replace an object when told to, and the upload stays."""
    upload_id = bucket.init_multipart_upload("key").upload_id
    infos = upload(bucket, upload_id, b"new")
    bucket.put_object("key", b"old")
    forbid = {"x-oss-forbid-overwrite": "true"}
    complete = partial(bucket.complete_multipart_upload, "key", upload_id, infos, headers=forbid)
    assert refused(complete) == (409, "FileAlreadyExists")
    assert server.objects(BUCKET) == {"key": b"old"}
    assert server.unfinished_uploads(BUCKET) == [("key", upload_id)]


def test_abort_and_list_uploads(bucket: Any) -> None:
    """Unfinished uploads are listed in pages until they are aborted; then they are unknown."""
    keys = [key for key in ODD_KEYS for _ in range(2)]
    for key in keys:
        bucket.init_multipart_upload(key, params={"encoding-type": "url"})
    found = list(oss2.MultipartUploadIterator(bucket, max_uploads=3))
    assert [entry.key for entry in found] == sorted(keys)
    for entry in found:
        bucket.abort_multipart_upload(entry.key, entry.upload_id)
    assert bucket.list_multipart_uploads().upload_list == []
    gone = partial(bucket.upload_part, found[0].key, found[0].upload_id, 1, b"")
    assert refused(gone) == (404, "NoSuchUpload")


def test_part_numbers(bucket: Any) -> None:
    """Part numbers run from 1 to 10,000."""
    upload_id = bucket.init_multipart_upload("key").upload_id
    bucket.upload_part("key", upload_id, 10_000, b"")
    for number in (0, 10_001):
        upload_part = partial(bucket.upload_part, "key", upload_id, number, b"")
        assert refused(upload_part) == (400, "InvalidArgument")


@pytest.mark.parametrize("iterator", [oss2.ObjectIterator, oss2.ObjectIteratorV2])
def test_first_sdk_lists_in_pages(bucket: Any, iterator: Any) -> None:
    """Keys come in the order of their UTF-8 bytes, over pages, whatever they contain."""
    for key in ODD_KEYS:
        bucket.put_object(key, key.encode())
    found = list(iterator(bucket, max_keys=3))
    assert [entry.key for entry in found] == sorted(ODD_KEYS, key=lambda key: key.encode())
    assert [entry.size for entry in found] == [len(entry.key.encode()) for entry in found]
    assert {entry.type for entry in found} == {"Normal"}


@pytest.mark.parametrize("iterator", [oss2.ObjectIterator, oss2.ObjectIteratorV2])
def test_first_sdk_lists_groups(bucket: Any, iterator: Any) -> None:
    """With a delimiter common prefixes come in order among the keys, each once over pages."""
    for key in ["a", "d/1", "d/2", "d/e/3", "d0", "e/1", "p/d/1", "p/x"]:
        bucket.put_object(key, b"")
    found = [(e.key, e.is_prefix()) for e in iterator(bucket, delimiter="/", max_keys=1)]
    assert found == [("a", False), ("d/", True), ("d0", False), ("e/", True), ("p/", True)]
    inside = [entry.key for entry in iterator(bucket, prefix="d/", delimiter="/", max_keys=2)]
    assert inside == ["d/1", "d/2", "d/e/"]


def test_prefix_is_a_raw_string(bucket: Any) -> None:
    """A prefix matches any key that begins with it, and start-after excludes itself."""
    for key in ["a/b", "a/bc", "a/b/c", "b"]:
        bucket.put_object(key, b"")
    listed = bucket.list_objects_v2(prefix="a/b", start_after="a/b")
    assert [entry.key for entry in listed.object_list] == ["a/b/c", "a/bc"]


def test_second_sdk_lists(client: Any) -> None:
    """The second SDK's paginator sees the same keys and prefixes."""
    for key in ["é 1", "d/1", "d/2", "&"]:
        client.put_object(oss_v2.PutObjectRequest(bucket=BUCKET, key=key, body=b""))
    pages = client.list_objects_v2_paginator(limit=1)
    request = oss_v2.ListObjectsV2Request(bucket=BUCKET, delimiter="/", encoding_type="url")
    keys, prefixes = [], []
    for page in pages.iter_page(request):
        keys += [entry.key for entry in page.contents or []]
        prefixes += [entry.prefix for entry in page.common_prefixes or []]
    assert (keys, prefixes) == (["&", "é 1"], ["d/"])


def test_page_size(bucket: Any) -> None:
    """A page has 100 keys unless asked, at most 1,000, and more is refused."""
    for number in range(101):
        bucket.put_object(f"{number:03}", b"")
    assert len(bucket.list_objects_v2(max_keys="").object_list) == 100
    assert len(bucket.list_objects_v2(max_keys=1000).object_list) == 101
    assert refused(partial(bucket.list_objects_v2, max_keys=1001)) == (400, "InvalidArgument")


def test_listing_a_missing_bucket(server: OSSServer) -> None:
    """A missing bucket is an error, an empty one an empty page."""
    with first_sdk(Access(server.endpoint), "no-bucket") as missing:
        assert refused(missing.list_objects_v2) == (404, "NoSuchBucket")
    with first_sdk(Access(server.endpoint), BUCKET) as empty:
        assert empty.list_objects_v2().object_list == []
