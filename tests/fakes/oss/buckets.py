"""Operations on a bucket as a whole, and the list of buckets."""

import re
from xml.etree import ElementTree as ET

from tests.fakes.oss.documents import Content, document, encoder, timestamp
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.listing import OWNER
from tests.fakes.oss.messages import Request, Response
from tests.fakes.oss.objects import XML, check_md5
from tests.fakes.oss.state import Bucket, Store

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_MAX_DELETED = 1000


def list_buckets(store: Store, request: Request) -> Response:
    """ListBuckets, in one page."""
    prefix = request.query.get("prefix", "")
    with store.lock:
        found = [store.buckets[name] for name in sorted(store.buckets) if name.startswith(prefix)]
    entries: Content = [("Bucket", _bucket_elements(store, bucket)) for bucket in found]
    answer: list[tuple[str, Content]] = [
        ("Owner", OWNER),
        ("Buckets", entries),
        ("IsTruncated", False),
    ]
    return Response(200, XML, document("ListAllMyBucketsResult", answer))


def put_bucket(store: Store, request: Request) -> Response:
    """PutBucket; making it again changes its ACL only."""
    name = request.bucket or ""
    if not _NAME.fullmatch(name):
        raise ServiceError("InvalidBucketName", BucketName=name)
    storage_class = "Standard"
    if request.body:
        storage_class = _parse(request.body).findtext("StorageClass") or storage_class
    acl = request.headers.get("x-oss-acl", "private")
    store.create(name, storage_class=storage_class, public=acl.startswith("public-read"))
    return Response(200, {"Location": f"/{name}"})


def delete_bucket(store: Store, request: Request) -> Response:
    """DeleteBucket, which insists on an empty one."""
    with store.lock:
        bucket = store.find(request.bucket)
        if bucket.objects or bucket.uploads:
            raise ServiceError("BucketNotEmpty", ec="0015-00000301", BucketName=bucket.name)
        del store.buckets[bucket.name]
    return Response(204)


def get_bucket_info(store: Store, request: Request) -> Response:
    """GetBucketInfo."""
    bucket = store.find(request.bucket)
    elements = [
        *_bucket_elements(store, bucket),
        ("DataRedundancyType", "LRS"),
        ("Owner", OWNER),
        ("AccessControlList", [("Grant", _acl(bucket))]),
    ]
    return Response(200, XML, document("BucketInfo", [("Bucket", elements)]))


def get_bucket_location(store: Store, request: Request) -> Response:
    """GetBucketLocation."""
    store.find(request.bucket)
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<LocationConstraint>oss-{store.region}'
    return Response(200, XML, f"{body}</LocationConstraint>".encode())


def get_bucket_acl(store: Store, request: Request) -> Response:
    """GetBucketAcl."""
    bucket = store.find(request.bucket)
    answer: list[tuple[str, Content]] = [
        ("Owner", OWNER),
        ("AccessControlList", [("Grant", _acl(bucket))]),
    ]
    return Response(200, XML, document("AccessControlPolicy", answer))


def get_bucket_stat(store: Store, request: Request) -> Response:
    """GetBucketStat."""
    with store.lock:
        bucket = store.find(request.bucket)
        answer = [
            ("Storage", sum(len(stored.data) for stored in bucket.objects.values())),
            ("ObjectCount", len(bucket.objects)),
            ("MultipartUploadCount", len(bucket.uploads)),
        ]
    return Response(200, XML, document("BucketStat", answer))


def delete_objects(store: Store, request: Request) -> Response:
    """DeleteMultipleObjects; a quiet one is answered without a body."""
    if "content-md5" not in request.headers:
        # Source: https://help.aliyun.com/zh/oss/support/0016-00000606, read 2026-11-30.
        message = "Missing Some Required Arguments: Content-MD5."
        raise ServiceError("MissingArgument", message, ec="0016-00000606")
    check_md5(request)
    root = _parse(request.body)
    keys = _keys_to_delete(root)
    with store.lock:
        bucket = store.find(request.bucket)
        for key in keys:
            bucket.remove(key)
    if root.findtext("Quiet") == "true":
        return Response(200)
    encode = encoder(request.query.get("encoding-type"))
    deleted = [("Deleted", [("Key", encode(key))]) for key in keys]
    answer: list[tuple[str, Content]] = [*encode.declaration, *deleted]
    return Response(200, XML, document("DeleteResult", answer))


def _keys_to_delete(root: ET.Element) -> list[str]:
    entries = root.findall("Object")
    if root.tag != "Delete" or not 1 <= len(entries) <= _MAX_DELETED:
        raise ServiceError("MalformedXML", ec="0016-00000608")
    if any(entry.find("VersionId") is not None for entry in entries):
        raise ServiceError("NotImplemented", "Versions are not served.")
    keys = [entry.findtext("Key", "") for entry in entries]
    if not all(keys):
        # Source: https://help.aliyun.com/zh/oss/support/0016-00000613, read 2026-11-30.
        raise ServiceError("MalformedXML", ec="0016-00000613")
    return keys


def _parse(body: bytes) -> ET.Element:
    try:
        return ET.fromstring(body)  # noqa: S314 (test clients on loopback)
    except ET.ParseError as error:
        raise ServiceError("MalformedXML") from error


def _bucket_elements(store: Store, bucket: Bucket) -> list[tuple[str, Content]]:
    return [
        ("Name", bucket.name),
        ("Location", f"oss-{store.region}"),
        ("Region", store.region),
        ("CreationDate", timestamp(bucket.created)),
        ("ExtranetEndpoint", f"oss-{store.region}.aliyuncs.com"),
        ("IntranetEndpoint", f"oss-{store.region}-internal.aliyuncs.com"),
        ("StorageClass", bucket.storage_class),
    ]


def _acl(bucket: Bucket) -> str:
    return "public-read" if bucket.public else "private"
