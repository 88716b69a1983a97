"""Uploads in parts to S3."""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from providers.addresses import encode_query
from providers.errors import UnavailableError
from providers.s3_client import ReadableBody
from providers.uploads import MultipartUpload
from providers.values import UploadInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.base import UploadsPage
    from providers.s3 import S3Provider
    from providers.values import ByteRange, ObjectInfo

__all__ = ["S3Upload", "uploads_page"]


class S3Upload(MultipartUpload):
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
        provider: S3Provider,
        key: str,
        write_id: str,
        upload_id: str,
        conditions: Mapping[str, str],
    ) -> None:
        super().__init__(provider, key, write_id)
        self._s3 = provider
        self._names = {"Bucket": provider.bucket, "Key": key, "UploadId": upload_id}
        self._conditions = conditions

    @override
    def _put_part(self, number: int, data: memoryview) -> dict[str, str]:
        if self._s3.access.get() is None:
            clients = self._s3.clients
            answer = clients.usual.upload_part(
                **self._names, PartNumber=number, Body=ReadableBody(data), **clients.digest(data)
            )
            return self._receipt(answer, "put_part", answer)
        query = encode_query({"partNumber": str(number), "uploadId": self._names["UploadId"]})
        headers = self._s3.send_checked("put_part", self.key, {}, data, query).headers
        if not headers.get("ETag"):
            raise UnavailableError(
                "the answer has no ETag", uri=self._s3.uri(self.key), operation="put_part"
            )
        receipt = {"ETag": headers["ETag"]}
        if crc := headers.get("x-amz-checksum-crc32"):
            receipt["ChecksumCRC32"] = crc
        return receipt

    @override
    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> dict[str, str]:
        last = byte_range.start + byte_range.length_in(source.size) - 1
        answer = self._s3.clients.patient.upload_part_copy(
            **self._names,
            PartNumber=number,
            CopySource={"Bucket": self._s3.bucket, "Key": source.key},
            CopySourceRange=f"bytes={byte_range.start}-{last}",
            CopySourceIfMatch=self._s3.pin(source, "copy_part"),
        )
        return self._receipt(answer.get("CopyPartResult"), "copy_part", answer)

    def _receipt(self, result: Any, operation: str, answer: Mapping[str, Any]) -> dict[str, str]:
        told = self._s3.confirmed(result, self.key, operation, answer)
        return {name: told[name] for name in ("ETag", "ChecksumCRC32") if name in told}

    @override
    def _complete(self, receipts: dict[int, dict[str, str]]) -> None:
        parts = [{"PartNumber": number, **receipt} for number, receipt in receipts.items()]
        answer = self._s3.clients.patient.complete_multipart_upload(
            **self._names, MultipartUpload={"Parts": parts}, **self._conditions
        )
        self._s3.confirmed(answer, self.key, "complete", answer)

    @override
    def _abort(self) -> None:
        self._s3.clients.usual.abort_multipart_upload(**self._names)


def uploads_page(answer: Mapping[str, Any], prefix: str) -> UploadsPage:
    """Read a page of unfinished uploads, as botocore gives it, and where the next begins."""
    page = [
        UploadInfo(found["Key"], found["UploadId"], found["Initiated"].astimezone(timezone.utc))
        for found in answer.get("Uploads", ())
        if found["Key"].startswith(prefix)
    ]
    if not answer["IsTruncated"]:
        return page, None
    marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
    return page, {name: answer[told] for name, told in marks.items() if answer.get(told)}
