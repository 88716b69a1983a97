"""Uploads in parts to OSS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from providers.addresses import encode_query
from providers.checksums import parse
from providers.errors import UnavailableError
from providers.oss_answers import Subject, verify
from providers.uploads import MultipartUpload, Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.oss import OSSProvider
    from providers.oss_client import OSSClient
    from providers.values import ByteRange, ObjectInfo

__all__ = ["OSSUpload"]


class OSSUpload(MultipartUpload):
    """Parts of one object in one bucket.

    Args:
        provider: the bucket.
        key: the object's.
        write_id: its mark.
        upload_id: the service's name for the upload.
        conditions: what is sent with its completion.
    """

    def __init__(
        self,
        provider: OSSProvider,
        key: str,
        write_id: str,
        upload_id: str,
        conditions: Mapping[str, str],
    ) -> None:
        super().__init__(provider, key, write_id)
        self._oss = provider
        self._upload_id = upload_id
        self._conditions = conditions

    @property
    def _client(self) -> OSSClient:
        return self._oss.client

    def _subject(self, operation: str) -> Subject:
        return Subject(self._oss.uri(self.key), operation)

    @override
    def _put_part(self, number: int, data: memoryview) -> Receipt:
        query = encode_query({"partNumber": str(number), "uploadId": self._upload_id})
        answer = self._oss.send_body("put_part", self.key, {}, data, query)
        subject = self._subject("put_part")
        verify(subject, answer.headers, data)
        etag = answer.headers.get("ETag")
        if not etag:
            raise subject.error(UnavailableError, "the answer has no ETag")
        told = answer.headers.get("x-oss-hash-crc64ecma")
        return Receipt(etag.strip('"'), parse(f"crc64ecma:{told}"))

    @override
    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> Receipt:
        last = byte_range.start + byte_range.length_in(source.size) - 1
        answer = self._client.patient.upload_part_copy(
            self._oss.bucket,
            source.key,
            (byte_range.start, last),
            self.key,
            self._upload_id,
            number,
            headers={"x-oss-copy-source-if-match": self._oss.pin(source, "copy_part")},
        )
        fields = self._oss.confirmed(answer, self._subject("copy_part"), "CopyPartResult")
        # Of a copied part the service tells none.
        whole = byte_range.length_in(source.size) == source.size
        return Receipt(fields.get("ETag", "").strip('"'), parse(source.checksum) if whole else None)

    @override
    def _complete(self, receipts: dict[int, Receipt]) -> None:
        from oss2.models import PartInfo

        parts = [PartInfo(number, part.etag) for number, part in receipts.items()]
        answer = self._client.patient.complete_multipart_upload(
            self.key, self._upload_id, parts, headers=dict(self._conditions)
        )
        self._oss.confirmed(answer, self._subject("complete"), "CompleteMultipartUploadResult")

    @override
    def _abort(self) -> None:
        # Unread, even an empty answer keeps its connection from the next request.
        self._client.bucket.abort_multipart_upload(self.key, self._upload_id).resp.read()
