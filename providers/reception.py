"""The receiving side of a read: whether what came is all of what was asked for, and the right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic

import pycurl

from providers.checksums import find
from providers.errors import (
    IntegrityError,
    PreconditionError,
    ProviderError,
    RangeError,
    UnavailableError,
)
from providers.gets import W
from providers.headers import Headers
from providers.libcurl_errors import explain_failure, explain_tunnel
from providers.values import ByteRange

if TYPE_CHECKING:
    from providers.checksums import Checksum
    from providers.gets import Pieces
    from providers.handles import Slot
    from providers.values import HttpRequest, ObjectInfo

__all__ = ["Reception"]

_OK, _PARTIAL, _UNSATISFIABLE = 200, 206, 416
_SUCCESSES = (_OK, _PARTIAL)
_WHOLE_RANGE = re.compile(rb"\n[Cc]ontent-[Rr]ange: bytes (\d{1,19})-(\d{1,19})/(\d{1,19})\r\n")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)


class Reception(Generic[W]):
    """What has come of one read, over all its attempts.

    Attributes:
        get: what the consumer asked for.
        slot: while an attempt is under way.
        reached: bytes of the result that are here and kept.
        received: bytes of body that the last attempt brought.
        told: the whole object's checksum by the answer whose broken body is kept.
    """

    # As they stand for every read to begin with: most end without a change to them.
    slot: Slot | None = None
    reached = received = 0
    told: Checksum | None = None
    _kept: tuple[bytes, ...] = ()
    _pin: ObjectInfo | None = None
    _resumable = True
    _request: HttpRequest | None = None
    _fault: BaseException | None = None
    # Of the current attempt: whether its head was found right, where it began, how long it
    # says its body is; and how long the whole result is to be.
    _checked = False
    _resumed_at = 0
    _span_bytes: int | None = None
    _body_bytes: int | None = None

    def __init__(self, get: W) -> None:
        self.get = get

    @property
    def uri(self) -> str:
        """The object, for messages."""
        return self.get.provider.uri(self.get.key)

    def _asked(self) -> ByteRange | None:
        """What is still missing."""
        asked = self.get.byte_range
        if not self.reached:
            return asked
        if asked is None:
            return ByteRange(self.reached)
        return ByteRange(asked.start + self.reached, asked.stop)

    # ---- Receiving into the caller's buffer ----------------------------------------------

    def _write(self, data: bytes) -> int:
        """Take bytes of an answer; 0 breaks it off. Never raises: libcurl is the caller."""
        into = self.get.into
        stop = self.reached + len(data)
        if self._checked and into is not None and stop <= len(into):
            into[self.reached : stop] = data
            self.reached = stop
            return len(data)
        try:
            return self._store(data)
        except BaseException as fault:  # noqa: BLE001 raised again by ``conclude``
            self._fault = fault
            return 0

    def _store(self, data: bytes) -> int:
        slot, into = self.slot, self.get.into
        if slot is None or into is None:
            return 0
        if not self._checked:
            # Not by ``getinfo``, which callbacks may not call.
            headers = Headers.parse(slot.lines)
            if headers.status not in _SUCCESSES:
                slot.chunks.append(data)
                return len(data)
            self._check_head(headers)
            self._pin_down(headers)
        stop = self.reached + len(data)
        if stop > len(into):
            raise self._broken(f"the body is longer than the buffer of {len(into)} bytes")
        into[self.reached : stop] = data
        self.reached = stop
        return len(data)

    # ---- Judging an attempt --------------------------------------------------------------

    def conclude(self, code: int, message: str) -> Pieces | ProviderError:
        """Return the whole body, or what went wrong, keeping what the next attempt can use.

        Args:
            code: libcurl's; 0 when the exchange went through.
            message: goes with it.
        """
        slot = self._slot()
        if code == 0 and not self.reached and not self._fault:
            body = self._plain_body(slot)
            if body is not None:
                return body
        try:
            return self._judge(slot, code, message)
        except IntegrityError as error:
            # Nothing of what came can be relied upon.
            self.forget()
            return error
        except ProviderError as error:
            return error

    def _slot(self) -> Slot:
        if self.slot is None:
            raise RuntimeError("the transfer is not under way")
        return self.slot

    def _plain_body(self, slot: Slot) -> list[bytes] | None:
        """Return the body of the commonest exchange: all that was asked for, at once.

        In pieces: joined only when they are handed over, the bytes do not push the code and
        data of everything in between out of the processor's cache.
        """
        get, easy = self.get, slot.easy
        asked, pin = get.byte_range, get.if_match
        if get.into is not None or easy.getinfo(pycurl.RESPONSE_CODE) != (
            _OK if asked is None else _PARTIAL
        ):
            return None
        body = slot.chunks.copy()
        size = sum(map(len, body))
        if easy.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T) != size:
            return None
        if asked is not None and not _fits(asked, slot.head(), size):
            return None
        if pin is not None and not self._shows_pin(pin, slot.head(), size):
            return None
        self.received = size
        return body

    def _shows_pin(self, pin: ObjectInfo, head: bytes, size: int) -> bool:
        """Whether an answer is plainly of the pinned version."""
        if self.get.byte_range is None and pin.size not in (0, size):
            return False
        return not self.get.provider.pins_by_etag or f'"{pin.etag}"'.encode() in head

    def _judge(self, slot: Slot, code: int, message: str) -> Pieces | ProviderError:
        self.received = 0
        if self._fault is not None:
            raise self._fault
        headers = Headers.parse(slot.lines)
        if code:
            error = self._explain_failure(slot, code, message)
            began = slot.chunks or self.reached > self._resumed_at
            if began and headers.status in _SUCCESSES and error.retryable:
                self._take_in(slot, headers)
                self._keep(headers)
            return error
        if headers.status not in _SUCCESSES:
            return self._refused(headers.status, headers, b"".join(slot.chunks))
        self._take_in(slot, headers)
        return self._whole(headers)

    def _explain_failure(self, slot: Slot, code: int, message: str) -> ProviderError:
        refused = explain_tunnel(slot.easy.getinfo(pycurl.HTTP_CONNECTCODE), self.uri)
        return refused or explain_failure(code, message, self.uri, slot.settings.connection.ca)

    def _take_in(self, slot: Slot, headers: Headers) -> None:
        """Check the head and move the body's chunks to what is kept."""
        if not self._checked:
            self._check_head(headers)
        if self.get.into is None:
            self._kept += tuple(slot.chunks)
            self.reached += sum(map(len, slot.chunks))
        self.received = self.reached - self._resumed_at
        if self._span_bytes is not None and self.received > self._span_bytes:
            raise self._broken(f"{self.received} bytes came instead of {self._span_bytes}")

    def _whole(self, headers: Headers) -> Pieces | ProviderError:
        if self._body_bytes is not None and self.reached < self._body_bytes:
            error = self._unavailable(
                f"the body ended after {self.reached} of {self._body_bytes} bytes"
            )
            self._keep(headers)
            return error
        if self._body_bytes is not None and self.reached > self._body_bytes:
            raise self._broken(f"{self.reached} bytes came instead of {self._body_bytes}")
        into = self.get.into
        return list(self._kept) if into is None else into[: self.reached]

    def _check_head(self, headers: Headers) -> None:
        """Compare status and lengths of an answer with what was asked for."""
        status = headers.status
        asked = self._asked()
        # Some stores answer a range with status 200: it is Content-Range that counts.
        ranged = status == _PARTIAL or (status == _OK and "content-range" in headers)
        if ranged != (asked is not None):
            if self.get.byte_range is None and self._resumed_at:
                raise self._start_over("the server does not continue a broken body")
            raise self._broken(
                "the server answered a range to a request for the whole object"
                if asked is None
                else "the server answered the whole object to a request for a range; something "
                "on the way drops or changes the Range header",
                status,
            )
        self._check_version(headers)
        before = self._body_bytes
        if asked is None:
            self._span_bytes = self._body_bytes = self._declared(headers)
        else:
            self._check_range(asked, headers)
        if before not in (None, self._body_bytes) and self._resumed_at:
            raise self._start_over(f"its size changed from {before} to {self._body_bytes}")
        self._check_pin(headers)
        self._checked = True

    def _declared(self, headers: Headers) -> int | None:
        """Return the length of a whole object's body; None where only framing tells."""
        length = headers.length
        if length is not None:
            return length
        if "transfer-encoding" in headers or self._slot().lines[0].startswith(b"HTTP/2"):
            return None
        raise self._broken("the answer does not say how long it is")

    def _check_range(self, asked: ByteRange, headers: Headers) -> None:
        found = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
        if found is None:
            raise self._broken("a range was asked for and the answer has no Content-Range")
        first, last, size = int(found[1]), int(found[2]), found[3]
        end = last + 1 if size == "*" else int(size)
        if asked.stop is not None:
            end = min(end, asked.stop)
        if first != asked.start or not first <= last < end:
            raise self._broken(f"{asked.header} was asked for, {found[0]!r} came")
        start = asked.start - self._resumed_at
        self._span_bytes, self._body_bytes = last + 1 - first, end - start

    def _check_version(self, headers: Headers) -> None:
        """See that what continues a broken body is of the same version: some stores ignore pins."""
        pin = self._pin
        if pin is None or not self._resumed_at:
            return
        found = self.get.provider.describe(self.get.key, headers)
        if (found.etag, found.version) != (pin.etag, pin.version):
            raise self._start_over("the object changed meanwhile")

    def _check_pin(self, headers: Headers) -> None:
        """Find a change by the answer too: some stores know no ``If-Match``."""
        pin = self.get.if_match
        if pin is None:
            return
        etag = headers.get("etag", "").strip('"')
        if self.get.provider.pins_by_etag and etag not in {"", pin.etag}:
            raise PreconditionError(
                f"the object changed: its etag is {etag}, no longer {pin.etag}",
                uri=self.uri,
                operation="get",
            )
        if self.get.byte_range is not None or not pin.size:
            return
        if self._body_bytes not in (None, pin.size):
            raise self._broken(f"the object has {self._body_bytes} bytes instead of {pin.size}")

    # ---- Going on after a failure --------------------------------------------------------

    def _keep(self, headers: Headers) -> None:
        """Let the next attempt go on from here, if it can be pinned to this version."""
        complete = self._body_bytes is not None and self.reached >= self._body_bytes
        if self.reached and (complete or not self._pin_down(headers)):
            self.forget()
        elif self.get.byte_range is None and self.told is None:
            # Answers to ranges do not tell it on every cloud.
            self.told = find(self._slot().head())

    def _pin_down(self, headers: Headers) -> bool:
        get = self.get
        if not self._resumable:
            return False
        if get.if_match is None and self._pin is None:
            info = get.provider.describe(get.key, headers)
            if info.etag is None and info.version is None:
                return False
            self._pin = info
        return True

    def forget(self) -> None:
        """Drop what was read: the next attempt begins at the first byte."""
        self._kept = ()
        self.told = None
        self.reached = 0
        self._pin = None
        self._body_bytes = None

    def _start_over(self, why: str) -> ProviderError:
        """Drop what was read; the next attempts read all of it in one piece."""
        self.forget()
        self._resumable = False
        return self._unavailable(f"the rest of a broken body cannot be had: {why}")

    def _refused(self, status: int, headers: Headers, body: bytes) -> Pieces | ProviderError:
        get = self.get
        if status == _UNSATISFIABLE and get.byte_range is None and not self.reached:
            return [] if get.into is None else get.into[:0]
        error = get.provider.explain(self._request, status, headers, body)
        if self._resumed_at and (
            isinstance(error, RangeError)
            or (isinstance(error, PreconditionError) and get.if_match is None)
        ):
            return self._start_over("the object changed meanwhile")
        return error

    def _unavailable(self, message: str) -> UnavailableError:
        return UnavailableError(message, uri=self.uri, operation="get")

    def _broken(self, message: str, status: int | None = None) -> IntegrityError:
        return IntegrityError(message, uri=self.uri, operation="get", status=status)


def _fits(asked: ByteRange, head: bytes, size: int) -> bool:
    """Whether an answer is plainly the whole of a range, as far as the object goes."""
    found = _WHOLE_RANGE.search(head)
    if found is None:
        return False
    first, stop, whole = int(found[1]), int(found[2]) + 1, int(found[3])
    wanted = whole if asked.stop is None else min(asked.stop, whole)
    return first == asked.start and stop == wanted and size == stop - first
