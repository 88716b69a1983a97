"""What reads are signed with: found by the cloud's SDK, kept as plain data, renewed early.

A DataLoader worker signs with what came along, and loads an SDK only when that has to be
renewed.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from providers.counters import count
from providers.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers.values import HttpRequest

__all__ = ["Access", "AccessSlot", "Clock", "Sign"]

_log = logging.getLogger(__name__)

_RENEW_BETWEEN = 0.8, 0.9
"""Of what is left of their life when credentials arrive; each process draws its own moment."""
_SAME_SECONDS = 2.0
"""Answers tell the time in whole seconds."""
_REFUSED_SECONDS = 15 * 60.0
"""Source: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
(RequestTimeTooSkewed), read 2026-12-01."""
_AGAIN_SECONDS = 5.0
"""How soon an early renewal that failed is tried again."""
_STORM_SECONDS = 1.0
"""Threads whose credentials are refused together ask for new ones once."""


class Sign(Protocol):
    """Makes the signed request about one key, in microseconds."""

    def __call__(
        self,
        key: str,
        headers: Mapping[str, str],
        method: str = "GET",
        query: str = "",
        payload_hash: str | None = None,
    ) -> HttpRequest:
        """Return the request to send.

        Args:
            key: of the object.
            headers: to be sent and signed.
            method: of HTTP.
            query: percent-encoded, without its question mark.
            payload_hash: SHA-256 of the body in hex where the signature covers it; None: of
                no body for a GET, unsigned for others.
        """


class Access(ABC):
    """Address and credentials of one bucket: frozen, and pickled only where secrets may be.

    Attributes:
        expires_at: seconds since the epoch; None: never, or nobody knows.
    """

    expires_at: float | None

    @abstractmethod
    def signer(self, now: Callable[[], float]) -> Sign:
        """Return what signs reads; ``now`` gives seconds since the epoch by the service's clock."""


class Clock:
    """This machine's clock, set right by what a service's answers say.

    Attributes:
        offset_seconds: how far the service's clock is ahead.
    """

    def __init__(self) -> None:
        self.offset_seconds = 0.0
        self._told: float | None = None

    def __call__(self) -> float:
        """Return the seconds since the epoch by the service's clock."""
        return time.time() + self.offset_seconds

    def note(self, service_seconds: float) -> None:
        """Remember what time an answer says it is."""
        self._told = service_seconds - time.time()

    @property
    def is_far_off(self) -> bool:
        """Whether this machine's is so far off that a service refuses what was signed by it."""
        return self._told is not None and abs(self._told) > _REFUSED_SECONDS

    def correct(self) -> bool:
        """Go by the service's clock from now on; False where no answer told the time."""
        told = self._told
        if told is None:
            return False
        # Of threads that are refused together the first sets the clock right, for all.
        if abs(told - self.offset_seconds) > _SAME_SECONDS:
            self.offset_seconds = told
            count(refreshes=1)
            _log.warning(
                "this machine's clock is %.0f s off the service's, which signatures now go by",
                -told,
            )
        return True


A = TypeVar("A", bound=Access)


class AccessSlot(Generic[A]):
    """Holds what signs one bucket's reads; one thread at a time asks for it anew.

    Args:
        find: asks the SDK; the argument says whether earlier credentials are to be replaced.
            None: reads of this bucket cannot be signed here.
        clock: signatures go by.
    """

    def __init__(self, find: Callable[[bool], A | None], clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self.access: A | None = None
        self._sign: Sign | None = None
        self._refused = False
        self._drops = 0
        self._renewed_at = float("-inf")
        self._renew_at = float("-inf")
        self._reset()

    def _reset(self) -> None:
        """Take a fresh lock: the old one may be held by a thread that a fork did not copy."""
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def get(self) -> Sign | None:
        """Return what signs reads.

        Raises:
            ProviderError: there are no credentials, or no new ones when the old ran out.
        """
        if time.time() < self._renew_at:
            return self._sign
        if self._pid != os.getpid():
            self._reset()
        # While the old ones are good, nobody waits for whoever fetches new ones.
        if not self._lock.acquire(blocking=not self._is_good()):
            return self._sign
        try:
            if time.time() >= self._renew_at:
                self._renew()
            return self._sign
        finally:
            self._lock.release()

    def _is_good(self) -> bool:
        return time.time() < self._good_until()

    def _good_until(self) -> float:
        access = self.access
        if access is None or self._refused:
            return float("-inf")
        if access.expires_at is None:
            return float("inf")
        return access.expires_at - self._clock.offset_seconds

    def _renew(self) -> None:
        drops = -1
        # What was under way to be found while others were refused may be what they were refused.
        while drops != self._drops:
            drops = self._drops
            try:
                found = self._find(self.access is not None)
            except ProviderError as error:
                if not self._is_good():
                    raise
                self._renew_at = min(time.time() + _AGAIN_SECONDS, self._good_until())
                _log.warning("could not renew the credentials early, will try again: %s", error)
                return
            if self.access is not None:
                count(refreshes=1)
            self.adopt(found)

    def adopt(self, access: A | None) -> None:
        """Sign with this from now on."""
        renew_at = float("inf")
        if access is not None and access.expires_at is not None:
            left_seconds = access.expires_at - self._clock()
            share = random.uniform(*_RENEW_BETWEEN)  # noqa: S311 jitter is no secret
            # What has expired on arrival is for the service to refuse: asking for each read
            # would not make it younger, and it may be the clock that is wrong.
            pause_seconds = left_seconds * share if left_seconds > 0 else _STORM_SECONDS
            renew_at = time.time() + pause_seconds
        # In this order: others look without the lock.
        self._sign = None if access is None else access.signer(self._clock)
        self.access, self._refused = access, False
        self._renew_at = renew_at

    def renew(self, reopen: Callable[[], None]) -> None:
        """Have new credentials found for those that were refused, unless others just have.

        Args:
            reopen: makes the SDK forget the old ones.
        """
        now = time.monotonic()
        if now - self._renewed_at >= _STORM_SECONDS:
            self._renewed_at = now
            reopen()
            self.drop()

    def drop(self) -> None:
        """Have the next read ask anew, and wait for it: what there is was refused."""
        self._drops += 1
        self._refused = True
        self._renew_at = float("-inf")
