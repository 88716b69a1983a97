"""The regular files below a directory, in the order of their keys."""

from __future__ import annotations

import errno
import logging
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from providers.directories import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Found", "Scope", "Tree", "hidden_files"]

_log = logging.getLogger(__name__)

Found = tuple[str, "os.stat_result | None"]
"""A key and its file's status; for a common prefix, None."""

_Entry = tuple[str, "os.DirEntry[bytes]"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a tree is asked for. Keys of directories end in a slash.

    Attributes:
        prefix: only keys that begin with it.
        after: only keys beyond it.
        before: only keys before it; common prefixes are left to the caller.
        delimiter: groups keys by what precedes it, after the prefix.
    """

    prefix: str = ""
    after: str = ""
    before: str | None = None
    delimiter: str | None = None

    def wants(self, key: str) -> bool:
        """Whether a file, or anything in a directory, may be asked for."""
        if not key.endswith("/"):
            return key.startswith(self.prefix) and key > self.after
        inside = key.startswith(self.prefix) or self.prefix.startswith(key)
        return inside and (key > self.after or self.after.startswith(key))

    def ends_at(self, key: str) -> bool:
        """Whether this key and all beyond it are of no interest."""
        return self.before is not None and not self.delimiter and key >= self.before

    def group(self, key: str) -> str | None:
        """Return the common prefix that stands for a key."""
        if not self.delimiter or not key.startswith(self.prefix):
            return None
        at = key.find(self.delimiter, len(self.prefix))
        return key[: at + len(self.delimiter)] if at >= 0 else None


@dataclass(frozen=True, slots=True)
class _Level:
    """A directory being read.

    Attributes:
        identity: device and inode, by which a link that leads back up is known.
        entries: what is left of it, in order.
    """

    identity: tuple[int, int]
    entries: Iterator[_Entry]


class Tree:
    """A tree of files, read a directory at a time.

    Args:
        path: makes a path of a key.
        may_follow: says of a link's path whether it may be read.
    """

    def __init__(self, path: Callable[[str], bytes], may_follow: Callable[[bytes], bool]) -> None:
        self._path = path
        self._may_follow = may_follow

    def walk(self, top: str, scope: Scope) -> Iterator[Found]:
        """Yield files in UTF-8 byte order of their keys.

        Only the names of the directories between the top and the current file are in memory.

        Args:
            top: key of the directory to begin in; one that does not exist holds nothing.
            scope: what to yield.
        """
        levels: list[_Level] = []
        self._enter(top, scope, levels)
        last_group: str | None = None
        while levels:
            key, entry = next(levels[-1].entries, ("", None))
            if entry is None:
                levels.pop()
            elif scope.ends_at(key):
                return
            elif (group := scope.group(key)) is None:
                if key.endswith("/"):
                    self._enter(key, scope, levels)
                elif status := _status(entry):
                    yield key, status
            elif group != last_group and self._holds_object(key, entry):
                last_group = group
                yield group, None

    def _holds_object(self, key: str, entry: os.DirEntry[bytes]) -> bool:
        if not key.endswith("/"):
            return _status(entry) is not None
        return next(self.walk(key, Scope()), None) is not None

    def _enter(self, key: str, scope: Scope, levels: list[_Level]) -> None:
        """Begin to read a directory, unless it is one that we are in already."""
        path = self._path(key)
        try:
            status = os.stat(path)  # noqa: PTH116 paths are bytes here
            identity = status.st_dev, status.st_ino
            if any(level.identity == identity for level in levels):
                _log.warning("%s leads back to a directory above it and is not listed", path)
                return
            entries = self._read(key, path, scope)
        except (FileNotFoundError, NotADirectoryError):
            return
        levels.append(_Level(identity, iter(entries)))

    def _read(self, key: str, path: bytes, scope: Scope) -> list[_Entry]:
        """Return what is wanted of a directory, in the order of keys."""
        found: list[_Entry] = []
        unreadable = 0
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    name = entry.name.decode()
                except UnicodeDecodeError:
                    unreadable += 1
                    continue
                below = f"{key}{name}{'/' if _is_directory(entry) else ''}"
                hidden = entry.name.startswith(TEMPORARY)
                refused = entry.is_symlink() and not self._may_follow(entry.path)
                if scope.wants(below) and not hidden and not refused:
                    found.append((below, entry))
        if unreadable:
            _log.warning("%d names in %s are not valid UTF-8 and are not listed", unreadable, path)
        return sorted(found, key=_by_key)


def hidden_files(
    path: Callable[[str], bytes], top: str, wants: Callable[[str], bool]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files that writes have not published, in no order; no link is followed.

    Args:
        path: makes a path of a key.
        top: key of the directory to begin in, whose own files are all wanted.
        wants: says of the key of a directory below it, slash included, whether its files are.
    """
    try:
        with os.scandir(path(top)) as entries:
            found = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        try:
            name = entry.name.decode()
        except UnicodeDecodeError:
            continue
        below = f"{top}{name}/"
        if entry.is_dir(follow_symlinks=False):
            if wants(below):
                yield from hidden_files(path, below, wants)
        elif entry.name.startswith(TEMPORARY) and not entry.is_symlink():
            status = _status(entry)
            if status is not None:
                yield f"{top}{name}", status


def _by_key(entry: _Entry) -> str:
    return entry[0]


def _is_directory(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def _status(entry: os.DirEntry[bytes]) -> os.stat_result | None:
    """Return the status of a regular file; None of anything else, and of what is gone."""
    try:
        status = entry.stat()
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP}:
            return None
        raise
    return status if stat.S_ISREG(status.st_mode) else None
