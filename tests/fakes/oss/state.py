"""Everything the server holds: buckets, objects and unfinished uploads, in memory."""

import base64
import bisect
import hashlib
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from fastcrc import crc64

from tests.fakes.oss.errors import ServiceError

MEBIBYTE = 1024 * 1024
GIBIBYTE = 1024 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Sizes the service refuses; a test may lower them to stay small.

    Source: https://help.aliyun.com/zh/oss/user-guide/limits, read 2026-11-30.

    Args:
        put_max_bytes: Largest single put or part.
        copy_max_bytes: A source of this size or more must be copied in parts.
        part_min_bytes: Smallest part that is not the last.
        max_parts: Highest part number.
    """

    put_max_bytes: int = 5 * GIBIBYTE
    copy_max_bytes: int = GIBIBYTE
    part_min_bytes: int = 100 * 1024
    max_parts: int = 10_000


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object; its sums are computed once, when it is written.

    Args:
        data: Its bytes.
        etag: Without quotes.
        crc64: CRC-64/XZ of `data`.
        kind: `Normal`, `Multipart` or `Appendable`.
        storage_class: As the service spells it.
        modified: To the second.
        headers: Content headers and user metadata, given back on get and head.
    """

    data: bytes = field(repr=False)
    etag: str
    crc64: int
    kind: str
    storage_class: str
    modified: datetime
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an unfinished upload."""

    data: bytes = field(repr=False)
    etag: str
    crc64: int
    modified: datetime


@dataclass(slots=True)
class Upload:
    """An unfinished multipart upload."""

    upload_id: str
    key: str
    storage_class: str
    headers: Mapping[str, str]
    initiated: datetime
    parts: dict[int, Part] = field(default_factory=dict)


@dataclass(slots=True)
class Bucket:
    """One bucket; `keys` is always in order (code points sort as their UTF-8 bytes do)."""

    name: str
    created: datetime
    storage_class: str = "Standard"
    public: bool = False
    objects: dict[str, StoredObject] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    uploads: dict[str, Upload] = field(default_factory=dict)

    def put(self, key: str, stored: StoredObject) -> None:
        """Store an object in place of the one there was."""
        if key not in self.objects:
            bisect.insort(self.keys, key)
        self.objects[key] = stored

    def remove(self, key: str) -> None:
        """Remove an object if there is one."""
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect.bisect_left(self.keys, key)]

    def find(self, key: str) -> StoredObject:
        """The object of that key.

        Raises:
            ServiceError: There is none.
        """
        stored = self.objects.get(key)
        if stored is None:
            raise ServiceError("NoSuchKey", ec="0026-00000001", Key=key)
        return stored

    def find_upload(self, upload_id: str, key: str) -> Upload:
        """The unfinished upload of that id to that key.

        Raises:
            ServiceError: There is none.
        """
        upload = self.uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise ServiceError("NoSuchUpload", ec="0042-00000002", UploadId=upload_id)
        return upload


class Store:
    """The buckets of one server.

    Args:
        region: Where it claims to be.
        limits: What it refuses by size.
    """

    def __init__(self, region: str, limits: ServiceLimits) -> None:
        self.region = region
        self.limits = limits
        self.buckets: dict[str, Bucket] = {}
        self.lock = threading.RLock()
        self.clock_offset_seconds = 0.0

    def now(self) -> datetime:
        """The server's time, to the second."""
        moment = datetime.now(timezone.utc) + timedelta(seconds=self.clock_offset_seconds)
        return moment.replace(microsecond=0)

    def find(self, name: str | None) -> Bucket:
        """The bucket of that name.

        Raises:
            ServiceError: There is none.
        """
        bucket = self.buckets.get(name or "")
        if bucket is None:
            raise ServiceError("NoSuchBucket", ec="0015-00000101", BucketName=name or "")
        return bucket

    def create(self, name: str, *, storage_class: str = "Standard", public: bool = False) -> Bucket:
        """Make a bucket, or change who may read the one there is."""
        with self.lock:
            bucket = self.buckets.get(name)
            if bucket is None:
                bucket = Bucket(name, self.now(), storage_class)
                self.buckets[name] = bucket
            bucket.public = public
            return bucket


def md5_etag(data: bytes) -> str:
    """The ETag of an object put in one request."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest().upper()


def md5_header(etag: str) -> str:
    """The `Content-MD5` that belongs to such an ETag."""
    return base64.b64encode(bytes.fromhex(etag)).decode("ascii")


def crc(data: bytes, start: int = 0) -> int:
    """CRC-64/XZ, going on from the sum of what came before."""
    return crc64.xz(data, start)


def new_upload_id() -> str:
    """An upload id of the service's form."""
    return secrets.token_hex(16).upper()
