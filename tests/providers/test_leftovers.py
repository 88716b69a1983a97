"""What is found after writers that died, and after answers that were lost."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from providers import (
    AccessDeniedError,
    LimitError,
    ObjectInfo,
    ProviderError,
    ServiceError,
    UploadInfo,
)
from providers.leftovers import find_leftovers, remove_leftover
from providers.local import LocalProvider
from providers.options import LocalOptions
from providers.testing import Fault, FaultyProvider
from providers.transfer import compose_many
from tests.providers.files import TEMPORARY, files_below
from tests.providers.test_transfer import ObjectJoiner, fill

if TYPE_CHECKING:
    from pathlib import Path

    from tests.providers.conftest import Fronted


def test_a_start_without_an_answer_is_found(
    fronted: Fronted,
) -> None:
    """The upload begun by a request whose answer was lost is invisible, found, and removed."""
    front, opened = fronted
    provider = opened()
    front.drop_answer(when=lambda r: r.method == "POST" and r.query.startswith("uploads"))
    with provider.start_multipart("runs/42/step-1") as upload:
        upload.put_part(1, b"x")
        upload.complete()
    assert [entry.key for entry in provider.list_objects()] == ["runs/42/step-1"]
    (found,) = list(find_leftovers(provider, "runs/42/", older_than_seconds=0))
    assert isinstance(found, UploadInfo)
    assert found.key == "runs/42/step-1"
    assert list(find_leftovers(provider, "runs/43/", older_than_seconds=0)) == []
    assert list(find_leftovers(provider, older_than_seconds=3600)) == []
    remove_leftover(provider, found)
    remove_leftover(provider, found)
    assert list(find_leftovers(provider, older_than_seconds=0)) == []
    assert provider.get("runs/42/step-1") == b"x"


@pytest.mark.parametrize("body", [b"", b"<html/>", b"<ListMultipartUploadsResult>"])
def test_a_broken_list_of_uploads_is_no_empty_one(fronted: Fronted, body: bytes) -> None:
    """An answer that is no whole list is asked for again, or raises; never "none"."""
    front, opened = fronted
    provider = opened()
    unfinished = provider.start_multipart("key")
    front.answer(200, body=body)
    with contextlib.suppress(ServiceError):
        assert len(list(provider.list_uploads())) == 1
    unfinished.abort()


def test_a_list_that_leads_nowhere_raises(
    fronted: Fronted,
) -> None:
    """A list of uploads that goes on without saying where is not cut short."""
    front, opened = fronted
    body = b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
    body += b"<NextKeyMarker/><NextUploadIdMarker/></ListMultipartUploadsResult>"
    front.answer(200, body=body)
    with pytest.raises(ServiceError, match=r"list_uploads .*does not say where"):
        list(opened().list_uploads())


def test_composites_of_a_dead_compose_are_found(bucket_name: str) -> None:
    """What a tree of composes left is told from users' objects by name and mark, and removed."""
    bucket = ObjectJoiner(bucket_name)
    keys, _ = fill(bucket, [5] * 7)
    # A process that dies cleans nothing up.
    dead = AccessDeniedError("gone")
    plan = [Fault("compose", dead, [3]), Fault("delete", dead, None)]
    with pytest.raises(AccessDeniedError):
        compose_many(FaultyProvider(bucket, plan), keys, "whole")
    left = {entry.key for entry in bucket.list_objects("whole")}
    assert len(left) == 2
    # Named alike by a user, and of another tree.
    bucket.store("whole.composing-0a1b2c3d-0", b"user's", if_absent=False, metadata={})
    assert list(find_leftovers(bucket)) == []
    found = list(find_leftovers(bucket, "whole", older_than_seconds=0))
    assert {leftover.key for leftover in found} == left
    for leftover in found:
        assert isinstance(leftover, ObjectInfo)
        remove_leftover(bucket, leftover)
    assert {entry.key for entry in bucket.list_objects()} == {*keys, "whole.composing-0a1b2c3d-0"}


class TestFiles:
    """Hidden files of writes."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """An empty root."""
        path = tmp_path / "root"
        path.mkdir()
        return path

    @pytest.fixture
    def files(self, root: Path) -> LocalProvider:
        """Its provider."""
        return LocalProvider(options=LocalOptions(root=str(root)))

    def test_files_count_from_their_last_write(self, root: Path, files: LocalProvider) -> None:
        """A hidden file is left over when nothing was written to it for long enough."""
        files.put(f"{str(root)[1:]}/runs/a", b"x")
        for name, hours in (("old", 30), ("young", 1)):
            path = root / "runs" / f"{TEMPORARY}{name}"
            path.write_bytes(b"half")
            then = (datetime.now(timezone.utc) - timedelta(hours=hours)).timestamp()
            os.utime(path, (then, then))
        (found,) = list(find_leftovers(files))
        assert found.key == f"{str(root)[1:]}/runs/{TEMPORARY}old"
        remove_leftover(files, found)
        assert {path.name for path in files_below(root).values()} == {"a", f"{TEMPORARY}young"}

    def test_files_of_other_directories_are_spared(self, root: Path, files: LocalProvider) -> None:
        """Those of the prefix's own directory are found, and of directories that begin so."""
        for directory in ("runs", "runs/4", "runs/42", "runs/5/4", "other"):
            (root / directory).mkdir(parents=True, exist_ok=True)
            (root / directory / f"{TEMPORARY}1").write_bytes(b"half")
        start = f"{str(root)[1:]}/"
        found = {upload.key[len(start) :] for upload in files.list_uploads(f"{start}runs/4")}
        expected = {"runs", "runs/4", "runs/42"}
        assert found == {f"{directory}/{TEMPORARY}1" for directory in expected}
        assert list(files.list_uploads(f"{start}missing/")) == []
        with pytest.raises(LimitError, match="outside of the root"):
            list(files.list_uploads("elsewhere/"))

    def test_no_link_is_followed(self, root: Path, files: LocalProvider, tmp_path: Path) -> None:
        """Neither hidden files behind a link are found, nor a link of such a name."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / f"{TEMPORARY}1").write_bytes(b"another's")
        (root / "link").symlink_to(outside)
        (root / f"{TEMPORARY}2").symlink_to(outside / f"{TEMPORARY}1")
        assert list(files.list_uploads(f"{str(root)[1:]}/")) == []
        upload = UploadInfo(f"{str(root)[1:]}/link/{TEMPORARY}1", "", datetime.now(timezone.utc))
        with pytest.raises(ProviderError):
            files.abort_upload(upload)
        assert (outside / f"{TEMPORARY}1").exists()

    @pytest.mark.parametrize("name", ["a", f"../{TEMPORARY}1", f"../root/../{TEMPORARY}1", ""])
    def test_nothing_else_can_be_aborted(
        self, root: Path, files: LocalProvider, tmp_path: Path, name: str
    ) -> None:
        """Only a hidden file below the root is ever removed."""
        (root / "a").write_bytes(b"an object")
        (tmp_path / f"{TEMPORARY}1").write_bytes(b"another's")
        upload = UploadInfo(f"{str(root)[1:]}/{name}", "", datetime.now(timezone.utc))
        with pytest.raises(LimitError):
            files.abort_upload(upload)
        assert (root / "a").exists()
        assert (tmp_path / f"{TEMPORARY}1").exists()
