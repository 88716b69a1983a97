"""The way to one store within a stream: endpoint, handles, pace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from providers.connections import Connection, choose_ca
from providers.handles import HandleSettings
from providers.hedging import FirstBytes, first_bytes_of
from providers.pacing import Pace, pace_of

if TYPE_CHECKING:
    from providers.base import Provider
    from providers.handles import Lease, Slot
    from providers.options import TransferOptions

__all__ = ["Route"]


class Route:
    """What all reads from one provider share within a stream.

    Attributes:
        root: ``scheme://host:port/`` of its requests; none was signed yet while it has no host.
        pace: of that endpoint.
        first_bytes: of that endpoint.
    """

    __slots__ = (
        "_connection", "_lease", "_settings", "_slots", "first_bytes", "pace", "root",
    )  # fmt: skip

    def __init__(self, provider: Provider, lease: Lease) -> None:
        connection: Connection | None = getattr(provider, "connection", None)
        self._connection = connection or Connection(choose_ca(provider.scheme))
        self._lease = lease
        self._settings: HandleSettings
        self._slots: list[Slot] = []
        self.root = "//"
        self.pace = Pace()
        self.first_bytes = FirstBytes()

    def turn_to(self, url: str, options: TransferOptions) -> None:
        """Follow the provider to the endpoint of a URL."""
        path = url.find("/", url.find("//") + 2)
        endpoint = url if path < 0 else url[:path]
        patience = max(options.low_speed_seconds, math.ceil(options.first_byte_timeout_seconds))
        self.root = f"{endpoint}/"
        self.pace = pace_of(endpoint)
        self.first_bytes = first_bytes_of(endpoint)
        self._settings = HandleSettings(
            connection=self._connection,
            proxy=self._connection.proxy_for(endpoint),
            connect_timeout_seconds=options.connect_timeout_seconds,
            low_speed_bytes_per_second=options.low_speed_bytes_per_second,
            low_speed_seconds=patience,
        )
        self._slots = self._lease.idle(self._settings)

    def take_slot(self) -> Slot:
        """Return an unused handle."""
        return self._slots.pop() if self._slots else self._lease.new_slot(self._settings)
