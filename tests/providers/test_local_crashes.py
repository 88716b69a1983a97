"""Files: processes that die in the middle, users who may not, and bytes that are moved."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from providers.errors import AccessDeniedError
from providers.local import LocalProvider
from providers.options import LocalOptions
from providers.values import ByteRange
from tests.providers.files import TEMPORARY, files_below

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

OLD, NEW = b"old" * 1000, b"new, and longer" * 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that is the root, with one file in it."""
    path = tmp_path / "root"
    path.mkdir()
    (path / "a").write_bytes(OLD)
    return path


@pytest.fixture
def provider(root: Path) -> LocalProvider:
    """A provider of the root."""
    return LocalProvider(options=LocalOptions(root=str(root)))


def in_child(call: Callable[[], object]) -> Any:
    """Run a call in a forked child; return its exit code and what it raised."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sending.send(call())
        except Exception as error:  # noqa: BLE001 the parent looks at it
            sending.send(error)

    child = context.Process(target=run)
    child.start()
    sending.close()
    try:
        answer = receiving.recv() if receiving.poll(60) else "hangs"
    except EOFError:
        answer = None
    child.join(60)
    return child.exitcode, answer


def overwrite(provider: LocalProvider, key: str, verb: str) -> None:
    """Write the new contents by one of the verbs."""
    if verb == "put":
        provider.put(key, NEW)
    elif verb == "multipart":
        with provider.start_multipart(key) as upload:
            upload.put_part(2, NEW[1000:])
            upload.put_part(1, NEW[:1000])
            upload.complete()
    else:
        provider.compose([f"{key}-source-1", f"{key}-source-2"], key)


class TestCrashes:
    @pytest.mark.parametrize("verb", ["put", "multipart", "compose"])
    @pytest.mark.parametrize("at", ["pwrite", "fsync", "replace", "copy_file_range", "close"])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_kill_leaves_the_old_or_the_new(
        self, provider: LocalProvider, root: Path, verb: str, at: str, when: str
    ) -> None:
        """A writer killed at any system call leaves a whole object, and hidden files at most."""
        (root / "a-source-1").write_bytes(NEW[:1000])
        (root / "a-source-2").write_bytes(NEW[1000:])
        before = set(files_below(root))
        key = str(root / "a")[1:]

        def killed() -> None:
            call = getattr(os, at)

            def kill(*arguments: Any, **keywords: Any) -> Any:
                if when == "after":
                    call(*arguments, **keywords)
                os.kill(os.getpid(), signal.SIGKILL)

            setattr(os, at, kill)
            overwrite(provider, key, verb)

        code, _ = in_child(killed)
        calls_it = (verb, at) not in {("put", "copy_file_range"), ("compose", "pwrite")}
        assert code == (-signal.SIGKILL if calls_it else 0)
        published = not calls_it or (at, when) == ("replace", "after")
        assert provider.get(key) == (NEW if published else OLD)
        listed = [entry.key for entry in provider.list_objects(str(root)[1:])]
        assert listed == sorted(before)
        left = set(files_below(root)) - before
        assert all(TEMPORARY in name for name in left)

    def test_a_part_is_never_seen(self, provider: LocalProvider, root: Path) -> None:
        """An upload under way shows in no listing and answers to no key."""
        with provider.start_multipart(str(root / "big")[1:]) as upload:
            upload.put_part(1, NEW)
            listed = [entry.key for entry in provider.list_objects(str(root)[1:])]
            assert listed == [str(root / "a")[1:]]
            assert len([name for name in files_below(root) if TEMPORARY in name]) == 1


class TestUploads:
    def test_equal_parts_are_written_once(self, provider: LocalProvider, root: Path) -> None:
        """Parts of one size, in any order, become the object by a rename, not by a copy."""
        with provider.start_multipart(str(root / "big")[1:]) as upload:
            for number in (2, 1, 3):
                upload.put_part(number, bytes([number]) * (7 if number == 3 else 1000))
            (hidden,) = (path for name, path in files_below(root).items() if TEMPORARY in name)
            inode = hidden.stat().st_ino
            upload.complete()
        assert (root / "big").stat().st_ino == inode
        assert (root / "big").read_bytes() == b"\1" * 1000 + b"\2" * 1000 + b"\3" * 7

    @pytest.mark.parametrize("sizes", [(7, 1000, 500), (1000, 7, 500), (5, 5, 1000), (9, 3, 3)])
    @pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
    def test_unequal_parts_are_joined(
        self, provider: LocalProvider, root: Path, sizes: tuple[int, ...], order: tuple[int, ...]
    ) -> None:
        """Parts of any sizes in any order are joined by number, and leave nothing behind."""
        bodies = {number: bytes([number]) * size for number, size in enumerate(sizes, 1)}
        with provider.start_multipart(str(root / "big")[1:]) as upload:
            for number in order:
                upload.put_part(number, bodies[number])
            upload.complete()
        assert (root / "big").read_bytes() == bodies[1] + bodies[2] + bodies[3]
        assert set(files_below(root)) == {str(root / name)[1:] for name in ("a", "big")}

    @pytest.mark.parametrize("resent", [3, 10, 50])
    def test_a_part_sent_again_leaves_no_trace(
        self, provider: LocalProvider, root: Path, resent: int
    ) -> None:
        """The earlier bytes of a part sent again are gone, be it shorter or longer now."""
        with provider.start_multipart(str(root / "big")[1:]) as upload:
            upload.put_part(1, b"a" * 10)
            upload.put_part(2, b"b" * 10)
            upload.put_part(2, b"c" * resent)
            upload.complete()
        assert (root / "big").read_bytes() == b"a" * 10 + b"c" * resent

    def test_an_aborted_upload_removes_its_directories(
        self, provider: LocalProvider, root: Path
    ) -> None:
        """Directories made for an upload go with it."""
        with provider.start_multipart(str(root / "x" / "y" / "big")[1:]) as upload:
            upload.put_part(1, b"x")
        assert sorted(path.name for path in root.iterdir()) == ["a"]

    def test_bytes_are_copied_where_the_kernel_does_not(
        self, provider: LocalProvider, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between file systems, or on other systems, bytes go through the process."""
        body = os.urandom((2 << 20) + 17)
        (root / "big").write_bytes(body)
        key = str(root / "big")[1:]

        def refused(*_: object) -> int:
            raise OSError(18, "cross-device link")

        for attempt in ("refused", "absent"):
            if attempt == "refused":
                monkeypatch.setattr(os, "copy_file_range", refused)
            else:
                monkeypatch.delattr(os, "copy_file_range")
            provider.compose([key, key], f"{key}-{attempt}")
            assert (root / f"big-{attempt}").read_bytes() == body * 2
            with provider.start_multipart(f"{key}-{attempt}-part") as upload:
                upload.copy_part(1, provider.head(key), ByteRange(5, 2 << 20))
                upload.complete()
            assert (root / f"big-{attempt}-part").read_bytes() == body[5 : 2 << 20]


class TestPermissions:
    def test_what_a_user_may_not_is_denied(self, provider: LocalProvider, root: Path) -> None:
        """Without permission every verb raises AccessDeniedError; a listing is not empty."""
        key = str(root / "a")[1:]
        root.chmod(0o700)

        def drop() -> None:
            # A superuser may everything; anybody else shuts the directory.
            if os.geteuid():
                root.chmod(0)
            else:
                os.setgid(65534)
                os.setuid(65534)

        def denied() -> list[str]:
            drop()
            seen = []
            for verb in (
                lambda: provider.get(key),
                lambda: provider.head(key),
                lambda: list(provider.list_objects(str(root)[1:])),
                lambda: provider.put(key, b"x"),
                lambda: provider.start_multipart(key),
                lambda: provider.delete([key]),
            ):
                try:
                    verb()
                except AccessDeniedError:
                    seen.append("denied")
            return seen

        try:
            code, answer = in_child(denied)
        finally:
            root.chmod(0o700)
        assert answer == ["denied"] * 6
        assert code == 0
        assert (root / "a").read_bytes() == OLD
