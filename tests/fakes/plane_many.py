"""Reads a great many objects at once: `python -m tests.fakes.plane_many ENDPOINT SEED`.

In `--threads` threads or `--processes` forked processes, whose parent has a stream half consumed
at that moment. Exits with 0 if the SHA-256 of every body was right, and says how many there were.
"""

import argparse
import hashlib
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from providers.http import fetch
from providers.options import TransferOptions
from tests.fakes.plane_dropping import dropped_objects
from tests.fakes.plane_provider import PlaneProvider, Read

_TRANSFER = TransferOptions(max_in_flight=4, max_connections=128, adaptive=False)


class Reader:
    """Reads and compares.

    Args:
        endpoint: of the server.
        sums: SHA-256 of each object.
    """

    def __init__(self, endpoint: str, sums: Mapping[str, str]) -> None:
        self._provider = PlaneProvider(endpoint)
        self._sums = sums
        self._keys = list(sums)

    def stream(self, first: int, count: int) -> Iterator[tuple[Read, object]]:
        """Begin to read so many objects, from one of them on."""
        keys = (self._keys[(first + place) % len(self._keys)] for place in range(count))
        reads = (Read(self._provider, key) for key in keys)
        return iter(fetch(reads, _TRANSFER, ordered=bool(first % 2)))

    def check(self, items: Iterator[tuple[Read, object]]) -> int:
        """Read to the end; return how many bodies were right."""
        right = 0
        for read, body in items:
            if not isinstance(body, bytes):
                raise SystemExit(f"{read.key}: {body}")
            right += hashlib.sha256(body).hexdigest() == self._sums[read.key]
        return right


def in_threads(reader: Reader, threads: int, count: int) -> int:
    """Read in threads."""
    each = count // threads
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(reader.check, reader.stream(n, each)) for n in range(threads)]
        return sum(job.result() for job in jobs)


def in_processes(reader: Reader, processes: int, count: int) -> int:
    """Read in forked processes, and a little in the parent."""
    items = reader.stream(0, 100)
    next(items)
    context = multiprocessing.get_context("fork")
    counts = context.SimpleQueue()
    each = count // processes

    def work(number: int) -> None:
        counts.put(reader.check(reader.stream(number, each)))

    workers = [context.Process(target=work, args=(n,)) for n in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers) or reader.check(items) != 100 - 1:
        raise SystemExit("a worker or the parent failed")
    return sum(counts.get() for _ in workers)


def main() -> None:
    """Read as told."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("endpoint")
    arguments.add_argument("seed", type=int)
    arguments.add_argument("--threads", type=int)
    arguments.add_argument("--processes", type=int)
    arguments.add_argument("--count", type=int, required=True)
    chosen = arguments.parse_args()
    objects = dropped_objects(chosen.seed)
    sums = {key: hashlib.sha256(body).hexdigest() for key, body in objects.items()}
    reader = Reader(chosen.endpoint, sums)
    if chosen.threads:
        right = in_threads(reader, chosen.threads, chosen.count)
    else:
        right = in_processes(reader, chosen.processes, chosen.count)
    sys.stdout.write(f"{right}\n")


if __name__ == "__main__":
    main()
