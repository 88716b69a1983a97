from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.cases import ANY_PEER, CASES, Target, named
from tests.benchmarks.measure import Measured
from tests.benchmarks.report import write
from tests.benchmarks.results import Results, Run, ratio, summarize

if TYPE_CHECKING:
    from pathlib import Path

CASE = named(["small"])[0]


def measured(cpu_seconds: float) -> Measured:
    """Return a run of 1,000 objects."""
    return Measured(1000, 100_000_000, 2.0, cpu_seconds, 0.5, 3.0, 1000, 100_400_000, 4)


def results(**cpu_seconds: list[float]) -> Results:
    """Return results of the case, given by client."""
    runs = [
        Run(CASE.name, client, repeat, measured(seconds))
        for client, values in cpu_seconds.items()
        for repeat, seconds in enumerate(values)
    ]
    return Results("quick", 3, {"cpu": "one"}, {"torch": "2"}, ["2026-01-02"], runs)


def test_a_peer_counts_by_its_best_way() -> None:
    """The ratio is to the median of the way that is cheapest, not to the first one."""
    told = results(
        **{
            "connector/get_many": [0.1, 0.2, 0.9],
            "obstore/async": [0.8, 0.8, 0.8],
            "obstore/threads": [0.1, 0.4, 0.5],
        }
    )
    found = ratio(summarize(told, CASE), Target("obstore", "cpu_microseconds_per_object", 0.6))
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.theirs == "obstore/threads"
    assert found.reached


def test_a_ratio_that_is_not_reached_is_said_to_be_missed(tmp_path: Path) -> None:
    """The report shows a loss as a loss, with both figures."""
    write(results(**{"connector/get_many": [0.3], "obstore/async": [0.2]}), tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "at most 0.6x | **1.5x** | 300 | 200 (obstore/async) | **missed** |" in page
    assert (tmp_path / "images" / "benchmarks-cpu.svg").exists()


def test_a_bound_that_is_no_ratio_needs_no_peer(tmp_path: Path) -> None:
    """Memory above the payload is compared with a fixed bound."""
    large = named(["large"])[0]
    told = results()
    told.add(Run(large.name, large.clients[0].name, 0, measured(0.3)), "2026-01-02")
    write(told, tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| MiB above payload | at most 64 MiB | **3 MiB** | 3.00 |  | reached |" in page


def test_a_client_that_failed_is_in_the_report_with_what_it_said(tmp_path: Path) -> None:
    """A peer that cannot be pointed at the rig is not left out in silence."""
    told = results(**{"connector/get_many": [0.3]})
    told.add(
        Run(CASE.name, "boto3/threads", 0, error="exit status 1: no | such host"), "2026-01-03"
    )
    write(told, tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "- `boto3/threads` failed: `exit status 1: no / such host`" in page
    assert "not measured" in page


def test_results_come_back_from_the_file_and_runs_that_are_done_are_known(tmp_path: Path) -> None:
    """What is resumed is what was saved; a failure is not done and is replaced."""
    path = tmp_path / "results.json"
    saved = results(**{"connector/get_many": [0.1, 0.2]})
    saved.add(Run(CASE.name, "boto3/threads", 0, error="no"), "2026-01-02")
    saved.save(path)
    loaded = Results.load(path)
    assert loaded == saved
    assert loaded.done(CASE.name, "connector/get_many", 1)
    assert not loaded.done(CASE.name, "connector/get_many", 2)
    assert not loaded.done(CASE.name, "boto3/threads", 0)
    loaded.add(Run(CASE.name, "boto3/threads", 0, measured(1.0)), "2026-01-02")
    assert loaded.done(CASE.name, "boto3/threads", 0)


def test_runs_of_other_machines_or_versions_are_not_mixed() -> None:
    """A ratio is only worth something within one kind of run."""
    here = results()
    assert here.differs_from(results()) == ""
    there = replace(here, versions={"torch": "1"})
    assert "torch" in here.differs_from(there)


def test_every_case_begins_with_ours_and_has_the_peers_of_its_targets() -> None:
    """No target can be left without someone to measure it against."""
    for case in CASES:
        packages = {client.package for client in case.clients}
        assert case.clients[0].package == "connector"
        assert {target.peer for target in case.targets} - {"", ANY_PEER} <= packages
    assert len({case.name for case in CASES}) == len(CASES)


def test_any_peer_is_the_best_of_all_and_never_ours() -> None:
    """Each metric has its own best peer; our other ways are none."""
    told = results(
        **{
            "connector/get_many": [0.3],
            "connector/map-batches": [0.1],
            "obstore/async": [0.6],
            "boto3/threads": [0.2],
        }
    )
    found = ratio(summarize(told, CASE), Target(ANY_PEER, "cpu_microseconds_per_object", 1))
    assert found is not None
    assert found.theirs == "boto3/threads"
    assert found.value == pytest.approx(1.5)
    assert not found.reached


def test_any_peer_needs_a_peer_that_ran() -> None:
    """Where every peer failed there is no ratio."""
    told = results(**{"connector/get_many": [0.3], "connector/map-batches": [0.1]})
    target = Target(ANY_PEER, "cpu_microseconds_per_object", 1)
    assert ratio(summarize(told, CASE), target) is None


def test_bytes_up_and_down_are_in_the_report(tmp_path: Path) -> None:
    """What the server sent and received stands beside each client; old results had no uploads."""
    told = results()
    one = replace(measured(0.3), bytes_sent=2_000_000, bytes_received=50_000_000)
    told.add(Run(CASE.name, "connector/get_many", 0, one), "2026-01-02")
    write(told, tmp_path)
    assert "| 2.00 | 50 |" in (tmp_path / "benchmarks.md").read_text()
    old = {k: v for k, v in asdict(one).items() if k != "bytes_received"}
    assert Measured.of(old).bytes_received == 0
