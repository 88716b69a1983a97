"""Reads with 2,000 descriptors open: `python -m tests.fakes.plane_descriptors ENDPOINT CA`.

Reads before they are opened, begins a stream, opens them, ends that stream and begins another.
Exits with 0 if every body was right, and says the highest descriptor of a connection.
"""

import os
import resource
import sys
from collections.abc import Iterator

from providers.connections import Connection
from providers.errors import ProviderError
from providers.http import fetch
from providers.options import TransferOptions
from tests.fakes.plane_provider import PlaneProvider, Read

DESCRIPTORS = 2_000
KEYS = [f"object-{number}" for number in range(100)]
_WANTED = DESCRIPTORS + 500


def body_of(key: str) -> bytes:
    """What the server must hold under a key."""
    return key.encode() * 5_000


def highest_socket() -> int:
    """Return the highest descriptor that is a connection."""
    found = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 names are all that is wanted
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                found = max(found, int(name))
        except FileNotFoundError:
            continue  # that of the listing itself
    return found


def check(items: Iterator[tuple[Read, object]], wanted: int) -> None:
    """Read a stream to its end and compare."""
    right = sum(body == body_of(read.key) for read, body in items)
    if right != wanted:
        raise SystemExit(f"{right} of {wanted} bodies were right")


def main() -> None:
    """Read, open, read."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < _WANTED:
        sys.stdout.write(f"capped {most}\n")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (_WANTED, most))
    endpoint, ca = sys.argv[1:]
    provider = PlaneProvider(endpoint, connection=Connection(ca))
    transfer = TransferOptions(max_in_flight=16)

    def stream() -> Iterator[tuple[Read, bytes | memoryview | ProviderError]]:
        return iter(fetch((Read(provider, key) for key in KEYS), transfer))

    begun = stream()
    next(begun)
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS)]
    # A stream within the first makes connections of its own, with high descriptors.
    check(stream(), len(KEYS))
    highest = highest_socket()
    check(begun, len(KEYS) - 1)
    check(stream(), len(KEYS))
    sys.stdout.write(f"{highest} {len(held)}\n")


if __name__ == "__main__":
    main()
