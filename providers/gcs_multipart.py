"""Uploads in parts, by the XML API of Google Cloud Storage."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.sax.saxutils import escape

from typing_extensions import override

from providers.addresses import encode_query
from providers.checksums import parse
from providers.errors import UnavailableError
from providers.gcs_answers import Answer, check_arrived, element, time_of, tree_of
from providers.gcs_client import crc32c
from providers.uploads import MultipartUpload, Receipt
from providers.values import UploadInfo

if TYPE_CHECKING:
    from providers.gcs import GCSProvider
    from providers.listings import UploadsPage

__all__ = ["GCSUpload", "uploads_page"]


class GCSUpload(MultipartUpload):
    """One upload.

    Args:
        provider: where the object will be.
        key: its key.
        write_id: random mark in its metadata.
        upload_id: the service's name for the upload.
        if_absent: publish only where there is no object.
    """

    def __init__(
        self, provider: GCSProvider, key: str, write_id: str, upload_id: str, *, if_absent: bool
    ) -> None:
        super().__init__(provider, key, write_id)
        self._gcs = provider
        self._query = {"uploadId": upload_id}
        self._if_absent = if_absent

    @override
    def _put_part(self, number: int, data: memoryview) -> Receipt:
        sent = crc32c(data)
        headers = self._gcs.send_body(
            "put_part",
            self.key,
            {"x-goog-hash": f"crc32c={sent}"},
            data,
            encode_query({"partNumber": str(number), **self._query}),
        ).headers
        uri = self.provider.uri(self.key)
        etag: str | None = headers.get("ETag")
        if not etag:
            raise UnavailableError("the answer has no ETag", uri=uri, operation="put_part")
        check_arrived(headers, sent, uri, "put_part")
        return Receipt(etag, parse(f"crc32c:{sent}"))

    @override
    def _complete(self, receipts: dict[int, Receipt]) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(part.etag)}</ETag></Part>"
            for number, part in receipts.items()
        )
        answer = self._gcs.send_xml(
            "POST",
            self.key,
            self._query,
            {"x-goog-if-generation-match": "0"} if self._if_absent else {},
            memoryview(f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()),
            patient=True,
        )
        element(answer, "CompleteMultipartUploadResult")

    @override
    def _abort(self) -> None:
        self._gcs.send_xml("DELETE", self.key, self._query)


def uploads_page(answer: Answer) -> UploadsPage:
    """Read a page of unfinished uploads, asked for with encoded keys, and where the next begins."""
    # Source: https://cloud.google.com/storage/docs/xml-api/get-bucket-uploads, read 2026-12-01.
    tree = tree_of(answer, "ListMultipartUploadsResult")
    page = [
        UploadInfo(
            unquote_plus(found.findtext("{*}Key", "")),
            found.findtext("{*}UploadId", ""),
            # One that does not tell is young: nobody takes it for left over.
            time_of(found.findtext("{*}Initiated", "")) or datetime.now(timezone.utc),
        )
        for found in tree.iterfind("{*}Upload")
    ]
    if tree.findtext("{*}IsTruncated") != "true":
        return page, None
    following = {
        "key-marker": unquote_plus(tree.findtext("{*}NextKeyMarker", "")),
        "upload-id-marker": tree.findtext("{*}NextUploadIdMarker", ""),
    }
    return page, {name: value for name, value in following.items() if value}
