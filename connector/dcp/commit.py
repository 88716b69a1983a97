"""The commit record: what a whole distributed checkpoint consists of, to the last byte."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from providers import IntegrityError, NotFoundError, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from connector.dcp.place import Place

__all__ = ["Part", "Record", "check_parts", "names_of", "read_record", "write_record"]

_METADATA, _RECORD = ".metadata", "connector.commit.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Part:
    """One object of a checkpoint.

    Attributes:
        name: below the checkpoint's URI.
        size_bytes: of it.
        etag: as the store told when it was written; None: it told none.
        version: the same.
        checksum: the same.
        raw: where the bytes of a tensor begin that was saved at an offset: pairs of both.
    """

    name: str
    size_bytes: int
    etag: str | None = None
    version: str | None = None
    checksum: str | None = None
    raw: tuple[tuple[int, int], ...] = ()

    def info(self, key: str) -> ObjectInfo:
        """Return what pins reads to this very object."""
        return ObjectInfo(key, self.size_bytes, self.etag, self.version, self.checksum)


@dataclass(frozen=True, slots=True)
class Record:
    """All parts of one save.

    Attributes:
        save_id: random; the metadata of the same save has it too.
        parts: by their names.
    """

    save_id: str
    parts: Mapping[str, Part] = field(default_factory=dict)


def names_of(rank: int | None) -> tuple[str, str]:
    """Return the names of metadata and record: the checkpoint's, or one rank's own."""
    return (_METADATA, _RECORD) if rank is None else (f"__{rank}{_METADATA}", f"__{rank}.{_RECORD}")


def write_record(place: Place, name: str, save_id: str, parts: Iterable[Part]) -> None:
    """Put the record of a save."""
    text = {"format": _FORMAT, "save_id": save_id, "parts": [asdict(part) for part in parts]}
    place.provider.put(place.key(name), json.dumps(text, separators=(",", ":")).encode())


def read_record(place: Place, name: str) -> Record | None:
    """Return the record there is; None: none, or one of a format that is not known here.

    Raises:
        IntegrityError: it is damaged.
    """
    try:
        text = place.provider.get(place.key(name))
    except NotFoundError:
        return None
    try:
        read: dict[str, Any] = json.loads(text)
        if read["format"] != _FORMAT:
            return None
        parts = [Part(**{**part, "raw": tuple(map(tuple, part["raw"]))}) for part in read["parts"]]
        return Record(read["save_id"], {part.name: part for part in parts})
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(
            f"the commit record is damaged: {error!r}", uri=place.uri_of(name), operation="load"
        ) from error


def check_parts(place: Place, wanted: Iterable[Part]) -> None:
    """See that every part is there, of the size and version that it was written with.

    Raises:
        IntegrityError: one is not; it is named.
    """
    found = {info.key: info for info in place.provider.list_objects(place.prefix)}
    for part in wanted:
        info = found.get(place.key(part.name))
        problem = None
        if info is None:
            problem = "it is missing"
        elif info.size != part.size_bytes:
            problem = f"it has {info.size} bytes instead of {part.size_bytes}"
        elif None not in (info.etag, part.etag) and info.etag != part.etag:
            problem = "it was written again since"
        if problem:
            raise IntegrityError(
                f"the checkpoint is not whole: {problem}",
                uri=place.uri_of(part.name),
                operation="load",
            )
