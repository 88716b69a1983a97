"""What becomes of samples that fail."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader

from connector import IterableDataset, MapDataset, TransferOptions, bytes_of
from providers import (
    AccessDeniedError,
    IntegrityError,
    NotFoundError,
    Provider,
    ProviderError,
    ServiceError,
    SettingsError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.testing import Fault
from tests.connector.small import KINDS, Kind, behind, fill, gets

if TYPE_CHECKING:
    from connector.reader import ObjectReader


class _Decoding(Exception):  # noqa: N818 as users name theirs
    def __init__(self, path: str, reason: int) -> None:
        super().__init__(path, reason)


def _raise_value_error(_: ObjectReader) -> bytes:
    raise ValueError("broken image")


def _raise_key_error(sample: ObjectReader) -> bytes:
    return {b"": b""}[sample.read()]


def _raise_own(sample: ObjectReader) -> bytes:
    raise _Decoding(sample.key, 5)


def _raise_unicode_error(_: ObjectReader) -> str:
    return b"\xff".decode()


def _raise_os_error(_: ObjectReader) -> bytes:
    return Path("/no/such/file").read_bytes()


def _raise_stop(_: ObjectReader) -> Any:
    return next(iter(()))


def _raise_nothing_said(_: ObjectReader) -> bytes:
    raise RuntimeError


def _raise_unpicklable(_: ObjectReader) -> bytes:
    class Local(Exception):  # noqa: N818 as users name theirs
        pass

    raise Local("broken")


_FAILING: list[tuple[Any, type[Exception], type[Exception]]] = [
    (_raise_value_error, ValueError, ValueError),
    (_raise_key_error, KeyError, KeyError),
    # torch makes RuntimeErrors of types that take more than a message.
    (_raise_own, _Decoding, RuntimeError),
    (_raise_unicode_error, UnicodeDecodeError, RuntimeError),
    (_raise_os_error, FileNotFoundError, FileNotFoundError),
    (_raise_stop, RuntimeError, RuntimeError),
    (_raise_nothing_said, RuntimeError, RuntimeError),
    (_raise_unpicklable, Exception, RuntimeError),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("transform", "error"), [failing[:2] for failing in _FAILING])
def test_an_error_says_which_sample(
    kind: Kind, transform: Any, error: type[Exception], bucket: Provider
) -> None:
    """Whatever a transform raises keeps its type and carries the URI."""
    dataset = kind.from_prefix(fill(bucket, 3), transform=transform)
    with pytest.raises(error) as caught:
        next(iter(DataLoader(dataset)))
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert bucket.uri("train/0000") in said


@pytest.mark.parametrize(("transform", "_", "error"), _FAILING)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_an_error_from_a_worker_says_which_sample(
    transform: Any, _: type[Exception], error: type[Exception], bucket: Provider
) -> None:
    """Whatever a transform raises in a worker arrives, and its message holds the URI."""
    dataset = MapDataset.from_prefix(fill(bucket, 3), transform=transform)
    with pytest.raises(error) as caught:
        next(iter(DataLoader(dataset, num_workers=1)))
    assert bucket.uri("train/0000") in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_missing_object_raises_by_default(kind: Kind, bucket: Provider) -> None:
    """An object that is gone raises NotFoundError with its URI, here and from a worker."""
    dataset = kind.from_prefix(fill(bucket, 3), transform=bytes_of)
    bucket.delete(["train/0001"])
    for workers in (0, 1):
        with pytest.raises(NotFoundError, match=bucket.uri("train/0001")):
            list(DataLoader(dataset, batch_size=3, num_workers=workers))


def test_an_index_error_of_a_transform_does_not_end_the_epoch(bucket: Provider) -> None:
    """Iterating a map dataset raises what its transform raises, IndexError too."""

    def first_byte(sample: ObjectReader) -> int:
        return sample.read()[0]

    fill(bucket, 3)
    bucket.put("train/0001", b"")
    dataset = MapDataset.from_prefix(bucket.uri("train/"), transform=first_byte)
    with pytest.raises(IndexError, match=bucket.uri("train/0001")):
        list(dataset)


def _only_even(sample: ObjectReader) -> bytes:
    body = sample.read()
    if int(body) % 2:
        raise ValueError(f"{body!r} is odd")
    return body


@pytest.mark.parametrize("kind", KINDS)
def test_skipping_takes_the_next_good_sample(kind: Kind, bucket: Provider) -> None:
    """A bad sample's place is taken by the next good one, wrapping; lengths stay."""
    dataset = kind.from_prefix(
        fill(bucket, 6), transform=_only_even, on_error="skip", max_skipped=1.0
    )
    assert list(dataset) == [b"0", b"2", b"2", b"4", b"4", b"0"]
    if isinstance(dataset, MapDataset):
        assert dataset.__getitems__([5, 1, 0]) == [b"0", b"2", b"0"]
        assert dataset[-1] == b"0"


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_skipping_keeps_ranks_even(batch_size: int | None, bucket: Provider) -> None:
    """Bad samples change no rank's length; what takes their place is of the same rank."""
    uri = fill(bucket, 10)
    bucket.delete(["train/0000", "train/0005", "train/0009"])
    for number in (0, 5, 9):  # Listed, then gone.
        bucket.put(f"train/{number:04}", b"x")
    for rank in range(2):
        dataset = IterableDataset.from_prefix(
            uri, transform=bytes_of, on_error="skip", max_skipped=1.0,
            rank=rank, world_size=2, batch_size=batch_size,
        )  # fmt: skip
        gone = [key for number in (0, 5, 9) if number % 2 == rank for key in [f"train/{number:04}"]]
        bodies = {key: bucket.get(key) for key in gone}
        bucket.delete(gone)
        mine = {str(number).encode() for number in range(10) if number % 2 == rank}
        for workers in (0, 2):
            loader = DataLoader(dataset, batch_size=2, num_workers=workers)
            samples = [sample for batch in loader for sample in batch]
            assert len(samples) == len(dataset) == 5
            assert set(samples) == mine - {b"0", b"5", b"9"}
        for key, body in bodies.items():
            bucket.put(key, body)


def test_skips_are_counted_and_logged_once_a_minute(
    bucket: Provider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first skip is logged with its URI and error, the next ones once a minute, with counts."""
    seconds = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: seconds[0])
    monkeypatch.setattr("connector.failures.time", clock)
    dataset = MapDataset.from_prefix(
        fill(bucket, 8), transform=_only_even, on_error="skip", max_skipped=1.0
    )
    caplog.clear()
    assert [dataset[1], dataset[3]] == [b"2", b"4"]
    seconds[0] += 59
    assert dataset[5] == b"6"
    seconds[0] += 1
    assert dataset[7] == b"0"
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(f"skipped 1 of 1 samples read, the last being {bucket.uri()}train/0001")
    assert "is odd" in first
    assert second.startswith("skipped 4 of 7 samples read")
    assert dataset.samples_skipped == 4


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_skips_raise(kind: Kind, bucket: Provider) -> None:
    """The sample that takes the skipped past ``max_skipped`` raises, and says so."""
    uri = fill(bucket, 100)
    bad = {f"train/{number:04}" for number in (0, 30, 50)}

    def decode(sample: ObjectReader) -> bytes:
        if sample.key in bad:
            raise ValueError("broken image")
        return sample.read()

    tolerant = kind.from_prefix(uri, transform=decode, on_error="skip", max_skipped=0.03)
    assert len(list(tolerant)) == 100
    strict = kind.from_prefix(uri, transform=decode, on_error="skip", max_skipped=0.02)
    with pytest.raises(ValueError, match=rf"broken image \({uri}0050\)") as caught:
        list(strict)
    assert "3 of 53 samples read are bad, more than max_skipped=0.02" in str(caught.value)
    for few in (0.0, 0.01):
        with pytest.raises(ValueError, match="broken image"):
            list(kind.from_prefix(uri, transform=decode, on_error="skip", max_skipped=few))


def test_a_transform_that_never_works_is_given_up_soon(bucket: Provider) -> None:
    """When every sample is bad, 1 % of a million objects is not tried first."""
    fill(bucket, 1)
    dataset = MapDataset.from_objects(
        [bucket.uri("train/0000")] * 5000, transform=_raise_value_error, on_error="skip"
    )
    faulty = behind(dataset)
    with pytest.raises(ValueError, match="broken image"):
        dataset[0]
    assert len(gets(faulty)) == 11


def test_no_good_sample_at_all(bucket: Provider) -> None:
    """A share without any good sample raises, rather than look for one for ever."""
    dataset = MapDataset.from_prefix(
        fill(bucket, 3), transform=_raise_value_error, on_error="skip", max_skipped=1.0
    )
    with pytest.raises(ValueError, match="no other sample of the share is good"):
        dataset[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_callable_gives_the_sample_to_use(kind: Kind, bucket: Provider) -> None:
    """``on_error`` may be a function of URI and error; what it returns is the sample."""
    seen: list[tuple[str, str]] = []

    def instead(uri: str, error: Exception) -> bytes:
        seen.append((uri, type(error).__name__))
        return b"instead"

    uri = fill(bucket, 4)
    dataset = kind.from_prefix(uri, transform=_only_even, on_error=instead)
    bucket.delete(["train/0002"])
    assert list(dataset) == [b"0", b"instead", b"instead", b"instead"]
    assert seen == [
        (f"{uri}0001", "ValueError"),
        (f"{uri}0002", "NotFoundError"),
        (f"{uri}0003", "ValueError"),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_error", ["skip", lambda _uri, _error: b"instead"])
@pytest.mark.parametrize("where", ["fetch", "transform"])
@pytest.mark.parametrize(
    "error", [AccessDeniedError, ThrottledError, UnavailableError, TimedOutError, SettingsError]
)
def test_failures_of_the_store_always_raise(
    kind: Kind, on_error: Any, where: str, error: type[ProviderError], bucket: Provider
) -> None:
    """Refused access, throttling and unavailability are no fault of a sample."""

    def decode(sample: ObjectReader) -> bytes:
        if where == "transform" and sample.key == "train/0001":
            raise error("not now", uri=sample.uri)
        return sample.read()

    dataset = kind.from_prefix(
        fill(bucket, 3),
        transform=decode,
        on_error=on_error,
        max_skipped=1.0,
        transfer=TransferOptions(max_attempts=1),
    )
    if where == "fetch":
        failure = error("not now", uri=bucket.uri("train/0001"), operation="get")
        behind(dataset, Fault("get", failure, None, "train/0001"))
    with pytest.raises(error, match=f"{bucket.uri()}train/0001: not now"):
        list(dataset)


@pytest.mark.parametrize("error", [ServiceError, NotFoundError, IntegrityError])
def test_failures_of_one_object_can_be_skipped(
    error: type[ProviderError], bucket: Provider
) -> None:
    """What concerns one object alone is the sample's fault, though the store says it."""
    dataset = MapDataset.from_prefix(
        fill(bucket, 3), transform=bytes_of, on_error="skip", max_skipped=1.0
    )
    behind(dataset, Fault("get", error("this one"), None, "train/0001"))
    assert list(dataset) == [b"0", b"2", b"2"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_object_can_be_skipped(kind: Kind, bucket: Provider) -> None:
    """An object that changed since it was listed is a bad sample as any other."""
    dataset = kind.from_prefix(
        fill(bucket, 3), transform=bytes_of, on_error="skip", max_skipped=1.0
    )
    bucket.put("train/0000", b"changed")
    assert list(dataset) == [b"1", b"1", b"2"]
