"""ListObjects, ListObjectsV2 and ListMultipartUploads."""

import base64
import binascii
import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.fakes.oss.documents import Content, KeyEncoder, document, encoder, timestamp
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import Request, Response
from tests.fakes.oss.objects import XML, number_in
from tests.fakes.oss.state import Bucket, Store, StoredObject, Upload

OWNER: Content = [("ID", "1000000000000001"), ("DisplayName", "1000000000000001")]
_DEFAULT_KEYS = 100
_PAGE_SIZES = range(1, 1001)
_LAST_CHARACTER = chr(0x10FFFF)


@dataclass(frozen=True, slots=True)
class _Page:
    """One page: names in order, each a key or a common prefix.

    Args:
        names: The name, and whether it is a common prefix.
        truncated: More would follow.
    """

    names: Sequence[tuple[str, bool]]
    truncated: bool

    @property
    def last(self) -> str:
        return self.names[-1][0] if self.names else ""


def list_objects(store: Store, request: Request) -> Response:
    """Either version of the listing."""
    version = request.query.get("list-type")
    if version not in {None, "", "2"}:
        raise ServiceError("InvalidArgument", ArgumentName="list-type", ArgumentValue=version or "")
    with store.lock:
        bucket = store.find(request.bucket)
        return _list_v2(bucket, request) if version == "2" else _list_v1(bucket, request)


def _list_v1(bucket: Bucket, request: Request) -> Response:
    query = request.query
    encode = _encoder(request)
    limit = number_in(request, "max-keys", _DEFAULT_KEYS, _PAGE_SIZES)
    page = _page(bucket.keys, request, query.get("marker", ""), limit)
    answer: list[tuple[str, Content]] = [
        ("Name", bucket.name),
        ("Prefix", encode(query.get("prefix", ""))),
        ("Marker", encode(query.get("marker", ""))),
        ("MaxKeys", limit),
        ("Delimiter", encode(query.get("delimiter", ""))),
        *encode.declaration,
        ("IsTruncated", page.truncated),
        *([("NextMarker", encode(page.last))] if page.truncated else []),
        *_entries(bucket, page, encode, with_owner=True),
    ]
    return Response(200, XML, document("ListBucketResult", answer))


def _list_v2(bucket: Bucket, request: Request) -> Response:
    query = request.query
    encode = _encoder(request)
    limit = number_in(request, "max-keys", _DEFAULT_KEYS, _PAGE_SIZES)
    token = query.get("continuation-token", "")
    after = _read_token(token) if token else query.get("start-after", "")
    page = _page(bucket.keys, request, after, limit)
    next_token = _write_token(page.last)
    answer: list[tuple[str, Content]] = [
        ("Name", bucket.name),
        ("Prefix", encode(query.get("prefix", ""))),
        ("StartAfter", encode(query.get("start-after", ""))),
        ("MaxKeys", limit),
        ("Delimiter", encode(query.get("delimiter", ""))),
        *encode.declaration,
        ("IsTruncated", page.truncated),
        *([("ContinuationToken", encode(token))] if token else []),
        *([("NextContinuationToken", encode(next_token))] if page.truncated else []),
        ("KeyCount", len(page.names)),
        *_entries(bucket, page, encode, with_owner=query.get("fetch-owner") == "true"),
    ]
    return Response(200, XML, document("ListBucketResult", answer))


def list_uploads(store: Store, request: Request) -> Response:
    """ListMultipartUploads, without a delimiter."""
    query = request.query
    if query.get("delimiter"):
        raise ServiceError("NotImplemented", "A delimiter among uploads is not served.")
    encode = _encoder(request)
    limit = number_in(request, "max-uploads", _PAGE_SIZES[-1], _PAGE_SIZES)
    with store.lock:
        bucket = store.find(request.bucket)
        found = _uploads_behind(bucket, request)
    page, truncated = found[:limit], len(found) > limit
    last = page[-1] if truncated else None
    answer: list[tuple[str, Content]] = [
        *encode.declaration,
        ("Bucket", bucket.name),
        ("KeyMarker", encode(query.get("key-marker", ""))),
        ("UploadIdMarker", query.get("upload-id-marker", "")),
        ("NextKeyMarker", encode(last.key) if last else ""),
        ("NextUploadIdMarker", last.upload_id if last else ""),
        ("Delimiter", ""),
        ("Prefix", encode(query.get("prefix", ""))),
        ("MaxUploads", limit),
        ("IsTruncated", truncated),
        *(("Upload", _upload_elements(encode(upload.key), upload)) for upload in page),
    ]
    return Response(200, XML, document("ListMultipartUploadsResult", answer))


def _uploads_behind(bucket: Bucket, request: Request) -> list[Upload]:
    """The uploads behind the request's markers; without an id, behind every one of that key."""
    query = request.query
    marker = (query.get("key-marker", ""), query.get("upload-id-marker") or _LAST_CHARACTER)
    found = (
        upload
        for upload in bucket.uploads.values()
        if upload.key.startswith(query.get("prefix", ""))
        and (upload.key, upload.upload_id) > marker
    )
    return sorted(found, key=lambda upload: (upload.key, upload.upload_id))


def _upload_elements(key: str, upload: Upload) -> list[tuple[str, Content]]:
    return [
        ("Key", key),
        ("UploadId", upload.upload_id),
        ("StorageClass", upload.storage_class),
        ("Initiated", timestamp(upload.initiated)),
    ]


def _encoder(request: Request) -> KeyEncoder:
    encoding = request.query.get("encoding-type")
    if encoding not in {None, "", "url"}:
        raise ServiceError("InvalidArgument", ArgumentName="encoding-type")
    return encoder(encoding)


def _page(keys: Sequence[str], request: Request, after: str, limit: int) -> _Page:
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
    names: list[tuple[str, bool]] = []
    for name in _walk(keys, prefix, delimiter, after):
        if len(names) == limit:
            return _Page(names, truncated=True)
        names.append(name)
    return _Page(names, truncated=False)


def _walk(
    keys: Sequence[str], prefix: str, delimiter: str, after: str
) -> Iterator[tuple[str, bool]]:
    """Keys and common prefixes beyond `after`; whole groups are jumped over, not read."""
    index = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, after))
    while index < len(keys) and keys[index].startswith(prefix):
        key = keys[index]
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        if end < 0:
            yield key, False
            index += 1
            continue
        group = key[: end + len(delimiter)]
        # A page that ended with a common prefix goes on behind everything under it.
        if group != after:
            yield group, True
        index = bisect.bisect_left(keys, _successor(group), lo=index)


def _successor(prefix: str) -> str:
    """The smallest text that sorts behind everything that begins with `prefix`."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else prefix + _LAST_CHARACTER * 1024


def _entries(
    bucket: Bucket, page: _Page, encode: KeyEncoder, *, with_owner: bool
) -> Iterator[tuple[str, Content]]:
    for name, is_prefix in page.names:
        if is_prefix:
            yield "CommonPrefixes", [("Prefix", encode(name))]
        else:
            owner: list[tuple[str, Content]] = [("Owner", OWNER)] if with_owner else []
            yield "Contents", [*_contents(encode(name), bucket.objects[name]), *owner]


def _contents(key: str, stored: StoredObject) -> list[tuple[str, Content]]:
    return [
        ("Key", key),
        ("LastModified", timestamp(stored.modified)),
        ("ETag", f'"{stored.etag}"'),
        ("Type", stored.kind),
        ("Size", len(stored.data)),
        ("StorageClass", stored.storage_class),
    ]


def _write_token(name: str) -> str:
    encoded = base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass"))
    return encoded.decode("ascii").replace("=", ".")


def _read_token(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.replace(".", "=")).decode("utf-8")
    except (binascii.Error, ValueError) as error:
        raise ServiceError("InvalidArgument", ArgumentName="continuation-token") from error
