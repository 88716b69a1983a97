"""``oss://``: Alibaba Cloud OSS, through oss2."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timezone
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from typing_extensions import override

from providers.addresses import key_in
from providers.answers import SKEWED, user_metadata
from providers.clients import ClientSlot
from providers.errors import IntegrityError, ProviderError, ServiceError
from providers.http_provider import HttpProvider, operation_of
from providers.options import OSSOptions, TransferOptions
from providers.oss_access import OSSAccess, bucket_address
from providers.oss_answers import (
    METADATA_PREFIX,
    Subject,
    confirm,
    describe,
    error_of_answer,
    fields_of,
    verify,
)
from providers.oss_client import (
    OSSClient,
    environment_credentials,
    find_credentials,
    is_of_the_vendor,
    open_client,
    resolved,
)
from providers.oss_errors import fields_of_sdk, translate
from providers.oss_regions import relocated
from providers.oss_uploads import OSSUpload
from providers.values import ByteRange, Limits, ObjectInfo, UploadInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from providers.listings import Page, UploadsPage
    from providers.uploads import MultipartUpload
    from providers.values import HttpRequest

__all__ = ["OSSProvider"]

_GB = 10**9
"""The pages say GB; the smaller reading is safe in both senses."""

# Codes of temporary credentials that were good once.
# Source: https://help.aliyun.com/zh/oss/support/http-status-code-overview, read 2026-11-30.
_EXPIRED = frozenset({"SecurityTokenExpired", "InvalidSecurityToken", "InvalidAccessKeyId"})

_FORBID_OVERWRITE: Mapping[str, str] = MappingProxyType({"x-oss-forbid-overwrite": "true"})
# Without it a range that does not fit is ignored and the whole object comes.
# Source: https://help.aliyun.com/zh/oss/developer-reference/getobject, read 2026-11-30.
_STANDARD_RANGES: Mapping[str, str] = MappingProxyType({"x-oss-range-behavior": "standard"})


class OSSProvider(HttpProvider):
    """One bucket of Alibaba Cloud OSS or of a store that speaks its protocol."""

    scheme: ClassVar[str] = "oss"
    options_type = OSSOptions
    options: OSSOptions
    pins_by_etag: ClassVar[bool] = True
    # Source: https://help.aliyun.com/zh/oss/developer-reference/deletemultipleobjects,
    # read 2026-11-30.
    delete_batch: ClassVar[int] = 1000
    max_key_bytes: ClassVar[int] = 1023

    def __init__(
        self,
        bucket: str,
        options: OSSOptions | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        super().__init__(bucket, options, transfer)
        self.options = resolved(self.options, bucket)
        self._told: Mapping[str, str] = {}
        self._slot: ClientSlot[OSSClient] = ClientSlot(
            lambda: open_client(
                bucket,
                self.options,
                self.transfer,
                self.connection,
                self._current_access,
                self.clock,
            )
        )

    @property
    def client(self) -> OSSClient:
        """This process's client, with the credentials that reads are signed with."""
        client = self._slot.get()
        if client.credentials != self._current_access().credentials:
            self._slot.drop()
            client = self._slot.get()
        return client

    @property
    @override
    def limits(self) -> Limits:
        # Source: https://help.aliyun.com/zh/oss/user-guide/limits and, for the single calls,
        # developer-reference/putobject, uploadpart, copyobject; read 2026-11-30.
        vendor = is_of_the_vendor(self.options)
        conditional, equal = self.options.conditional_put, self.options.equal_parts
        return Limits(
            min_part_bytes=100 * 1024,
            max_part_bytes=5 * _GB,
            max_parts=10_000,
            max_sources=10_000,
            min_join_bytes=100 * 1024,
            max_put_bytes=5 * _GB,
            max_copy_bytes=_GB - 1,
            conditional_put=vendor if conditional is None else conditional,
            equal_parts=not vendor if equal is None else equal,
            lists_in_order=True,
            joins_server_side=True,
        )

    @override
    def check_key(self, key: str, operation: str) -> None:
        super().check_key(key, operation)
        if key[0] in "/\\":
            raise self.limit_error(operation, key, "a key on OSS begins with neither '/' nor '\\'")
        if key in {".", ".."}:
            raise self.limit_error(
                operation, key, "HTTP clients fold a path that ends in this key; choose another"
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
        answer = self.client.bucket.list_objects_v2(
            prefix=prefix,
            delimiter=delimiter or "",
            continuation_token=token or "",
            start_after="" if token else start_after or "",
            max_keys=1000,
        )
        prefixes = (ObjectInfo(name, is_prefix=True) for name in answer.prefix_list)
        page = list(chain(map(_listed, answer.object_list), prefixes))
        if not answer.is_truncated:
            return page, None
        if not answer.next_continuation_token:
            raise ServiceError(
                "the listing goes on, and the answer does not say where",
                uri=self.uri(prefix),
                operation="list",
                request_id=answer.request_id,
            )
        return page, answer.next_continuation_token

    @override
    def _head(self, key: str) -> ObjectInfo:
        headers = self.client.bucket.head_object(key).headers
        if "Content-Length" not in headers:
            # Taken for empty, an object would be left out of a compose.
            raise ServiceError(
                "the answer does not tell the object's size", uri=self.uri(key), operation="head"
            )
        return describe(key, headers)

    @override
    def _find_access(self, renewing: bool) -> OSSAccess:
        options = self.options
        return OSSAccess(
            self.bucket,
            bucket_address(options.endpoint or "", self.bucket, cname=options.cname),
            options.region,
            options.signature_version,
            None if options.anonymous else find_credentials(options, self.bucket),
        )

    def _current_access(self) -> OSSAccess:
        """Return what every request is signed with, whoever sends it."""
        self.access.get()
        return cast("OSSAccess", self.access.access)

    @override
    def _read_headers(
        self, byte_range: ByteRange | None, if_match: ObjectInfo | None
    ) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        if byte_range is not None:
            headers = {**_STANDARD_RANGES, "Range": byte_range.header}
        if if_match is not None:
            headers["If-Match"] = self.pin(if_match, "get")
        return headers

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
        # Unlike the CRC-64, which comes with the answer, the MD5 is checked before the old
        # object is replaced.
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        headers = {**self._new_object(metadata), "Content-MD5": base64.b64encode(digest).decode()}
        if if_absent:
            headers |= _FORBID_OVERWRITE
        answer = self.send_body("put", key, headers, data)
        verify(Subject(self.uri(key), "put"), answer.headers, data)
        user, write_id = user_metadata(metadata)
        told = describe(key, answer.headers)
        return ObjectInfo(
            key,
            size=data.nbytes,
            etag=told.etag,
            version=told.version,
            checksum=told.checksum,
            metadata=user,
            write_id=write_id,
        )

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        extra = _FORBID_OVERWRITE if if_absent else {}
        headers = {**self._new_object(metadata), **extra}
        answer = self.client.bucket.init_multipart_upload(key, headers=headers)
        return OSSUpload(self, key, write_id, answer.upload_id, extra)

    def _new_object(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that say how a new object is to be kept, and what with it."""
        # Source: https://help.aliyun.com/zh/oss/developer-reference/putobject, copyobject and
        # initiatemultipartupload, read 2026-12-01.
        told = {
            "x-oss-storage-class": self.options.storage_class,
            "x-oss-server-side-encryption": self.options.sse,
            "x-oss-server-side-encryption-key-id": self.options.sse_kms_key_id,
        }
        named = {f"{METADATA_PREFIX}{name}": value for name, value in metadata.items()}
        return {**named, **{name: value for name, value in told.items() if value is not None}}

    @override
    def _uploads_page(self, prefix: str, token: Any) -> UploadsPage:
        answer = self.client.bucket.list_multipart_uploads(
            prefix=prefix, max_uploads=self.uploads_page_size, **(token or {})
        )
        page = [
            UploadInfo(
                found.key,
                found.upload_id,
                datetime.fromtimestamp(found.initiation_date, timezone.utc),
            )
            for found in answer.upload_list
        ]
        if not answer.is_truncated:
            return page, None
        following = {
            "key_marker": answer.next_key_marker,
            "upload_id_marker": answer.next_upload_id_marker,
        }
        return page, {name: value for name, value in following.items() if value}

    @override
    def _abort_upload(self, upload: UploadInfo) -> None:
        # Unread, even an empty answer keeps its connection from the next request.
        self.client.bucket.abort_multipart_upload(upload.key, upload.upload_id).resp.read()

    @override
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        answer = self.client.patient.copy_object(
            self.bucket,
            source.key,
            destination,
            headers={
                **self._new_object({}),
                "x-oss-copy-source-if-match": self.pin(source, "copy"),
            },
        )
        subject = Subject(self.uri(destination), "copy")
        self.confirmed(answer, subject, "CopyObjectResult")
        return self._head(destination)

    @override
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        bucket = self.client.bucket
        left = set(keys)
        # XML has no form for control characters, and turns CR into LF.
        for key in [key for key in left if not _fits_xml(key)]:
            bucket.delete_object(key).resp.read()
            left.remove(key)
        if not left:
            return []
        deleted = bucket.batch_delete_objects(sorted(left)).deleted_keys
        return [
            ServiceError(
                "the service does not say that it deleted it", uri=self.uri(key), operation="delete"
            )
            for key in sorted(left.difference(deleted))
        ]

    def confirmed(self, answer: Any, subject: Subject, root: str) -> dict[str, str]:
        """Return the fields of an answer that is a success only if its body says so."""
        return confirm(subject, answer.status, answer.headers, answer.resp.read(), root)

    # ---- Answers -------------------------------------------------------------------------

    @override
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        self._told = fields_of_sdk(error)
        subject = Subject(self.uri(key), operation)
        explained = translate(error, subject, self.options.endpoint or "")
        if explained is not None and explained.code == SKEWED:
            self.note_time(getattr(error, "headers", {}))
        return explained

    @override
    def explain(
        self, request: HttpRequest | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        key = key_in(request.url, self.bucket, bound=self.options.cname) if request else ""
        operation = operation_of(request)
        error = error_of_answer(Subject(self.uri(key), operation), status, headers, body)
        self._told = fields_of(headers, body)
        if error.code == SKEWED:
            self.note_time(headers)
        return error

    @override
    def describe(self, key: str, headers: Mapping[str, str]) -> ObjectInfo:
        return describe(key, headers)

    @override
    def recover(self, error: ProviderError) -> bool:
        if isinstance(error, IntegrityError):
            # Damage on the way passes with one more try, damage in the store does not.
            return error.operation in {"get", "put_part"}
        if error.code == SKEWED:
            return self.clock.correct()
        if settings := relocated(self.options, self._told):
            self.options = settings
            self._slot.drop()
            self.access.drop()
            return True
        used = self._current_access().credentials if error.code in _EXPIRED else None
        if used is None or used.literal or not used.security_token:
            return False
        fresh = environment_credentials()
        if fresh is None:
            return False
        if fresh != used:
            self.access.drop()
        return True


def _listed(entry: Any) -> ObjectInfo:
    return ObjectInfo(
        entry.key,
        size=entry.size,
        etag=entry.etag,
        storage_class=entry.storage_class,
        modified=datetime.fromtimestamp(entry.last_modified, timezone.utc),
    )


def _fits_xml(key: str) -> bool:
    return not any(letter < " " or letter in "\ufffe\uffff" for letter in key)
