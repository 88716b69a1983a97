"""``file://``: files below a root. A key is the whole absolute path without its first slash.

Directories are no objects: writes make them, deletes remove those that became empty (but
for the root), and one that does not exist holds nothing. Links are followed for reading;
a write replaces a link in its place and goes through none on its way. User metadata is not
kept: no place for it changes together with the file on every file system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import replace
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, cast

from typing_extensions import Self, override

from providers.base import Provider
from providers.directories import TEMPORARY, Place, copy_bytes, write_all
from providers.errors import (
    AccessDeniedError,
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    SettingsError,
    UnavailableError,
    UnsupportedError,
)
from providers.file_errors import file_error
from providers.local_uploads import LocalUpload
from providers.options import LocalOptions, Options, TransferOptions
from providers.paths import PLAIN_NAMES, is_plain, path_of, root_names
from providers.values import ByteRange, Limits, ObjectInfo, ObjectURI, UploadInfo
from providers.walking import Found, Scope, Tree, hidden_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from providers.listings import Page, UploadsPage
    from providers.uploads import MultipartUpload

__all__ = ["LocalProvider"]

_NO_LIMIT = 1 << 62

_LIMITS = Limits(
    min_part_bytes=1,
    max_part_bytes=_NO_LIMIT,
    max_parts=1_000_000,
    max_sources=1_000_000,
    min_join_bytes=1,
    max_put_bytes=_NO_LIMIT,
    max_copy_bytes=_NO_LIMIT,
    conditional_put=True,
    equal_parts=False,
    lists_in_order=True,
    joins_server_side=True,
    keeps_metadata=False,
)

_PAGE_OBJECTS = 1000


class LocalProvider(Provider):
    """Files below ``options.root`` (default: ``/``)."""

    scheme: ClassVar[str] = "file"
    options_type: ClassVar[type[Options]] = LocalOptions
    # A path has 4,096 bytes with its first slash and its final NUL.
    # Source: PATH_MAX in linux/limits.h (macOS: 1,024, and the system says so itself).
    max_key_bytes: ClassVar[int] = 4094
    delete_batch: ClassVar[int] = 1000

    def __init__(
        self,
        bucket: str = "",
        options: Options | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        super().__init__(bucket, options, transfer)
        chosen = cast("LocalOptions", self.options)
        self._follow_links = chosen.follow_links
        self._root = root_names(chosen.root or "/")

    @classmethod
    @override
    def open(
        cls, uri: ObjectURI, options: Options | None, transfer: TransferOptions | None
    ) -> Self:
        chosen = cast("LocalOptions", options or LocalOptions())
        names = uri.key.split("/")[:-1]
        if not all(map(is_plain, names)):
            raise LimitError(PLAIN_NAMES, uri=str(uri), operation="open")
        if chosen.root is None:
            chosen = chosen.model_copy(update={"root": "/" + "/".join(names)})
        provider = cls(uri.bucket, chosen, transfer)
        if names[: len(provider._root)] != provider._root:
            raise SettingsError(f"{uri} lies outside of the option root, {chosen.root}")
        return provider

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri(self._top)!r})"

    @property
    @override
    def limits(self) -> Limits:
        return _LIMITS

    @override
    def check_key(self, key: str, operation: str) -> None:
        super().check_key(key, operation)
        segments = self._check_segments(key, key.split("/"), operation)
        depth = len(self._root)
        if segments[:depth] != self._root or len(segments) == depth:
            raise self.limit_error(
                operation, key, f"the key lies outside of the root /{self._top} "
                "(open a URI further up, or set the option root)"
            )  # fmt: skip

    def _check_segments(self, key: str, segments: list[str], operation: str) -> list[str]:
        """Refuse names that a path would give another meaning, or that are ours."""
        for name in segments:
            if not is_plain(name):
                raise self.limit_error(operation, key, PLAIN_NAMES)
            if name.encode().startswith(TEMPORARY):
                raise self.limit_error(
                    operation, key, f"names that begin with {TEMPORARY.decode()} are reserved"
                )
        return segments

    # ---- Reading -------------------------------------------------------------------------

    @property
    def _top(self) -> str:
        """The root's key, with a slash at its end."""
        return "".join(f"{name}/" for name in self._root)

    def _may_follow(self, link: bytes) -> bool:
        if self._follow_links:
            return True
        root = os.path.realpath(path_of(self._top))
        return os.path.commonpath([root, os.path.realpath(link)]) == root

    @contextlib.contextmanager
    def _opened(self, key: str, pin: ObjectInfo | None, operation: str) -> Iterator[int]:
        """Open a file for reading; raise if it is not, or does not stay, the one pinned."""
        path = path_of(key)
        if not self._may_follow(path):
            raise AccessDeniedError(
                "a link leads out of the root, and the option follow_links is false",
                uri=self.uri(key),
                operation=operation,
            )
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        file = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
        try:
            before = _describe(key, os.fstat(file))
            if pin is not None and pin.version != before.version:
                raise self._changed(PreconditionError, key, operation)
            yield file
            if _describe(key, os.fstat(file)).version != before.version:
                kind = PreconditionError if pin is not None else UnavailableError
                raise self._changed(kind, key, operation)
        finally:
            os.close(file)

    def _changed(self, kind: type[ProviderError], key: str, operation: str) -> ProviderError:
        return kind("the file changed", uri=self.uri(key), operation=operation)

    @override
    def _head(self, key: str) -> ObjectInfo:
        with self._opened(key, None, "head") as file:
            return _describe(key, os.fstat(file))

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        with self._opened(key, if_match, "get") as file:
            size = os.fstat(file).st_size
            wanted = byte_range or ByteRange(0)
            if byte_range is not None and byte_range.start >= size:
                raise self.range_error(key, byte_range, size)
            body = _read(file, wanted.start, wanted.length_in(size))
            if len(body) < wanted.length_in(size):
                raise self._changed(UnavailableError, key, "get")
            return body

    @override
    def _list_page(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
        token: str | None,
    ) -> Page:
        raise NotImplementedError  # pages are cut from one walk, in _pages

    @override
    def _pages(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
    ) -> Iterator[list[ObjectInfo]]:
        # A walk for each page would read the directories on its way anew.
        walk: Iterator[ObjectInfo] | None = None
        after = start_after or ""

        def next_page() -> list[ObjectInfo]:
            nonlocal walk
            current = walk or self._walk(prefix, after, stop_before, delimiter)
            # A walk that raises is spent: another attempt begins a new one, after the last page.
            walk = None
            page = list(islice(current, _PAGE_OBJECTS))
            walk = current
            return page

        while page := self.request("list", prefix, next_page):
            after = page[-1].key
            yield page

    def _start_of(self, prefix: str, operation: str) -> str:
        """Return the key of the directory to begin in, with a slash at its end."""
        top, _, _ = prefix.rpartition("/")
        if top:
            self._check_segments(prefix, top.split("/"), operation)
        if prefix.startswith(self._top):
            return f"{top}/" if top else ""
        if self._top.startswith(prefix):
            return self._top
        raise self.limit_error(operation, prefix, f"outside of the root /{self._top}")

    def _walk(
        self, prefix: str, after: str, before: str | None, delimiter: str | None
    ) -> Iterator[ObjectInfo]:
        start = self._start_of(prefix, "list")
        if start and not self._may_follow(path_of(start)):
            return
        tree = Tree(path_of, self._may_follow)
        for found in tree.walk(start, Scope(prefix, after, before, delimiter)):
            yield _found(found)

    # ---- Writing -------------------------------------------------------------------------

    def place(self, key: str) -> Place:
        """Return where the file of a key is, or will be.

        Raises:
            UnsupportedError: on a system that cannot keep writes from following links.
        """
        if not hasattr(os, "O_NOFOLLOW"):
            raise UnsupportedError(
                "files are written on Linux and macOS only", uri=self.uri(key), operation="write"
            )
        *parents, name = (segment.encode() for segment in key.split("/")[len(self._root) :])
        return Place(path_of(self._top), tuple(parents), name)

    def write(self, key: str, fill: Callable[[int], None], *, if_absent: bool) -> ObjectInfo:
        """Have a hidden file filled, and make it the object; all or nothing."""
        place = self.place(key)
        temporary = place.temporary()
        temporary.create()
        try:
            with temporary.opened(os.O_WRONLY) as file:
                fill(file)
                os.fsync(file)
                info = _describe(key, os.fstat(file))
            temporary.publish(place.name, if_absent=if_absent)
        except BaseException:
            temporary.remove()
            raise
        return info

    @override
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        return self.write(key, lambda file: write_all(file, data, 0), if_absent=if_absent)

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        return LocalUpload(self, key, write_id, if_absent=if_absent)

    @override
    def _uploads_page(self, prefix: str, token: Any) -> UploadsPage:
        start = self._start_of(prefix, "list_uploads")
        found = hidden_files(path_of, start, lambda key: key.startswith(prefix))
        return [
            UploadInfo(key, key.rpartition("/")[2], moment)
            for key, status in found
            if (moment := _moment(status.st_mtime)) is not None
        ], None

    @override
    def _abort_upload(self, upload: UploadInfo) -> None:
        directory, _, name = upload.key.rpartition("/")
        if not name.encode().startswith(TEMPORARY):
            raise self.limit_error("abort_upload", upload.key, "no write has a file of this name")
        # The place of an object beside it, whose name is checked and of no matter.
        beside = f"{directory}/object" if directory else "object"
        self.check_key(beside, "abort_upload")
        replace(self.place(beside), name=name.encode()).remove()

    @override
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        return self._concatenate([source], destination, if_absent=False)

    @override
    def _compose(
        self,
        sources: list[ObjectInfo],
        destination: str,
        write_id: str,
        *,
        if_absent: bool,
        metadata: Mapping[str, str],
    ) -> ObjectInfo:
        return self.request(
            "compose",
            destination,
            lambda: self._concatenate(sources, destination, if_absent=if_absent),
        )

    def _concatenate(
        self, sources: list[ObjectInfo], destination: str, *, if_absent: bool
    ) -> ObjectInfo:
        def fill(file: int) -> None:
            offset = 0
            for source in sources:
                self.copy_range(source, ByteRange(0), file, offset)
                offset += source.size

        return self.write(destination, fill, if_absent=if_absent)

    def copy_range(self, source: ObjectInfo, byte_range: ByteRange, file: int, offset: int) -> None:
        """Copy from a pinned object into an open file."""
        count = byte_range.length_in(source.size)
        try:
            with self._opened(source.key, source, "copy") as opened:
                if copy_bytes(opened, byte_range.start, file, offset, count) < count:
                    raise self._changed(PreconditionError, source.key, "copy")
        except FileNotFoundError as error:
            raise NotFoundError(
                "there is no such file", uri=self.uri(source.key), operation="copy"
            ) from error

    @override
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        failures = []
        for key in keys:
            try:
                self.place(key).remove()
            except OSError as error:
                failures.append(file_error(error, "delete", self.uri(key)))
        return failures

    @override
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        if not isinstance(error, OSError):
            return None
        return file_error(error, operation, self.uri(key))


def _describe(key: str, status: os.stat_result) -> ObjectInfo:
    """Describe a regular file; anything else is no object."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return ObjectInfo(
        key,
        size=status.st_size,
        etag=version,
        version=version,
        modified=_moment(status.st_mtime),
    )


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        # A file's time can be any number; not all are years that Python knows.
        return None


def _found(found: Found) -> ObjectInfo:
    key, status = found
    return ObjectInfo(key, is_prefix=True) if status is None else _describe(key, status)


def _read(file: int, start: int, count: int) -> bytes:
    """Read a range, in as many calls as it takes; fewer bytes where the file has shrunk."""
    os.lseek(file, start, os.SEEK_SET)
    chunks = []
    left = count
    while left and (chunk := os.read(file, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
