"""Uploads in parts to S3."""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from typing_extensions import override

from providers.addresses import encode_query
from providers.checksums import parse
from providers.errors import IntegrityError, UnavailableError
from providers.s3_access import CRC32_HEADER, crc32_text
from providers.s3_client import ReadableBody
from providers.uploads import MultipartUpload, Receipt
from providers.values import UploadInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.checksums import Checksum
    from providers.errors import ProviderError
    from providers.listings import UploadsPage
    from providers.s3 import S3Provider
    from providers.values import ByteRange, ObjectInfo

__all__ = ["S3Upload", "uploads_page"]

# Codes of a whole that has not the checksum, or the size, that complete told. Source:
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html and
# userguide/checking-object-integrity-upload.html, read 2026-12-01.
_DAMAGED = frozenset({"BadDigest"})


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
    def _put_part(self, number: int, data: memoryview) -> Receipt:
        if self._s3.access.get() is None:
            clients = self._s3.clients
            checks = clients.checks(data)
            answer = clients.usual.upload_part(
                **self._names, PartNumber=number, Body=ReadableBody(data), **checks
            )
            told = self._s3.confirmed(answer, self.key, "put_part", answer)
            return self._receipt(number, told, checks.get("ChecksumCRC32"))
        query = encode_query({"partNumber": str(number), "uploadId": self._names["UploadId"]})
        sent, headers = self._s3.send_checked("put_part", self.key, {}, data, query)
        if not headers.get("ETag"):
            raise self._error(UnavailableError, "the answer has no ETag")
        told = {"ETag": headers["ETag"], "ChecksumCRC32": headers.get(CRC32_HEADER)}
        return self._receipt(number, told, sent)

    def _receipt(self, number: int, told: Mapping[str, Any], sent: str | None) -> Receipt:
        """Return the receipt of a part, whose CRC must be what was sent."""
        crc = told.get("ChecksumCRC32")
        if sent is not None and crc not in {None, sent}:
            raise self._error(
                IntegrityError,
                f"part {number} arrived damaged: its CRC-32 is {sent} here, {crc} at the service",
            )
        return Receipt(told["ETag"], parse(f"crc32:{sent or crc}"))

    def _error(self, kind: type[ProviderError], message: str) -> ProviderError:
        return kind(message, uri=self._s3.uri(self.key), operation="put_part")

    @override
    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> Receipt:
        last = byte_range.start + byte_range.length_in(source.size) - 1
        answer = self._s3.clients.patient.upload_part_copy(
            **self._names,
            PartNumber=number,
            CopySource={"Bucket": self._s3.bucket, "Key": source.key},
            CopySourceRange=f"bytes={byte_range.start}-{last}",
            CopySourceIfMatch=self._s3.pin(source, "copy_part"),
        )
        result = answer.get("CopyPartResult")
        told = self._s3.confirmed(result, self.key, "copy_part", answer)
        return self._receipt(number, told, None)

    @override
    def _complete(self, receipts: dict[int, Receipt]) -> None:
        from botocore.exceptions import ClientError

        parts = [
            {"PartNumber": number, "ETag": part.etag, **_crc32(part.checksum)}
            for number, part in receipts.items()
        ]
        try:
            answer = self._s3.clients.patient.complete_multipart_upload(
                **self._names,
                MultipartUpload={"Parts": parts},
                **self._conditions,
                **self._expected(receipts),
            )
        except ClientError as error:
            if error.response["Error"].get("Code") not in _DAMAGED:
                raise
            raise self._integrity_error(
                "what the service put together is not what was sent, and it published nothing: "
                f"the old object, if any, stands; write it anew ({error})"
            ) from error
        self._s3.confirmed(answer, self.key, "complete", answer)

    def _expected(self, receipts: dict[int, Receipt]) -> dict[str, Any]:
        """Return what the service is to compare the whole with before it publishes it."""
        if "ChecksumType" not in self._conditions:
            return {}
        return {"MpuObjectSize": self.size_bytes, **_crc32(self._checksum_of_all(receipts))}

    @override
    def _abort(self) -> None:
        self._s3.clients.usual.abort_multipart_upload(**self._names)


def _crc32(found: Checksum | None) -> dict[str, str]:
    """Return a CRC-32 as an argument of boto3; nothing, if that is not what it is."""
    if found is None or found.algorithm != "crc32":
        return {}
    return {"ChecksumCRC32": crc32_text(found)}


def uploads_page(answer: Mapping[str, Any], prefix: str) -> UploadsPage:
    """Read a page of unfinished uploads, as botocore gives it, and where the next begins."""
    # Not every store encodes keys when asked; botocore decodes those of objects only.
    decode = unquote_plus if answer.get("EncodingType") == "url" else str
    uploads = [
        UploadInfo(
            decode(found["Key"]),
            found["UploadId"],
            found["Initiated"].astimezone(timezone.utc),
        )
        for found in answer.get("Uploads", ())
    ]
    page = [upload for upload in uploads if upload.key.startswith(prefix)]
    if not answer["IsTruncated"]:
        return page, None
    following = {
        "KeyMarker": decode(answer.get("NextKeyMarker", "")),
        "UploadIdMarker": answer.get("NextUploadIdMarker"),
    }
    return page, {name: value for name, value in following.items() if value}
