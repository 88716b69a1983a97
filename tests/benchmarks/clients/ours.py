"""This project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from connector import IterableDataset, MapDataset, bytes_of
from providers import (
    GCSOptions,
    OSSOptions,
    Provider,
    ProviderError,
    S3Options,
    open_provider,
)
from providers.transfer import Get, get_many, read_into
from tests.benchmarks.measuring import batches, whole
from tests.benchmarks.sizes import SIZES

if TYPE_CHECKING:
    from tests.benchmarks.measuring import Figures

__all__ = ["CLIENTS"]

_KEYS = {"access_key_id": "an-access-key", "region": "us-east-1"}


def _store(spec: dict[str, Any]) -> tuple[str, Any]:
    """Return the bucket's URI and its options."""
    endpoint = spec["endpoint"]
    if spec["cloud"] == "gs":
        return "gs://gbench/", GCSOptions(endpoint=endpoint, access_token="token")
    if spec["cloud"] == "oss":
        return "oss://obench/", OSSOptions(endpoint=endpoint, access_key_secret="secret", **_KEYS)
    return "s3://bench/", S3Options(endpoint=endpoint, secret_access_key="secret", **_KEYS)


def _provider(spec: dict[str, Any]) -> Provider:
    uri, options = _store(spec)
    return open_provider(uri, options=options)


def _stream(spec: dict[str, Any]) -> Figures:
    """Many objects, in one thread."""
    provider, size = _provider(spec), SIZES[spec["kind"]]

    def run(count: int) -> int:
        gets = (Get(provider, f"{spec['kind']}/{n:06}", None, None, size) for n in range(count))
        bodies = (body for _, body in get_many(gets, provider.transfer))
        return sum(len(body) for body in bodies if not isinstance(body, ProviderError))

    return whole(run, spec["objects"], size)


def _dataset(spec: dict[str, Any]) -> Figures:
    """A DataLoader over a dataset; what is shuffled is a map dataset."""
    uri, options = _store(spec)
    kind, workers = spec["kind"], spec["workers"]
    uris = [f"{uri}{kind}/{number:06}" for number in range(spec["objects"])]
    dataset: Any
    if spec["style"] == "map":
        dataset = MapDataset.from_objects(uris, transform=bytes_of, options=options)
    else:
        dataset = IterableDataset.from_objects(
            uris, transform=bytes_of, options=options, batch_size=spec["batch"]
        )
    loader = DataLoader(
        dataset,
        batch_size=spec["batch"],
        shuffle=spec["style"] == "map",
        num_workers=workers,
        collate_fn=list,
    )
    return batches(loader, SIZES[kind])


def _buffer(spec: dict[str, Any]) -> Figures:
    """One large object into the caller's buffer."""
    provider, size = _provider(spec), SIZES["huge"]
    buffer = bytearray(size)
    info = provider.head("huge/0")

    def run(count: int) -> int:
        return sum(read_into(provider, info, buffer) for _ in range(count))

    return whole(run, 1, size, warm=0)


CLIENTS = {"ours": _stream, "ours-dataset": _dataset, "ours-buffer": _buffer}
