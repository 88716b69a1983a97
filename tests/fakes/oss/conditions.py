"""Conditional requests and byte ranges."""

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import format_datetime, parsedate_to_datetime

from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.state import StoredObject

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def http_date(moment: datetime) -> str:
    """A moment as headers show it."""
    return format_datetime(moment, usegmt=True)


def check_conditions(
    stored: StoredObject,
    headers: Mapping[str, str],
    *,
    prefix: str = "",
    unchanged_code: str = "NotModified",
) -> None:
    """Refuse what the request's conditions exclude.

    Args:
        stored: The object they are about.
        headers: Of the request.
        prefix: Of the headers' names; the source of a copy has its own.
        unchanged_code: Of the error for an object that did not change.

    Raises:
        ServiceError: `PreconditionFailed`, or what stands for an unchanged object.
    """
    match = headers.get(f"{prefix}if-match")
    if match is not None and match.strip('"') != stored.etag:
        raise ServiceError("PreconditionFailed", ec="0026-00000002", Condition="If-Match")
    unmodified = _moment(headers.get(f"{prefix}if-unmodified-since"))
    if unmodified is not None and stored.modified > unmodified:
        raise ServiceError(
            "PreconditionFailed", ec="0026-00000002", Condition="If-Unmodified-Since"
        )
    none_match = headers.get(f"{prefix}if-none-match")
    modified = _moment(headers.get(f"{prefix}if-modified-since"))
    same = none_match is not None and none_match.strip('"') == stored.etag
    if same or (modified is not None and stored.modified <= modified):
        raise ServiceError(
            unchanged_code,
            headers={"ETag": f'"{stored.etag}"', "Last-Modified": http_date(stored.modified)},
        )


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def select_range(headers: Mapping[str, str], size_bytes: int) -> range | None:
    """The bytes a GET asks for; None is the whole object with status 200.

    Without `x-oss-range-behavior: standard` a range that does not fit is ignored, silently.
    Source: https://help.aliyun.com/zh/oss/developer-reference/getobject, read 2026-11-30.

    Raises:
        ServiceError: Standard behaviour was asked for and the range starts at or past the end.
    """
    match = _RANGE.fullmatch(headers.get("range", ""))
    if match is None or match.group() == "bytes=-":
        return None
    standard = headers.get("x-oss-range-behavior") == "standard"
    wanted = _wanted(match[1], match[2], size_bytes)
    if wanted.stop <= wanted.start:
        return None
    if wanted.start >= 0 and wanted.stop <= size_bytes:
        return wanted
    if not standard:
        return None
    if wanted.start >= size_bytes:
        raise ServiceError(
            "InvalidRange",
            ec="0026-00000021",
            headers={"Content-Range": f"bytes */{size_bytes}"},
            ActualObjectSize=size_bytes,
            RangeRequested=headers["range"].removeprefix("bytes="),
        )
    return range(max(0, wanted.start), min(wanted.stop, size_bytes))


def _wanted(first: str, last: str, size_bytes: int) -> range:
    if not first:
        # `bytes=-0` asks for nothing from the end on, which no object has.
        return range(size_bytes - int(last), size_bytes if int(last) else size_bytes + 1)
    start = int(first)
    return range(start, int(last) + 1 if last else max(size_bytes, start + 1))
