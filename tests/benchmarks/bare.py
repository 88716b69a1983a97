"""No contestant but a floor: libcurl from Python, with nothing around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.benchmarks.measure import Totals
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.measure import Job, Read

__all__ = ["prepare"]

_IN_FLIGHT = 16
_READ_BYTES = 512 << 10


def prepare(job: Job) -> Read:
    """Return a loop that signs, checks, counts and retries nothing, and sees no header."""
    import pycurl

    multi = pycurl.CurlMulti()
    chunks: dict[Any, list[bytes]] = {}
    for _ in range(_IN_FLIGHT):
        easy = pycurl.Curl()
        chunks[easy] = []
        easy.setopt(pycurl.WRITEFUNCTION, chunks[easy].append)
        easy.setopt(pycurl.BUFFERSIZE, _READ_BYTES)
        easy.setopt(pycurl.CAINFO, job.rig.ca_file)

    def read(keys: list[str]) -> Totals:
        urls = (f"{job.endpoint}/{BUCKET}/{key}" for key in keys)
        sizes = [len(body) for body in _bodies(multi, chunks, urls)]
        return Totals(len(sizes), sum(sizes))

    read(job.warm_up_keys)
    return lambda: read(job.keys)


def _bodies(multi: Any, chunks: dict[Any, list[bytes]], urls: Iterator[str]) -> Iterator[bytes]:
    """Read everything, as many at once as there are handles."""
    import pycurl

    idle = list(chunks)
    while True:
        while idle and (url := next(urls, None)) is not None:
            idle[-1].setopt(pycurl.URL, url)
            multi.add_handle(idle.pop())
        if len(idle) == len(chunks):
            return
        multi.perform()
        _, finished, failed = multi.info_read()
        if failed:
            raise RuntimeError(failed[0][2])
        if not finished:
            multi.select(1.0)
        for easy in finished:
            multi.remove_handle(easy)
            yield b"".join(chunks[easy])
            chunks[easy].clear()
            idle.append(easy)
