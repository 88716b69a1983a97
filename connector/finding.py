"""From a prefix, or URIs, to a table of objects: filtered, counted, with progress."""

from __future__ import annotations

import fnmatch
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from connector.stores import root_of
from connector.table import ObjectRow, ObjectTable, TableBuilder
from providers import NotFoundError, ObjectURI, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.stores import Stores
    from providers import ObjectInfo

__all__ = ["Filters", "Progress", "list_prefix", "named_rows", "pack", "place_of"]

_log = logging.getLogger(__name__)

Progress = bool | Callable[[int], Any] | None
"""None: a line in the log; True: one on stderr; a callable: called with the count so far."""

_SECONDS_BETWEEN_REPORTS = 1.0


class Filters:
    """Which of the objects found belong to a dataset.

    Args:
        include: one ``fnmatch`` pattern or several on the whole key, case matters, ``*``
            crosses ``/``; None: all.
        exclude: the same; wins.
        skip_directories: leave out zero-byte keys that end in ``/``.
        allow_empty: whether nothing at all may be left.
    """

    def __init__(
        self,
        include: str | Iterable[str] | None = None,
        exclude: str | Iterable[str] | None = None,
        *,
        skip_directories: bool = True,
        allow_empty: bool = False,
    ) -> None:
        self._include = None if include is None else _patterns(include)
        self._exclude = () if exclude is None else _patterns(exclude)
        self._skip_directories = skip_directories
        self._allow_empty = allow_empty

    def keep(self, row: ObjectRow) -> bool:
        """Whether an object belongs to the dataset."""
        if self._skip_directories and row.size == 0 and row.key.endswith("/"):
            return False
        if self._include is not None and not _any_matches(self._include, row.key):
            return False
        return not _any_matches(self._exclude, row.key)

    def check(self, where: str, found: int, left: int) -> None:
        """Raise unless something is left.

        Args:
            where: what was searched.
            found: how many objects there were.
            left: how many of them belong to the dataset.

        Raises:
            NotFoundError: none does, and ``allow_empty`` is false.
        """
        _log.info("%s: %d objects found, %d filtered out", where, found, found - left)
        if not left and not self._allow_empty:
            raise NotFoundError(
                f"no object: {found} found, {found - left} filtered out (include, exclude, "
                "skip_directories); allow_empty=True permits an empty dataset",
                uri=where,
                operation="find",
            )


def _patterns(patterns: str | Iterable[str]) -> tuple[re.Pattern[str], ...]:
    several = [patterns] if isinstance(patterns, str) else patterns
    return tuple(re.compile(fnmatch.translate(pattern)) for pattern in several)


def _any_matches(patterns: tuple[re.Pattern[str], ...], key: str) -> bool:
    return any(pattern.match(key) for pattern in patterns)


class _Reports:
    """Tells how many objects there are so far, once a second at most and at the end."""

    def __init__(self, where: str, progress: Progress) -> None:
        self._where = where
        self._report = progress if callable(progress) else self._write if progress else self._say
        self._due = time.monotonic() + _SECONDS_BETWEEN_REPORTS
        self._writes = progress is True

    def count(self, found: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _SECONDS_BETWEEN_REPORTS
            self._report(found)

    def end(self, found: int) -> None:
        if self._report != self._say:
            self._report(found)
        if self._writes:
            sys.stderr.write("\n")

    def _say(self, found: int) -> None:
        _log.info("%s: %d objects so far", self._where, found)

    def _write(self, found: int) -> None:
        sys.stderr.write(f"\r{self._where}: {found:,} objects")
        sys.stderr.flush()


def pack(
    rows: Iterable[ObjectRow], where: str, filters: Filters, progress: Progress
) -> ObjectTable:
    """Take objects as they come and keep those that belong to the dataset.

    Args:
        rows: what was found, in order.
        where: what was searched, for messages.
        filters: which objects belong to the dataset.
        progress: how to tell that it goes on.

    Raises:
        NotFoundError: none does.
    """
    builder, reports, found = TableBuilder(), _Reports(where, progress), 0
    for row in rows:
        found += 1
        if filters.keep(row):
            builder.append(row)
        reports.count(found)
    reports.end(found)
    filters.check(where, found, len(builder))
    return builder.finish()


def list_prefix(stores: Stores, uri: str) -> Iterator[ObjectRow]:
    """Yield all objects whose URI begins with ``uri``, a raw string."""
    prefix = ObjectURI.parse(uri)
    root = root_of(prefix)
    for info in _noting_siblings(stores.open(prefix).list_objects(prefix.key), prefix):
        yield ObjectRow(root, info.key, info.size, info.etag, info.version)


def _noting_siblings(infos: Iterable[ObjectInfo], prefix: ObjectURI) -> Iterator[ObjectInfo]:
    """Say in the log when ``train`` found ``train/`` and also ``train2/``."""
    inside, sibling = False, None
    folder = f"{prefix.key}/"
    for info in infos:
        if info.key.startswith(folder):
            inside = True
        elif sibling is None:
            sibling = info.key
        yield info
    if inside and sibling is not None and prefix.key and not prefix.key.endswith("/"):
        _log.warning(
            "%s is a raw prefix: beside the folder %s/ it also matches %s; "
            "end it with a slash for the folder alone",
            prefix,
            prefix,
            sibling,
        )


def named_rows(uris: Iterable[str]) -> Iterator[ObjectRow]:
    """Yield the objects that a user named.

    Raises:
        TypeError: one is no string, or a single string was given.
        SettingsError: one is no URI of an object.
    """
    if isinstance(uris, str):
        raise TypeError(f"from_objects takes several URIs; write [{uris!r}], or use from_prefix")
    return (ObjectRow(*place_of(uri)) for uri in uris)


def place_of(uri: str) -> tuple[str, str]:
    """Return root and key of an object.

    Raises:
        TypeError: it is no string.
        SettingsError: it names no object, or is not Unicode text.
    """
    if not isinstance(uri, str):
        raise TypeError(f"a URI is a string, not {type(uri).__name__}: {uri!r}")
    parsed = ObjectURI.parse(uri)
    if not parsed.key:
        raise SettingsError(f"{uri!r} names a bucket, not an object in it")
    try:
        parsed.key.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"{uri!r} is not valid UTF-8") from None
    return root_of(parsed), parsed.key
