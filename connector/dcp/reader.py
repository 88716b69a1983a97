"""Loads distributed checkpoints: ours, torch's own, and those of other connectors."""

from __future__ import annotations

import io
import uuid
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch.distributed.checkpoint.metadata import StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.storage import StorageReader as TorchStorageReader
from torch.futures import Future
from typing_extensions import override

from connector.checkpoint import remember_loaded
from connector.dcp.commit import Part, check_parts, names_of, read_record
from connector.dcp.loading import Span, read_spans
from connector.dcp.place import Place, is_checkpoint_id
from connector.dcp.tensors import Stored
from connector.dcp.unpickling import load_metadata
from providers import IntegrityError, NotFoundError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem

    from connector.dcp.commit import Record
    from providers import Options, TransferOptions

__all__ = ["StorageReader"]


class StorageReader(TorchStorageReader):
    """Where ``torch.distributed.checkpoint`` loads from.

    Reads are ranges of the parts, many at once, and go straight into tensors on the CPU that
    have the saved type and shape. Parts are pinned to the versions that the commit record
    tells; of a checkpoint without one, sizes are compared with what ``.metadata`` says.

    Neither ``.metadata`` nor an entry that is not a tensor can run code: both are pickles, and
    anything in them but what torch's ``weights_only`` admits is an error.

    Args:
        checkpoint_id: URI of the checkpoint's directory; ``dcp.load(checkpoint_id=...)`` wins.
        options: of the URI's scheme.
        transfer: sizes and concurrency, timeouts and the retry policy.
        verify: ``required`` refuses checkpoints without a commit record.
        trusted: let ``.metadata`` and entries run any code they like.
    """

    def __init__(
        self,
        checkpoint_id: str | os.PathLike[str] | None = None,
        *,
        options: Options | None = None,
        transfer: TransferOptions | None = None,
        verify: Literal["auto", "required"] = "auto",
        trusted: bool = False,
    ) -> None:
        super().__init__()
        if verify not in {"auto", "required"}:
            raise ValueError(f"verify={verify!r}: it is 'auto' or 'required'")
        self._options = options
        self._transfer = transfer
        self._verify = verify
        self._trusted = trusted
        self._place = None if checkpoint_id is None else Place.at(checkpoint_id, options, transfer)
        self._metadata: Metadata
        self._record: Record | None = None

    # ---- What torch calls, in this order ---------------------------------------------------

    @override
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._place = Place.at(checkpoint_id, self._options, self._transfer)

    @override
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        place = self._opened()
        name, record_name = names_of(kwargs.get("rank"))
        try:
            data = place.provider.get(place.key(name))
        except NotFoundError as error:
            raise NotFoundError(
                f"there is no whole checkpoint: {name} is missing, which a save writes last",
                uri=place.uri,
                operation="load",
            ) from error
        metadata: Metadata = load_metadata(data, place.uri_of(name), trusted=self._trusted)
        meta = getattr(metadata, "storage_meta", None) or StorageMeta()
        metadata.storage_meta = meta
        record = read_record(place, record_name)
        # One of a save that was broken off after it is none of this checkpoint's.
        self._record = record if record is not None and record.save_id == meta.save_id else None
        if self._record is None and self._verify == "required":
            raise IntegrityError(
                f"it has no {record_name} of its own, which verify='required' asks for",
                uri=place.uri,
                operation="load",
            )
        meta.load_id = str(uuid.uuid4())
        return metadata

    @override
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self._metadata = metadata
        if is_coordinator or not kwargs.get("use_collectives", True):
            check_parts(self._opened(), self._parts().values())
        remember_loaded(self._opened().uri)

    @override
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    @override
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @override
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        place = self._opened()
        parts = self._parts()
        spans = (span for item in plan.items for span in self._spans(item, planner, parts))
        read_spans(place, spans, self._transfer or place.provider.transfer)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    @override
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_checkpoint_id(checkpoint_id)

    # ---- What is read for one entry --------------------------------------------------------

    def _opened(self) -> Place:
        if self._place is None:
            raise ValueError("StorageReader needs a URI, or dcp.load one as checkpoint_id")
        return self._place

    def _parts(self) -> dict[str, Part]:
        """Return the parts by name, as the record has them, or as far as the entries reach."""
        if self._record is not None:
            return dict(self._record.parts)
        sizes: dict[str, int] = {}
        for entry in self._metadata.storage_data.values():
            stop = entry.offset + entry.length
            sizes[entry.relative_path] = max(stop, sizes.get(entry.relative_path, 0))
        return {name: Part(name, size) for name, size in sizes.items()}

    def _spans(
        self, item: ReadItem, planner: LoadPlanner, parts: dict[str, Part]
    ) -> Iterator[Span]:
        entry = self._metadata.storage_data[item.storage_index]
        part = parts[entry.relative_path]
        start, stop = entry.offset, entry.offset + entry.length
        if getattr(entry, "transform_descriptors", None):
            raise IntegrityError(
                f"{item.storage_index.fqn} was saved through extensions, which are not undone here",
                uri=self._opened().uri_of(part.name),
                operation="load",
            )
        if item.type == LoadItemType.BYTE_IO:
            yield Span(part, start, stop, None, lambda data: self._load_bytes(item, planner, data))
            return
        target = planner.resolve_tensor(item).detach()
        stored = self._stored(item, dict(part.raw).get(start))
        if stored is None:
            yield Span(
                part, start, stop, None,
                lambda data: self._load_saved(item, planner, target, data),
            )  # fmt: skip
            return
        yield from stored.spans(part, item, target, lambda: planner.commit_tensor(item, target))

    def _stored(self, item: ReadItem, raw: int | None) -> Stored | None:
        """Return how a tensor lies in its part; None: only ``torch.load`` knows."""
        described = self._metadata.state_dict_metadata[item.storage_index.fqn]
        if raw is None or not isinstance(described, TensorStorageMetadata):
            return None
        offset = item.storage_index.offset
        chunks = [c for c in described.chunks if offset is None or c.offsets == offset]
        if len(chunks) != 1:
            return None
        return Stored(raw, described.properties.dtype, tuple(chunks[0].sizes))

    def _load_bytes(self, item: ReadItem, planner: LoadPlanner, data: memoryview) -> None:
        if not self._trusted:
            self._check_harmless(item, data)
        planner.load_bytes(item, io.BytesIO(data))

    def _check_harmless(self, item: ReadItem, data: memoryview) -> None:
        # Planners load entries with weights_only=False: what they get must have passed before.
        try:
            torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception as error:
            raise IntegrityError(
                f"the entry {item.storage_index.fqn!r} holds more than plain values and tensors "
                f"and could run any code; if you trust whoever wrote it, pass trusted=True "
                f"({error})",
                uri=self._opened().uri,
                operation="load",
            ) from error

    def _load_saved(
        self, item: ReadItem, planner: LoadPlanner, target: torch.Tensor, data: memoryview
    ) -> None:
        """Load an entry that ``torch.save`` has written, and copy what is wanted of it."""
        saved = cast(
            "torch.Tensor",
            torch.load(io.BytesIO(data), map_location="cpu", weights_only=True),
        )
        for dimension, (start, length) in enumerate(
            zip(item.storage_offsets, item.lengths, strict=True)
        ):
            saved = saved.narrow(dimension, start, length)
        if saved.size() != target.size():
            raise IntegrityError(
                f"the entry {item.storage_index.fqn!r} has the shape {tuple(saved.size())}, "
                f"{tuple(target.size())} was planned",
                uri=self._opened().uri,
                operation="load",
            )
        target.copy_(saved)
        planner.commit_tensor(item, target)
