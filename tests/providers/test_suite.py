"""The suite itself: it finds each fault that we could think of in a broken provider."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from providers.errors import ProviderError, UnavailableError
from providers.listings import Page
from providers.memory import MemoryProvider
from providers.retry import without_waiting
from providers.testing.listing import NAMES
from providers.uploads import MultipartUpload
from providers.values import ByteRange, ObjectInfo
from tests.providers.test_memory import TestMemory as Suite


class InclusiveEnd(MemoryProvider):
    """Reads ranges as HTTP counts them."""

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        if byte_range is not None and byte_range.stop is not None:
            byte_range = ByteRange(byte_range.start, byte_range.stop + 1)
        return super()._get(key, byte_range, if_match)


class ShortBody(MemoryProvider):
    """Loses the last byte of large objects."""

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        return super()._get(key, byte_range, if_match)[:99_999]


class EmptyPastEnd(MemoryProvider):
    """Answers a range past the end with nothing."""

    @override
    def range_error(self, key: str, byte_range: ByteRange, size: int | None) -> Any:
        return UnavailableError("past the end", uri=self.uri(key), operation="get")


class NoPins(MemoryProvider):
    """Ignores if_match."""

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        return super()._get(key, byte_range, None)


class QuotedEtag(MemoryProvider):
    """Leaves the quotes around an etag."""

    @override
    def _head(self, key: str) -> ObjectInfo:
        info = super()._head(key)
        return replace(info, etag=f'"{info.etag}"')


class LocalTimes(MemoryProvider):
    """Tells times without a zone."""

    @override
    def _head(self, key: str) -> ObjectInfo:
        info = super()._head(key)
        return replace(info, modified=info.modified and info.modified.replace(tzinfo=None))


class _EditedPages(MemoryProvider):
    def edited(self, entries: list[ObjectInfo]) -> list[ObjectInfo]:
        """Change a page."""
        return entries

    @override
    def _entries(self, *scope: Any) -> Iterator[ObjectInfo]:
        yield from self.edited([entry for page in self._pages(*scope) for entry in page])

    @override
    def list_objects(self, prefix: str = "", **arguments: Any) -> Iterator[ObjectInfo]:
        scope = (arguments.get(n) for n in ("start_after", "stop_before", "delimiter"))
        return self._entries(prefix, *scope)


class Utf16Order(_EditedPages):
    """Lists in the order that Java and JavaScript have."""

    @override
    def edited(self, entries: list[ObjectInfo]) -> list[ObjectInfo]:
        return sorted(entries, key=lambda entry: entry.key.encode("utf-16-be"))


class TreeOrder(_EditedPages):
    """Lists as a walk over directories does."""

    @override
    def edited(self, entries: list[ObjectInfo]) -> list[ObjectInfo]:
        return sorted(entries, key=lambda entry: entry.key.split("/"))


class PrefixesFirst(_EditedPages):
    """Lists common prefixes before keys."""

    @override
    def edited(self, entries: list[ObjectInfo]) -> list[ObjectInfo]:
        return sorted(entries, key=lambda entry: not entry.is_prefix)


class OnePage(MemoryProvider):
    """Forgets the next page."""

    @override
    def _list_page(self, *scope: Any) -> Page:
        return super()._list_page(*scope)[0], None


class EagerList(MemoryProvider):
    """Reads all pages before it yields."""

    @override
    def _pages(self, *scope: Any) -> Any:
        return iter(list(super()._pages(*scope)))


class DirectoryPrefix(MemoryProvider):
    """Takes a prefix for a directory."""

    @override
    def _list_page(self, prefix: str, *rest: Any) -> Page:
        return super()._list_page(prefix and f"{prefix.rstrip('/')}/", *rest)


class Overwrites(MemoryProvider):
    """Ignores if_absent."""

    @override
    def store(self, key: str, data: bytes, *, if_absent: bool, metadata: Any) -> ObjectInfo:
        return super().store(key, data, if_absent=False, metadata=metadata)


class ForgetsMetadata(MemoryProvider):
    """Keeps no metadata."""

    @override
    def store(self, key: str, data: bytes, *, if_absent: bool, metadata: Any) -> ObjectInfo:
        return super().store(key, data, if_absent=if_absent, metadata={})


class KeepsTheBuffer(MemoryProvider):
    """Reads the caller's buffer after put has returned."""

    views: dict[str, memoryview] = {}  # noqa: RUF012 one test's

    @override
    def _put(self, key: str, data: memoryview, *, if_absent: bool, metadata: Any) -> ObjectInfo:
        self.views[key] = data
        return super()._put(key, data, if_absent=if_absent, metadata=metadata)


class FoldsKeys(MemoryProvider):
    """Takes a key for a path."""

    @override
    def store(self, key: str, data: bytes, *, if_absent: bool, metadata: Any) -> ObjectInfo:
        folded = key.replace("//", "/").replace("/./", "/")
        return super().store(folded, data, if_absent=if_absent, metadata=metadata)

    @override
    def _find(self, key: str, operation: str) -> tuple[ObjectInfo, bytes]:
        return super()._find(key.replace("//", "/").replace("/./", "/"), operation)


class LoudDelete(MemoryProvider):
    """Stops a batch at its first missing key."""

    @override
    def _delete(self, keys: Any) -> list[ProviderError]:
        for key in keys:
            if key not in self._bucket.objects:
                return []
            del self._bucket.objects[key]
        return []


class SortedCompose(MemoryProvider):
    """Joins sources in the order of their keys."""

    @override
    def _compose(self, sources: list[ObjectInfo], *rest: Any, **more: Any) -> ObjectInfo:
        return super()._compose(sorted(sources, key=lambda s: s.key), *rest, **more)


class EarlyUpload(MemoryProvider):
    """Shows an upload before it is complete."""

    @override
    def _start_multipart(self, key: str, write_id: str, **more: Any) -> MultipartUpload:
        self.store(key, b"", if_absent=False, metadata={})
        return super()._start_multipart(key, write_id, **more)


def _broken_upload(method: str, replacement: Callable[..., Any]) -> type[MemoryProvider]:
    """Return a provider whose uploads have one method replaced."""

    class Broken(MemoryProvider):
        @override
        def _start_multipart(self, key: str, write_id: str, **more: Any) -> MultipartUpload:
            upload = super()._start_multipart(key, write_id, **more)
            original = getattr(upload, method)
            setattr(upload, method, lambda *a: replacement(original, *a))
            return upload

    return Broken


def _arrival_order(complete: Callable[..., None], receipts: Mapping[int, bytes]) -> None:
    complete(dict(reversed(list(receipts.items()))))


MUTANTS: list[tuple[type[MemoryProvider], str, dict[str, Any]]] = [
    (InclusiveEnd, "test_get_returns_a_range", {"start": 0, "stop": 1}),
    (ShortBody, "test_get_returns_the_whole_object", {}),
    (EmptyPastEnd, "test_get_past_the_end_raises", {"start": 10, "stop": None}),
    (EmptyPastEnd, "test_get_of_an_empty_object", {}),
    (NoPins, "test_get_pinned_to_what_there_is", {"source": "head"}),
    (QuotedEtag, "test_head_describes_the_object", {}),
    (LocalTimes, "test_head_describes_the_object", {}),
    (Utf16Order, "test_list_is_in_byte_order", {}),
    (TreeOrder, "test_list_is_in_byte_order", {}),
    (PrefixesFirst, "test_list_groups_by_a_delimiter", {}),
    (_EditedPages, "test_list_bounds_are_exclusive", {"prefix": ""}),
    (OnePage, "test_list_goes_on_beyond_a_page", {}),
    (EagerList, "test_list_goes_on_beyond_a_page", {}),
    (DirectoryPrefix, "test_list_takes_a_raw_prefix", {"prefix": "b"}),
    (Overwrites, "test_put_if_absent", {}),
    (Overwrites, "test_multipart_if_absent", {}),
    (Overwrites, "test_compose_if_absent", {"unit": 5}),
    (ForgetsMetadata, "test_put_keeps_metadata", {}),
    (ForgetsMetadata, "test_multipart_keeps_metadata", {}),
    (ForgetsMetadata, "test_copy_keeps_metadata", {}),
    (KeepsTheBuffer, "test_put_has_read_the_buffer_when_it_returns", {}),
    (FoldsKeys, "test_odd_key", {"name": "double slash"}),
    (FoldsKeys, "test_odd_key", {"name": "dot"}),
    (LoudDelete, "test_delete_deletes_what_is_named", {}),
    (SortedCompose, "test_compose_joins_in_order", {"unit": 5}),
    (EarlyUpload, "test_multipart_shows_the_old_object_until_complete", {"part": 9}),
    (EarlyUpload, "test_multipart_aborted_leaves_nothing", {"part": 9}),
    (
        _broken_upload("_complete", _arrival_order),
        "test_multipart_joins_parts_by_number",
        {"part": 9},
    ),
    (
        _broken_upload("_abort", lambda *_: None),
        "test_multipart_aborts_when_its_block_raises",
        {"part": 9},
    ),
]


def run_one(kind: type[MemoryProvider], test: str, arguments: dict[str, Any], bucket: str) -> None:
    """Run one test of the suite against a provider."""
    suite = Suite()
    suite.bucket = bucket
    provider = kind(bucket)
    wants = getattr(suite, test).__code__.co_varnames
    if "filled" in wants:
        suite.fill(dict.fromkeys(reversed(NAMES), b"x"))
    fixture = {"filled" if "filled" in wants else "provider": provider}
    with without_waiting():
        if "monkeypatch" in wants:
            with pytest.MonkeyPatch.context() as patch:
                getattr(suite, test)(**fixture, **arguments, monkeypatch=patch)
        else:
            getattr(suite, test)(**fixture, **arguments)


@pytest.mark.parametrize(
    ("mutant", "test", "arguments"),
    MUTANTS,
    ids=[f"{mutant.__name__}-{test}" for mutant, test, _ in MUTANTS],
)
def test_suite_finds_a_broken_provider(
    mutant: type[MemoryProvider], test: str, arguments: dict[str, Any], bucket_name: str
) -> None:
    """A provider with one fault fails the test that is there for it, which a sound one passes."""
    run_one(MemoryProvider, test, arguments, bucket_name)
    with pytest.raises(
        (AssertionError, ProviderError, KeyError, BufferError, pytest.fail.Exception)
    ):
        run_one(mutant, test, arguments, f"{bucket_name}-broken")
