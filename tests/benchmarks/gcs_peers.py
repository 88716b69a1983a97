"""Contestants on GCS: gcs-torch-dataflux, and plain threads over google-cloud-storage."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from tests.benchmarks.loading import epoch
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.benchmarks.measure import Job, Read

__all__ = ["prepare"]

_THREADS = 32


def prepare(job: Job) -> Read:
    """Return the client's read."""
    os.environ["STORAGE_EMULATOR_HOST"] = job.endpoint
    make: Callable[[str], Any] = (
        _dataflux(job) if job.client.startswith("dataflux/") else _threaded(job)
    )
    return epoch(job, make, shuffle=job.way.startswith("map"))


def _dataflux(job: Job) -> Callable[[str], Any]:
    from dataflux_pytorch import dataflux_iterable_dataset, dataflux_mapstyle_dataset

    way, threads, *compose = job.way.split("-")
    settings: dict[str, Any] = {"disable_compose": not compose, "num_processes": 1}
    if way == "map":
        module, kind = dataflux_mapstyle_dataset, "DataFluxMapStyleDataset"
        settings["threads_per_process"] = int(threads)
    else:
        module, kind = dataflux_iterable_dataset, "DataFluxIterableDataset"

    def make(prefix: str) -> Any:
        # It makes its own client in each process: one given to it shares sockets across a fork.
        return getattr(module, kind)(
            project_name="benchmark",
            bucket_name=BUCKET,
            config=module.Config(prefix=prefix, sort_listing_results=True, **settings),
        )

    return make


def _threaded(job: Job) -> Callable[[str], Any]:
    kind = _ThreadedMap if job.way.startswith("map") else _ThreadedIterable

    def make(prefix: str) -> Any:
        count = int(prefix.split("/")[1])
        return kind([f"{prefix}{number:07d}.bin" for number in range(count)])

    return make


class _Threads:
    """What a user would write: a client and a pool of threads for each process."""

    def __init__(self) -> None:
        import requests
        from google.cloud import storage

        client = storage.Client(project="benchmark")
        # Its own pool of ten connections would throw most of them away.
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=_THREADS)
        client._http.mount("http://", adapter)
        self._bucket = client.bucket(BUCKET)
        self._pool = ThreadPoolExecutor(_THREADS)

    def get(self, names: Sequence[str]) -> Iterator[bytes]:
        return self._pool.map(lambda name: self._bucket.blob(name).download_as_bytes(), names)


class _ThreadedMap(Dataset[bytes]):
    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._threads: _Threads | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
        self._threads = self._threads or _Threads()
        return list(self._threads.get([self._names[index] for index in indices]))


class _ThreadedIterable(IterableDataset[bytes]):
    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __iter__(self) -> Iterator[bytes]:
        worker, threads, ahead = get_worker_info(), _Threads(), 4 * _THREADS
        names = self._names[worker.id :: worker.num_workers] if worker else self._names
        for start in range(0, len(names), ahead):
            yield from threads.get(names[start : start + ahead])
