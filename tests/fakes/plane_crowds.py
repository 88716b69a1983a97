"""Faults that see many requests at once: how many there are, and how many a second are let in."""

import re
import threading
import time

from tests.fakes.plane_server import Exchange, Fault

_PATIENCE_SECONDS = 10.0


class Crowd:
    """Holds requests until so many are here, then lets the first go; counts the most ever here.

    The first is the one with the lowest numbers in key and range, and only then the oldest:
    requests that leave together may arrive in any order, and an ordered stream waits for one.

    Args:
        size: how many are held; fewer at the end, and after `_PATIENCE_SECONDS` in any case.
        expected: requests to come in all; the last ones wait for nobody.
        fault: answers those that go; None: properly.
    """

    def __init__(self, size: int, expected: int, fault: Fault | None = None) -> None:
        self.most = 0
        self._size = size
        self._expected = expected
        self._fault = fault
        self._came = 0
        self._here: list[tuple[list[int], int]] = []
        self._changed = threading.Condition()

    def __call__(self, exchange: Exchange) -> None:
        """Hold one request, then answer it."""
        with self._changed:
            self._came += 1
            place = _numbers(exchange), self._came
            self._here.append(place)
            self.most = max(self.most, len(self._here))
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._may_go(place), _PATIENCE_SECONDS)
            # Before the answer, so that what the answer sets off is not counted beside it.
            self._here.remove(place)
            self._changed.notify_all()
        if self._fault is None:
            exchange.answer(*exchange.properly())
        else:
            self._fault(exchange)

    def _may_go(self, place: tuple[list[int], int]) -> bool:
        if self._came >= self._expected:
            return True
        return len(self._here) >= self._size and place == min(self._here)


def _numbers(exchange: Exchange) -> list[int]:
    words = exchange.key + exchange.headers.get("range", "")
    return [int(number) for number in re.findall(r"\d+", words)]


class RateLimit:
    """Lets so many requests a second in, answers 503 to the rest, and counts both.

    Args:
        per_second: None: no limit any more.
    """

    def __init__(self, per_second: float | None) -> None:
        self.per_second = per_second
        self.good = self.refused = 0
        self._tokens = 0.0
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, exchange: Exchange) -> None:
        """Answer properly, or that there are too many."""
        with self._lock:
            now = time.monotonic()
            if self.per_second is not None:
                # Up to a tenth of a second may be saved up.
                earned = (now - self._at) * self.per_second
                self._tokens = min(self.per_second / 10, self._tokens + earned)
            self._at = now
            good = self.per_second is None or self._tokens >= 1
            self._tokens -= good
            self.good += good
            self.refused += not good
        if good:
            exchange.answer(*exchange.properly())
        else:
            exchange.answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
