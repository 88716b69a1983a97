"""Checkpoints below one URI: written whole or not at all, found by step, pruned with care."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch

from connector.reader import ObjectReader
from connector.state_size import tensor_bytes
from connector.writer import ObjectWriter
from providers import NotFoundError, ObjectURI, ProviderError, open_provider
from providers.composites import is_composite_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers import ObjectInfo, Options, Provider, TransferOptions

__all__ = ["COMMIT", "DELETING", "Checkpoint", "remember_loaded"]

COMMIT = ".metadata"
"""Written last by torch.distributed.checkpoint: a directory without it is not whole."""

DELETING = "connector.deleting"
"""Put first and deleted last where a directory is deleted: it tells what a deletion that broke off
has left from a save under way. A save to the same name deletes it before it writes."""

_NAMES_IN_ERRORS = 10

_loaded: set[ObjectURI] = set()


def remember_loaded(uri: str) -> None:
    """Keep ``keep_last`` of this process from deleting a checkpoint that it loads.

    Args:
        uri: of the object or the directory; slashes at its end make no difference.
    """
    _loaded.add(ObjectURI.parse(uri.rstrip("/")))


def _is_loaded(uri: str) -> bool:
    """Whether this process loaded a checkpoint, or something inside of it."""
    own = ObjectURI.parse(uri)
    return any(
        (each.scheme, each.bucket) == (own.scheme, own.bucket)
        and f"{each.key}/".startswith(f"{own.key}/")
        for each in _loaded
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a name lies.

    Attributes:
        provider: of its bucket.
        key: of the object or the directory, without a slash at its end.
        uri: the same, as the script would write it.
    """

    provider: Provider
    key: str
    uri: str

    def head(self) -> ObjectInfo:
        """Describe the object.

        Raises:
            NotFoundError: there is none.
        """
        return self.provider.head(self.key)

    def is_committed(self) -> bool:
        """Whether it is a directory that holds a whole distributed checkpoint."""
        return self._holds(COMMIT)

    def is_half_deleted(self) -> bool:
        """Whether it is a directory whose deletion began, and which is whole no more."""
        return self._holds(DELETING) and not self.is_committed()

    def delete(self, *, unfinished: bool) -> None:
        """Delete the object, and of the directory what it holds now.

        What commits a directory goes first. A deletion that breaks off leaves a mark; it can be
        repeated, also by several processes at once.

        Args:
            unfinished: delete a directory without commit and mark too: it may be a save under
                way.
        """
        commit, mark = f"{self.key}/{COMMIT}", f"{self.key}/{DELETING}"
        inside = {info.key for info in self.provider.list_objects(f"{self.key}/")}
        if commit in inside:
            self.provider.put(mark, b"")
            self.provider.delete([commit])
        elif mark not in inside and not unfinished:
            inside.clear()
        self.provider.delete([*sorted(inside - {commit, mark}), self.key])
        if inside:
            self.provider.delete([mark])

    def _holds(self, name: str) -> bool:
        try:
            self.provider.head(f"{self.key}/{name}")
        except NotFoundError:
            return False
        return True


class Checkpoint:
    """The checkpoints directly below one URI.

    A *name* is an object directly below it, or a directory that holds ``.metadata`` (a
    distributed checkpoint). A name's *step* is the last run of digits in it. Where the URI
    itself holds ``.metadata`` it is one distributed checkpoint and has no names.

    Names are joined to the URI with exactly one slash; a full URI works as a name too.
    Pickles; secrets travel as ``options`` allow.

    Args:
        uri: ``gs://bucket/runs/42/`` say; the slash at its end may be left out.
        options: of the URI's scheme; full URIs of another scheme are opened without.
        transfer: timeouts, sizes and the retry policy.

    Attributes:
        uri: with exactly one slash at its end.

    Raises:
        SettingsError: unknown scheme, no bucket, options of another scheme.
    """

    def __init__(
        self,
        uri: str,
        *,
        options: Options | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        parsed = ObjectURI.parse(uri)
        bucket = uri[: len(uri) - len(parsed.key)].removesuffix("/")
        key = parsed.key.rstrip("/")
        self._prefix = f"{key}/" if key else ""
        self.uri = f"{bucket}/{self._prefix}"
        self._scheme = parsed.scheme
        self._options = options
        self._transfer = transfer
        self._provider = open_provider(self.uri, options=options, transfer=transfer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    # ---- Writing and reading ---------------------------------------------------------------

    def writer(
        self,
        name: str,
        *,
        if_absent: bool = False,
        size_hint: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectWriter:
        """Open a checkpoint for writing; it appears when the writer is closed without an error.

        Args:
            name: of the checkpoint; an existing one is replaced.
            if_absent: fail, on closing, where there is one already.
            size_hint: bytes that will be written, where known.
            metadata: as for ``Provider.put``.
        """
        place = self._place(name)
        return ObjectWriter(
            place.provider,
            place.key,
            uri=place.uri,
            if_absent=if_absent,
            size_hint=size_hint,
            metadata=metadata,
        )

    def save(self, state: Any, name: str, *, if_absent: bool = False) -> ObjectInfo:
        """Write ``state`` by ``torch.save``, whole or not at all.

        Args:
            state: what ``torch.save`` takes.
            name: of the checkpoint; an existing one is replaced.
            if_absent: fail where there is one already.

        Raises:
            PreconditionError: ``if_absent`` and there is one.
        """
        with self.writer(name, if_absent=if_absent, size_hint=tensor_bytes(state)) as file:
            torch.save(state, file)
        return file.info

    def reader(self, name: str) -> ObjectReader:
        """Open a checkpoint for reading, pinned to the version there is now.

        Raises:
            NotFoundError: there is none; the message says where it was looked for.
        """
        place = self._place(name)
        try:
            info = place.head()
        except NotFoundError as error:
            raise self._missing(name, place) from error
        remember_loaded(place.uri)
        return ObjectReader(place.provider, info, uri=place.uri)

    def load(self, name: str, *, map_location: Any = None, weights_only: bool = True) -> Any:
        """Return what ``torch.load`` makes of a checkpoint.

        Args:
            name: of the checkpoint.
            map_location: as for ``torch.load``.
            weights_only: false lets a checkpoint run any code it likes: only for files you
                would run as a program.

        Raises:
            NotFoundError: there is none; the message says where it was looked for.
            IntegrityError: it was replaced while it was read.
        """
        with self.reader(name) as file:
            # torch.load jumps: what fits one request is better read by one.
            small = file.size <= self._provider.transfer.range_size_bytes
            source = io.BytesIO(file.read()) if small else file
            return torch.load(source, map_location=map_location, weights_only=weights_only)

    # ---- Names -----------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of whole checkpoints by step, those without a digit first."""
        return [name for name, whole in self._entries() if whole or self._is_committed(name)]

    def latest(self) -> str | None:
        """Return the name of the highest step; None where no name has one. Times don't count."""
        for name, whole in reversed(self._entries()):
            if _step(name) is None:
                return None
            if whole or self._is_committed(name):
                return name
        return None

    def keep_last(self, n: int, pattern: str = "*") -> list[str]:
        """Delete all but the names of the ``n`` highest steps; return what was deleted.

        Only whole checkpoints count, so an old one goes only once a newer one is whole. Names of
        one step stay or go together. Names without a digit stay, and so does what this process
        loaded. Directories without ``.metadata`` stay, since they may be saves under way; but
        what a deletion that broke off has left, of a step before those kept, goes too.

        Args:
            n: how many steps to keep, at least 1.
            pattern: an ``fnmatch`` pattern; other names are neither counted nor deleted.

        Raises:
            ProviderError: something could not be deleted; the rest was. Call it again.
        """
        if n < 1:
            raise ValueError(f"keep_last keeps at least 1 checkpoint, not {n}; see delete")
        found: list[tuple[int, str, bool]] = []
        for name, is_object in self._entries():
            step = _step(name)
            if step is not None and fnmatchcase(name, pattern):
                found.append((step, name, is_object or self._is_committed(name)))
        kept = sorted({step for step, _, whole in found if whole})[-n:]
        old = [(name, whole) for step, name, whole in found if kept and step < kept[0]]
        return self._retire(old)

    def _retire(self, old: list[tuple[str, bool]]) -> list[str]:
        """Delete the whole ones and the remains of others; return the names of the former."""
        deleted: list[str] = []
        failures: list[ProviderError] = []
        for name, whole in old:
            place = self._place(name)
            try:
                if _is_loaded(place.uri) or not (whole or place.is_half_deleted()):
                    continue
                place.delete(unfinished=False)
            except ProviderError as error:
                failures.append(error)
            else:
                deleted += [name] * whole
        if failures:
            raise failures[0]
        return deleted

    def delete(self, name: str) -> None:
        """Delete a checkpoint, whole or not; a missing one is no error.

        Asked for by name, also one that this process loaded or that is being saved goes.

        Raises:
            ValueError: the name is a directory that holds this one's URI.
        """
        place = self._place(name)
        own = ObjectURI.parse(self.uri)
        other = ObjectURI.parse(place.uri)
        inside = (own.scheme, own.bucket) == (other.scheme, other.bucket)
        if inside and own.key.startswith(f"{other.key}/"):
            raise ValueError(
                f"{name!r} names no checkpoint: all of {self.uri} lies in it; delete its "
                "checkpoints by their names"
            )
        place.delete(unfinished=True)

    # ---- Shared ----------------------------------------------------------------------------

    def _place(self, name: str) -> _Place:
        if "://" not in name:
            bare = name.strip("/")
            if not bare:
                raise ValueError(f"{name!r} names no checkpoint below {self.uri}")
            return _Place(self._provider, self._prefix + bare, self.uri + bare)
        uri = name.rstrip("/")
        parsed = ObjectURI.parse(uri)
        if not parsed.key:
            raise ValueError(f"{name!r} names a bucket; a checkpoint needs a key")
        options = self._options if parsed.scheme == self._scheme else None
        provider = open_provider(uri, options=options, transfer=self._transfer)
        return _Place(provider, parsed.key, uri)

    def _entries(self) -> list[tuple[str, bool]]:
        """Return names by step; for a directory, false: it counts only if it is committed."""
        found: dict[str, bool] = {}
        for info in self._provider.list_objects(self._prefix, delimiter="/"):
            name = info.key[len(self._prefix) :].removesuffix("/")
            found[name] = found.get(name, False) or not info.is_prefix
        found.pop("", None)
        found = {name: each for name, each in found.items() if not is_composite_name(name)}
        if any(found.get(each) for each in (COMMIT, DELETING)) or any(map(_is_part, found)):
            return []
        return sorted(found.items(), key=lambda entry: _order(entry[0]))

    def _is_committed(self, name: str) -> bool:
        return self._place(name).is_committed()

    def _missing(self, name: str, place: _Place) -> NotFoundError:
        if place.is_committed():
            advice = "it is a distributed checkpoint; load it by connector.dcp.StorageReader"
        else:
            advice = f"looked for this object; {self._known()}"
        return NotFoundError(
            f"there is no checkpoint {name!r}: {advice}", uri=place.uri, operation="load"
        )

    def _known(self) -> str:
        """Say which names there are, for an error."""
        try:
            names = self.names()
        except ProviderError as error:
            return f"what else there is cannot be listed ({error})"
        if not names:
            return f"there are no checkpoints below {self.uri}"
        more = f" and {len(names) - _NAMES_IN_ERRORS} more" if len(names) > _NAMES_IN_ERRORS else ""
        return f"below {self.uri} there are {', '.join(names[-_NAMES_IN_ERRORS:])}{more}"


def _step(name: str) -> int | None:
    """Return the number that the last run of digits in a name spells; None without digits."""
    runs = re.findall(r"[0-9]+", name)
    return int(runs[-1]) if runs else None


def _is_part(name: str) -> bool:
    """Whether it is a file that distributed checkpoints consist of, never a checkpoint itself."""
    return name.endswith(".distcp")


def _order(name: str) -> tuple[int, str]:
    step = _step(name)
    return (-1 if step is None else step, name)
