"""Ranks that train together: each reads its share, as many as the others, nothing twice."""

from __future__ import annotations

import pickle
import warnings
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from torch.multiprocessing.spawn import spawn
from torch.utils.data import DataLoader

from connector import IterableDataset, bytes_of
from providers import SettingsError, open_provider
from tests.connector.rank_process import Job, Loading, run_rank
from tests.connector.store import FileStore, S3Store
from tests.fakes.front import Front

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

_WORLD = 3
_COUNT = 23
_ALL = [f"{number:04}".encode() for number in range(_COUNT)]
_STARTS = ("fork", "spawn", "forkserver")
_STEPS = {
    f"{even}-{workers}-{drop_last}": Loading(
        workers,
        keywords={"even": even, "batch_size": 4},
        drop_last=drop_last,
        epochs=2,
        in_step=True,
    )
    for even in ("pad", "drop")
    for workers in (0, 1, 4)
    for drop_last in (False, True)
}

Read = list[dict[str, Any]]
"""What each rank read in one loading."""


def _run(job: Job, passed: Any, patch: pytest.MonkeyPatch) -> dict[str, Read]:
    """Run the ranks in processes of their own, and return what they read, by loading."""
    for name in ("RANK", "WORLD_SIZE"):
        patch.delenv(name, raising=False)
    start: Any = spawn  # torch gives it no types
    start(run_rank, (_WORLD, job, passed), nprocs=_WORLD)
    ranks = [
        pickle.loads((job.directory / f"rank-{rank}").read_bytes())  # noqa: S301 our own
        for rank in range(_WORLD)
    ]
    return {name: [rank[name] for rank in ranks] for name in ranks[0]}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Read]:
    """What three ranks read from files, in every way that is asked about below."""
    directory = tmp_path_factory.mktemp("ranks")
    store = FileStore(f"file://{directory}/data/")
    for body in _ALL:
        store.raw_put(body.decode(), body)
    starts = {start: Loading(1, start, {"even": "exact", "batch_size": 4}) for start in _STARTS}
    job = Job(directory, store.uri, None, {**starts, **_STEPS})
    passed = IterableDataset.from_prefix(store.uri, transform=bytes_of, batch_size=4)
    with pytest.MonkeyPatch.context() as patch:
        return _run(job, passed, patch)


def _samples(rank: dict[str, Any], epoch: int = 0) -> list[bytes]:
    return list(chain.from_iterable(rank["epochs"][epoch]))


@pytest.mark.parametrize("start", _STARTS)
def test_workers_know_the_rank_of_their_loader(read: dict[str, Read], start: str) -> None:
    """However a worker was started, it reads the share of the process that holds the loader."""
    for rank, result in enumerate(read[start]):
        assert _samples(result) == _ALL[rank::_WORLD]
        assert result["len"] == len(_ALL[rank::_WORLD])


def test_a_dataset_from_elsewhere_knows_its_new_rank(read: dict[str, Read]) -> None:
    """A dataset pickled where there was no group is split by the group it arrives in."""
    padded = _ALL + _ALL[:1]
    for rank, result in enumerate(read["passed"]):
        assert _samples(result) == padded[rank::_WORLD]


@pytest.mark.parametrize("name", _STEPS)
def test_ranks_take_equal_steps(read: dict[str, Read], name: str) -> None:
    """With pad and drop, all ranks make as many steps as ``len(loader)`` says, epoch by epoch.

    They met after each of them, so that one more or less would have hung the group.
    """
    loading = _STEPS[name]
    share = -(-_COUNT // _WORLD) if loading.keywords["even"] == "pad" else _COUNT // _WORLD
    batches = share // 4 if loading.drop_last else -(-share // 4)
    for result in read[name]:
        assert [len(epoch) for epoch in result["epochs"]] == [batches] * 2
        assert (result["batches"], result["len"]) == (batches, share)
        # Less than one batch a rank is lost, and only on request.
        lost = share - len(_samples(result))
        assert lost < 4
        assert loading.drop_last or lost == 0


@pytest.mark.parametrize("even", ["pad", "drop"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_order_is_the_same_for_any_number_of_workers(
    read: dict[str, Read], even: str, drop_last: bool
) -> None:
    """With ``batch_size=`` batches come in the same order from 0, 1 and 4 workers."""
    for rank in range(_WORLD):
        orders = [read[f"{even}-{workers}-{drop_last}"][rank] for workers in (0, 1, 4)]
        assert orders[0]["epochs"] == orders[1]["epochs"] == orders[2]["epochs"]


def test_a_thousand_objects_are_read_once_each(
    juicefs: S3Server, bucket_name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks of four workers read 1,001 objects: all, disjoint, by exactly 1,001 GETs."""
    store = S3Store.on(juicefs, juicefs.make_bucket(bucket_name))
    bodies = [f"{number:04}".encode() for number in range(1001)]
    with closing(juicefs.client()) as client:
        for body in bodies:
            client.put_object(Bucket=bucket_name, Key=f"train/{body.decode()}", Body=body)
    loading = Loading(4, keywords={"even": "exact", "batch_size": 16}, batch_size=16)
    passed = IterableDataset.from_prefix(
        f"{store.uri}train/0000", options=store.options, transform=bytes_of, batch_size=4
    )
    with Front(juicefs.endpoint) as front:
        job = Job(tmp_path, f"{store.uri}train/", store.at(front.endpoint).options, {"a": loading})
        shares = [_samples(rank) for rank in _run(job, passed, monkeypatch)["a"]]
        paths = [
            request.path for request in front.requests
            if request.method == "GET" and "/train/" in request.path
        ]  # fmt: skip
    assert sorted(chain.from_iterable(shares)) == bodies
    assert sorted(map(len, shares)) == [333, 334, 334]
    assert len(paths) == len(set(paths)) == 1001


# ---- Without a process group -------------------------------------------------------------


@pytest.fixture
def ten(bucket_name: str) -> str:
    """Ten objects in this process's memory."""
    provider = open_provider(f"memory://{bucket_name}")
    for number in range(10):
        provider.put(f"{number}", str(number).encode())
    return provider.uri()


def _digits(dataset: Any) -> str:
    return b"".join(dataset).decode()


def test_ranks_from_the_environment(ten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a group, ``RANK`` and ``WORLD_SIZE`` count when the dataset is read, not made."""
    dataset = IterableDataset.from_prefix(ten, transform=bytes_of)
    assert _digits(dataset) == "0123456789"
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert (_digits(dataset), len(dataset)) == ("1470", 4)
    monkeypatch.setenv("RANK", "2")
    assert _digits(dataset) == "2581"


def test_given_ranks_win(ten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rank=`` and ``world_size=`` override what the process would say."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    for even, digits in (("pad", "0369"), ("drop", "036"), ("exact", "0369")):
        dataset: Any = IterableDataset.from_prefix(
            ten,
            transform=bytes_of,
            rank=0,
            world_size=3,
            even=even,  # type: ignore[arg-type]
        )
        assert (_digits(dataset), len(dataset)) == (digits, len(digits))


@pytest.mark.parametrize(
    "environment", [{"RANK": "1"}, {"WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "2"},
                    {"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "", "WORLD_SIZE": ""}]
)  # fmt: skip
def test_an_environment_that_names_no_rank(
    ten: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a pair, or nonsense, is an error: every rank would else read everything."""
    dataset = IterableDataset.from_prefix(ten, transform=bytes_of)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for use in (lambda: list(dataset), lambda: len(dataset)):
        with pytest.raises(SettingsError, match="set both"):
            use()


def test_a_record_counts_in_no_other_process(ten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that arrives by pickle takes the rank of where it is, and so do forked workers."""
    dataset = IterableDataset.from_prefix(ten, transform=bytes_of, batch_size=2)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    copied = pickle.loads(pickle.dumps(dataset))  # noqa: S301 our own
    monkeypatch.setenv("RANK", "1")
    assert _digits(copied) == "13579"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
        loader = DataLoader(copied, 2, num_workers=2, multiprocessing_context="fork")
        assert b"".join(sample for batch in loader for sample in batch).decode() == "13579"


def test_fewer_objects_than_ranks(ten: str) -> None:
    """More ranks than objects: pad repeats them, drop gives none, exact gives some to some."""
    for even, shares in (
        ("pad", ["0", "1", "0", "1", "0"]),
        ("drop", [""] * 5),
        ("exact", ["0", "1", "", "", ""]),
    ):
        for rank, digits in enumerate(shares):
            dataset: Any = IterableDataset.from_objects(
                [f"{ten}0", f"{ten}1"],
                transform=bytes_of,
                rank=rank,
                world_size=5,
                even=even,  # type: ignore[arg-type]
            )
            assert _digits(dataset) == digits
