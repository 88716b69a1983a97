"""How many requests at once an endpoint is worth, by Little's law.

What is under way is rate times latency. Once the way carries no more, further requests only
wait for each other: latency grows in their number's stead. They would add memory and delay the
body that the consumer wants next, and bring nothing.
"""

from __future__ import annotations

import math
import time

__all__ = ["Demand"]

_FIRST = 16
_FEWEST = 8
_CHEAP_BYTES = 4 << 20
_MOST_CHEAP = 48
_SOON_SECONDS = 0.1
"""Where reads end so soon, so much under way delays nobody, and it costs less CPU: bodies of 100 KB
took 88 us each with 8 under way and 73 us with 48, since more is done in each turn."""
_GAIN = 2.0
"""How many times the latency that a read has alone it may take; without waiting, what is wanted
doubles with each round."""
_LIMITED = 0.75
"""Of what was wanted; below, somebody else limits, a slow consumer say, and nothing is learned."""
_AGEING = 1.1
_AGEING_SECONDS = 10.0
"""A latency that has not been seen for long is believed less and less."""


class Demand:
    """Learns from each read that ends; not thread-safe, its owner's lock protects it.

    Attributes:
        wanted: requests to have under way.
    """

    __slots__ = (
        "_aged_at", "_alone", "_alone_seconds", "_bytes", "_ended", "_most", "_taken_seconds",
        "wanted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.wanted = _FIRST
        # The shortest time that reads took, by the power of two above their size.
        self._alone: dict[int, float] = {}
        self._aged_at = time.monotonic()
        self._restart()

    def _restart(self) -> None:
        self._ended = self._most = self._bytes = 0
        self._alone_seconds = self._taken_seconds = 0.0

    def learn(self, size_bytes: int, seconds: float, in_flight: int) -> None:
        """Take in one read.

        Args:
            size_bytes: of its body.
            seconds: from its sending to its end.
            in_flight: requests under way, itself included.
        """
        size = size_bytes.bit_length()
        alone = self._alone[size] = min(seconds, self._alone.get(size, math.inf))
        self._most = max(self._most, in_flight)
        self._ended += 1
        self._bytes += size_bytes
        self._alone_seconds += alone
        self._taken_seconds += seconds
        if self._ended >= self.wanted:
            self._conclude()

    def _conclude(self) -> None:
        """Judge one round: as many reads as are wanted at once."""
        if self._most >= self.wanted * _LIMITED:
            share = self._alone_seconds / max(self._taken_seconds, 1e-9)
            self.wanted = max(self._fewest(), math.ceil(_GAIN * self.wanted * share))
        self._restart()
        now = time.monotonic()
        if now - self._aged_at > _AGEING_SECONDS:
            self._aged_at = now
            self._alone = {size: alone * _AGEING for size, alone in self._alone.items()}

    def _fewest(self) -> int:
        """Return how many reads like those of the round are never too many."""
        if self._taken_seconds > self._ended * _SOON_SECONDS:
            return _FEWEST
        mean = max(1, self._bytes // self._ended)
        return max(_FEWEST, min(_MOST_CHEAP, _CHEAP_BYTES // mean))
