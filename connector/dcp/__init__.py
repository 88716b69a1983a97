"""Distributed checkpoints: storage for ``torch.distributed.checkpoint`` on every provider.

::

    from connector.dcp import StorageReader, StorageWriter

    dcp.save(state, storage_writer=StorageWriter("s3://bucket/run/step-100"))
    dcp.load(state, storage_reader=StorageReader("s3://bucket/run/step-100"))
"""

from connector.dcp.reader import StorageReader
from connector.dcp.writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter"]
