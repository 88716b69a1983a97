"""What every verb goes through: settings, checks before sending, retries, lost answers."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from providers import tracing
from providers.counters import count
from providers.errors import (
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    RangeError,
    UnsupportedError,
)
from providers.options import Options, TransferOptions
from providers.retry import RetryPolicy
from providers.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from providers.values import ByteRange, HttpRequest, Limits, ObjectURI

__all__ = ["Sender"]

_METADATA_KEY = re.compile(r"[a-z0-9][a-z0-9-]*")
_METADATA_VALUE = re.compile(r"[ -~]*")

T = TypeVar("T")


class Sender(ABC):
    """The half of a provider that sends requests and reads what the service answers.

    Args:
        bucket: name of the bucket; empty for ``file``.
        options: of this scheme.
        transfer: timeouts, sizes and the retry policy.
    """

    scheme: ClassVar[str]
    options_type: ClassVar[type[Options]] = Options
    max_key_bytes: ClassVar[int] = 1024

    def __init__(
        self, bucket: str, options: Options | None = None, transfer: TransferOptions | None = None
    ) -> None:
        self.bucket = bucket
        self.options = options if options is not None else self.options_type()
        self.transfer = transfer if transfer is not None else TransferOptions()
        self._policy = RetryPolicy(self.transfer.max_attempts, self.transfer.give_up_after_seconds)

    @classmethod
    def open(
        cls, uri: ObjectURI, options: Options | None, transfer: TransferOptions | None
    ) -> Self:
        """Return the provider of a URI; ``file`` needs more than the bucket."""
        return cls(uri.bucket, options, transfer)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.bucket, self.options, self.transfer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri()!r})"

    def uri(self, key: str = "") -> str:
        """Return ``scheme://bucket/key``."""
        return f"{self.scheme}://{self.bucket}/{key}"

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """Facts about this service, this endpoint and these options together."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Look up one object; stated in full in ``providers.base``."""

    @abstractmethod
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        """Make a ``ProviderError`` of what the client raised; None if it is no answer of its."""

    # ---- Readers of a service's answers --------------------------------------------------

    def explain(
        self, request: HttpRequest | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        """Say what an answer with an error status means. Only where there are answers."""
        raise NotImplementedError

    def describe(self, key: str, headers: Mapping[str, str]) -> ObjectInfo:
        """Read an object's description off the headers of a GET or HEAD."""
        raise NotImplementedError

    def recover(self, error: ProviderError) -> bool:  # noqa: ARG002 the default knows no cure
        """Refresh credentials, region or clock once; true: try again."""
        return False

    # ---- Shared machinery ----------------------------------------------------------------

    def request(self, operation: str, key: str, call: Callable[[], T]) -> T:
        """Run one request under the retry policy, its errors translated."""
        number, began = 0, 0.0

        def attempt() -> T:
            nonlocal number, began
            number, began = number + 1, time.monotonic()
            count(requests=1)
            result = call()
            if tracing.enabled:
                self._trace(operation, key, number, began, None)
            return result

        def explain(raised: Exception) -> ProviderError:
            try:
                error = raised if isinstance(raised, ProviderError) else None
                if error is None:
                    error = self._translate(raised, operation, key)
                    if error is None:
                        raise  # noqa: PLE0704 it runs while the exception is handled
                    error.__cause__ = raised
                if tracing.enabled:
                    self._trace(operation, key, number, began, error)
                return error
            finally:
                del raised  # Its traceback may come to hold this frame.

        return self._policy.call(attempt, explain, self.recover)

    def _trace(
        self, operation: str, key: str, number: int, began: float, error: ProviderError | None
    ) -> None:
        tracing.trace(
            operation,
            self.uri(key),
            # An SDK does not say which success it was.
            status=HTTPStatus.OK if error is None else error.status,
            seconds=time.monotonic() - began,
            body_bytes=0,
            attempt=number,
            request_id=None if error is None else error.request_id,
            error=error,
        )

    def settle(
        self, operation: str, key: str, call: Callable[[], Any], write_id: str
    ) -> ObjectInfo:
        """Run a write that must not happen twice; look up an unclear end by its write id."""
        try:
            result = self.request(operation, key, call)
        except ProviderError as error:
            if not (error.retryable or isinstance(error, NotFoundError | PreconditionError)):
                raise
            info = self._own_write(key, write_id)
            if info is None:
                raise
            return info
        return result if isinstance(result, ObjectInfo) else self.head(key)

    def _own_write(self, key: str, write_id: str) -> ObjectInfo | None:
        try:
            info = self.head(key)
        except ProviderError:
            return None
        return info if info.write_id == write_id else None

    def quietly(self, operation: str, key: str, call: Callable[[], Any]) -> None:
        """Run a request for which a missing object is as good as success."""
        try:
            self.request(operation, key, call)
        except NotFoundError:
            return

    def require(self, capability: str, operation: str, key: str) -> None:
        """Raise unless a limit of this instance is true."""
        if not getattr(self.limits, capability):
            settable = capability in type(self.options).model_fields
            raise UnsupportedError(
                f"this store does not offer it (limits.{capability} is false"
                f"{'; set the option of that name where you know better' if settable else ''})",
                uri=self.uri(key),
                operation=operation,
            )

    def check_key(self, key: str, operation: str) -> None:
        """Refuse a key that no service takes.

        Raises:
            LimitError: it is empty, too long or not Unicode text.
        """
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            raise self.limit_error(operation, ascii(key), "the key is not valid UTF-8") from None
        if not 0 < size <= self.max_key_bytes:
            raise self.limit_error(
                operation, key, f"a key has 1 to {self.max_key_bytes} bytes, not {size}"
            )

    def limit_error(self, operation: str, key: str, message: str) -> LimitError:
        """Return the error of something refused before sending."""
        return LimitError(message, uri=self.uri(key), operation=operation)

    def range_error(self, key: str, byte_range: ByteRange, size: int | None) -> RangeError:
        """Return the error of a range that starts at or past the end."""
        return RangeError(
            f"the range starts at byte {byte_range.start}, the object has "
            f"{'fewer' if size is None else size}",
            uri=self.uri(key),
            operation="get",
        )

    def buffer(self, data: Any) -> memoryview:
        """Return a flat byte view of any C-contiguous buffer.

        Raises:
            ValueError: it is not C-contiguous.
        """
        view = memoryview(data)
        if not view.c_contiguous:
            raise ValueError("the buffer is not C-contiguous; make it so (numpy.ascontiguousarray)")
        return view.cast("B") if view.nbytes else memoryview(b"")

    def _check_write(
        self, key: str, operation: str, if_absent: bool, metadata: Mapping[str, str] | None
    ) -> None:
        self.check_key(key, operation)
        if if_absent:
            self.require("conditional_put", operation, key)
        if metadata:
            self.require("keeps_metadata", operation, key)
        for name, value in (metadata or {}).items():
            if not _METADATA_KEY.fullmatch(name) or not _METADATA_VALUE.fullmatch(value):
                raise self.limit_error(
                    operation, key, f"metadata {name!r}={value!r}: names take lower-case letters, "
                    "digits and dashes, values printable ASCII"
                )  # fmt: skip
