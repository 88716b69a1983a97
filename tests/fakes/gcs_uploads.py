"""Unfinished multipart uploads of the XML API: their parts, their lists, what they make."""

import base64
import binascii
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import quote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from tests.fakes.gcs_backend import Refusal, Resource, md5

MIN_PART_BYTES = 5 * 1024 * 1024
MAX_PARTS = 10_000
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(slots=True)
class Upload:
    """One unfinished upload."""

    bucket: str
    key: str
    resource: Resource
    kms_key: str | None = None
    upload_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: str = field(default_factory=_now)
    parts: dict[int, "Part"] = field(default_factory=dict)

    @property
    def place(self) -> tuple[bytes, str]:
        """Where it stands in a list."""
        return self.key.encode(), self.upload_id


@dataclass(frozen=True, slots=True)
class Part:
    """One part as it was last sent; the ETag is its MD5 in hexadecimal, quoted."""

    etag: str
    data: bytes = field(repr=False)
    modified: str = field(default_factory=_now)


class Uploads:
    """All unfinished uploads of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[str, Upload] = {}

    def start(self, bucket: str, key: str, resource: Resource, kms_key: str | None = None) -> str:
        """Begin an upload and answer with its document."""
        upload = Upload(bucket, key, resource, kms_key)
        with self._lock:
            self._uploads[upload.upload_id] = upload
        return _document("InitiateMultipartUploadResult", _identity(upload))

    def find(self, bucket: str, key: str, upload_id: str) -> Upload:
        """The upload, which must be of this object."""
        with self._lock:
            upload = self._uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.key) != (bucket, key):
            raise Refusal(404, "NoSuchUpload", "The requested upload was not found.")
        return upload

    def put_part(self, upload: Upload, number: str, data: bytes) -> Part:
        """Keep a part; the last one sent under a number counts."""
        if not number.isdecimal() or not 1 <= int(number) <= MAX_PARTS:
            raise Refusal(400, "InvalidArgument", f"Part number {number!r} is not 1 to 10000.")
        digest = binascii.hexlify(base64.b64decode(md5(data))).decode()
        part = Part(f'"{digest}"', data)
        with self._lock:
            upload.parts[int(number)] = part
        return part

    def forget(self, upload: Upload) -> None:
        """Drop an upload and its parts."""
        with self._lock:
            self._uploads.pop(upload.upload_id, None)

    def list_uploads(self, bucket: str, query: Mapping[str, str]) -> str:
        """The bucket's unfinished uploads, by key and id, a page at a time."""
        prefix, encoded = query.get("prefix", ""), query.get("encoding-type") == "url"
        after = (query.get("key-marker", "").encode(), query.get("upload-id-marker") or "g")
        with self._lock:
            uploads = list(self._uploads.values())
        found = sorted(
            (
                one
                for one in uploads
                if one.bucket == bucket and one.key.startswith(prefix) and one.place > after
            ),
            key=lambda one: one.place,
        )
        page = found[: min(int(query.get("max-uploads", "1000")), 1000)]
        more = len(found) > len(page)
        entries = "".join(
            f"<Upload><Key>{_written(one.key, encoded)}</Key><UploadId>{one.upload_id}</UploadId>"
            f"<StorageClass>STANDARD</StorageClass><Initiated>{one.started}</Initiated></Upload>"
            for one in page
        )
        head = f"<Bucket>{bucket}</Bucket><Prefix>{_written(prefix, encoded)}</Prefix>"
        if more:
            head += (
                f"<NextKeyMarker>{_written(page[-1].key, encoded)}</NextKeyMarker>"
                f"<NextUploadIdMarker>{page[-1].upload_id}</NextUploadIdMarker>"
            )
        content = f"{head}<IsTruncated>{str(more).lower()}</IsTruncated>{entries}"
        return _document("ListMultipartUploadsResult", content)

    def list_parts(self, upload: Upload, after: int, max_parts: int) -> str:
        """The parts that came, by number, a page at a time."""
        with self._lock:
            parts = sorted(item for item in upload.parts.items() if item[0] > after)
        page = parts[:max_parts]
        more = len(parts) > len(page)
        entries = "".join(
            f"<Part><PartNumber>{number}</PartNumber><LastModified>{part.modified}</LastModified>"
            f"<ETag>{escape(part.etag)}</ETag><Size>{len(part.data)}</Size></Part>"
            for number, part in page
        )
        marks = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            marks += f"<NextPartNumberMarker>{page[-1][0]}</NextPartNumberMarker>"
        return _document("ListPartsResult", _identity(upload) + marks + entries)


def assemble(upload: Upload, document: bytes) -> bytes:
    """Join the parts that a completion names, or refuse it."""
    names = list(_named_parts(document))
    numbers = [number for number, _ in names]
    if not names:
        raise Refusal(400, "MalformedCompleteMultipartUploadRequest", "No part is named.")
    if numbers != sorted(set(numbers)):
        raise Refusal(400, "InvalidPartOrder", "Parts are not in ascending order.")
    found = [upload.parts.get(number) for number in numbers]
    parts = [part for part in found if part is not None]
    etags = [part.etag.strip('"') for part in parts]
    if etags != [etag.strip('"') for _, etag in names]:
        raise Refusal(400, "InvalidPart", "A part was not found, or its ETag differs.")
    if any(len(part.data) < MIN_PART_BYTES for part in parts[:-1]):
        raise Refusal(400, "EntityTooSmall", "A part other than the last is below 5 MiB.")
    return b"".join(part.data for part in parts)


def _named_parts(document: bytes) -> Iterator[tuple[int, str]]:
    try:
        root = ET.fromstring(document)  # noqa: S314 (comes from the test itself)
        for part in root.iterfind("{*}Part"):
            number, etag = part.findtext("{*}PartNumber"), part.findtext("{*}ETag")
            yield int(number or ""), etag or ""
    except (ET.ParseError, ValueError) as error:
        raise Refusal(400, "MalformedXML", f"The part list is not well formed: {error}") from error


def _written(text: str, encoded: bool) -> str:
    """A name as it stands in a document; without encoding some make it none."""
    return quote(text, safe="") if encoded else escape(text)


def _identity(upload: Upload) -> str:
    return (
        f"<Bucket>{upload.bucket}</Bucket><Key>{escape(upload.key)}</Key>"
        f"<UploadId>{upload.upload_id}</UploadId>"
    )


def _document(name: str, content: str) -> str:
    return f"<{name} xmlns='{_NAMESPACE}'>{content}</{name}>"
