"""What is measured, against whom, and what ratio is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["CASES", "Case", "Client", "Wanted"]

Metric = Literal["cpu_us", "rate", "megabytes", "cpu_gigabyte"]


@dataclass(frozen=True)
class Client:
    """One client of a case.

    Attributes:
        name: as its module has it.
        module: of `tests.benchmarks.clients`.
        objects: read in one full run; a quick one reads a quarter.
    """

    name: str
    module: str
    objects: int


@dataclass(frozen=True)
class Wanted:
    """A ratio to reach: this project's median by the best of some peers'.

    Attributes:
        peers: whose best counts.
        ratio: at most for what costs, at least for what is fast.
    """

    peers: tuple[str, ...]
    ratio: float


@dataclass(frozen=True)
class Case:
    """One row, or one table, of the report.

    Attributes:
        name: for the command line.
        title: for the reader.
        cloud: ``s3``, ``gs`` or ``oss``.
        profile: of the server: ``zero``, ``slow`` or ``tls``.
        kind: of the objects.
        metric: what is compared.
        clients: this project first.
        wanted: the ratios.
        more: what else the clients are told.
        by_name: the server is reached through a host name.
    """

    name: str
    title: str
    cloud: str
    profile: str
    kind: str
    metric: Metric
    clients: tuple[Client, ...]
    wanted: tuple[Wanted, ...]
    more: dict[str, Any] = field(default_factory=dict)
    by_name: bool = False

    @property
    def is_cost(self) -> bool:
        """Whether less is better."""
        return self.metric in {"cpu_us", "cpu_gigabyte"}


_OBSTORE = ("obstore-async", "obstore-threads")
_AMAZON = ("s3torchconnector", "s3torchconnector-threads")
_DATAFLUX = ("dataflux-1", "dataflux-16", "dataflux-1-composed", "dataflux-16-composed")


def _s3_loader(style: str, workers: int, kind: str = "small", ratio: float = 20) -> Case:
    shuffled = "map dataset, shuffled" if style == "map" else "iterable dataset"
    size = "100 KB" if kind == "small" else "1 MB"
    many = 12_000 if kind == "small" else 4_000
    return Case(
        f"s3-{kind}-{style}-{workers}",
        f"{size} objects, 20 ms, {shuffled}, batch 64, {workers} workers",
        "s3",
        "slow",
        kind,
        "rate" if kind == "small" else "megabytes",
        (
            Client("ours-dataset", "ours", many),
            Client("s3torchconnector-dataset", "s3", 1000 if workers == 0 else 2000),
        ),
        (Wanted(("s3torchconnector-dataset",), ratio),),
        {"style": style, "workers": workers, "batch": 64},
    )


def _oss_loader(style: str, profile: str) -> Case:
    what = "map dataset, shuffled" if style == "map" else "iterable dataset"
    slow = profile == "slow"
    return Case(
        f"oss-small-{style}-{profile}",
        f"OSS: 100 KB objects, {'20 ms' if slow else 'zero latency'}, {what}, batch 64, 0 workers",
        "oss",
        profile,
        "small",
        "rate" if slow else "cpu_us",
        (Client("ours-dataset", "ours", 12_000), Client("osstorchconnector", "oss", 12_000)),
        (Wanted(("osstorchconnector",), 1.2 if slow else 1.0),),
        {"style": style, "workers": 0, "batch": 64},
        by_name=True,
    )


def _single(profile: str) -> Case:
    tls = profile == "tls"
    clients = [
        Client("ours", "ours", 20_000),
        Client("obstore-async", "s3", 20_000),
        Client("obstore-threads", "s3", 20_000),
        Client("s3torchconnector", "s3", 6_000),
        Client("s3torchconnector-threads", "s3", 6_000),
        Client("boto3-threads", "s3", 3_000),
        Client("wrk", "", 0),
    ]
    wanted = (Wanted(_OBSTORE, 0.6), Wanted(_AMAZON, 0.35), Wanted(("boto3-threads",), 0.1))
    return Case(
        f"s3-small-{profile}",
        f"100 KB objects, zero latency{', TLS' if tls else ''}, one process",
        "s3",
        profile,
        "small",
        "cpu_us",
        tuple(c for c in clients if not tls or c.name not in {"boto3-threads", "wrk"}),
        (Wanted(_OBSTORE, 1.0), Wanted(_AMAZON, 1.0)) if tls else wanted,
        by_name=tls,
    )


CASES = (
    _single("zero"),
    _single("tls"),
    _s3_loader("map", 0),
    _s3_loader("map", 2),
    _s3_loader("iterable", 0),
    _s3_loader("iterable", 2),
    Case(
        "gcs-small-map-0",
        "GCS: 100 KB objects, 20 ms, map dataset, shuffled, batch 64, 0 workers",
        "gs",
        "slow",
        "small",
        "rate",
        (
            Client("ours-dataset", "ours", 12_000),
            Client("dataflux-1", "gcs", 640),
            Client("dataflux-16", "gcs", 2_560),
            Client("dataflux-1-composed", "gcs", 2_560),
            Client("dataflux-16-composed", "gcs", 2_560),
            Client("gcs-threads", "gcs", 2_560),
        ),
        (Wanted(_DATAFLUX, 3), Wanted(("gcs-threads",), 2)),
        {"style": "map", "workers": 0, "batch": 64},
    ),
    _oss_loader("map", "slow"),
    _oss_loader("iterable", "slow"),
    _oss_loader("map", "zero"),
    _oss_loader("iterable", "zero"),
    Case(
        "s3-small-threads",
        "100 KB objects, 20 ms, a loop that reads with 32 in flight",
        "s3",
        "slow",
        "small",
        "rate",
        (
            Client("ours", "ours", 12_000),
            Client("multi-storage-client", "s3", 2_000),
            Client("multi-storage-client-rust", "s3", 2_000),
            Client("boto3-threads", "s3", 2_000),
            Client("wrk", "", 0),
        ),
        (Wanted(("multi-storage-client", "multi-storage-client-rust"), 5),),
    ),
    Case(
        "s3-huge",
        "1 GiB into the caller's buffer, zero latency",
        "s3",
        "zero",
        "huge",
        "cpu_gigabyte",
        (
            Client("ours-buffer", "ours", 1),
            Client("obstore-ranges", "s3", 1),
            Client("obstore-whole", "s3", 1),
            Client("s3torchconnector-reader", "s3", 1),
        ),
        (
            Wanted(("obstore-ranges", "obstore-whole"), 0.6),
            Wanted(("s3torchconnector-reader",), 0.3),
        ),
    ),
    _s3_loader("map", 2, "mega", 3),
    _s3_loader("iterable", 2, "mega", 3),
)
