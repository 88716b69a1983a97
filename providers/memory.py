"""``memory://``: the reference backend, a dict. It defines the right answers.

The buckets belong to the process: any bucket exists, a forked child sees a copy, a spawned
one starts empty.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from providers.answers import user_metadata
from providers.base import Provider
from providers.errors import NotFoundError, PreconditionError, ProviderError
from providers.uploads import MultipartUpload
from providers.values import ByteRange, Limits, ObjectInfo, UploadInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from providers.listings import Page, UploadsPage

__all__ = ["MemoryProvider"]

_NO_LIMIT = 1 << 50

_LIMITS = Limits(
    min_part_bytes=1,
    max_part_bytes=_NO_LIMIT,
    max_parts=10_000,
    max_sources=10_000,
    min_join_bytes=1,
    max_put_bytes=_NO_LIMIT,
    max_copy_bytes=_NO_LIMIT,
    conditional_put=True,
    equal_parts=False,
    lists_in_order=True,
    joins_server_side=True,
)


@dataclass(slots=True)
class _Bucket:
    objects: dict[str, tuple[ObjectInfo, bytes]] = field(default_factory=dict)
    uploads: dict[str, UploadInfo] = field(default_factory=dict)


_buckets: dict[str, _Bucket] = {}
_versions = itertools.count(1)


class MemoryProvider(Provider):
    """Objects in this process's memory."""

    scheme: ClassVar[str] = "memory"
    delete_batch: ClassVar[int] = 1000
    page_size: ClassVar[int] = 1000

    @property
    @override
    def limits(self) -> Limits:
        return _LIMITS

    @property
    def _bucket(self) -> _Bucket:
        return _buckets.setdefault(self.bucket, _Bucket())

    def unfinished_uploads(self) -> list[str]:
        """Return the ids of uploads neither completed nor aborted."""
        return sorted(self._bucket.uploads)

    @override
    def _list_page(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
        token: str | None,
    ) -> Page:
        after = start_after if token is None else token
        entries = {
            entry.key: entry
            for entry in (
                _entry(info, prefix, delimiter)
                for info, _ in list(self._bucket.objects.values())
                if info.key.startswith(prefix)
            )
            if after is None or entry.key > after
        }
        names = sorted(entries)[: self.page_size + 1]
        page = [entries[name] for name in names[: self.page_size]]
        return page, page[-1].key if len(names) > self.page_size else None

    @override
    def _head(self, key: str) -> ObjectInfo:
        return self._find(key, "head")[0]

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        info, data = self._find(key, "get")
        if if_match is not None and if_match.version != info.version:
            raise PreconditionError("the object changed", uri=self.uri(key), operation="get")
        if byte_range is None:
            return data
        if byte_range.start >= len(data):
            raise self.range_error(key, byte_range, len(data))
        return data[byte_range.start : byte_range.stop]

    def _find(self, key: str, operation: str) -> tuple[ObjectInfo, bytes]:
        try:
            return self._bucket.objects[key]
        except KeyError:
            raise NotFoundError(
                "there is no such object", uri=self.uri(key), operation=operation
            ) from None

    @override
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        return self.store(key, bytes(data), if_absent=if_absent, metadata=metadata)

    def store(
        self, key: str, data: bytes, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        """Keep an object; the one place where objects appear."""
        user, write_id = user_metadata(metadata)
        version = str(next(_versions))
        info = ObjectInfo(
            key,
            size=len(data),
            etag=version,
            version=version,
            storage_class="STANDARD",
            modified=datetime.now(timezone.utc),
            metadata=user,
            write_id=write_id,
        )
        if not if_absent:
            self._bucket.objects[key] = (info, data)
        elif self._bucket.objects.setdefault(key, (info, data))[0] is not info:
            raise PreconditionError(
                "there is an object already", uri=self.uri(key), operation="put"
            )
        return info

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        return _MemoryUpload(self, key, write_id, if_absent=if_absent, metadata=metadata)

    @override
    def _uploads_page(self, prefix: str, token: Any) -> UploadsPage:
        found = sorted(
            (upload.key, upload.upload_id, upload)
            for upload in list(self._bucket.uploads.values())
            if upload.key.startswith(prefix)
            and (token is None or (upload.key, upload.upload_id) > token)
        )
        page = [upload for _, _, upload in found[: self.uploads_page_size]]
        if len(found) <= len(page):
            return page, None
        return page, (page[-1].key, page[-1].upload_id)

    @override
    def _abort_upload(self, upload: UploadInfo) -> None:
        self._bucket.uploads.pop(upload.upload_id, None)

    @override
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        data = self._get(source.key, None, source)
        return self.store(destination, data, if_absent=False, metadata=source.metadata)

    @override
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        for key in keys:
            self._bucket.objects.pop(key, None)
        return []

    @override
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        return None


def _entry(info: ObjectInfo, prefix: str, delimiter: str | None) -> ObjectInfo:
    """Return the object, or the common prefix that stands for it."""
    at = info.key.find(delimiter, len(prefix)) if delimiter else -1
    if at < 0 or not delimiter:
        return info
    return ObjectInfo(info.key[: at + len(delimiter)], is_prefix=True)


class _MemoryUpload(MultipartUpload):
    _numbers = itertools.count()

    def __init__(
        self,
        provider: MemoryProvider,
        key: str,
        write_id: str,
        *,
        if_absent: bool,
        metadata: Mapping[str, str],
    ) -> None:
        super().__init__(provider, key, write_id)
        self._store = provider
        self._if_absent = if_absent
        self._metadata = metadata
        self._id = f"{key}#{next(self._numbers)}"
        self._uploads = provider._bucket.uploads  # noqa: SLF001 its own provider's
        self._uploads[self._id] = UploadInfo(key, self._id, datetime.now(timezone.utc))

    def _check_known(self, operation: str) -> None:
        if self._id not in self._uploads:
            raise NotFoundError(
                "there is no such upload", uri=self._store.uri(self.key), operation=operation
            )

    @override
    def _put_part(self, number: int, data: memoryview) -> bytes:
        self._check_known("put_part")
        return bytes(data)

    @override
    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> bytes:
        return self._store._get(source.key, byte_range, source)  # noqa: SLF001 the same

    @override
    def _complete(self, receipts: dict[int, bytes]) -> None:
        self._check_known("complete")
        data = b"".join(receipts.values())
        self._store.store(self.key, data, if_absent=self._if_absent, metadata=self._metadata)
        self._abort()

    @override
    def _abort(self) -> None:
        self._uploads.pop(self._id, None)
