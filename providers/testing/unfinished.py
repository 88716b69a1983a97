"""What ``list_uploads`` and ``abort_upload`` promise, and what a killed writer leaves to find."""

from __future__ import annotations

import multiprocessing
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from providers.errors import NotFoundError, ProviderError
from providers.leftovers import find_leftovers, remove_leftover
from providers.testing.harness import Harness, noise
from providers.values import UploadInfo

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from providers.base import Provider

__all__ = ["UnfinishedTests"]

_PATIENCE_SECONDS = 60.0
_HOUR_SECONDS = 3600.0


def _upload_for_ever(provider: Provider, key: str, part: int, connection: Connection) -> None:
    """Begin an upload in a child, say so, and wait to be killed."""
    upload = provider.start_multipart(key)
    upload.put_part(1, noise(part))
    connection.send("uploading")
    connection.recv()


class UnfinishedTests(Harness):
    """Uploads that somebody began and nobody ended."""

    @pytest.fixture
    def part(self, provider: Provider) -> int:
        """Bytes of a part that need not be the last."""
        return max(provider.limits.min_part_bytes, 1000)

    def test_list_uploads_yields_those_of_a_prefix(self, provider: Provider, part: int) -> None:
        """Unfinished uploads come with key and time of start; finished and other ones do not."""
        begun = datetime.now(timezone.utc)
        names = ["a/1", "a/2", "a/1"]
        uploads = [provider.start_multipart(self.key(name)) for name in names]
        other = provider.start_multipart(self.key("b/1"))
        for upload in (*uploads, other):
            upload.put_part(1, noise(part))
        other.complete()
        aside = provider.start_multipart(self.key("c/1"))
        found = list(provider.list_uploads(self.key("a/")))
        assert len({upload.upload_id for upload in found}) == len(uploads)
        if self.uploads_have_keys:
            assert sorted(upload.key for upload in found) == sorted(map(self.key, names))
        for info in found:
            assert info.started.utcoffset() is not None
            if self.uploads_have_times:
                assert abs((info.started - begun).total_seconds()) < _HOUR_SECONDS
        for unfinished in (*uploads, aside):
            unfinished.abort()
        assert list(provider.list_uploads(self.prefix)) == []

    def test_list_uploads_goes_from_page_to_page(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Many uploads, of one key too, come over pages, none twice and none left out."""
        monkeypatch.setattr(type(provider), "uploads_page_size", 2)
        names = ["a", "a", "a", "b é+%", "c", "d"]
        uploads = [provider.start_multipart(self.key(name)) for name in names]
        found = list(provider.list_uploads(self.prefix))
        assert len(found) == len({upload.upload_id for upload in found}) == len(names)
        if self.uploads_have_keys:
            assert sorted(upload.key for upload in found) == sorted(map(self.key, names))
        for upload in uploads:
            upload.abort()

    def test_abort_upload_drops_it(self, provider: Provider, part: int) -> None:
        """An upload aborted from outside is gone: its writer can neither go on nor publish."""
        upload = provider.start_multipart(self.key("whole"))
        upload.put_part(1, noise(part))
        kept = provider.start_multipart(self.key("kept"))
        before = list(provider.list_uploads(self.prefix))
        kept.abort()
        (left,) = list(provider.list_uploads(self.prefix))
        assert left in before
        provider.abort_upload(left)
        provider.abort_upload(left)
        assert self.raw_unfinished_uploads() == []
        with pytest.raises(NotFoundError):
            upload.put_part(2, b"x")
        upload.abort()
        assert self.stored() == set()

    def test_list_uploads_of_a_missing_bucket_raises(self) -> None:
        """A missing bucket is never one without uploads."""
        missing = self.make_missing_bucket_provider()
        if missing is None:
            pytest.skip("every bucket of this store exists")
        with pytest.raises(ProviderError):
            list(missing.list_uploads())

    def test_list_uploads_without_permission_raises(self) -> None:
        """Refused credentials are never "no uploads"."""
        denied = self.make_denied_provider()
        if denied is None:
            pytest.skip("this store refuses nobody")
        with pytest.raises(ProviderError):
            list(denied.list_uploads())

    def test_killed_writers_leave_what_is_found(self, provider: Provider, part: int) -> None:
        """After SIGKILL in the middle of an upload exactly that is found; removing it works."""
        if not self.shared_storage:
            pytest.skip("what dies with a process is not left")
        context: Any = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        arguments = (provider, self.key("whole"), part, there)
        child = context.Process(target=_upload_for_ever, args=arguments)
        child.start()
        there.close()
        try:
            assert here.poll(_PATIENCE_SECONDS), "the child hangs"
            assert here.recv() == "uploading"
            if self.uploads_have_times:
                alive = find_leftovers(provider, self.prefix, older_than_seconds=_HOUR_SECONDS)
                assert list(alive) == []
        finally:
            child.kill()
            child.join()
            here.close()
        provider.put(self.key("an object"), b"x")
        (found,) = list(find_leftovers(provider, self.prefix, older_than_seconds=-_HOUR_SECONDS))
        assert isinstance(found, UploadInfo)
        if self.uploads_have_keys:
            assert found.key == self.key("whole")
        remove_leftover(provider, found)
        assert self.raw_unfinished_uploads() == []
        assert list(find_leftovers(provider, self.prefix, older_than_seconds=0)) == []
        assert self.stored() == {"an object"}
