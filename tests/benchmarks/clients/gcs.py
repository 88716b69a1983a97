"""Peers that read Google Cloud Storage: gcs-torch-dataflux, and its SDK with plain threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measuring import batches
from tests.benchmarks.sizes import SIZES

if TYPE_CHECKING:
    from tests.benchmarks.measuring import Figures

__all__ = ["CLIENTS"]

_THREADS = 16


def _client(spec: dict[str, Any]) -> Any:
    os.environ["STORAGE_EMULATOR_HOST"] = spec["endpoint"]
    import requests
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    session = requests.Session()
    adapter = requests.adapters.HTTPAdapter(pool_connections=_THREADS, pool_maxsize=_THREADS)
    session.mount("http://", adapter)
    return storage.Client(
        project="bench",
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        _http=session,
    )


def _loader(spec: dict[str, Any], dataset: Any) -> Figures:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, batch_size=spec["batch"], shuffle=True, collate_fn=list)
    return batches(loader, SIZES[spec["kind"]])


def _dataflux(spec: dict[str, Any]) -> Figures:
    """Its map dataset over a client that keeps its connections."""
    from dataflux_pytorch.dataflux_mapstyle_dataset import Config, DataFluxMapStyleDataset

    config = Config(
        prefix="small/",
        num_processes=1,
        sort_listing_results=True,
        threads_per_process=spec["threads"],
        disable_compose=not spec["compose"],
    )
    client = _client(spec)
    # It asks for permissions that the server does not know of; what it composes it may.
    client.bucket("gbench").test_iam_permissions = None
    import dataflux_pytorch.dataflux_mapstyle_dataset as module

    module._get_missing_permissions = lambda **_: []
    dataset = DataFluxMapStyleDataset("bench", "gbench", config, storage_client=client)
    dataset.objects = dataset.objects[: spec["objects"]]
    return _loader(spec, dataset)


class _Threads:
    """The SDK, with a pool of threads for each batch."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._bucket = _client(spec).bucket("gbench")
        self._pool = ThreadPoolExecutor(_THREADS)
        self._objects = spec["objects"]

    def __len__(self) -> int:
        return int(self._objects)

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._bucket.blob(f"small/{index:06}").download_as_bytes())

    def __getitems__(self, indices: list[int]) -> list[bytes]:
        return list(self._pool.map(self.__getitem__, indices))


def _of(threads: int, *, compose: bool) -> Any:
    return lambda spec: _dataflux({**spec, "threads": threads, "compose": compose})


CLIENTS = {
    "dataflux-1": _of(1, compose=False),
    "dataflux-16": _of(16, compose=False),
    "dataflux-1-composed": _of(1, compose=True),
    "dataflux-16-composed": _of(16, compose=True),
    "gcs-threads": lambda spec: _loader(spec, _Threads(spec)),
}
