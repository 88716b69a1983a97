"""Files below a root, written so that no link is followed and nothing half-written is seen.

Directories are opened name by name, each relative to the one above, so that a link put in
their place while we look cannot lead a write out of the root.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from providers.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TEMPORARY", "Place", "copy_bytes", "write_all"]

TEMPORARY = b".connector-temporary-"
"""How the names of files begin that nobody is meant to see yet."""

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_COPYING = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}
)
_CHUNK_BYTES = 1 << 20
_RACES = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is, or will be.

    Attributes:
        root: path of a directory; links on the way to it are the user's own.
        parents: names of the directories below it.
        name: of the file.
    """

    root: bytes
    parents: tuple[bytes, ...]
    name: bytes

    def temporary(self) -> Place:
        """Return a hidden place beside this one."""
        return replace(self, name=TEMPORARY + secrets.token_hex(8).encode())

    def create(self) -> None:
        """Make an empty file, and the directories above it where they are missing."""
        for attempt in range(_RACES):
            try:
                with self._directory(make=True) as directory:
                    os.close(self._open(directory, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileNotFoundError:
                # Somebody removed a directory, being empty, before this file was in it.
                if attempt == _RACES - 1:
                    raise
            else:
                return

    @contextlib.contextmanager
    def opened(self, flags: int) -> Iterator[int]:
        """Open the file itself, never what a link in its place names."""
        with self._directory() as directory:
            file = self._open(directory, flags)
        try:
            yield file
        finally:
            os.close(file)

    def publish(self, name: bytes, *, if_absent: bool) -> None:
        """Give a written file its name, at once and for good.

        Raises:
            FileExistsError: ``if_absent`` and the name is taken.
            UnsupportedError: ``if_absent`` and the file system knows no hard links.
        """
        with self._directory() as directory:
            if if_absent:
                _link(self.name, name, directory)
                os.unlink(self.name, dir_fd=directory)
            else:
                os.replace(self.name, name, src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)

    def remove(self) -> None:
        """Remove the file, and the directories below the root that are empty without it.

        A missing file is no error, nor is a directory in its place, which is no object. Of a
        link to a file only the link is removed.
        """
        try:
            with self._directory() as directory:
                if _names_file(self.name, directory):
                    os.unlink(self.name, dir_fd=directory)
                    self._prune(directory)
        except (FileNotFoundError, NotADirectoryError):
            return

    def _open(self, directory: int, flags: int) -> int:
        return os.open(self.name, flags | os.O_NOFOLLOW, 0o666, dir_fd=directory)

    @contextlib.contextmanager
    def _directory(self, *, make: bool = False) -> Iterator[int]:
        """Open the directory of the file."""
        if make:
            os.makedirs(self.root, exist_ok=True)  # noqa: PTH103 paths are bytes here
        directory = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in self.parents:
                above, directory = directory, _descend(directory, name, make=make)
                os.close(above)
            yield directory
        finally:
            os.close(directory)

    def _prune(self, directory: int) -> None:
        """Remove empty directories upward; the root stays."""
        current = os.dup(directory)
        try:
            for name in reversed(self.parents):
                # Nothing below the root is a link here, so ".." is the directory above.
                below, current = (
                    current,
                    os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current),
                )
                os.close(below)
                try:
                    os.rmdir(name, dir_fd=current)
                except OSError:
                    # Not empty, gone already, or not ours to remove: it stays, as it may.
                    return
        finally:
            os.close(current)


def _descend(directory: int, name: bytes, *, make: bool) -> int:
    """Open a directory inside another, which stays open, too."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
        os.fsync(directory)
    return os.open(name, flags, dir_fd=directory)


def _names_file(name: bytes, directory: int) -> bool:
    """Whether there is a regular file, be it by a link."""
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=directory).st_mode)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP}:
            return False
        raise


def _link(temporary: bytes, name: bytes, directory: int) -> None:
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name) from None
        raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise UnsupportedError(
                "if_absent needs hard links, which this file system does not offer"
            ) from error
        raise


def write_all(file: int, data: memoryview, offset: int) -> None:
    """Write a buffer at an offset, however many calls it takes."""
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], offset + done)


def copy_bytes(source: int, start: int, file: int, offset: int, count: int) -> int:
    """Copy a range between files, in the kernel where it can; return what there was of it."""
    done = 0
    while done < count:
        step = _copy_some(source, start + done, file, offset + done, count - done)
        if not step:
            break
        done += step
    return done


def _copy_some(source: int, start: int, file: int, offset: int, count: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, file, count, start, offset)
        except OSError as error:
            if error.errno not in _NO_COPYING:
                raise
    chunk = os.pread(source, min(count, _CHUNK_BYTES), start)
    write_all(file, memoryview(chunk), offset)
    return len(chunk)
