"""The starting side of a stream: what is begun, and within which limits."""

from __future__ import annotations

import heapq
import time
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from providers.errors import ProviderError
from providers.exchange import Transfer
from providers.gets import W
from providers.hedging import HedgedStream, Hedges
from providers.pacing import Pace, bytes_under_way
from providers.routes import Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.base import Provider
    from providers.counters import Amounts
    from providers.gets import Body
    from providers.handles import Lease
    from providers.options import TransferOptions
    from providers.values import HttpRequest

__all__ = ["StartingStream", "nothing_counted"]


class StartingStream(HedgedStream[W]):
    """Takes reads and sends them, as far as places, bytes and bodies not yet taken allow.

    Args:
        gets: what to read.
        options: limits, timeouts and the retry policy.
        ordered: hand over in the order of ``gets``; false: as they finish.
    """

    _lease: Lease

    def __init__(self, gets: Iterator[W], options: TransferOptions, *, ordered: bool) -> None:
        super().__init__()
        self._gets = gets
        self._options = options
        self._ordered = ordered
        self._max_in_flight = options.max_in_flight
        self._max_connections = options.max_connections
        self._max_bytes = options.max_bytes_in_flight
        self._next: W | None = None
        self._bytes = bytes_under_way()
        self._routes: dict[Provider, Route] = {}
        # Reads in the order in which they are handed over, and those finished out of order.
        self._queue: deque[Transfer[W]] = deque()
        self._active: dict[Any, Transfer[W]] = {}
        self._unsized: set[Transfer[W]] = set()
        self._retries: list[tuple[float, int, Transfer[W]]] = []
        self._places = 0
        self._blocked = self._unpaid = False
        self._hedges: Hedges[W] | None = Hedges() if options.hedge else None
        self._counts = nothing_counted()

    @abstractmethod
    def _failed(self, transfer: Transfer[W], error: ProviderError) -> None: ...

    @abstractmethod
    def _take_verb(self, transfer: Transfer[W], outcome: Body | ProviderError) -> None: ...

    def _fill(self) -> None:
        """Start what is due and what the limits allow."""
        self._blocked = self._unpaid = False
        if self._retries:
            self._start_due()
        room = min(
            self._max_in_flight - len(self._active),
            self._options.prefetch_objects - len(self.outstanding),
        )
        while room > 0 and not self._blocked:
            room -= 1
            get = next(self._gets, None) if self._next is None else self._next
            transfer = None if get is None else self._admit(get)
            if transfer is None:
                self._next = get
                return
            self._next = None
            self.outstanding.add(transfer)
            if self._ordered:
                self._queue.append(transfer)
            self._start(transfer)

    def _start_due(self) -> None:
        """Send again what is due and paid for."""
        now, waiting = time.monotonic(), []
        while (
            not self._blocked
            and self._retries
            and self._retries[0][0] <= now
            and len(self._active) < self._max_in_flight
        ):
            entry = heapq.heappop(self._retries)
            if self._may_retry(entry[2]):
                self._start(entry[2])
            else:
                waiting.append(entry)
        for entry in waiting:
            heapq.heappush(self._retries, entry)

    def _may_retry(self, transfer: Transfer[W]) -> bool:
        """Take a place for a retry, unless it has kept its own, and its price."""
        place = transfer.pace or self._enter(transfer.get.provider)
        if place is None:
            return False
        if transfer.owes and not place.pay_retry():
            self._unpaid = True
            if transfer.pace is None:
                self._give_place(place)
            return False
        transfer.pace = place
        transfer.paid, transfer.owes = transfer.owes, False
        return True

    def _admit(self, get: W) -> Transfer[W] | None:
        """Make a transfer if there is a place for it and for its bytes."""
        pace = self._enter(get.provider)
        if pace is None:
            return None
        size, asked = get.size_bytes, get.byte_range
        if not size and asked is not None and asked.stop is not None:
            size = asked.stop - asked.start
        if self._bytes.take(size, self._max_bytes, always=not self.outstanding):
            transfer = Transfer(get, size, pace, time.monotonic() - self.suspended)
            if not size:
                self._unsized.add(transfer)
            return transfer
        self._give_place(pace)
        self._blocked = True
        return None

    def _enter(self, provider: Provider) -> Pace | None:
        """Take a place at the provider's endpoint; one is always free for each stream."""
        route = self._routes.get(provider)
        if route is None:
            route = self._routes[provider] = Route(provider, self._lease)
        pace, most = route.pace, self._max_connections
        if self._options.adaptive and pace.demand.wanted < most:
            most = pace.demand.wanted
        if pace.enter(most, always=not self._places):
            self._places += 1
            return pace
        self._blocked = True
        return None

    def _leave(self, transfer: Transfer[W]) -> None:
        self._give_place(transfer.pace)
        transfer.pace = None

    def _give_place(self, pace: Pace | None) -> None:
        if pace is not None:
            pace.leave()
            self._places -= 1

    def _start(self, transfer: Transfer[W]) -> None:
        """Sign and send one attempt."""
        try:
            request = transfer.sign()
        except ProviderError as error:
            self._failed(transfer, error)
            return
        if request is None:
            self._take_verb(transfer, transfer.call_verb())
            return
        self._send(transfer, request)

    def _send(self, transfer: Transfer[W], request: HttpRequest) -> None:
        """Send one signed attempt."""
        route = self._routes[transfer.get.provider]
        if not request.url.startswith(route.root):
            route.turn_to(request.url, self._options)
        pace = route.pace
        if transfer.pace is not pace:
            self._leave(transfer)
            pace.enter(0, always=True)
            self._places += 1
            transfer.pace = pace
        slot = route.take_slot()
        transfer.load(slot, request)
        transfer.epoch = pace.epoch
        transfer.sent_at = now = time.monotonic()
        transfer.sent = now - self.suspended
        self._active[slot.easy] = transfer
        self._lease.multi.add_handle(slot.easy)
        self._counts["requests"] += 1


def nothing_counted() -> Amounts:
    """Return what a stream counts, before there is anything to count."""
    return {
        "requests": 0,
        "answers": 0,
        "bytes_read": 0,
        "hedges": 0,
        "unverified_reads": 0,
        "first_byte_seconds": 0.0,
    }
