"""One read on its way: what is sent, and whether what came back is all of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic

import pycurl

from providers.checksums import find
from providers.errors import (
    IntegrityError,
    PreconditionError,
    ProviderError,
    RangeError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.gets import W, perform
from providers.values import ByteRange

if TYPE_CHECKING:
    from providers.checksums import Checksum
    from providers.gets import Body
    from providers.handles import Slot
    from providers.pacing import Pace
    from providers.retry import Failures
    from providers.values import HttpRequest, ObjectInfo

__all__ = ["Headers", "Transfer"]

_OK, _PARTIAL, _UNSATISFIABLE = 200, 206, 416
_SUCCESSES = (_OK, _PARTIAL)
_FIRST_ERROR, _FIRST_SERVER_ERROR = 300, 500
_WHOLE_RANGE = re.compile(rb"\n[Cc]ontent-[Rr]ange: bytes (\d{1,19})-(\d{1,19})/(\d{1,19})\r\n")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)
_LENGTH = re.compile(r"\d{1,19}", re.ASCII)
_UNTRUSTED = frozenset(
    (
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_ISSUER_ERROR,
    )
)
_UNSENDABLE = frozenset(
    (pycurl.E_UNSUPPORTED_PROTOCOL, pycurl.E_URL_MALFORMAT, pycurl.E_BAD_FUNCTION_ARGUMENT)
)
_UNREACHED = frozenset(
    (pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_CONNECT)
)
_NOT_TLS = ":0A00010B:"
"""OpenSSL's code of an answer that is no TLS at all."""
_UNSAFE = re.compile(r"[^\t -~]")
"""What in a header could smuggle another one in, or is understood in several ways."""
_FREE_BYTES = 1 << 20
"""Bodies up to this size are let in whatever was expected: error answers are."""


class Headers(dict[str, str]):
    """The headers of one answer; names match whatever their case.

    Attributes:
        status: of the answer; 0: none came.
    """

    status = 0

    @classmethod
    def parse(cls, lines: list[bytes]) -> Headers:
        """Read raw header lines; of several answers (100, then 200) the last counts."""
        headers = cls()
        for line in lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if colon:
                dict.__setitem__(headers, name.strip().lower(), value.strip())
            elif line.startswith(b"HTTP/"):
                headers.clear()
                status = line.split(None, 2)[1:2]
                headers.status = int(status[0]) if status and status[0].isdigit() else 0
        return headers

    @property
    def length(self) -> int | None:
        """The Content-Length; None: there is none, or it is no number."""
        length = self.get("content-length", "")
        return int(length) if _LENGTH.fullmatch(length) else None

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header, or the default."""
        return super().get(name.lower(), default)


class Transfer(Generic[W]):
    """One read through all its attempts.

    Attributes:
        get: what the consumer asked for.
        endpoint: ``scheme://host:port`` that the current attempt goes to.
        pace: of that endpoint; None: this transfer holds no place there.
        epoch: of the pace when the current attempt was sent.
        slot: while an attempt is under way.
        attempt: number of the current one.
        began: when the first was sent, on the stream's clock.
        sent: when the current one was, on the stream's clock.
        sent_at: the same on the wall's.
        reached: bytes of the result that are here and kept.
        received: bytes of body that the last attempt brought.
        charge: bytes taken from the process's account.
        failures: those that counted; None: none so far.
        result: body or error, once there is one.
        most_seen: the most bytes of the result that were ever here.
        progressed: when bytes last came, on the stream's clock.
        warned: when the lack of them was last told of.
        told: the whole object's checksum by the answer whose broken body is kept.
    """

    __slots__ = (
        "_body_bytes", "_checked", "_fault", "_kept", "_pin", "_request", "_resumable",
        "_resumed_at", "_span_bytes", "attempt", "began", "charge", "endpoint", "epoch",
        "failures", "get", "most_seen", "pace", "progressed", "reached", "received", "result",
        "sent", "sent_at", "slot", "told", "warned",
    )  # fmt: skip

    def __init__(self, get: W, charge: int, now: float) -> None:
        self.get = get
        self.charge = charge
        self.endpoint = ""
        self.pace: Pace | None = None
        self.epoch = 0
        self.slot: Slot | None = None
        self.attempt = 0
        self.began = self.sent = self.progressed = self.warned = now
        self.sent_at = 0.0
        self.reached = self.received = self.most_seen = 0
        self.failures: Failures | None = None
        self.result: Body | ProviderError | None = None
        self.told: Checksum | None = None
        self._kept: list[bytes] = []
        self._pin: ObjectInfo | None = None
        self._resumable = True
        self._request: HttpRequest | None = None
        self._fault: BaseException | None = None
        # Of the current attempt: whether its head was found right, where it began, how long it
        # says its body is; and how long the whole result is to be.
        self._checked = False
        self._resumed_at = 0
        self._span_bytes: int | None = None
        self._body_bytes: int | None = None

    @property
    def uri(self) -> str:
        """The object, for messages."""
        return self.get.provider.uri(self.get.key)

    @property
    def url(self) -> str:
        """What the current attempt asks for; empty before the first."""
        return self._request.url if self._request is not None else ""

    # ---- Sending -------------------------------------------------------------------------

    def sign(self) -> HttpRequest | None:
        """Ask the provider for the next attempt's request."""
        get = self.get
        self.attempt += 1
        self._checked = False
        self._fault = None
        self._resumed_at = self.reached
        self._request = get.provider.signed_get(
            get.key, self._asked(), if_match=get.if_match or self._pin
        )
        if self._request is not None:
            self._check_request(self._request)
        return self._request

    def _check_request(self, request: HttpRequest) -> None:
        """Refuse what must not be sent; a value may be a secret and is never told."""
        headers = request.headers
        if not request.url.isascii():
            raise self._unsendable("the request cannot be sent: its URL is not plain ASCII")
        if not _UNSAFE.search("".join((*headers, *headers.values()))):
            return
        for name, value in headers.items():
            if _UNSAFE.search(name) or _UNSAFE.search(value):
                raise self._unsendable(
                    f"header {name!r} holds a line break or another character that no header may; "
                    "a credential read from a file often ends in one"
                )

    def _asked(self) -> ByteRange | None:
        """What is still missing."""
        asked = self.get.byte_range
        if not self.reached:
            return asked
        if asked is None:
            return ByteRange(self.reached)
        return ByteRange(asked.start + self.reached, asked.stop)

    def load(self, slot: Slot, request: HttpRequest) -> None:
        """Make a handle ready to send the request."""
        easy = slot.easy
        easy.setopt(pycurl.URL, request.url)
        # Never an empty list: it would leave the headers, and the secrets, of another request.
        lines = ["Accept: */*"]
        for name, value in request.headers.items():
            lines.append(f"{name}: {value}" if value else f"{name};")
        easy.setopt(pycurl.HTTPHEADER, lines)
        most = self._most_bytes()
        if most != slot.most_bytes:
            slot.most_bytes = most
            easy.setopt(pycurl.MAXFILESIZE_LARGE, most)
        if self.get.into is not None:
            easy.setopt(pycurl.WRITEFUNCTION, self._write)
        self.slot = slot

    def _most_bytes(self) -> int:
        asked = self.get.byte_range
        if asked is None or asked.stop is None:
            return 0
        return max(_FREE_BYTES, asked.stop - asked.start)

    def unload(self) -> None:
        """Part from the handle, which goes home ready for another transfer."""
        slot = self._slot()
        self.slot = None
        slot.lines.clear()
        slot.chunks.clear()
        if self.get.into is not None:
            slot.easy.setopt(pycurl.WRITEFUNCTION, slot.chunks.append)
        slot.home.append(slot)

    def call_verb(self) -> Body | ProviderError:
        """Read by the provider's own verb: it has no requests to give away."""
        return perform(self.get)

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

    def conclude(self, code: int, message: str) -> Body | ProviderError:
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

    def _plain_body(self, slot: Slot) -> bytes | None:
        """Return the body of the commonest exchange: all that was asked for, at once."""
        get = self.get
        expected = _OK if get.byte_range is None else _PARTIAL
        if get.into is not None or slot.easy.getinfo(pycurl.RESPONSE_CODE) != expected:
            return None
        body = b"".join(slot.chunks)
        size = len(body)
        if get.byte_range is not None and not _fits(get.byte_range, slot.lines, size):
            return None
        if slot.easy.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T) != size:
            return None
        if get.if_match is not None and not self._shows_pin(get.if_match, slot.lines, size):
            return None
        self.received = size
        return body

    def _shows_pin(self, pin: ObjectInfo, lines: list[bytes], size: int) -> bool:
        """Whether an answer is plainly of the pinned version."""
        if self.get.byte_range is None and pin.size not in (0, size):
            return False
        if not self.get.provider.pins_by_etag:
            return True
        etag = f'"{pin.etag}"'.encode()
        return any(etag in line for line in lines)

    def _judge(self, slot: Slot, code: int, message: str) -> Body | ProviderError:
        self.received = 0
        if self._fault is not None:
            raise self._fault
        headers = Headers.parse(slot.lines)
        if code:
            error = self._untunnelled() or self._lost(code, message)
            began = slot.chunks or self.reached > self._resumed_at
            if began and headers.status in _SUCCESSES and error.retryable:
                self._take_in(slot, headers)
                self._keep(headers)
            return error
        if headers.status not in _SUCCESSES:
            return self._refused(headers.status, headers, b"".join(slot.chunks))
        self._take_in(slot, headers)
        return self._whole(headers)

    def _take_in(self, slot: Slot, headers: Headers) -> None:
        """Check the head and move the body's chunks to what is kept."""
        if not self._checked:
            self._check_head(headers)
        if self.get.into is None:
            self._kept += slot.chunks
            self.reached += sum(map(len, slot.chunks))
        self.received = self.reached - self._resumed_at
        if self._span_bytes is not None and self.received > self._span_bytes:
            raise self._broken(f"{self.received} bytes came instead of {self._span_bytes}")

    def _whole(self, headers: Headers) -> Body | ProviderError:
        if self._body_bytes is not None and self.reached < self._body_bytes:
            error = self._unavailable(
                f"the body ended after {self.reached} of {self._body_bytes} bytes"
            )
            self._keep(headers)
            return error
        if self._body_bytes is not None and self.reached > self._body_bytes:
            raise self._broken(f"{self.reached} bytes came instead of {self._body_bytes}")
        into = self.get.into
        return b"".join(self._kept) if into is None else into[: self.reached]

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
            self.told = find(self._slot().lines)

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
        self._kept.clear()
        self.told = None
        self.reached = 0
        self._pin = None
        self._body_bytes = None

    def _start_over(self, why: str) -> ProviderError:
        """Drop what was read; the next attempts read all of it in one piece."""
        self.forget()
        self._resumable = False
        return self._unavailable(f"the rest of a broken body cannot be had: {why}")

    def _refused(self, status: int, headers: Headers, body: bytes) -> Body | ProviderError:
        get = self.get
        if status == _UNSATISFIABLE and get.byte_range is None and not self.reached:
            return b"" if get.into is None else get.into[:0]
        error = get.provider.explain(self._request, status, headers, body)
        if self._resumed_at and (
            isinstance(error, RangeError)
            or (isinstance(error, PreconditionError) and get.if_match is None)
        ):
            return self._start_over("the object changed meanwhile")
        return error

    # ---- Errors --------------------------------------------------------------------------

    def _lost(self, code: int, message: str) -> ProviderError:
        """Say what libcurl's error code means."""
        if code == pycurl.E_OPERATION_TIMEDOUT:
            return self.timed_out(message)
        if code in _UNTRUSTED:
            ca = self._slot().settings.connection.ca
            return self._unsendable(
                f"the certificate is not trusted, or cannot be used: {message}; trusted are those "
                f"of {ca} (option ca_file)"
            )
        if code == pycurl.E_SSL_CONNECT_ERROR and _NOT_TLS in message:
            return self._unsendable(f"the endpoint does not speak TLS: {message}; is it http://?")
        if code == pycurl.E_FILESIZE_EXCEEDED:
            return self._broken(f"far more bytes came than were asked for: {message}")
        if code in _UNSENDABLE:
            return self._unsendable(f"the request cannot be sent: {message}")
        what = "the endpoint cannot be reached" if code in _UNREACHED else "the connection broke"
        return self._unavailable(f"{what}: {message}")

    def _untunnelled(self) -> ProviderError | None:
        """Say that a proxy refused, if it did."""
        status = self._slot().easy.getinfo(pycurl.HTTP_CONNECTCODE)
        if status < _FIRST_ERROR:
            return None
        refusal = f"the proxy did not connect to the endpoint: it answered {status}"
        if status < _FIRST_SERVER_ERROR:
            return self._unsendable(
                f"{refusal}; see to the option proxy, its user and password, or except the host "
                "in NO_PROXY"
            )
        return self._unavailable(refusal)

    def _unsendable(self, message: str) -> SettingsError:
        return SettingsError(message, uri=self.uri, operation="get")

    def timed_out(self, message: str) -> TimedOutError:
        """Return the error of an answer that did not come in time."""
        return TimedOutError(message, uri=self.uri, operation="get")

    def _unavailable(self, message: str) -> UnavailableError:
        return UnavailableError(message, uri=self.uri, operation="get")

    def _broken(self, message: str, status: int | None = None) -> IntegrityError:
        return IntegrityError(message, uri=self.uri, operation="get", status=status)

    # ---- Being watched -------------------------------------------------------------------

    def answered(self) -> bool:
        """Whether an answer has begun."""
        return self.slot is not None and bool(self.slot.lines)

    def first_byte_seconds(self) -> float:
        """How long the answer under way took to begin, from sending on."""
        seconds: float = self._slot().easy.getinfo(pycurl.STARTTRANSFER_TIME)
        return seconds

    def bytes_here(self) -> int:
        """How much of the result has come."""
        slot = self.slot
        if slot is None or slot.easy.getinfo(pycurl.RESPONSE_CODE) >= _FIRST_ERROR:
            return self.reached
        return self.reached + sum(map(len, slot.chunks))

    def bytes_left(self) -> int | None:
        """How much is still to come, as far as is known."""
        asked = self.get.byte_range
        whole = self._body_bytes or self.get.size_bytes
        if not whole and asked is not None and asked.stop is not None:
            whole = asked.stop - asked.start
        if not whole and self.answered():
            whole = self.declared_bytes() or 0
        return whole - self.bytes_here() if whole else None

    def declared_bytes(self) -> int | None:
        """Return the Content-Length of an answer whose head is complete."""
        slot = self.slot
        if slot is None or not slot.lines or slot.lines[-1] != b"\r\n":
            return None
        return Headers.parse(slot.lines).length


def _fits(asked: ByteRange, lines: list[bytes], size: int) -> bool:
    """Whether an answer is plainly the whole of a range, as far as the object goes."""
    found = _WHOLE_RANGE.search(b"".join(lines))
    if found is None:
        return False
    first, stop, whole = int(found[1]), int(found[2]) + 1, int(found[3])
    wanted = whole if asked.stop is None else min(asked.stop, whole)
    return first == asked.start and stop == wanted and size == stop - first
