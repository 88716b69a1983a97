"""Waits in a stream until it is interrupted: `python -m tests.fakes.plane_interrupt`.

Says `reading` when its stream is about to wait, expects Ctrl-C while it waits, and then reads
again. Exits with 0 if the interrupt came through and nothing was left behind.
"""

import sys
from typing import Any

import providers.handles
from providers.http import _Stream, fetch
from providers.options import TransferOptions
from providers.pacing import bytes_under_way, pace_of
from providers.watching import in_flight
from tests.fakes.plane_provider import PlaneProvider, Read


def say_when_waiting() -> None:
    """Speak from within the stream, so that an interrupt cannot come before it waits."""
    wait = _Stream._wait

    def said(stream: _Stream[Any]) -> None:
        _Stream._wait = wait  # type: ignore[method-assign]
        sys.stdout.write("reading\n")
        sys.stdout.flush()
        wait(stream)

    _Stream._wait = said  # type: ignore[method-assign, assignment]


def main() -> None:
    """Read, be interrupted, look round, read again."""
    endpoint = sys.argv[1]
    provider = PlaneProvider(endpoint)
    transfer = TransferOptions()
    interrupted = False
    say_when_waiting()
    try:
        list(fetch([Read(provider, "first"), Read(provider, "second")], transfer))
    except KeyboardInterrupt:
        interrupted = True
    left = (
        pace_of(endpoint).in_flight, bytes_under_way().taken, in_flight(),
        len(providers.handles._alive), len(providers.handles._pool),
    )  # fmt: skip
    again = [
        body for _, body in fetch([Read(provider, "first"), Read(provider, "second")], transfer)
    ]
    good = interrupted and left == (0, 0, [], 0, 0) and again == [b"first", b"second"]
    sys.stdout.write(f"{interrupted} {left} {again}\n")
    sys.exit(not good)


if __name__ == "__main__":
    main()
