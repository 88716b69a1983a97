"""Files: links are read, replaced, and never written through."""

from pathlib import Path

import pytest

from providers.errors import (
    AccessDeniedError,
    LimitError,
    NotFoundError,
    PreconditionError,
)
from providers.local import LocalProvider
from providers.options import LocalOptions
from providers.registry import open_provider
from tests.providers.files import files_below, key, names, writes


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
