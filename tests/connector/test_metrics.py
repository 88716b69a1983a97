"""What training can ask of its own reading; the examples of the module's docstring are run."""

import dataclasses
import functools
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from connector import metrics
from providers import Provider
from providers.counters import count

pytestmark = [
    # From 3.12 on, Python warns of what these tests do on purpose.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    # torch would like no more workers than there are cores.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

_SAMPLES, _WORKERS = 6, 2


class _Waiting(IterableDataset[int]):
    """Waits half a second for each sample, as the counters have it."""

    def __iter__(self) -> Iterator[int]:
        for number in range(_SAMPLES // _WORKERS):
            count(seconds_waited=0.5, bytes_read=1)
            yield number


def example(word: str) -> str:
    """Return the one code block of the docstring that holds a word."""
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", metrics.__doc__ or "")
    (found,) = (block for block in blocks if word in block)
    return textwrap.dedent(found)


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run an example with the names it takes for granted."""
    namespace = {"metrics": metrics, "functools": functools, "torch": torch, **names}
    exec(compile(code, "example", "exec"), namespace)  # noqa: S102 our own docstring
    return namespace


def test_reads_and_writes_show(bucket: Provider) -> None:
    """What this process reads and writes is in the next snapshot."""
    before = metrics.snapshot()
    bucket.put("key", b"12345")
    bucket.get("key")
    after = metrics.snapshot()
    assert after.bytes_written - before.bytes_written == 5
    assert after.bytes_read - before.bytes_read == 5


def test_nothing_is_in_flight_when_nothing_is_read() -> None:
    """The list of unfinished reads is empty when all are finished."""
    assert metrics.in_flight() == []


def test_time_waited_tells_of_starving(capsys: pytest.CaptureFixture[str]) -> None:
    """The documented sum tells the share of time for which training waited for data."""

    def clock() -> Iterator[float]:
        yield from (0.0, 10.0)

    ticks = clock()
    names = {
        "time": type("Clock", (), {"monotonic": staticmethod(lambda: next(ticks))}),
        "train_one_epoch": lambda: count(seconds_waited=2.5),
    }
    run(example("train_one_epoch"), **names)
    assert capsys.readouterr().out == "waited for data 25% of the time\n"


def test_workers_count_for_themselves() -> None:
    """The training process hears nothing of a worker's reads but by the documented way."""
    before = metrics.snapshot()
    loader = functools.partial(DataLoader, batch_size=None, multiprocessing_context="fork")
    names = run(
        example("share_waiting"), DataLoader=loader, dataset=_Waiting(), num_workers=_WORKERS
    )
    assert len(list(names["loader"])) == _SAMPLES
    assert names["totals"].tolist() == [0.5 * _SAMPLES / _WORKERS] * _WORKERS
    assert metrics.snapshot() == before


def test_export_to_opentelemetry() -> None:
    """The documented exporter passes every amount to the counter of its name."""
    added: list[tuple[str, float]] = []

    class Counter:
        def __init__(self, name: str) -> None:
            self._name = name

        def add(self, amount: float) -> None:
            added.append((self._name, amount))

    class Meter:
        create_counter = Counter

    code = example("create_counter").replace("metrics.on_count(", "stop = metrics.on_count(")
    stop = run(code, meter=Meter(), dataclasses=dataclasses)["stop"]
    count(requests=1, seconds_waited=0.5)
    stop()
    count(requests=1)
    assert added == [("connector.requests", 1), ("connector.seconds_waited", 0.5)]
