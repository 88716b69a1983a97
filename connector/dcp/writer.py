"""Saves distributed checkpoints: parts first, then the record of them, ``.metadata`` last."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter as TorchStorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from typing_extensions import override

from connector.checkpoint import DELETING
from connector.dcp.commit import Part, names_of, write_record
from connector.dcp.items import write_bytes, write_tensor
from connector.dcp.place import Place, is_checkpoint_id
from connector.writer import ObjectWriter
from providers import PreconditionError

if TYPE_CHECKING:
    import os

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem

    from providers import Options, TransferOptions

__all__ = ["StorageWriter"]

_VERSION = "1.0.0"
"""Of the metadata's layout. Source: ``CURRENT_DCP_VERSION`` of torch 2.13.0."""
_SUFFIX = ".distcp"
_PART = re.compile(r"(?:[0-9a-f]{2}/)?__\d+_\d+(?:\.[0-9a-f]+)?\.distcp")


@dataclass(frozen=True)
class _Written(WriteResult):
    """A result that takes its part along to whoever commits the checkpoint."""

    part: Part


class StorageWriter(TorchStorageWriter):
    """Where ``torch.distributed.checkpoint`` saves to.

    Each rank writes one object, streamed in parallel parts. A checkpoint is visible once its
    ``.metadata`` is there, which is put last, by the coordinator, after
    ``connector.commit.json``. Until then an earlier checkpoint of the same URI stays as it was;
    its parts are deleted once the new one is visible. A save that fails leaves parts that nobody
    reads, and which the next save to this URI, or ``Checkpoint.delete``, removes.

    Args:
        checkpoint_id: URI of the checkpoint's directory; ``dcp.save(checkpoint_id=...)`` wins.
        options: of the URI's scheme.
        transfer: sizes of parts, how many at once, timeouts and the retry policy.
        overwrite: replace a checkpoint that is there; False: fail, before anything is written.
        fan_out: put parts below prefixes of two random hexadecimal digits, for stores that slow
            down where one prefix is hot.
    """

    def __init__(
        self,
        checkpoint_id: str | os.PathLike[str] | None = None,
        *,
        options: Options | None = None,
        transfer: TransferOptions | None = None,
        overwrite: bool = True,
        fan_out: bool = False,
    ) -> None:
        super().__init__()
        self._options = options
        self._transfer = transfer
        self._overwrite = overwrite
        self._fan_out = fan_out
        self._place = None if checkpoint_id is None else Place.at(checkpoint_id, options, transfer)
        self._rank: int | None = None
        self._alone = False
        self._save_id = ""

    # ---- What torch calls, in this order ---------------------------------------------------

    @override
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._place = Place.at(checkpoint_id, self._options, self._transfer)
        self._save_id = secrets.token_hex(8)

    @override
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        rank = kwargs.get("rank")
        if rank is None:
            rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        self._rank = rank
        self._alone = not kwargs.get("use_collectives", True)
        self._is_coordinator = is_coordinator
        self._save_id = self._save_id or secrets.token_hex(8)

    @override
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    @override
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        place = self._opened()
        metadata, _ = self._names()
        if not self._overwrite and place.holds(metadata):
            raise PreconditionError(
                "there is a checkpoint, and overwrite=False; save to another name",
                uri=place.uri,
                operation="save",
            )
        # What says that a deletion is under way would outlive this save.
        place.provider.delete([place.key(DELETING)])
        return plans

    @override
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        future: Future[list[WriteResult]] = Future()
        future.set_result(self._write(plan.items, planner) if plan.items else [])
        return future

    @override
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        place = self._opened()
        written = [result for of_rank in results for result in of_rank]
        parts = {
            result.part.name: result.part for result in written if isinstance(result, _Written)
        }
        metadata.version = _VERSION
        metadata.storage_data = {result.index: result.storage_data for result in written}
        metadata.storage_meta = self.storage_meta()
        name, record = self._names()
        write_record(place, record, self._save_id, parts.values())
        place.provider.put(place.key(name), pickle.dumps(metadata))
        if not self._alone:
            self._sweep(place, set(parts))

    @override
    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self._opened().uri, save_id=self._save_id)

    @classmethod
    @override
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_checkpoint_id(checkpoint_id)

    # ---- Parts -----------------------------------------------------------------------------

    def _opened(self) -> Place:
        if self._place is None:
            raise ValueError("StorageWriter needs a URI, or dcp.save one as checkpoint_id")
        return self._place

    def _names(self) -> tuple[str, str]:
        return names_of(self._rank if self._alone else None)

    def _part_name(self) -> str:
        """Return a name that no other save, and no other rank, has ever used."""
        token = secrets.token_hex(8)
        name = f"__{self._rank}_0.{token}{_SUFFIX}"
        return f"{hashlib.sha256(token.encode()).hexdigest()[:2]}/{name}" if self._fan_out else name

    def _write(self, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        """Write one part with all items of this rank."""
        place, name = self._opened(), self._part_name()
        found: list[tuple[WriteItem, int, int]] = []
        raw: list[tuple[int, int]] = []
        hint = sum(map(_item_bytes, items))
        with ObjectWriter(
            place.provider, place.key(name), uri=place.uri_of(name), size_hint=hint
        ) as file:
            for item in items:
                start = file.tell()
                data = planner.resolve_data(item)
                if isinstance(data, io.BytesIO):
                    write_bytes(file, data)
                elif (begins := write_tensor(file, data)) is not None:
                    raw.append((start, begins))
                found.append((item, start, file.tell() - start))
        info = file.info
        part = Part(name, info.size, info.etag, info.version, info.checksum, tuple(raw))
        return [
            _Written(item.index, length, _StorageInfo(name, start, length), part)
            for item, start, length in found
        ]

    def _sweep(self, place: Place, kept: set[str]) -> None:
        """Delete the parts of earlier saves, which no metadata names any more."""
        keys = (info.key for info in place.provider.list_objects(place.prefix))
        names = (key.removeprefix(place.prefix) for key in keys)
        old = [n for n in names if _PART.fullmatch(n) and n not in kept]
        place.provider.delete([place.key(name) for name in old])


def _item_bytes(item: WriteItem) -> int:
    """Return about how many bytes an item takes."""
    data = item.tensor_data
    if item.type == WriteItemType.BYTE_IO or data is None:
        return 0
    return data.chunk.sizes.numel() * data.properties.dtype.itemsize
