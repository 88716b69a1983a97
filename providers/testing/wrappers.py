"""Providers around a provider: one that is slow, one that fails on purpose."""

# A wrapper passes on the hooks of a provider, which are private to all but providers.
# ruff: noqa: SLF001

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Sequence  # noqa: TC003 part of a dataclass that users may inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from providers.base import Provider
from providers.uploads import MultipartUpload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from providers.errors import ProviderError
    from providers.listings import Page, UploadsPage
    from providers.values import ByteRange, HttpRequest, Limits, ObjectInfo, UploadInfo

__all__ = ["Call", "Fault", "FaultyProvider", "LatencyProvider", "WrappingProvider"]

T = TypeVar("T")


class WrappingProvider(Provider):
    """Passes everything on, each request through ``around``.

    It retries by its own policy, so a layer above sees it as it would see the inner one.

    Args:
        inner: the provider that does the work.
    """

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner.bucket, inner.options, inner.transfer)
        self.inner = inner
        # Class variables everywhere else; here they are those of the inner class.
        vars(self).update(
            scheme=inner.scheme,
            delete_batch=inner.delete_batch,
            max_key_bytes=inner.max_key_bytes,
        )

    def around(self, operation: str, key: str, call: Callable[[], T]) -> T:  # noqa: ARG002 for subclasses
        """Run one request of the inner provider."""
        return call()

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner,)

    @override
    def uri(self, key: str = "") -> str:
        return self.inner.uri(key)

    @property
    @override
    def limits(self) -> Limits:
        return self.inner.limits

    @override
    def check_key(self, key: str, operation: str) -> None:
        self.inner.check_key(key, operation)

    @override
    def _pages(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
    ) -> Iterator[list[ObjectInfo]]:
        pages = self.inner._pages(prefix, start_after, stop_before, delimiter)
        while True:
            # Only the wrapper's own part may be tried again: a generator that raised is spent.
            self.request("list", prefix, lambda: self.around("list", prefix, lambda: None))
            page = next(pages, None)
            if page is None:
                return
            yield page

    @override
    def _list_page(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
        token: str | None,
    ) -> Page:
        raise NotImplementedError  # pages are taken from the inner provider's own stream

    @override
    def _head(self, key: str) -> ObjectInfo:
        return self.around("head", key, lambda: self.inner._head(key))

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        return self.around("get", key, lambda: self.inner._get(key, byte_range, if_match))

    @override
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        return self.around(
            "put",
            key,
            lambda: self.inner._put(key, data, if_absent=if_absent, metadata=metadata),
        )

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        upload = self.around(
            "start_multipart",
            key,
            lambda: self.inner._start_multipart(
                key, write_id, if_absent=if_absent, metadata=metadata
            ),
        )
        return _WrappingUpload(self, upload)

    @override
    def _uploads_page(self, prefix: str, token: Any) -> UploadsPage:
        return self.around("list_uploads", prefix, lambda: self.inner._uploads_page(prefix, token))

    @override
    def _abort_upload(self, upload: UploadInfo) -> None:
        self.around("abort_upload", upload.key, lambda: self.inner._abort_upload(upload))

    @override
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        return self.around("copy", destination, lambda: self.inner._copy(source, destination))

    @override
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        return self.around("delete", keys[0], lambda: self.inner._delete(keys))

    @override
    def _compose(
        self,
        sources: list[ObjectInfo],
        destination: str,
        write_id: str,
        *,
        if_absent: bool,
        metadata: Mapping[str, str],
    ) -> ObjectInfo:
        if type(self.inner)._compose is Provider._compose:
            return super()._compose(
                sources, destination, write_id, if_absent=if_absent, metadata=metadata
            )
        return self.settle(
            "compose",
            destination,
            lambda: self.around(
                "compose",
                destination,
                lambda: self.inner._compose(
                    sources, destination, write_id, if_absent=if_absent, metadata=metadata
                ),
            ),
            write_id,
        )

    @override
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        return self.inner._translate(error, operation, key)

    @override
    def explain(
        self, request: HttpRequest | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        return self.inner.explain(request, status, headers, body)

    @override
    def describe(self, key: str, headers: Mapping[str, str]) -> ObjectInfo:
        return self.inner.describe(key, headers)

    @override
    def recover(self, error: ProviderError) -> bool:
        return self.inner.recover(error)


class _WrappingUpload(MultipartUpload):
    def __init__(self, provider: WrappingProvider, inner: MultipartUpload) -> None:
        super().__init__(provider, inner.key, inner.write_id)
        self._around = provider.around
        self._inner = inner

    @override
    def _put_part(self, number: int, data: memoryview) -> Any:
        return self._around("put_part", self.key, lambda: self._inner._put_part(number, data))

    @override
    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> Any:
        return self._around(
            "copy_part", self.key, lambda: self._inner._copy_part(number, source, byte_range)
        )

    @override
    def _complete(self, receipts: dict[int, Any]) -> None:
        self._around("complete", self.key, lambda: self._inner._complete(receipts))

    @override
    def _abort(self) -> None:
        self._around("abort", self.key, self._inner._abort)


class LatencyProvider(WrappingProvider):
    """Waits before every request.

    Args:
        inner: the provider that does the work.
        seconds: how long.
    """

    def __init__(self, inner: Provider, seconds: float) -> None:
        super().__init__(inner)
        self.seconds = seconds

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner, self.seconds)

    @override
    def around(self, operation: str, key: str, call: Callable[[], T]) -> T:
        time.sleep(self.seconds)
        return call()


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of a plan of failures.

    Attributes:
        operation: the request that fails: list, head, get, put, start_multipart, put_part,
            copy_part, complete, abort, list_uploads, abort_upload, copy, compose or delete.
        error: what it raises (a copy of it, each time).
        attempts: which requests of that operation fail, the first being 1; None: all.
        key: only those of this key are counted; None: those of any.
        after: fail after the request was carried out, as a lost answer does.
    """

    operation: str
    error: Exception
    attempts: Sequence[int] | None = (1,)
    key: str | None = None
    after: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request that reached a ``FaultyProvider``.

    Attributes:
        operation: as in ``Fault``.
        key: the object; for a listing the prefix, for a delete the batch's first key.
    """

    operation: str
    key: str


class FaultyProvider(WrappingProvider):
    """Raises chosen errors at chosen requests, and records all of them in ``calls``.

    Args:
        inner: the provider that does the work.
        plan: what fails, and when. Without one it only records.
    """

    def __init__(self, inner: Provider, plan: Sequence[Fault] = ()) -> None:
        super().__init__(inner)
        self.plan = tuple(plan)
        self.calls: list[Call] = []
        # Drawn from without a lock, which a forked child could inherit held.
        self._numbers = [itertools.count(1) for _ in self.plan]

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner, self.plan)

    @override
    def around(self, operation: str, key: str, call: Callable[[], T]) -> T:
        self.calls.append(Call(operation, key))
        due = [
            fault
            for fault, numbers in zip(self.plan, self._numbers, strict=True)
            if fault.operation == operation
            and fault.key in {None, key}
            and (fault.attempts is None or next(numbers) in fault.attempts)
        ]
        for fault in due:
            if not fault.after:
                raise copy.copy(fault.error)
        result = call()
        for fault in due:
            raise copy.copy(fault.error)
        return result
