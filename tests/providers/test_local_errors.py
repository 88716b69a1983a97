"""Files: changes under a reader, and what the operating system may answer."""

import errno
import os
from pathlib import Path

import pytest

from providers.errors import (
    AccessDeniedError,
    LimitError,
    PreconditionError,
    ProviderError,
    ServiceError,
    UnavailableError,
    UnsupportedError,
)
from providers.local import LocalProvider
from providers.options import LocalOptions, TransferOptions
from providers.retry import without_waiting
from providers.values import ByteRange
from tests.providers.files import files_below, key, writes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that is the root, with nothing in it."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def provider(root: Path) -> LocalProvider:
    """A provider of the root."""
    return LocalProvider(options=LocalOptions(root=str(root)))


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

    def test_writing_needs_a_system_that_refuses_links(
        self, provider: LocalProvider, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the system cannot keep a write from following links, files are only read."""
        (root / "a").write_bytes(b"old")
        monkeypatch.delattr(os, "O_NOFOLLOW")
        for write in writes(provider, key(root / "b"), key(root / "a")).values():
            with pytest.raises(UnsupportedError, match="Linux and macOS"):
                write()
        assert provider.get(key(root / "a")) == b"old"

    def test_reserved_names_are_refused(self, provider: LocalProvider, root: Path) -> None:
        """No key has the name of a temporary."""
        with pytest.raises(LimitError, match="reserved"):
            provider.put(key(root / ".connector-temporary-0123"), b"x")
        with pytest.raises(LimitError, match="reserved"):
            provider.put(key(root / ".connector-temporary-0123" / "a"), b"x")
