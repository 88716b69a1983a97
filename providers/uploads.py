"""The multipart half of the contract: parts in any order, published at once, or not at all."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from providers.checksums import Checksum, joined, parse
from providers.counters import count
from providers.errors import IntegrityError, LimitError, ProviderError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from providers.base import Provider
    from providers.values import ByteRange, ObjectInfo

__all__ = ["MultipartUpload", "Receipt", "check_published"]

_log = logging.getLogger(__name__)


class Receipt(NamedTuple):
    """What a store says of a part that it took.

    Attributes:
        etag: to complete the upload with.
        checksum: of the part's bytes, a CRC; None: not known.
    """

    etag: str
    checksum: Checksum | None = None


def check_published(
    info: ObjectInfo, size_bytes: int, sent: Checksum | None, uri: str, operation: str
) -> None:
    """Compare an object that was put together with what it was put together from.

    Args:
        info: what the service says of it.
        size_bytes: of all parts.
        sent: CRC of all parts; None: not known. It counts where the service tells one alike.
        uri: of the object.
        operation: for the error to name.

    Raises:
        IntegrityError: they differ.
    """
    told = parse(info.checksum)
    if info.size != size_bytes:
        what = f"the parts have {size_bytes} bytes, the object has {info.size}"
    elif sent and told and sent.algorithm == told.algorithm and sent != told:
        what = f"the {told.algorithm} of the parts is not that of the object, {info.checksum}"
    else:
        return
    raise IntegrityError(
        f"{what}: it is damaged, and published in place of what was there (version "
        f"{info.version or info.etag}); write it anew or delete it",
        uri=uri,
        operation=operation,
    )


class MultipartUpload(ABC):
    """An object in the making; nobody sees it before ``complete``.

    Thread-safe: parts may be sent from several threads. As a context manager it aborts
    when the block raises, and also when the block ends without ``complete``.

    Args:
        provider: where the object will be.
        key: its key.
        write_id: random mark in its metadata, by which a lost answer is settled.
    """

    def __init__(self, provider: Provider, key: str, write_id: str) -> None:
        self.provider = provider
        self.key = key
        self.write_id = write_id
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}
        self._receipts: dict[int, Any] = {}
        self._state = "open"

    # What a backend supplies. Each sends one request and raises what its client raises.

    @abstractmethod
    def _put_part(self, number: int, data: memoryview) -> Any:
        """Send one part and return its receipt, of any type.

        Where all are a ``Receipt`` with the CRC of the bytes that left here, that of the whole is
        compared with what the service tells of the object.
        """

    @abstractmethod
    def _complete(self, receipts: dict[int, Any]) -> None:
        """Publish the object from its parts, in order of their numbers."""

    @abstractmethod
    def _abort(self) -> None:
        """Drop the parts."""

    def _copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> Any:
        """Let the service copy a part from an object; only where ``joins_server_side``."""
        raise NotImplementedError

    # The contract.

    def put_part(self, number: int, data: Any) -> None:
        """Send one part; sent again under the same number, it replaces the earlier one.

        Args:
            number: 1 to ``limits.max_parts``; order of numbers is order of bytes.
            data: any C-contiguous buffer, fully read when this returns.

        Raises:
            LimitError: number or size are beyond the limits.
            ValueError: the upload is completed or aborted.
        """
        view = self.provider.buffer(data)
        self._check_part(number, view.nbytes)
        count(bytes_written=view.nbytes)
        receipt = self._request("put_part", lambda: self._put_part(number, view))
        self._note_part(number, view.nbytes, receipt)

    def copy_part(self, number: int, source: ObjectInfo, byte_range: ByteRange) -> None:
        """Have the service copy a part from another object of the bucket, pinned to ``source``.

        Raises:
            UnsupportedError: the service cannot (``limits.joins_server_side``).
            PreconditionError: the source changed.
        """
        self.provider.require("joins_server_side", "copy_part", self.key)
        length = byte_range.length_in(source.size)
        self._check_part(number, length)
        receipt = self._request("copy_part", lambda: self._copy_part(number, source, byte_range))
        self._note_part(number, length, receipt)

    def complete(self) -> ObjectInfo:
        """Publish the object, check size and checksum, and return what the service says of it.

        A lost answer is looked up by the write id, never guessed.

        Raises:
            LimitError: there are no parts, a gap, or parts the service would refuse.
            PreconditionError: ``if_absent`` and there is an object.
            IntegrityError: the object is not what its parts were. The error says whether it
                has been published all the same.
        """
        self._check_complete()
        receipts = dict(sorted(self._receipts.items()))
        info = self.provider.settle(
            "complete", self.key, lambda: self._complete(receipts), self.write_id
        )
        self._state = "completed"
        if info.write_id == self.write_id:
            uri, sent = self.provider.uri(self.key), self._checksum_of_all(receipts)
            check_published(info, self.size_bytes, sent, uri, "complete")
        return info

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts sent so far."""
        return sum(self._sizes.values())

    def _checksum_of_all(self, receipts: dict[int, Any]) -> Checksum | None:
        """Return the CRC of all parts; None where that of one is not known."""
        return joined(
            (receipt.checksum if isinstance(receipt, Receipt) else None, self._sizes[number])
            for number, receipt in receipts.items()
        )

    def _integrity_error(self, message: str) -> IntegrityError:
        uri = self.provider.uri(self.key)
        return IntegrityError(message, uri=uri, operation="complete")

    def abort(self) -> None:
        """Drop the upload and its parts; quiet when it is already gone.

        Parts under way in other threads end by themselves, and leave nothing behind either.
        """
        if self._state != "open":
            return
        self._state = "aborted"
        self.provider.quietly("abort", self.key, self._abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.abort()
        except ProviderError:
            if error is None:
                raise
            _log.warning(
                "could not abort the upload of %s; its parts stay until a lifecycle rule "
                "removes them",
                self.provider.uri(self.key),
                exc_info=True,
            )

    # The checks, once for all backends.

    def _request(self, operation: str, call: Any) -> Any:
        return self.provider.request(operation, self.key, call)

    def _note_part(self, number: int, size: int, receipt: Any) -> None:
        with self._lock:
            self._sizes[number] = size
            self._receipts[number] = receipt
        if self._state == "aborted":
            # A part that arrives while its upload is aborted may outlive it.
            self.provider.quietly("abort", self.key, self._abort)

    def _check_part(self, number: int, size: int) -> None:
        if self._state != "open":
            raise ValueError(f"this upload of {self.provider.uri(self.key)} is {self._state}")
        limits = self.provider.limits
        if not 1 <= number <= limits.max_parts:
            raise self._limit(f"part {number}: numbers go from 1 to {limits.max_parts}")
        if not 0 < size <= limits.max_part_bytes:
            raise self._limit(f"part {number} has {size} bytes; 1 to {limits.max_part_bytes} fit")
        with self._lock:
            # Until its new bytes have arrived, a part that is sent again counts as missing.
            self._sizes.pop(number, None)
            self._receipts.pop(number, None)

    def _check_complete(self) -> None:
        if self._state != "open":
            raise ValueError(f"this upload of {self.provider.uri(self.key)} is {self._state}")
        numbers = sorted(self._sizes)
        if numbers != list(range(1, len(numbers) + 1)) or not numbers:
            raise self._limit(
                f"parts 1 to {max(numbers, default=1)} must all be there, in {numbers}"
            )
        sizes = [self._sizes[number] for number in numbers]
        limits = self.provider.limits
        for number, size in zip(numbers[:-1], sizes[:-1], strict=True):
            if size < limits.min_part_bytes:
                raise self._limit(
                    f"part {number} has {size} bytes, fewer than the {limits.min_part_bytes} "
                    "every part but the last needs"
                )
            if limits.equal_parts and (size != sizes[0] or sizes[-1] > sizes[0]):
                raise self._limit(
                    "this endpoint wants equal parts (option equal_parts), not "
                    f"{sorted(set(sizes))} bytes"
                )

    def _limit(self, message: str) -> LimitError:
        return LimitError(message, uri=self.provider.uri(self.key), operation="multipart")
