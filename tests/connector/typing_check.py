"""What mypy knows of datasets; it is checked, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, zeros
from torch.utils.data import DataLoader, Dataset
from typing_extensions import assert_type

from connector import IterableDataset, MapDataset, TransferOptions, bytes_of
from connector.reader import ObjectReader
from providers import GCSOptions, S3Options

if TYPE_CHECKING:
    from collections.abc import Iterable


def _decode(sample: ObjectReader) -> tuple[Tensor, str]:
    return zeros(len(sample.read())), sample.uri


def _parse(reader: Any) -> Iterable[tuple[str, str]]:
    return [(line.decode(), "label") for line in reader]


def samples_have_the_type_of_the_transform() -> None:
    """What ``transform`` returns is what datasets give; without one, open objects."""
    decoded = MapDataset.from_prefix("s3://b/", transform=_decode)
    assert_type(decoded, MapDataset[tuple[Tensor, str]])
    assert_type(decoded[0], tuple[Tensor, str])
    assert_type(decoded[1:], MapDataset[tuple[Tensor, str]])
    assert_type(decoded.__getitems__([0]), list[tuple[Tensor, str]])
    assert_type(MapDataset.from_objects(["s3://b/k"])[0], ObjectReader)
    assert_type(MapDataset.from_manifest_file("s3://b/m", transform=bytes_of)[0], bytes)
    assert_type(next(iter(IterableDataset.from_prefix("s3://b/", transform=bytes_of))), bytes)
    assert_type(next(iter(IterableDataset.from_prefix("s3://b/"))), ObjectReader)
    assert_type(MapDataset.from_prefix("s3://b/", transform=lambda sample: sample.size)[0], int)


def datasets_are_those_of_torch() -> None:
    """Torch's own functions take them as what they are."""
    dataset: Dataset[bytes] = MapDataset.from_prefix("s3://b/", transform=bytes_of)
    DataLoader(dataset, batch_size=2)


def keywords_are_known() -> None:
    """Every keyword has its type, and a misspelt one is an error."""
    IterableDataset.from_prefix(
        "gs://b/",
        include="*.jpg",
        exclude=["*/tmp/*", "*.bak"],
        skip_directories=False,
        on_error=lambda uri, error: (uri, error),
        max_skipped=0.1,
        allow_empty=True,
        options={"s3": S3Options(), "gs://b": GCSOptions()},
        transfer=TransferOptions(max_in_flight=8),
        progress=print,
        shard=True,
        rank=0,
        world_size=2,
        even="exact",
        batch_size=4,
    )
    MapDataset.from_manifest_file("s3://b/m", _parse, "s3://b/", on_error="skip", progress=True)
    MapDataset.from_prefix("s3://b/", on_error="ignore")  # type: ignore[arg-type]
    MapDataset.from_prefix("s3://b/", includes="*")  # type: ignore[call-arg]
    MapDataset.from_prefix("s3://b/", transform=len)  # type: ignore[arg-type]
