"""Files: roots, directories, names, links, and what the operating system may answer."""

import errno
import logging
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from providers.errors import (
    AccessDeniedError,
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    ServiceError,
    SettingsError,
    UnavailableError,
    UnsupportedError,
)
from providers.local import LocalProvider
from providers.options import LocalOptions, TransferOptions
from providers.registry import open_provider
from providers.retry import without_waiting
from providers.values import ByteRange
from tests.providers.test_local import files_below


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


def key(path: Path) -> str:
    """The key of a path."""
    return str(path)[1:]


def names(provider: LocalProvider, root: Path, **arguments: Any) -> list[str]:
    """What a listing of the root shows, relative to it."""
    start = f"{key(root)}/"
    return [entry.key[len(start) :] for entry in provider.list_objects(start, **arguments)]


def writes(provider: LocalProvider, target: str, source: str) -> dict[str, Callable[[], object]]:
    """Every verb that writes or deletes a key."""

    def multipart() -> None:
        with provider.start_multipart(target) as upload:
            upload.put_part(1, b"x")
            upload.complete()

    return {
        "put": lambda: provider.put(target, b"x"),
        "put if absent": lambda: provider.put(target, b"x", if_absent=True),
        "multipart": multipart,
        "copy": lambda: provider.copy(source, target),
        "compose": lambda: provider.compose([source, source], target),
        "delete": lambda: provider.delete([target]),
    }


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


class TestLinks:
    def test_a_link_to_a_file_is_read(
        self, provider: LocalProvider, root: Path, outside: Path
    ) -> None:
        """A link out of the root is a file like any other to a reader."""
        (root / "link").symlink_to(outside / "secret")
        assert provider.get(key(root / "link")) == b"outside"
        assert provider.head(key(root / "link")).size == 7
        assert [entry.size for entry in provider.list_objects(key(root))] == [7]

    def test_a_link_to_a_file_is_replaced(
        self, provider: LocalProvider, root: Path, outside: Path
    ) -> None:
        """A write replaces the link, a delete removes it; its target stays as it is."""
        provider.put(key(root / "source"), b"inside")
        for name, write in writes(provider, key(root / "link"), key(root / "source")).items():
            (root / "link").unlink(missing_ok=True)
            (root / "link").symlink_to(outside / "secret")
            if name == "put if absent":
                with pytest.raises(PreconditionError):
                    write()
            else:
                write()
                assert not (root / "link").is_symlink(), name
            assert (outside / "secret").read_bytes() == b"outside"

    def test_a_link_to_a_directory_is_read(
        self, provider: LocalProvider, root: Path, outside: Path
    ) -> None:
        """What a linked directory holds is listed in its place, and read."""
        provider.put(key(root / "a"), b"x")
        provider.put(key(root / "m"), b"x")
        (root / "linked").symlink_to(outside)
        assert names(provider, root) == ["a", "linked/secret", "m"]
        assert names(provider, root, delimiter="/") == ["a", "linked/", "m"]
        assert provider.get(key(root / "linked" / "secret")) == b"outside"

    def test_no_write_goes_through_a_link(
        self, provider: LocalProvider, root: Path, outside: Path
    ) -> None:
        """Every verb that writes refuses a linked directory on its way, near or deep."""
        provider.put(key(root / "source"), b"x")
        (outside / "deep").mkdir()
        (root / "linked").symlink_to(outside)
        for inside in ("linked/secret", "linked/new", "linked/deep/new", "linked/fresh/new"):
            for write in writes(provider, key(root / inside), key(root / "source")).values():
                with pytest.raises(LimitError, match="link"):
                    write()
        assert set(files_below(outside)) == {key(outside / "secret")}
        assert (outside / "secret").read_bytes() == b"outside"
        assert not (outside / "fresh").exists()

    def test_links_out_of_the_root_can_be_refused(self, root: Path, outside: Path) -> None:
        """With follow_links off, links out are neither read nor listed; links within are."""
        provider = LocalProvider(options=LocalOptions(root=str(root), follow_links=False))
        provider.put(key(root / "a" / "b"), b"x")
        (root / "file").symlink_to(outside / "secret")
        (root / "directory").symlink_to(outside)
        (root / "within").symlink_to(root / "a")
        assert names(provider, root) == ["a/b", "within/b"]
        assert provider.get(key(root / "within" / "b")) == b"x"
        assert list(provider.list_objects(f"{key(root)}/directory/")) == []
        for inside in ("file", "directory/secret"):
            for verb in (provider.get, provider.head):
                with pytest.raises(AccessDeniedError, match="follow_links"):
                    verb(key(root / inside))

    def test_a_root_behind_a_link_is_the_users_own(self, tmp_path: Path, root: Path) -> None:
        """Links on the way to the root are followed, for writing too."""
        (tmp_path / "latest").symlink_to(root)
        provider = open_provider(f"file://{tmp_path}/latest/")
        provider.put(key(tmp_path / "latest" / "a"), b"x")
        assert (root / "a").read_bytes() == b"x"

    def test_links_in_circles_end(
        self, provider: LocalProvider, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A link that leads back up is not followed again, alone or by way of another."""
        provider.put(key(root / "a" / "x"), b"x")
        provider.put(key(root / "b" / "y"), b"x")
        (root / "a" / "to-b").symlink_to(root / "b")
        (root / "b" / "to-a").symlink_to(root / "a")
        (root / "a" / "up").symlink_to(root)
        found = names(provider, root)
        assert found == ["a/to-b/y", "a/x", "b/to-a/x", "b/y"]
        assert "leads back" in caplog.text

    def test_a_link_to_nothing_is_no_object(self, provider: LocalProvider, root: Path) -> None:
        """A dangling link, or one to itself, is not listed, not read and not deleted."""
        (root / "dangling").symlink_to(root / "missing")
        (root / "itself").symlink_to(root / "itself")
        assert names(provider, root) == []
        for name in ("dangling", "itself"):
            with pytest.raises(NotFoundError):
                provider.get(key(root / name))
            provider.delete([key(root / name)])
            assert (root / name).is_symlink()


class TestChanges:
    def test_a_change_in_place_breaks_a_pin(self, provider: LocalProvider, root: Path) -> None:
        """A file of the same size with another time of change is another version."""
        info = provider.put(key(root / "a"), b"one")
        (root / "a").write_bytes(b"two")
        os.utime(root / "a", ns=(0, 1_000_000_001))
        with pytest.raises(PreconditionError):
            provider.get(key(root / "a"), if_match=info)

    def test_a_read_during_a_change_is_not_torn(
        self, provider: LocalProvider, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that changed while it was read is read again, or breaks the pin."""
        info = provider.put(key(root / "a"), b"first version")
        read = os.read

        def changing(file: int, count: int) -> bytes:
            monkeypatch.setattr(os, "read", read)
            (root / "a").write_bytes(b"second, longer version")
            return read(file, count)

        monkeypatch.setattr(os, "read", changing)
        with without_waiting():
            assert provider.get(key(root / "a")) == b"second, longer version"
        monkeypatch.setattr(os, "read", changing)
        with pytest.raises(PreconditionError):
            provider.get(key(root / "a"), ByteRange(0, 5), if_match=provider.head(key(root / "a")))
        with pytest.raises(PreconditionError):
            provider.get(key(root / "a"), if_match=info)

    def test_times_beyond_the_calendar_are_left_out(self) -> None:
        """A time of change that is no date leaves the description without one."""
        from providers.local import _moment

        assert _moment(1e18) is None
        assert _moment(0.0) is not None


class TestErrors:
    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.EACCES, AccessDeniedError),
            (errno.EPERM, AccessDeniedError),
            (errno.EROFS, AccessDeniedError),
            (errno.ENOSPC, ServiceError),
            (errno.EDQUOT, ServiceError),
            (errno.EFBIG, LimitError),
            (errno.EIO, UnavailableError),
            (errno.ESTALE, UnavailableError),
            (errno.EMFILE, UnavailableError),
            (errno.EBADMSG, ServiceError),
        ],
    )
    def test_a_failed_write_leaves_nothing(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[ProviderError]
    ) -> None:
        """Whatever the system answers has its type, its code, and no temporary behind it."""
        transfer = TransferOptions(max_attempts=1)
        provider = LocalProvider("", LocalOptions(root=str(root)), transfer)
        provider.put(key(root / "old"), b"old")

        def failing(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "pwrite", failing)
        for target in (root / "old", root / "new" / "a"):
            with pytest.raises(kind) as caught:
                provider.put(key(target), b"x")
            assert type(caught.value) is kind
            assert caught.value.code == errno.errorcode[number]
            assert f"put file://{target}" in str(caught.value)
        assert set(files_below(root)) == {key(root / "old")}
        assert (root / "old").read_bytes() == b"old"
        assert not (root / "new").exists()

    def test_names_too_long_for_the_file_system(self, provider: LocalProvider, root: Path) -> None:
        """A name that the file system does not take is refused, by read and write."""
        for verb in (provider.get, lambda k: provider.put(k, b"x")):
            with pytest.raises(LimitError, match="too long"):
                verb(key(root / ("n" * 300)))

    def test_if_absent_needs_hard_links(
        self, provider: LocalProvider, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where there are no hard links, if_absent is refused, not imitated."""

        def unlinked(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", unlinked)
        with pytest.raises(UnsupportedError, match="hard links"):
            provider.put(key(root / "a"), b"x", if_absent=True)
        assert files_below(root) == {}

    def test_reserved_names_are_refused(self, provider: LocalProvider, root: Path) -> None:
        """No key has the name of a temporary."""
        with pytest.raises(LimitError, match="reserved"):
            provider.put(key(root / ".connector-temporary-0123"), b"x")
        with pytest.raises(LimitError, match="reserved"):
            provider.put(key(root / ".connector-temporary-0123" / "a"), b"x")
