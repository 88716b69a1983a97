"""Files: roots, directories and names."""

import errno
import logging
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from providers.errors import (
    AccessDeniedError,
    LimitError,
    NotFoundError,
    PreconditionError,
    SettingsError,
)
from providers.local import LocalProvider
from providers.options import LocalOptions
from providers.registry import open_provider
from providers.retry import without_waiting
from tests.providers.files import files_below, key, names, writes

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that is the root, with nothing in it."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the root, with one file in it."""
    path = tmp_path / "outside"
    path.mkdir()
    (path / "secret").write_bytes(b"outside")
    return path


@pytest.fixture
def provider(root: Path) -> LocalProvider:
    """A provider of the root."""
    return LocalProvider(options=LocalOptions(root=str(root)))


class TestRoots:
    def test_the_root_is_the_directory_part(self, root: Path) -> None:
        """What a URI was opened with up to its last slash cannot be left."""
        for uri in (f"file://{root}/", f"file://{root}/data.bin"):
            provider = open_provider(uri)
            assert provider.put(key(root / "a" / "b"), b"x").size == 1
            with pytest.raises(LimitError, match="outside of the root"):
                provider.put(key(root.parent / "b"), b"x")
            assert repr(provider) == f"LocalProvider('file://{root}/')"

    def test_the_option_root_widens(self, root: Path) -> None:
        """The option names a directory further up."""
        provider = open_provider(f"file://{root}/data.bin", root=str(root.parent))
        provider.put(key(root.parent / "beside"), b"x")
        assert (root.parent / "beside").read_bytes() == b"x"

    def test_the_root_may_be_everything(self, root: Path) -> None:
        """A URI without a directory opens the whole file system."""
        provider = open_provider("file:///")
        provider.put(key(root / "a"), b"x")
        assert provider.get(key(root / "a")) == b"x"
        assert [entry.key for entry in provider.list_objects(key(root))] == [key(root / "a")]

    @pytest.mark.parametrize("option", ["relative/path", "/a/../b", "//a", "/a//b", "/a/./b"])
    def test_a_bad_root_is_refused(self, option: str) -> None:
        """A root that is not an absolute path of plain names is refused, by name."""
        with pytest.raises(SettingsError, match="root"):
            LocalProvider(options=LocalOptions(root=option))

    def test_a_root_beside_the_uri_is_refused(self, root: Path, outside: Path) -> None:
        """A URI outside of the option root is refused."""
        with pytest.raises(SettingsError, match="outside"):
            open_provider(f"file://{root}/data.bin", root=str(outside))
        with pytest.raises(SettingsError, match="outside"):
            open_provider(f"file://{root}2/data.bin", root=str(root))

    @pytest.mark.parametrize("path", ["/a/../b/c", "/a/./b", "//a/b", "/a//b/c", "/a\0/b"])
    def test_a_uri_with_odd_names_is_refused(self, path: str) -> None:
        """A URI whose directory part a path would fold is refused."""
        with pytest.raises(LimitError):
            open_provider(f"file://{path}")

    @pytest.mark.parametrize(
        "inside",
        ["../outside/secret", "a/../../outside/secret", "./a", "a//b", "", ".", "..", "a/", "a\0b"],
    )
    def test_no_key_leads_out(
        self, provider: LocalProvider, root: Path, outside: Path, inside: str
    ) -> None:
        """Keys with names that a path folds are refused by every verb, before it does anything."""
        provider.put(key(root / "source"), b"x")
        bad = f"{key(root)}/{inside}"
        verbs: list[Callable[[], object]] = [
            lambda: provider.get(bad),
            lambda: provider.head(bad),
            lambda: provider.copy(bad, key(root / "copied")),
            *writes(provider, bad, key(root / "source")).values(),
        ]
        for verb in verbs:
            with pytest.raises(LimitError):
                verb()
        assert (outside / "secret").read_bytes() == b"outside"
        assert set(files_below(root)) == {key(root / "source")}

    def test_a_root_that_does_not_exist_is_empty(self, root: Path) -> None:
        """Directories are no objects: a missing one holds nothing, and a write makes it."""
        provider = LocalProvider(options=LocalOptions(root=str(root / "new" / "run")))
        assert list(provider.list_objects(key(root / "new" / "run"))) == []
        with pytest.raises(NotFoundError):
            provider.get(key(root / "new" / "run" / "a"))
        provider.delete([key(root / "new" / "run" / "a")])
        provider.put(key(root / "new" / "run" / "a"), b"x")
        assert (root / "new" / "run" / "a").read_bytes() == b"x"

    def test_the_root_pickles(self, provider: LocalProvider, root: Path, outside: Path) -> None:
        """A copy has the same root."""
        copied = pickle.loads(pickle.dumps(provider))  # noqa: S301 our own bytes
        copied.put(key(root / "a"), b"x")
        with pytest.raises(LimitError):
            copied.get(key(outside / "secret"))

    def test_a_prefix_outside_is_refused(self, provider: LocalProvider, outside: Path) -> None:
        """A listing outside of the root, or with names that a path folds, is refused."""
        for prefix in (key(outside), "nowhere/", f"{key(outside.parent)}/root/../", "a//b"):
            with pytest.raises(LimitError):
                list(provider.list_objects(prefix))

    def test_a_prefix_above_shows_the_root_alone(
        self, provider: LocalProvider, root: Path, outside: Path
    ) -> None:
        """A prefix that the root begins with lists the root, and nothing beside it."""
        provider.put(key(root / "a"), b"x")
        (root.parent / "root2").mkdir()
        (root.parent / "root2" / "a").write_bytes(b"x")
        for prefix in ("", key(root)[:3], key(root), f"{key(root)}/"):
            assert [entry.key for entry in provider.list_objects(prefix)] == [key(root / "a")]
        assert outside.exists()


class TestDirectories:
    def test_empty_directories_are_no_objects(self, provider: LocalProvider, root: Path) -> None:
        """A directory shows only through the files in it, with a delimiter too."""
        (root / "empty" / "deeper").mkdir(parents=True)
        (root / "full").mkdir()
        (root / "full" / "a").write_bytes(b"x")
        assert names(provider, root) == ["full/a"]
        assert names(provider, root, delimiter="/") == ["full/"]
        for name in ("empty", "full"):
            with pytest.raises(NotFoundError, match="directory"):
                provider.get(key(root / name))
            provider.delete([key(root / name)])
        assert (root / "empty" / "deeper").is_dir()

    def test_a_bound_inside_a_group_keeps_the_group(
        self, provider: LocalProvider, root: Path
    ) -> None:
        """An upper bound below a common prefix does not hide the prefix, which precedes it."""
        for name in ("b/d", "c-1", "c-2/x", "d"):
            provider.put(key(root / name), b"x")
        stop = key(root / "b" / "c")
        assert names(provider, root, delimiter="/", stop_before=stop) == ["b/"]
        assert names(provider, root, delimiter="-") == ["b/d", "c-", "d"]
        assert names(provider, root, delimiter="/x") == ["b/d", "c-1", "c-2/x", "d"]

    def test_delete_removes_directories_that_became_empty(
        self, provider: LocalProvider, root: Path
    ) -> None:
        """Empty directories go with their last file, up to the root, which stays."""
        for name in ("a/b/c/d", "a/e"):
            provider.put(key(root / name), b"x")
        provider.delete([key(root / "a" / "b" / "c" / "d")])
        assert sorted(path.name for path in root.rglob("*")) == ["a", "e"]
        provider.delete([key(root / "a" / "e")])
        assert root.is_dir()
        assert list(root.iterdir()) == []

    def test_writers_and_deleters_of_a_directory_do_not_meet(
        self, provider: LocalProvider, root: Path
    ) -> None:
        """A directory removed for being empty is made again by whoever needs it."""

        def work(number: int) -> None:
            mine = key(root / "a" / "b" / f"{number}")
            for _ in range(100):
                provider.put(mine, b"x")
                assert provider.get(mine) == b"x"
                provider.delete([mine])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert list(root.iterdir()) == []

    def test_only_one_of_many_is_the_first(self, provider: LocalProvider, root: Path) -> None:
        """Of many writers with if_absent exactly one succeeds, and its bytes stand."""
        together = threading.Barrier(8)

        def write(number: int) -> int | None:
            together.wait(60)
            try:
                provider.put(key(root / "a"), bytes([number]), if_absent=True)
            except PreconditionError:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [number for number in pool.map(write, range(8)) if number is not None]
        assert len(winners) == 1
        assert (root / "a").read_bytes() == bytes(winners)

    @pytest.mark.parametrize("if_absent", [False, True])
    def test_a_directory_in_place_of_the_file(
        self, provider: LocalProvider, root: Path, if_absent: bool
    ) -> None:
        """A key that is a directory is refused for writing, which leaves it alone."""
        provider.put(key(root / "a" / "b"), b"x")
        with pytest.raises(LimitError, match="a directory stands"):
            provider.put(key(root / "a"), b"y", if_absent=if_absent)
        assert set(files_below(root)) == {key(root / "a" / "b")}

    def test_a_file_in_place_of_a_directory(self, provider: LocalProvider, root: Path) -> None:
        """A key below a file holds nothing, and is refused for writing."""
        provider.put(key(root / "a"), b"x")
        with pytest.raises(NotFoundError):
            provider.get(key(root / "a" / "b"))
        with pytest.raises(LimitError, match="a file stands"):
            provider.put(key(root / "a" / "b"), b"y")
        provider.delete([key(root / "a" / "b")])
        assert list(provider.list_objects(f"{key(root)}/a/")) == []
        assert (root / "a").read_bytes() == b"x"

    def test_names_that_are_not_text_are_left_out(
        self, provider: LocalProvider, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Names that are not UTF-8 are skipped, and the log says how many."""
        provider.put(key(root / "a"), b"x")
        for name in (b"\xff", b"caf\xe9"):
            (root / os.fsdecode(name)).write_bytes(b"x")
        with caplog.at_level(logging.WARNING, "providers.walking"):
            assert names(provider, root) == ["a"]
        assert "2 names" in caplog.text

    def test_what_is_no_file_is_no_object(self, provider: LocalProvider, root: Path) -> None:
        """A pipe is neither listed nor waited for, and not deleted."""
        os.mkfifo(root / "pipe")
        assert names(provider, root) == []
        for verb in (provider.get, provider.head):
            with pytest.raises(NotFoundError, match="no regular file"):
                verb(key(root / "pipe"))
        provider.delete([key(root / "pipe")])
        assert (root / "pipe").exists()

    def test_a_listing_goes_on_after_a_failure(
        self, provider: LocalProvider, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A disk error between pages is tried again; nothing is lost and nothing comes twice."""
        expected = [*(f"a/{number:04}" for number in range(1500)), "b/x", "c"]
        for name in expected:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(b"")
        scandir = os.scandir
        failed: list[bytes] = []

        def failing(path: Any) -> Any:
            if path.endswith(b"/b/") and not failed:
                failed.append(path)
                raise OSError(errno.EIO, "the disk failed")
            return scandir(path)

        monkeypatch.setattr(os, "scandir", failing)
        with without_waiting():
            assert names(provider, root) == expected
        assert len(failed) == 1

    def test_an_unreadable_directory_is_no_empty_one(
        self, provider: LocalProvider, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A directory that may not be read raises; what precedes it is not all there is."""
        provider.put(key(root / "a" / "b"), b"x")

        def refused(_: Any) -> Any:
            raise PermissionError(errno.EACCES, "refused")

        monkeypatch.setattr(os, "scandir", refused)
        with pytest.raises(AccessDeniedError):
            names(provider, root)
