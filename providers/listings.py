"""The half of the provider contract that lists: objects, and uploads that nobody has ended."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from providers.errors import ServiceError
from providers.sending import Sender
from providers.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.values import UploadInfo

__all__ = ["Lister", "Page", "UploadsPage"]

Page = tuple[list[ObjectInfo], "str | None"]
"""Entries of one page of a listing and the token of the next, None at the end."""

UploadsPage = tuple["list[UploadInfo]", Any]
"""The same of a listing of unfinished uploads; the token is the backend's own affair, and empty
where the answer does not say how the listing goes on."""


class Lister(Sender):
    """What a bucket holds, page by page.

    Args: as for ``Sender``.
    """

    uploads_page_size: ClassVar[int] = 1000
    """Unfinished uploads asked for at once; no service lists more."""

    def list_objects(
        self,
        prefix: str = "",
        *,
        start_after: str | None = None,
        stop_before: str | None = None,
        delimiter: str | None = None,
    ) -> Iterator[ObjectInfo]:
        """Yield objects lazily, in UTF-8 byte order of their keys.

        Args:
            prefix: raw string; ``a/b`` matches ``a/bc``.
            start_after: entries up to and with this name are left out.
            stop_before: entries from this name on are left out.
            delimiter: keys that hold it after the prefix are grouped: their common prefix,
                up to and with the delimiter, comes once, as ``ObjectInfo(is_prefix=True)``,
                in its place. Both bounds then apply to the names that come out.

        Raises:
            NotFoundError: there is no such bucket (an empty one yields nothing).
            AccessDeniedError: listing is not allowed; never an empty list.
        """
        if start_after is not None and not start_after.startswith(prefix):
            # Some stores refuse a start outside the prefix: it lies before all its keys, or after.
            if start_after > prefix:
                return
            start_after = None
        last = start_after
        for entry in self._entries(prefix, start_after, stop_before, delimiter):
            if stop_before is not None and entry.key >= stop_before:
                return
            if last is None or entry.key > last:
                last = entry.key
                yield entry

    def _entries(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
    ) -> Iterator[ObjectInfo]:
        pages = self._pages(prefix, start_after, stop_before, delimiter)
        if self.limits.lists_in_order:
            for page in pages:
                yield from sorted(page, key=_by_key)
        else:
            yield from sorted(chain.from_iterable(pages), key=_by_key)

    def _pages(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
    ) -> Iterator[list[ObjectInfo]]:
        token: str | None = None
        while True:
            current = token
            entries, token = self.request(
                "list",
                prefix,
                lambda current=current: self._list_page(  # type: ignore[misc]
                    prefix, start_after, stop_before, delimiter, current
                ),
            )
            yield entries
            if token is None:
                return

    def list_uploads(self, prefix: str = "") -> Iterator[UploadInfo]:
        """Yield, lazily, the uploads in parts that are neither completed nor aborted.

        Among them are those under way, and those whose start was never answered.

        Args:
            prefix: raw string, of the keys. A hidden file (``file``) does not tell what it
                would have become: all those in the prefix's own directory come too.

        Raises:
            NotFoundError: there is no such bucket.
            AccessDeniedError: listing them is not allowed; never an empty list.
        """
        token: Any = None
        while True:
            page = partial(self._uploads_page, prefix, token)
            uploads, following = self.request("list_uploads", prefix, page)
            yield from uploads
            if following is None:
                return
            if not following or following == token:
                raise ServiceError(
                    "the listing goes on, and the answer does not say where",
                    uri=self.uri(prefix),
                    operation="list_uploads",
                )
            token = following

    def abort_upload(self, upload: UploadInfo) -> None:
        """Drop an upload and its parts, whoever began it; quiet when it is already gone.

        Whoever still writes to it meets a ``NotFoundError``.
        """
        self.quietly("abort_upload", upload.key, lambda: self._abort_upload(upload))

    # ---- What a backend supplies: one request each ---------------------------------------

    @abstractmethod
    def _list_page(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
        token: str | None,
    ) -> Page:
        """Return one page; bounds may be used to save pages, the caller applies them anyway."""

    @abstractmethod
    def _uploads_page(self, prefix: str, token: Any) -> UploadsPage:
        """Return one page of the unfinished uploads; a token of None asks for the first."""

    @abstractmethod
    def _abort_upload(self, upload: UploadInfo) -> None: ...


def _by_key(info: ObjectInfo) -> str:
    # Order of code points is order of UTF-8 bytes.
    return info.key
