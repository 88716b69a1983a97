"""PyTorch datasets and checkpoints on object storage, by URI."""

from connector import sibling  # noqa: F401 first of all: it says what shadows the rest

# isort: split
from connector.checkpoint import Checkpoint
from connector.datasets import IterableDataset, MapDataset
from connector.samples import bytes_of
from providers import TransferOptions

__all__ = ["Checkpoint", "IterableDataset", "MapDataset", "TransferOptions", "bytes_of"]
