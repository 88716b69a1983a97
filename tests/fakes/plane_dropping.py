"""A server that drops connections at random: `python -m tests.fakes.plane_dropping SEED`.

Says its endpoint on a line, serves until its input ends, then says how many requests it got and
how many of them it dropped.
"""

import random
import sys

from tests.fakes.plane_server import Exchange, Fault, PlaneServer, cut_after, reset_at_once

_OBJECTS = 200
_DROPPED = 0.03


def dropped_objects(seed: int) -> dict[str, bytes]:
    """Objects of 1 to 20 KB, the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311 no secret
    sizes = [chance.randrange(1_000, 20_000) for _ in range(_OBJECTS)]
    return {f"object-{number}": chance.randbytes(size) for number, size in enumerate(sizes)}


class Dropping:
    """Answers properly, but for some requests that end their connection somewhere."""

    def __init__(self, seed: int) -> None:
        self.dropped = 0
        self._chance = random.Random(seed)  # noqa: S311 no secret

    def __call__(self, exchange: Exchange) -> None:
        """Answer, or not."""
        if self._chance.random() >= _DROPPED:
            exchange.answer(*exchange.properly())
            return
        self.dropped += 1
        size = self._chance.randrange(1_000)
        faults: list[Fault] = [
            reset_at_once,
            cut_after(size),
            cut_after(size, reset=True),
            cut_after(-1),
            lambda exchange: exchange.close(),
        ]
        self._chance.choice(faults)(exchange)


def main() -> None:
    """Serve."""
    seed = int(sys.argv[1])
    dropping = Dropping(seed)
    with PlaneServer(dropped_objects(seed)) as server:
        server.fault(dropping, times=None)
        sys.stdout.write(f"{server.endpoint}\n")
        sys.stdout.flush()
        sys.stdin.read()
        sys.stdout.write(f"{len(server.seen)} {dropping.dropped}\n")


if __name__ == "__main__":
    main()
