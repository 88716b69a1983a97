"""Waits in a stream until it is interrupted: `python -m tests.fakes.plane_interrupt`.

Says `reading` when its first body has come, expects Ctrl-C while it waits for the second, and then
reads both again. Exits with 0 if the interrupt came through and nothing was left behind.
"""

import sys

import providers.handles
from providers.http import fetch
from providers.options import TransferOptions
from providers.pacing import bytes_under_way, pace_of
from providers.watching import in_flight
from tests.fakes.plane_provider import PlaneProvider, Read


def main() -> None:
    """Read, be interrupted, look round, read again."""
    endpoint = sys.argv[1]
    provider = PlaneProvider(endpoint)
    transfer = TransferOptions()
    interrupted = False
    try:
        for _ in fetch([Read(provider, "first"), Read(provider, "second")], transfer):
            sys.stdout.write("reading\n")
            sys.stdout.flush()
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
