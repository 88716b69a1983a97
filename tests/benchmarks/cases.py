"""What is measured: cases, who takes part in each, and the ratios to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ANY_PEER", "CASES", "KINDS", "STATE", "Case", "Client", "Metric", "Target", "named"]

Metric = Literal[
    "cpu_microseconds_per_object",
    "samples_per_second",
    "megabytes_per_second",
    "cpu_seconds_per_gigabyte",
    "peak_mebibytes",
]
"""What a run is judged by; the fields of a ``results.Run``."""

STATE = "state"
"""The kind that is one tensor of a state, all of which are saved to one object."""

KINDS = {"100k": 100_000, "1m": 1_000_000, "1g": 1 << 30, STATE: 16 << 20}
"""The kinds of objects and their sizes in bytes."""

ANY_PEER = "any peer"
"""The package of a target that is compared with the best of all."""


@dataclass(frozen=True)
class Client:
    """One contestant.

    Attributes:
        name: ``package/way``; the ways of a package are compared and the best one counts.
        rate: about how many objects a second it reads, which sizes its share of a run's time.
    """

    name: str
    rate: float

    @property
    def package(self) -> str:
        """The name without the way."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Target:
    """A ratio to reach: ours to the best of the peer's, in one metric.

    Attributes:
        peer: a package, or ``ANY_PEER``; empty: the bound is absolute.
        metric: what is compared.
        ratio: at least so much where more is better, at most where less is.
    """

    peer: str
    metric: Metric
    ratio: float

    @property
    def more_is_better(self) -> bool:
        """Whether the ratio is a floor."""
        return self.metric in {"samples_per_second", "megabytes_per_second"}


@dataclass(frozen=True)
class Case:
    """One table row.

    Attributes:
        name: for the command line.
        title: for people.
        cloud: whose shapes the server speaks.
        profile: ``plain``: no latency; ``slow``: 20 ms a request, 60 ms a list; ``tls``;
            ``capped``: 20 ms, and 25 MB/s up and 50 MB/s down for each connection.
        kind: of its objects.
        clients: the contestants; the first is ours, whose ratios count.
        targets: the ratios to reach.
        workers: of the DataLoader.
        batch_size: of the DataLoader.
    """

    name: str
    title: str
    cloud: Literal["s3", "gs", "oss"]
    profile: Literal["plain", "slow", "tls", "capped"]
    kind: str
    clients: tuple[Client, ...]
    targets: tuple[Target, ...]
    workers: int = 0
    batch_size: int = 64

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What its targets go by, each once."""
        return tuple(dict.fromkeys(target.metric for target in self.targets))


def named(names: list[str]) -> list[Case]:
    """Return the cases of these names, or all; a name may be the beginning of several."""
    unknown = [name for name in names if not any(case.name.startswith(name) for case in CASES)]
    if unknown:
        known = ", ".join(case.name for case in CASES)
        raise SystemExit(f"no such case: {', '.join(unknown)}; there are {known}")
    return [case for case in CASES if not names or case.name.startswith(tuple(names))]


_CPU: Metric = "cpu_microseconds_per_object"
_RATE: Metric = "samples_per_second"

_SMALL = Case(
    "small",
    "100 KB objects, no latency, one process",
    "s3",
    "plain",
    "100k",
    (
        Client("connector/get_many", 5000),
        Client("connector/map-batches", 4000),
        Client("obstore/async", 2500),
        Client("obstore/threads", 2500),
        Client("s3torchconnector/map", 1000),
        Client("s3torchconnector/threads", 1200),
        Client("boto3/threads", 300),
        Client("pycurl/bare", 5000),
        Client("wrk", 1),
    ),
    (
        Target("obstore", _CPU, 0.6),
        Target("s3torchconnector", _CPU, 0.35),
        Target("boto3", _CPU, 0.1),
    ),
)

_SMALL_TLS = Case(
    "tls",
    "100 KB objects over TLS, no latency, one process",
    "s3",
    "tls",
    "100k",
    (
        Client("connector/get_many", 3000),
        Client("obstore/async", 1500),
        Client("obstore/threads", 1500),
        Client("s3torchconnector/map", 700),
        Client("s3torchconnector/threads", 900),
        Client("boto3/threads", 250),
        Client("pycurl/bare", 3000),
        Client("wrk", 1),
    ),
    (Target("obstore", _CPU, 1.0), Target("s3torchconnector", _CPU, 1.0)),
)


def _s3_loader(way: Literal["map", "iterable"], workers: int) -> Case:
    words = "map dataset, shuffled" if way == "map" else "iterable dataset"
    return Case(
        f"s3-{way}-{workers}",
        f"100 KB objects, 20 ms, {words}, batch 64, {workers} workers",
        "s3",
        "slow",
        "100k",
        (
            Client(f"connector/{way}", 2000),
            Client(f"s3torchconnector/{way}", 45 * max(1, workers)),
            # The same server for all cases with latency: once is enough.
            *((Client("wrk", 1),) if (way, workers) == ("map", 0) else ()),
        ),
        (Target("s3torchconnector", _RATE, 20),),
        workers,
    )


def _gcs_loader(way: Literal["map", "iterable"], workers: int) -> Case:
    words = "map dataset, shuffled" if way == "map" else "iterable dataset"
    scale = max(1, workers)
    alone = Client(f"dataflux/{way}-1", 40 * scale)
    composed = Client(f"dataflux/{way}-1-compose", 300 * scale)
    threaded = Client(f"dataflux/{way}-16", 300), Client(f"dataflux/{way}-16-compose", 400)
    return Case(
        f"gcs-{way}-{workers}",
        f"100 KB objects, 20 ms, {words}, batch 64, {workers} workers, on GCS",
        "gs",
        "slow",
        "100k",
        (
            Client(f"connector/{way}", 2000),
            alone,
            composed,
            # Its iterable dataset knows no threads.
            *(threaded if way == "map" else ()),
            Client(f"google-cloud-storage/{way}-threads", 400),
        ),
        (Target("dataflux", _RATE, 3), Target("google-cloud-storage", _RATE, 2)),
        workers,
    )


def _oss_loader(profile: Literal["plain", "slow"], workers: int) -> Case:
    target = Target("osstorchconnector", _RATE, 1.2)
    cpu = Target("osstorchconnector", _CPU, 1.0)
    rate = 3000 if profile == "plain" else 1500
    return Case(
        f"oss-{profile}-{workers}",
        f"100 KB objects, {'no latency' if profile == 'plain' else '20 ms'}, map and iterable "
        f"datasets, batch 64, {workers} workers, on OSS",
        "oss",
        profile,
        "100k",
        (
            Client("connector/iterable", rate),
            Client("connector/map", rate),
            Client("osstorchconnector/iterable", rate / 2),
            Client("osstorchconnector/iterable-64", rate / 1.5),
            Client("osstorchconnector/map-64", rate / 2),
        ),
        (cpu if profile == "plain" else target,),
        workers,
    )


_LOOP = Case(
    "msc",
    "100 KB objects, 20 ms, a loop with threads",
    "s3",
    "slow",
    "100k",
    (
        Client("connector/get_many", 2500),
        Client("connector/map-batches", 2000),
        Client("multi-storage-client/threads", 350),
        Client("multi-storage-client/rust-threads", 1000),
    ),
    (Target("multi-storage-client", _RATE, 5),),
)

_LARGE = Case(
    "large",
    "one object of 1 GiB into the caller's buffer, no latency",
    "s3",
    "plain",
    "1g",
    (
        Client("connector/read_into", 0.2),
        Client("connector/reader", 0.2),
        Client("obstore/get", 0.2),
        Client("obstore/ranges", 0.2),
        Client("s3torchconnector/read", 0.2),
        Client("s3torchconnector/readinto", 0.2),
        Client("wrk", 1),
    ),
    (
        Target("obstore", "cpu_seconds_per_gigabyte", 0.6),
        Target("s3torchconnector", "cpu_seconds_per_gigabyte", 0.3),
        Target("", "peak_mebibytes", 64),
    ),
)


def _medium(way: Literal["map", "iterable"]) -> Case:
    words = "map dataset, shuffled" if way == "map" else "iterable dataset"
    return Case(
        f"medium-{way}",
        f"1 MB objects, 20 ms, {words}, batch 32, 2 workers",
        "s3",
        "slow",
        "1m",
        (
            Client(f"connector/{way}", 600),
            Client(f"s3torchconnector/{way}", 80),
            *((Client("wrk", 1),) if way == "map" else ()),
        ),
        (Target("s3torchconnector", "megabytes_per_second", 3),),
        workers=2,
        batch_size=32,
    )


def _checkpoint(way: Literal["save", "load"], profile: Literal["plain", "capped"]) -> Case:
    words = (
        "20 ms, 25 MB/s up and 50 MB/s down a connection" if profile == "capped" else "no latency"
    )
    peers = ("s3torchconnector", "boto3", "obstore", "multi-storage-client")
    rate = Target(ANY_PEER, "megabytes_per_second", 2 if way == "save" else 3)
    return Case(
        f"{way}-torch-{profile}",
        f"`torch.{way}` of a state of float32 tensors of 16 MiB, {words}",
        "s3",
        profile,
        STATE,
        tuple(Client(f"{package}/torch-{way}", 1) for package in ("connector", *peers)),
        (
            *((rate,) if profile == "capped" else ()),
            Target(ANY_PEER, "cpu_seconds_per_gigabyte", 1),
            Target(ANY_PEER, "peak_mebibytes", 0.25),
        ),
    )


CASES = (
    _SMALL,
    _SMALL_TLS,
    *(_s3_loader(way, workers) for way in ("map", "iterable") for workers in (0, 2)),
    *(_gcs_loader(way, workers) for way in ("map", "iterable") for workers in (0, 2)),
    _oss_loader("plain", 0),
    _oss_loader("slow", 0),
    _oss_loader("slow", 2),
    _LOOP,
    _LARGE,
    _medium("map"),
    _medium("iterable"),
    _checkpoint("save", "capped"),
    _checkpoint("save", "plain"),
    _checkpoint("load", "capped"),
    _checkpoint("load", "plain"),
)
"""All cases, in the order of the report."""
