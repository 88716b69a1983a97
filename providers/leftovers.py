"""What writers that were killed have left behind: invisible uploads, hidden files, composites."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from providers.composites import is_composite_name
from providers.errors import NotFoundError
from providers.values import ObjectInfo, UploadInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.base import Provider

__all__ = ["find_leftovers", "remove_leftover"]

DAY_SECONDS = 86_400.0


def find_leftovers(
    provider: Provider, prefix: str = "", *, older_than_seconds: float = DAY_SECONDS
) -> Iterator[UploadInfo | ObjectInfo]:
    """Yield what no writer will ever finish: unfinished uploads, and objects joined half-way.

    Nothing tells a slow writer from a dead one but time: what is younger is spared, by this
    machine's clock and the store's. Files count from when they were last written to.

    Args:
        provider: of the bucket.
        prefix: raw string, of the keys, as for ``Provider.list_uploads``.
        older_than_seconds: longer than any upload here takes; default: a day.

    Raises:
        AccessDeniedError: uploads or objects may not be listed.
    """
    latest = datetime.now(timezone.utc) - timedelta(seconds=older_than_seconds)
    for upload in provider.list_uploads(prefix):
        if upload.started <= latest:
            yield upload
    if not provider.limits.joins_server_side:
        yield from _composites(provider, prefix, latest)


def _composites(provider: Provider, prefix: str, latest: datetime) -> Iterator[ObjectInfo]:
    """Yield objects of a tree of composes: named so, and marked as written by this package."""
    for entry in provider.list_objects(prefix):
        if is_composite_name(entry.key) and entry.modified and entry.modified <= latest:
            try:
                info = provider.head(entry.key)
            except NotFoundError:
                continue  # Its maker lives, and has removed it.
            if info.write_id is not None:
                yield info


def remove_leftover(provider: Provider, leftover: UploadInfo | ObjectInfo) -> None:
    """Remove what ``find_leftovers`` has found; quiet when it is already gone."""
    if isinstance(leftover, UploadInfo):
        provider.abort_upload(leftover)
    else:
        provider.delete([leftover.key])
