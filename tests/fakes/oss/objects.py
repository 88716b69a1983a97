"""Put, get, head, copy, append and delete."""

import base64
import binascii
import re
from collections.abc import Mapping
from urllib.parse import unquote

from tests.fakes.oss.conditions import check_conditions, http_date, select_range
from tests.fakes.oss.documents import document, timestamp
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import Request, Response
from tests.fakes.oss.state import GIBIBYTE, Bucket, Store, StoredObject, crc, md5_etag, md5_header

XML = {"Content-Type": "application/xml"}
_CONTENT_HEADERS = {
    "content-type": "Content-Type",
    "cache-control": "Cache-Control",
    "content-disposition": "Content-Disposition",
    "content-encoding": "Content-Encoding",
    "content-language": "Content-Language",
    "expires": "Expires",
}
_STORAGE_CLASSES = frozenset({"Standard", "IA", "Archive", "ColdArchive", "DeepColdArchive"})
_ARCHIVED = frozenset({"Archive", "ColdArchive", "DeepColdArchive"})
_COPY_SOURCE = re.compile(r"/([^/]+)/([^?]+)(\?versionId=.*)?")
_FORBID_OVERWRITE = "x-oss-forbid-overwrite"
_SSE = "x-oss-server-side-encryption"
_SSE_KEY = "x-oss-server-side-encryption-key-id"


def put_object(store: Store, request: Request) -> Response:
    """PutObject, or CopyObject when a source is named."""
    if "x-oss-copy-source" in request.headers:
        return _copy_object(store, request)
    check_body(store, request)
    stored = StoredObject(
        data=request.body,
        etag=md5_etag(request.body),
        crc64=crc(request.body),
        kind="Normal",
        storage_class=storage_class(request.headers),
        modified=store.now(),
        headers={**kept_headers(request.headers), **encryption(request.headers)},
    )
    with store.lock:
        bucket = store.find(request.bucket)
        check_overwrite(bucket, request)
        bucket.put(request.key, stored)
    headers = {**sums(stored), "Content-MD5": md5_header(stored.etag)}
    return Response(200, headers)


def get_object(store: Store, request: Request) -> Response:
    """GetObject, whole or one range."""
    stored = store.find(request.bucket).find(request.key)
    check_conditions(stored, request.headers)
    check_readable(stored)
    size_bytes = len(stored.data)
    wanted = select_range(request.headers, size_bytes)
    if wanted is None:
        return Response(200, _description(stored), stored.data)
    headers = _description(stored)
    headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size_bytes}"
    return Response(206, headers, memoryview(stored.data)[wanted.start : wanted.stop])


def head_object(store: Store, request: Request) -> Response:
    """HeadObject."""
    stored = store.find(request.bucket).find(request.key)
    check_conditions(stored, request.headers)
    return Response(200, _description(stored), stored.data)


def get_object_meta(store: Store, request: Request) -> Response:
    """GetObjectMeta: a head without content headers and user metadata."""
    stored = store.find(request.bucket).find(request.key)
    headers = {**sums(stored), "Last-Modified": http_date(stored.modified)}
    return Response(200, headers, stored.data)


def delete_object(store: Store, request: Request) -> Response:
    """DeleteObject, which does not mind a missing one."""
    with store.lock:
        store.find(request.bucket).remove(request.key)
    return Response(204)


def append_object(store: Store, request: Request) -> Response:
    """AppendObject."""
    check_body(store, request)
    position = number_in(request, "position", None, range(5 * GIBIBYTE))
    with store.lock:
        bucket = store.find(request.bucket)
        stored = _appended(bucket.objects.get(request.key), position, store, request)
        bucket.put(request.key, stored)
    return Response(200, {**sums(stored), "x-oss-next-append-position": str(len(stored.data))})


def _appended(
    old: StoredObject | None, position: int, store: Store, request: Request
) -> StoredObject:
    if old is not None and old.kind != "Appendable":
        raise ServiceError("ObjectNotAppendable", ec="0026-00000011")
    length = len(old.data) if old else 0
    if position != length:
        headers = {"x-oss-next-append-position": str(length)}
        raise ServiceError("PositionNotEqualToLength", ec="0026-00000016", headers=headers)
    data = old.data + request.body if old else request.body
    return StoredObject(
        data=data,
        etag=md5_etag(((old.etag if old else "") + md5_etag(request.body)).encode()),
        crc64=crc(request.body, old.crc64) if old else crc(data),
        kind="Appendable",
        storage_class=old.storage_class if old else storage_class(request.headers),
        modified=store.now(),
        headers=old.headers if old else kept_headers(request.headers),
    )


def _copy_object(store: Store, request: Request) -> Response:
    directive = request.headers.get("x-oss-metadata-directive", "COPY").upper()
    if directive not in {"COPY", "REPLACE"}:
        raise ServiceError("InvalidArgument", ArgumentName="x-oss-metadata-directive")
    with store.lock:
        source = copy_source(store, request)
        if len(source.data) >= store.limits.copy_max_bytes:
            raise ServiceError("EntityTooLarge", "Use UploadPartCopy for objects of 1 GB or more.")
        bucket = store.find(request.bucket)
        check_overwrite(bucket, request)
        replaced = directive == "REPLACE"
        stored = StoredObject(
            data=source.data,
            etag=source.etag,
            crc64=source.crc64,
            kind="Normal",
            storage_class=storage_class(request.headers),
            modified=store.now(),
            headers={
                **(kept_headers(request.headers) if replaced else _unencrypted(source.headers)),
                **encryption(request.headers),
            },
        )
        bucket.put(request.key, stored)
    answer = [("LastModified", timestamp(stored.modified)), ("ETag", f'"{stored.etag}"')]
    return Response(200, {**XML, **sums(stored)}, document("CopyObjectResult", answer))


def copy_source(
    store: Store, request: Request, *, unchanged_code: str = "NotModified"
) -> StoredObject:
    """The object a copy reads, once its conditions hold."""
    match = _COPY_SOURCE.fullmatch(request.headers["x-oss-copy-source"])
    if match is None:
        raise ServiceError(
            "InvalidArgument",
            "The copy source must be in the form of /bucket/object.",
            ec="0042-00000301",
        )
    if match[3]:
        raise ServiceError("NotImplemented", "Versions are not served.")
    source = store.find(match[1]).find(unquote(match[2], errors="replace"))
    check_conditions(
        source, request.headers, prefix="x-oss-copy-source-", unchanged_code=unchanged_code
    )
    check_readable(source)
    return source


def number_in(request: Request, name: str, default: int | None, allowed: range) -> int:
    """A number from the query; left out or empty it is the default, if there is one."""
    text = request.query.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal() or int(text) not in allowed:
        raise ServiceError(
            "InvalidArgument",
            f"Argument {name} must be between {allowed[0]} and {allowed[-1]}.",
            ArgumentName=name,
            ArgumentValue=text,
        )
    return int(text)


def check_readable(stored: StoredObject) -> None:
    """Refuse to read what lies in an archive."""
    if stored.storage_class in _ARCHIVED:
        raise ServiceError(
            "InvalidObjectState", ec="0017-00000901", StorageClass=stored.storage_class
        )


def check_overwrite(bucket: Bucket, request: Request) -> None:
    """Refuse to replace an object when the request forbids it."""
    if request.headers.get(_FORBID_OVERWRITE) == "true" and request.key in bucket.objects:
        raise ServiceError("FileAlreadyExists", ec="0026-00000031", ObjectName=request.key)


def check_body(store: Store, request: Request) -> None:
    """Refuse a body that is too large or not what its checksum says."""
    headers = request.headers
    if "content-length" not in headers and "transfer-encoding" not in headers:
        raise ServiceError("MissingContentLength")
    if len(request.body) > store.limits.put_max_bytes:
        raise ServiceError("EntityTooLarge")
    check_md5(request)


def check_md5(request: Request) -> None:
    """Compare the body with `Content-MD5`, if that was sent."""
    sent = request.headers.get("content-md5")
    if sent is None:
        return
    try:
        digest = base64.b64decode(sent, validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != 16:
        raise ServiceError("InvalidDigest", ec="0002-00000601")
    if digest.hex().upper() != md5_etag(request.body):
        raise ServiceError("BadDigest", ec="0002-00000602")


def storage_class(headers: Mapping[str, str]) -> str:
    """The storage class a request asks for."""
    name = headers.get("x-oss-storage-class", "Standard")
    if name not in _STORAGE_CLASSES:
        raise ServiceError("InvalidArgument", ArgumentName="x-oss-storage-class")
    return name


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """What is stored along with an object and given back with it."""
    kept = {"Content-Type": "application/octet-stream"}
    for name, value in headers.items():
        if name in _CONTENT_HEADERS:
            kept[_CONTENT_HEADERS[name]] = value
        elif name.startswith("x-oss-meta-"):
            kept[name] = value
    return kept


def encryption(headers: Mapping[str, str]) -> dict[str, str]:
    """What a request asks for as encryption, to be told of the object from then on.

    Source: https://help.aliyun.com/zh/oss/developer-reference/putobject, read 2026-12-01.
    """
    chosen = {name: headers[name] for name in (_SSE, _SSE_KEY) if name in headers}
    if chosen.get(_SSE, "AES256") not in {"AES256", "KMS", "SM4"}:
        raise ServiceError("InvalidArgument", ArgumentName=_SSE)
    if _SSE_KEY in chosen and chosen.get(_SSE) != "KMS":
        raise ServiceError("InvalidArgument", ArgumentName=_SSE_KEY)
    return chosen


def sums(stored: StoredObject) -> dict[str, str]:
    """ETag and CRC-64 of the whole object."""
    return {"ETag": f'"{stored.etag}"', "x-oss-hash-crc64ecma": str(stored.crc64)}


def _unencrypted(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in {_SSE, _SSE_KEY}}


def _description(stored: StoredObject) -> dict[str, str]:
    headers = {
        **stored.headers,
        **sums(stored),
        "Last-Modified": http_date(stored.modified),
        "Accept-Ranges": "bytes",
        "x-oss-object-type": stored.kind,
        "x-oss-storage-class": stored.storage_class,
    }
    if stored.kind == "Normal" and "-" not in stored.etag:
        headers["Content-MD5"] = md5_header(stored.etag)
    return headers
