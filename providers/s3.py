"""``s3://``: Amazon S3 and compatible stores, through boto3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from providers.answers import (
    error_type,
    http_date,
    parse_error_xml,
    retry_after_seconds,
    user_metadata,
)
from providers.base import Page, Provider
from providers.clients import ClientSlot
from providers.errors import AccessDeniedError, ArchivedError, ProviderError, UnavailableError
from providers.options import S3Options, TransferOptions
from providers.s3_client import Clients, content_md5, explain_sdk_error
from providers.uploads import MultipartUpload
from providers.values import ByteRange, Limits, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from providers.values import HttpRequest

__all__ = ["S3Provider"]

MIB, GIB = 1 << 20, 1 << 30

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken",
                      "TokenRefreshRequired"})  # fmt: skip
"""Codes of credentials that were good once; all come with status 400. Source:
docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, read 2026-11-30."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class S3Provider(Provider):
    """One bucket of Amazon S3 or of a store that speaks its protocol."""

    scheme: ClassVar[str] = "s3"
    options_type = S3Options
    options: S3Options
    delete_batch: ClassVar[int] = 1000  # Source: API/API_DeleteObjects.html, read 2026-11-30

    def __init__(
        self,
        bucket: str,
        options: S3Options | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        super().__init__(bucket, options, transfer)
        settings, times = self.options, self.transfer
        self._clients: ClientSlot[Clients] = ClientSlot(lambda: Clients(settings, times))

    @property
    @override
    def limits(self) -> Limits:
        # Source: docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html and
        # API/API_UploadPartCopy.html, read 2026-11-30.
        amazon = self._clients.get().amazon
        conditional, equal = self.options.conditional_put, self.options.equal_parts
        return Limits(
            min_part_bytes=5 * MIB,
            max_part_bytes=5 * GIB,
            max_parts=10_000,
            max_sources=10_000,
            min_join_bytes=5 * MIB,
            max_put_bytes=5 * GIB,
            max_copy_bytes=5 * GIB,
            conditional_put=amazon if conditional is None else conditional,
            equal_parts=not amazon if equal is None else equal,
            # Directory buckets list in no order. Source: API/API_ListObjectsV2.html.
            lists_in_order=not self.bucket.endswith("--x-s3"),
            joins_server_side=True,
        )

    @property
    def _usual(self) -> Any:
        return self._clients.get().usual

    @property
    def _patient(self) -> Any:
        return self._clients.get().patient

    @override
    def _list_page(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
        token: str | None,
    ) -> Page:
        bounds = {"StartAfter": start_after, "Delimiter": delimiter, "ContinuationToken": token}
        answer = self._usual.list_objects_v2(
            Bucket=self.bucket, Prefix=prefix, **{k: v for k, v in bounds.items() if v}
        )
        entries = [
            ObjectInfo(
                found["Key"],
                size=found["Size"],
                etag=_unquoted(found.get("ETag")),
                storage_class=found.get("StorageClass"),
                modified=found.get("LastModified"),
            )
            for found in answer.get("Contents", ())
        ]
        entries += [
            ObjectInfo(found["Prefix"], is_prefix=True)
            for found in answer.get("CommonPrefixes", ())
        ]
        return entries, answer.get("NextContinuationToken") if answer["IsTruncated"] else None

    @override
    def _head(self, key: str) -> ObjectInfo:
        answer = self._usual.head_object(Bucket=self.bucket, Key=key, **self._checksum_mode())
        return self.describe(key, answer["ResponseMetadata"]["HTTPHeaders"])

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        conditions = {} if byte_range is None else {"Range": byte_range.header}
        conditions |= _pin(if_match, "IfMatch")
        answer = self._usual.get_object(Bucket=self.bucket, Key=key, **conditions)
        body: bytes = answer["Body"].read()
        if byte_range is not None:
            self._check_range(key, byte_range, answer.get("ContentRange"), len(body))
        return body

    def _check_range(self, key: str, asked: ByteRange, answered: str | None, length: int) -> None:
        """Refuse the whole object, or another range, in place of the range asked for."""
        found = _CONTENT_RANGE.fullmatch(answered or "")
        if found:
            start, last = int(found[1]), int(found[2])
            size = last + 1 if found[3] == "*" else int(found[3])
            if start == asked.start and last + 1 - start == length == asked.length_in(size):
                return
        raise UnavailableError(
            f"asked for {asked.header}, the answer holds {length} bytes of {answered!r}",
            uri=self.uri(key),
            operation="get",
        )

    def digest(self, data: Any) -> dict[str, str]:
        """Return what lets the store check a body: MD5 unless the SDK sends its CRC."""
        return {} if self._clients.get().checksums else {"ContentMD5": content_md5(data)}

    def _checksum_mode(self) -> dict[str, str]:
        return {"ChecksumMode": "ENABLED"} if self._clients.get().checksums else {}

    @override
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        answer = self._usual.put_object(
            Bucket=self.bucket,
            Key=key,
            Body=bytes(data),
            Metadata=dict(metadata),
            **self.digest(data),
            **condition,
        )
        user, write_id = user_metadata(metadata)
        return ObjectInfo(
            key,
            size=data.nbytes,
            etag=_unquoted(answer.get("ETag")),
            version=answer.get("VersionId"),
            metadata=user,
            write_id=write_id,
        )

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        answer = self._usual.create_multipart_upload(
            Bucket=self.bucket, Key=key, Metadata=dict(metadata)
        )
        return _S3Upload(self, key, write_id, answer["UploadId"], if_absent=if_absent)

    @override
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        answer = self._patient.copy_object(
            Bucket=self.bucket,
            Key=destination,
            CopySource={"Bucket": self.bucket, "Key": source.key},
            **_pin(source, "CopySourceIfMatch"),
        )
        return ObjectInfo(
            destination,
            size=source.size,
            etag=_unquoted(answer["CopyObjectResult"].get("ETag")),
            version=answer.get("VersionId"),
            metadata=source.metadata,
        )

    @override
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        answer = self._usual.delete_objects(
            Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
        )
        return [
            self._error("delete", failed["Key"], 200, failed["Code"], failed["Message"], {})
            for failed in answer.get("Errors", ())
            if failed.get("Code") != "NoSuchKey"
        ]

    # ---- Readers of answers --------------------------------------------------------------

    @override
    def explain(
        self, request: HttpRequest | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        fields = parse_error_xml(body)
        return self._error(
            "get", fields.get("Key", ""), status, fields.get("Code"), fields.get("Message", ""),
            headers, fields.get("StorageClass"),
        )  # fmt: skip

    @override
    def describe(self, key: str, headers: Mapping[str, str]) -> ObjectInfo:
        lower = {name.lower(): value for name, value in headers.items()}
        mark = "x-amz-meta-"
        user, write_id = user_metadata(
            {name[len(mark) :]: value for name, value in lower.items() if name.startswith(mark)}
        )
        span = _CONTENT_RANGE.fullmatch(lower.get("content-range", ""))
        whole = span[3] if span and span[3] != "*" else lower.get("content-length", "0")
        return ObjectInfo(
            key,
            size=int(whole),
            etag=_unquoted(lower.get("etag")),
            version=lower.get("x-amz-version-id"),
            checksum=_checksum(lower),
            storage_class=lower.get("x-amz-storage-class", "STANDARD"),
            modified=http_date(lower.get("last-modified")),
            metadata=user,
            write_id=write_id,
        )

    @override
    def recover(self, error: ProviderError) -> bool:
        literal = self.options.access_key_id is not None or self.options.anonymous
        # A HEAD has no body to hold a code; expired credentials answer it with a bare 400.
        bare = error.operation == "head" and error.status == 400 and error.code in {"400", None}  # noqa: PLR2004 HTTP's own
        if literal or not (error.code in _EXPIRED or bare):
            return False
        self._clients.drop()
        return True

    @override
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        from botocore.exceptions import ClientError

        if not isinstance(error, ClientError):
            return explain_sdk_error(error, self.uri(key), operation)
        answer = error.response.get("ResponseMetadata", {})
        told = error.response.get("Error", {})
        return self._error(
            operation, key, answer.get("HTTPStatusCode", 0), told.get("Code"),
            told.get("Message", ""), answer.get("HTTPHeaders", {}), told.get("StorageClass"),
        )  # fmt: skip

    def _error(
        self,
        operation: str,
        key: str,
        status: int,
        code: str | None,
        message: str,
        headers: Mapping[str, str],
        storage_class: str | None = None,
    ) -> ProviderError:
        """Make the error of an answer, whichever client received it."""
        kind = error_type(status, code)
        lower = {name.lower(): value for name, value in headers.items()}
        if kind is AccessDeniedError and code in _EXPIRED:
            message = f"the credentials have expired: {message}"
        if kind is ArchivedError:
            message = f"the object lies in {storage_class or 'an archive class'}; restore it first"
        if status == 404 and operation == "head":  # noqa: PLR2004 HTTP's own
            message = "there is no such object, or no such bucket"
        if "x-amz-bucket-region" in lower and status in {301, 400}:
            message = f"{message}; the bucket is in {lower['x-amz-bucket-region']} (option region)"
        return kind(
            message or "the store refused the request",
            uri=self.uri(key),
            operation=operation,
            status=status,
            code=code,
            request_id=lower.get("x-amz-request-id"),
            retry_after_seconds=retry_after_seconds(lower),
        )


class _S3Upload(MultipartUpload):
    def __init__(
        self, provider: S3Provider, key: str, write_id: str, upload_id: str, *, if_absent: bool
    ) -> None:
        super().__init__(provider, key, write_id)
        self._s3 = provider
        self._condition = {"IfNoneMatch": "*"} if if_absent else {}
        self._names = {"Bucket": provider.bucket, "Key": key, "UploadId": upload_id}

    @override
    def _put_part(self, number: int, data: memoryview) -> str:
        answer = self._s3._usual.upload_part(  # noqa: SLF001 its own provider's client
            **self._names, PartNumber=number, Body=bytes(data), **self._s3.digest(data)
        )
        etag: str = answer["ETag"]
        return etag

    @override
    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> str:
        answer = self._s3._patient.upload_part_copy(  # noqa: SLF001 the same
            **self._names,
            PartNumber=number,
            CopySource={"Bucket": self._s3.bucket, "Key": source.key},
            CopySourceRange=byte_range.header,
            **_pin(source, "CopySourceIfMatch"),
        )
        etag: str = answer["CopyPartResult"]["ETag"]
        return etag

    @override
    def _complete(self, receipts: dict[int, str]) -> None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in receipts.items()]
        self._s3._patient.complete_multipart_upload(  # noqa: SLF001 the same
            **self._names, MultipartUpload={"Parts": parts}, **self._condition
        )

    @override
    def _abort(self) -> None:
        self._s3._usual.abort_multipart_upload(**self._names)  # noqa: SLF001 the same


def _pin(info: ObjectInfo | None, name: str) -> dict[str, str]:
    return {name: f'"{info.etag}"'} if info is not None and info.etag else {}


def _unquoted(etag: str | None) -> str | None:
    return etag.strip('"') if etag else None


def _checksum(headers: Mapping[str, str]) -> str | None:
    """Return the checksum of the whole object, which a COMPOSITE one is not."""
    if headers.get("x-amz-checksum-type") == "COMPOSITE":
        return None
    for name in ("crc64nvme", "crc32c", "crc32", "sha256", "sha1"):
        if value := headers.get(f"x-amz-checksum-{name}"):
            return f"{name}:{value}"
    return None
