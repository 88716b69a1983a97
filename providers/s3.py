"""``s3://``: Amazon S3 and compatible stores, through boto3."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, cast

from typing_extensions import override

from providers.addresses import key_in
from providers.answers import SKEWED, parse_error_xml, user_metadata
from providers.clients import ClientSlot
from providers.errors import (
    IntegrityError,
    ProviderError,
    ServiceError,
    UnavailableError,
    UnsupportedError,
)
from providers.http_provider import HttpProvider, operation_of
from providers.options import S3Options, TransferOptions
from providers.s3_access import CRC32_HEADER, S3Access, protected
from providers.s3_answers import (
    EXPIRED,
    MISPLACED,
    describe,
    error_of_answer,
    expected_bytes,
    listed,
    unquoted,
)
from providers.s3_client import Clients, ReadableBody, is_directory, is_of_amazon, open_clients
from providers.s3_errors import headers_of, told_region, translate
from providers.s3_storing import storing_arguments, storing_headers
from providers.s3_uploads import S3Upload, uploads_page
from providers.values import ByteRange, Limits, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from providers.access import Access
    from providers.listings import Page, UploadsPage
    from providers.uploads import MultipartUpload
    from providers.values import HttpRequest, UploadInfo

__all__ = ["S3Provider"]

_MIB, _GIB = 1 << 20, 1 << 30

_REDIRECTS = frozenset({HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.TEMPORARY_REDIRECT})

_log = logging.getLogger(__name__)


class S3Provider(HttpProvider):
    """One bucket of Amazon S3 or of a store that speaks its protocol."""

    scheme: ClassVar[str] = "s3"
    options_type = S3Options
    options: S3Options
    pins_by_etag: ClassVar[bool] = True
    # Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html,
    # read 2026-11-30.
    delete_batch: ClassVar[int] = 1000

    def __init__(
        self,
        bucket: str,
        options: S3Options | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        super().__init__(bucket, options, transfer)
        self._told_region: str | None = None
        self._reopen()

    def _reopen(self) -> None:
        """Have the next request open new clients; those under way keep theirs."""
        self._slot: ClientSlot[Clients] = ClientSlot(
            partial(open_clients, self.bucket, self.options, self.transfer, self.clock)
        )
        self.access.drop()

    @property
    def clients(self) -> Clients:
        """This process's boto3 clients."""
        return self._slot.get()

    @property
    @override
    def limits(self) -> Limits:
        # Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html and
        # API/API_CopyObject.html, API/API_UploadPartCopy.html; read 2026-11-30.
        named = self.options.endpoint
        amazon = is_of_amazon(named) if named else self.clients.amazon
        conditional, equal = self.options.conditional_put, self.options.equal_parts
        return Limits(
            min_part_bytes=5 * _MIB,
            max_part_bytes=5 * _GIB,
            max_parts=10_000,
            max_sources=10_000,
            min_join_bytes=5 * _MIB,
            max_put_bytes=5 * _GIB,
            max_copy_bytes=5 * _GIB,
            conditional_put=amazon if conditional is None else conditional,
            equal_parts=not amazon if equal is None else equal,
            # Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html,
            # read 2026-11-30.
            lists_in_order=not is_directory(self.bucket),
            joins_server_side=True,
        )

    # ---- Reading -------------------------------------------------------------------------

    @override
    def _list_page(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
        token: str | None,
    ) -> Page:
        whole = prefix
        if is_directory(self.bucket):
            # These know no start, and prefixes of whole segments only. Source:
            # https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html,
            # read 2026-12-01.
            if delimiter not in {None, "", "/"}:
                raise UnsupportedError(
                    "only '/' delimits in S3 Express buckets",
                    uri=self.uri(prefix),
                    operation="list",
                )
            whole, start_after = prefix[: prefix.rfind("/") + 1], None
        place = {"ContinuationToken": token} if token else {"StartAfter": start_after}
        bounds = {"Delimiter": delimiter, **place}
        answer = self.clients.usual.list_objects_v2(
            Bucket=self.bucket, Prefix=whole, **{k: v for k, v in bounds.items() if v}
        )
        # Another document, of something on the way, would read as "no objects".
        if "IsTruncated" not in answer:
            raise self._unclear(prefix, "list", "ListBucketResult", answer)
        prefixes = answer.get("CommonPrefixes", ())
        page = [
            entry
            for entry in chain(
                map(listed, answer.get("Contents", ())),
                (ObjectInfo(found["Prefix"], is_prefix=True) for found in prefixes),
            )
            if entry.key.startswith(prefix)
        ]
        following = answer.get("NextContinuationToken")
        if not answer["IsTruncated"]:
            return page, None
        if not following or following == token:
            raise ServiceError(
                "the listing goes on, and the answer does not say where",
                uri=self.uri(prefix),
                operation="list",
            )
        return page, following

    @override
    def _head(self, key: str) -> ObjectInfo:
        clients = self.clients
        mode = {"ChecksumMode": "ENABLED"} if clients.checksums else {}
        answer = clients.usual.head_object(Bucket=self.bucket, Key=key, **mode)
        if "ContentLength" not in answer:
            # Taken for empty, an object would be left out of a compose.
            raise ServiceError(
                "the answer does not tell the object's size", uri=self.uri(key), operation="head"
            )
        return self.describe(key, _headers(answer))

    @override
    def _find_access(self, renewing: bool) -> Access | None:
        if is_directory(self.bucket):
            # Their keys are of sessions that only botocore opens.
            _log.warning("%s is of S3 Express, which is read through boto3: slower", self.uri())
            return None
        return self.clients.access()

    @override
    def _read_headers(
        self, byte_range: ByteRange | None, if_match: ObjectInfo | None
    ) -> Mapping[str, str]:
        headers = {} if byte_range is None else {"Range": byte_range.header}
        if if_match is not None:
            headers["If-Match"] = self.pin(if_match, "get")
        return headers

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        if self.access.get() is not None:
            return super()._get(key, byte_range, if_match)
        conditions = {} if byte_range is None else {"Range": byte_range.header}
        if if_match is not None:
            conditions["IfMatch"] = self.pin(if_match, "get")
        answer = self.clients.usual.get_object(Bucket=self.bucket, Key=key, **conditions)
        headers = _headers(answer)
        with closing(answer["Body"]) as stream:
            wanted = expected_bytes(self.uri(key), headers, byte_range)
            body: bytes = stream.read()
        if len(body) != wanted:
            raise UnavailableError(
                f"{len(body)} of {wanted} bytes came", uri=self.uri(key), operation="get"
            )
        return body

    def pin(self, info: ObjectInfo, operation: str) -> str:
        """Return the condition that an object is still the one described."""
        if not info.etag:
            raise self.limit_error(
                operation, info.key, "the version to pin to has no etag; describe it by head"
            )
        return f'"{info.etag}"'

    # ---- Writing -------------------------------------------------------------------------

    @override
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        told = self.describe(key, self._store(key, data, if_absent, metadata))
        user, write_id = user_metadata(metadata)
        return ObjectInfo(
            key,
            size=data.nbytes,
            etag=told.etag,
            version=told.version,
            checksum=told.checksum,
            metadata=user,
            write_id=write_id,
        )

    def _store(
        self, key: str, data: memoryview, if_absent: bool, metadata: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Send a put and return the headers of its answer."""
        if self.access.get() is None:
            clients = self.clients
            answer = clients.usual.put_object(
                Bucket=self.bucket,
                Key=key,
                Body=_body(data),
                Metadata=dict(metadata),
                **storing_arguments(self.options),
                **clients.checks(data),
                **_condition(if_absent),
            )
            return _headers(answer)
        headers = {f"x-amz-meta-{name}": value for name, value in metadata.items()}
        headers |= storing_headers(self.options)
        if if_absent:
            headers["If-None-Match"] = "*"
        return self.send_checked("put", key, headers, data)[1]

    def send_checked(
        self, operation: str, key: str, headers: dict[str, str], data: memoryview, query: str = ""
    ) -> tuple[str | None, Mapping[str, str]]:
        """Send a body that the store checks: by a CRC, by its signature, or by an MD5.

        Returns:
            the CRC-32 that was sent, if one was, and the headers of the answer.
        """
        access = cast("S3Access", self.access.access)
        protection, payload_hash = protected(data, access)
        sent = {**headers, **protection}
        answer = self.send_body(operation, key, sent, data, query, payload_hash)
        return protection.get(CRC32_HEADER), answer.headers

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        clients = self.clients
        checks = {"ChecksumAlgorithm": "CRC32"} if clients.checksums else {}
        # Directory buckets give the type of the whole object's checksum themselves.
        kind = {"ChecksumType": "FULL_OBJECT"} if checks and not is_directory(self.bucket) else {}
        answer = clients.usual.create_multipart_upload(
            Bucket=self.bucket,
            Key=key,
            Metadata=dict(metadata),
            **storing_arguments(self.options),
            **checks,
            **kind,
        )
        if "UploadId" not in answer:
            raise self._unclear(key, "start_multipart", "InitiateMultipartUploadResult", answer)
        conditions = {**kind, **_condition(if_absent)}
        return S3Upload(self, key, write_id, answer["UploadId"], conditions)

    @override
    def _uploads_page(self, prefix: str, token: Any) -> UploadsPage:
        # Directory buckets know prefixes of whole segments only.
        whole = prefix[: prefix.rfind("/") + 1] if is_directory(self.bucket) else prefix
        answer = self.clients.usual.list_multipart_uploads(
            Bucket=self.bucket,
            Prefix=whole,
            # XML has no form for control characters.
            EncodingType="url",
            MaxUploads=self.uploads_page_size,
            **(token or {}),
        )
        if "IsTruncated" not in answer:
            raise self._unclear(prefix, "list_uploads", "ListMultipartUploadsResult", answer)
        return uploads_page(answer, prefix)

    @override
    def _abort_upload(self, upload: UploadInfo) -> None:
        self.clients.usual.abort_multipart_upload(
            Bucket=self.bucket, Key=upload.key, UploadId=upload.upload_id
        )

    @override
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        answer = self.clients.patient.copy_object(
            Bucket=self.bucket,
            Key=destination,
            CopySource={"Bucket": self.bucket, "Key": source.key},
            CopySourceIfMatch=self.pin(source, "copy"),
            **storing_arguments(self.options),
        )
        result = self.confirmed(answer.get("CopyObjectResult"), destination, "copy", answer)
        return ObjectInfo(
            destination,
            size=source.size,
            etag=unquoted(result["ETag"]),
            version=answer.get("VersionId"),
            metadata=source.metadata,
            write_id=source.write_id,
        )

    @override
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        client = self.clients.usual
        left = dict.fromkeys(keys)
        # XML has no form for control characters, and turns CR into LF.
        for key in [key for key in left if not _fits_xml(key)]:
            client.delete_object(Bucket=self.bucket, Key=key)
            del left[key]
        if not left:
            return []
        answer = client.delete_objects(
            Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in left]}
        )
        failed = answer.get("Errors", ())
        if len(answer.get("Deleted", ())) + len(failed) < len(left):
            raise self._unclear(next(iter(left)), "delete", "DeleteResult", answer)
        errors = [
            error_of_answer(self.uri(fields.get("Key", "")), "delete", HTTPStatus.OK, {}, fields)
            for fields in failed
            if fields.get("Code") != "NoSuchKey"
        ]
        # What the service failed to delete for now is asked for again, with the whole batch.
        for error in errors:
            if error.retryable:
                raise error
        return errors

    def confirmed(
        self, result: Any, key: str, operation: str, answer: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return a result that is a success only if the body says so, by an ETag."""
        if not result or not result.get("ETag"):
            raise self._unclear(key, operation, "result", answer)
        return dict(result)

    def _unclear(
        self, key: str, operation: str, expected: str, answer: Mapping[str, Any]
    ) -> ProviderError:
        """Return the error of a success that does not say what it should."""
        told = answer["ResponseMetadata"]
        return UnavailableError(
            f"the answer is no whole {expected}",
            uri=self.uri(key),
            operation=operation,
            status=told["HTTPStatusCode"],
            request_id=told.get("RequestId"),
        )

    # ---- Answers -------------------------------------------------------------------------

    @override
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        explained = translate(error, self.uri(key), operation)
        if explained is not None and (
            explained.code == SKEWED or _is_bare(explained, HTTPStatus.FORBIDDEN)
        ):
            self.note_time(headers_of(error))
        return explained

    @override
    def explain(
        self, request: HttpRequest | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        uri = self.uri(key_in(request.url, self.bucket) if request else "")
        operation = operation_of(request)
        fields = parse_error_xml(body)
        error = error_of_answer(uri, operation, status, headers, fields)
        if error.code == SKEWED:
            self.note_time(headers)
        self._told_region = next(
            (value for name, value in headers.items() if name.lower() == "x-amz-bucket-region"),
            fields.get("Region"),
        )
        return error

    @override
    def describe(self, key: str, headers: Mapping[str, str]) -> ObjectInfo:
        return describe(key, headers)

    @override
    def recover(self, error: ProviderError) -> bool:
        if isinstance(error, IntegrityError):
            # Damage on the way passes with one more try, damage in the store does not.
            return error.operation in {"get", "put_part"}
        if error.code == SKEWED or (
            _is_bare(error, HTTPStatus.FORBIDDEN) and self.clock.is_far_off
        ):
            return self.clock.correct()
        # Either cause looks like this.
        bare = _is_bare(error, HTTPStatus.BAD_REQUEST)
        if error.code in MISPLACED or error.status in _REDIRECTS or bare:
            region = self._find_region(error)
            if region not in {None, self.clients.region}:
                self.options = self.options.model_copy(update={"region": region})
                self._reopen()
                return True
        if not (error.code in EXPIRED or bare) or not self.clients.refreshable:
            return False
        self.access.renew(self._reopen)
        return True

    def _find_region(self, error: ProviderError) -> str | None:
        """Return the bucket's region, if the error or the answer to a question tells it."""
        from botocore.exceptions import BotoCoreError, ClientError

        if region := told_region(error.__cause__) or self._told_region:
            return region
        try:
            answer = self.clients.usual.head_bucket(Bucket=self.bucket)
        except ClientError as refusal:
            return told_region(refusal)
        except BotoCoreError:
            # The error in hand says more than that asking about it failed.
            return None
        return _headers(answer).get("x-amz-bucket-region")


def _headers(answer: Mapping[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
    return headers


def _is_bare(error: ProviderError, status: int) -> bool:
    """Whether it is the answer to a HEAD, which has no body to hold a code."""
    return error.operation == "head" and error.code is None and error.status == status


def _may_be_skewed(error: ProviderError) -> bool:
    return error.code == SKEWED or _is_bare(error, HTTPStatus.FORBIDDEN)


def _body(data: memoryview) -> ReadableBody | bytes:
    return ReadableBody(data) if data.nbytes else b""


def _condition(if_absent: bool) -> dict[str, str]:
    return {"IfNoneMatch": "*"} if if_absent else {}


def _fits_xml(key: str) -> bool:
    return not any(letter < " " or letter in "\ufffe\uffff" for letter in key)
