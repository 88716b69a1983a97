"""One read on its way: what is sent, and what is known of it meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pycurl

from providers.errors import ProviderError, SettingsError, TimedOutError
from providers.gets import W, joined, perform
from providers.headers import Headers
from providers.reception import Reception

if TYPE_CHECKING:
    from collections.abc import Sequence

    from providers.gets import Body, Pieces
    from providers.handles import Slot
    from providers.pacing import Pace
    from providers.retry import Failures
    from providers.values import HttpRequest

__all__ = ["Transfer"]

_FIRST_ERROR = 300
_UNSAFE = re.compile(r"[^\t -~]")
"""What in a header could smuggle another one in, or is understood in several ways."""
_FREE_BYTES = 1 << 20
"""Bodies up to this size are let in whatever was expected: error answers are."""


class Transfer(Reception[W]):
    """One read through all its attempts.

    Attributes:
        charge: bytes taken from the process's account.
        pace: of its endpoint; None: this transfer holds no place there.
        epoch: of the pace when the current attempt was sent.
        attempt: number of the current one.
        began: when the first was sent, on the stream's clock.
        sent: when the current one was, on the stream's clock.
        sent_at: the same on the wall's.
        failures: those that counted; None: none so far.
        owes: whether the next attempt is one that the budget of retries pays for.
        paid: whether the current one was.
        result: body or error, once there is one.
        most_seen: the most bytes of the result that were ever here.
        progressed: when bytes last came, on the stream's clock.
        warned: when the lack of them was last told of.
    """

    epoch = attempt = most_seen = 0
    sent_at = 0.0
    failures: Failures | None = None
    owes = paid = False
    result: Pieces | ProviderError | None = None
    _lines: Sequence[str] = ()

    def __init__(self, get: W, charge: int, pace: Pace, now: float) -> None:
        super().__init__(get)
        self.charge = charge
        self.pace: Pace | None = pace
        self.began = self.sent = self.progressed = self.warned = now

    @property
    def url(self) -> str:
        """What the current attempt asks for; empty before the first."""
        return self._request.url if self._request is not None else ""

    # ---- Sending -------------------------------------------------------------------------

    def sign(self) -> HttpRequest | None:
        """Ask the provider for the next attempt's request."""
        get = self.get
        self.attempt += 1
        if self.attempt > 1:
            self._checked = False
            self._fault = None
            self._resumed_at = self.reached
        self._request = request = get.provider.signed_get(
            get.key,
            self._asked() if self.reached else get.byte_range,
            if_match=get.if_match or self._pin,
        )
        if request is not None:
            headers = request.headers
            # Never an empty list: it would leave the headers, and the secrets, of another request.
            self._lines = lines = ["Accept: */*", *map(": ".join, headers.items())]
            text = "".join(lines)
            if not (text.isascii() and text.isprintable() and request.url.isascii()):
                self._check_request(request)
            if "" in headers.values():
                # How libcurl is told to send a header without a value.
                self._lines = [line if line[-2:] != ": " else f"{line[:-2]};" for line in lines]
        return request

    def _check_request(self, request: HttpRequest) -> None:
        """Refuse what must not be sent; a value may be a secret and is never told."""
        if not request.url.isascii():
            raise self._unsendable("the request cannot be sent: its URL is not plain ASCII")
        for name, value in request.headers.items():
            if _UNSAFE.search(name) or _UNSAFE.search(value):
                raise self._unsendable(
                    f"header {name!r} holds a line break or another character that no header may; "
                    "a credential read from a file often ends in one"
                )

    def load(self, slot: Slot, request: HttpRequest) -> None:
        """Make a handle ready to send the request."""
        easy = slot.easy
        easy.setopt(pycurl.URL, request.url)
        easy.setopt(pycurl.HTTPHEADER, self._lines)
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

    def _unsendable(self, message: str) -> SettingsError:
        return SettingsError(message, uri=self.uri, operation="get")

    def timed_out(self, message: str) -> TimedOutError:
        """Return the error of an answer that did not come in time."""
        return TimedOutError(message, uri=self.uri, operation="get")

    def take(self) -> Body | ProviderError:
        """Give the result away; raises where there is none."""
        result, self.result = self.result, None
        if result is None:
            raise RuntimeError("the transfer has no result")
        return result if isinstance(result, ProviderError) else joined(result)

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
