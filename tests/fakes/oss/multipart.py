"""Multipart uploads: begin, send or copy parts, look, complete, abort."""

import hashlib
import itertools
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from tests.fakes.oss.documents import Content, document, encoder, timestamp
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import Request, Response
from tests.fakes.oss.objects import (
    XML,
    check_body,
    check_md5,
    check_overwrite,
    copy_source,
    encryption,
    kept_headers,
    number_in,
    storage_class,
    sums,
)
from tests.fakes.oss.state import (
    Part,
    Store,
    StoredObject,
    Upload,
    crc,
    md5_etag,
    md5_header,
    new_upload_id,
)

_SOURCE_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_MAX_LISTED = 1000


def initiate(store: Store, request: Request) -> Response:
    """InitiateMultipartUpload."""
    upload = Upload(
        new_upload_id(),
        request.key,
        storage_class(request.headers),
        {**kept_headers(request.headers), **encryption(request.headers)},
        store.now(),
    )
    with store.lock:
        bucket = store.find(request.bucket)
        check_overwrite(bucket, request)
        bucket.uploads[upload.upload_id] = upload
    encode = encoder(request.query.get("encoding-type"))
    answer: list[tuple[str, Content]] = [
        *encode.declaration,
        ("Bucket", bucket.name),
        ("Key", encode(request.key)),
        ("UploadId", upload.upload_id),
    ]
    return Response(200, XML, document("InitiateMultipartUploadResult", answer))


def upload_part(store: Store, request: Request) -> Response:
    """UploadPart, or UploadPartCopy when a source is named."""
    number = _part_number(store, request)
    if "x-oss-copy-source" in request.headers:
        return _copy_part(store, request, number)
    check_body(store, request)
    part = Part(request.body, md5_etag(request.body), crc(request.body), store.now())
    _keep_part(store, request, number, part)
    headers = {
        "ETag": f'"{part.etag}"',
        "x-oss-hash-crc64ecma": str(part.crc64),
        "Content-MD5": md5_header(part.etag),
    }
    return Response(200, headers)


def _copy_part(store: Store, request: Request, number: int) -> Response:
    source = copy_source(store, request, unchanged_code="PreconditionFailed")
    if source.kind == "Appendable":
        # Source: https://www.alibabacloud.com/help/doc-detail/31994.htm (2024), read 2026-11-30.
        message = "Objects uploaded by calling AppendObject cannot be copied."
        raise ServiceError("OperationNotSupported", message)
    data = _source_bytes(source, request.headers.get("x-oss-copy-source-range"))
    if len(data) > store.limits.put_max_bytes:
        raise ServiceError("EntityTooLarge")
    part = Part(data, md5_etag(data), crc(data), store.now())
    _keep_part(store, request, number, part)
    etag = f'"{part.etag}"'
    answer = [("LastModified", timestamp(part.modified)), ("ETag", etag)]
    # One of the vendor's SDKs reads the body, the other the header; neither gets a CRC.
    return Response(200, {**XML, "ETag": etag}, document("CopyPartResult", answer))


def _source_bytes(source: StoredObject, wanted: str | None) -> bytes:
    if wanted is None:
        return source.data
    match = _SOURCE_RANGE.fullmatch(wanted)
    if match is None:
        raise ServiceError("InvalidArgument", ArgumentName="x-oss-copy-source-range")
    start, stop = int(match[1]), int(match[2]) + 1
    if not start < stop <= len(source.data):
        # Source: https://help.aliyun.com/zh/oss/user-guide/0042-00000306, read 2026-11-30.
        raise ServiceError("InvalidRange", ec="0042-00000306", RangeRequested=wanted)
    return source.data[start:stop]


def _part_number(store: Store, request: Request) -> int:
    return number_in(request, "partNumber", None, range(1, store.limits.max_parts + 1))


def _keep_part(store: Store, request: Request, number: int, part: Part) -> None:
    with store.lock:
        bucket = store.find(request.bucket)
        bucket.find_upload(request.query["uploadId"], request.key).parts[number] = part


def complete(store: Store, request: Request) -> Response:
    """CompleteMultipartUpload: every check comes before anything is published."""
    check_md5(request)
    with store.lock:
        bucket = store.find(request.bucket)
        upload = bucket.find_upload(request.query["uploadId"], request.key)
        parts = _chosen_parts(upload, request)
        _check_sizes(store, parts)
        check_overwrite(bucket, request)
        stored = _joined(store, upload, parts)
        bucket.put(request.key, stored)
        del bucket.uploads[upload.upload_id]
    encode = encoder(request.query.get("encoding-type"))
    answer: list[tuple[str, Content]] = [
        *encode.declaration,
        ("Location", f"http://{bucket.name}.oss-{store.region}.aliyuncs.com/{request.key}"),
        ("Bucket", bucket.name),
        ("Key", encode(request.key)),
        ("ETag", f'"{stored.etag}"'),
    ]
    body = document("CompleteMultipartUploadResult", answer)
    return Response(200, {**XML, **sums(stored)}, body)


def _chosen_parts(upload: Upload, request: Request) -> list[Part]:
    if request.headers.get("x-oss-complete-all") == "yes":
        if request.body:
            raise ServiceError("InvalidArgument", ArgumentName="x-oss-complete-all")
        named = [(number, upload.parts[number].etag) for number in sorted(upload.parts)]
    else:
        named = _named_parts(request.body)
    numbers = [number for number, _ in named]
    if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        raise ServiceError("InvalidPartOrder", ec="0042-00000042")
    for number, etag in named:
        part = upload.parts.get(number)
        if part is None or part.etag != etag:
            raise ServiceError("InvalidPart", ec="0042-00000038", PartNumber=number)
    return [upload.parts[number] for number in numbers]


def _named_parts(body: bytes) -> list[tuple[int, str]]:
    try:
        root = ET.fromstring(body)  # noqa: S314 (test clients on loopback)
        named = [
            (int(part.findtext("PartNumber", "")), part.findtext("ETag", "").strip('"'))
            for part in root.findall("Part")
        ]
    except (ET.ParseError, ValueError) as error:
        raise ServiceError("MalformedXML") from error
    if root.tag != "CompleteMultipartUpload" or not named:
        raise ServiceError("MalformedXML")
    return named


def _check_sizes(store: Store, parts: Sequence[Part]) -> None:
    for part in parts[:-1]:
        if len(part.data) < store.limits.part_min_bytes:
            raise ServiceError(
                "EntityTooSmall",
                ec="0042-00000104",
                MinSizeAllowed=store.limits.part_min_bytes,
                ProposedSize=len(part.data),
            )


def _joined(store: Store, upload: Upload, parts: Sequence[Part]) -> StoredObject:
    total = 0
    for part in parts:
        total = crc(part.data, total)
    digests = b"".join(bytes.fromhex(part.etag) for part in parts)
    digest = hashlib.md5(digests, usedforsecurity=False).hexdigest().upper()
    return StoredObject(
        data=b"".join(part.data for part in parts),
        etag=f"{digest}-{len(parts)}",
        crc64=total,
        kind="Multipart",
        storage_class=upload.storage_class,
        modified=store.now(),
        headers=upload.headers,
    )


def abort(store: Store, request: Request) -> Response:
    """AbortMultipartUpload."""
    with store.lock:
        bucket = store.find(request.bucket)
        upload = bucket.find_upload(request.query["uploadId"], request.key)
        del bucket.uploads[upload.upload_id]
    return Response(204)


def list_parts(store: Store, request: Request) -> Response:
    """ListParts, a page at a time."""
    query = request.query
    limit = number_in(request, "max-parts", _MAX_LISTED, range(1, _MAX_LISTED + 1))
    marker = number_in(request, "part-number-marker", 0, range(store.limits.max_parts + 1))
    with store.lock:
        bucket = store.find(request.bucket)
        upload = bucket.find_upload(query["uploadId"], request.key)
        numbers = sorted(number for number in upload.parts if number > marker)
        page = [(number, upload.parts[number]) for number in numbers[:limit]]
    encode = encoder(query.get("encoding-type"))
    answer: list[tuple[str, Content]] = [
        *encode.declaration,
        ("Bucket", bucket.name),
        ("Key", encode(request.key)),
        ("UploadId", upload.upload_id),
        ("StorageClass", upload.storage_class),
        ("PartNumberMarker", marker),
        ("NextPartNumberMarker", page[-1][0] if page else marker),
        ("MaxParts", limit),
        ("IsTruncated", len(numbers) > limit),
        *(("Part", _part_elements(number, part)) for number, part in page),
    ]
    return Response(200, XML, document("ListPartsResult", answer))


def _part_elements(number: int, part: Part) -> list[tuple[str, Content]]:
    return [
        ("PartNumber", number),
        ("LastModified", timestamp(part.modified)),
        ("ETag", f'"{part.etag}"'),
        ("HashCrc64ecma", part.crc64),
        ("Size", len(part.data)),
    ]
