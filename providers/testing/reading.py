"""What ``get`` and ``head`` promise."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from providers.errors import NotFoundError, PreconditionError, RangeError
from providers.testing.harness import Harness, noise
from providers.values import ByteRange

if TYPE_CHECKING:
    from providers.base import Provider

__all__ = ["GetTests", "HeadTests"]


class GetTests(Harness):
    """Whole objects, ranges and pins."""

    def test_get_returns_the_whole_object(self, provider: Provider) -> None:
        """A get without a range returns every byte as bytes."""
        body = noise(100_000)
        self.raw_put(self.key("whole"), body)
        got = provider.get(self.key("whole"))
        assert type(got) is bytes
        assert got == body

    @pytest.mark.parametrize(
        ("start", "stop"),
        [(0, 1), (0, 10), (3, 7), (9, 10), (5, None), (0, None), (8, 99), (0, 99)],
    )
    def test_get_returns_a_range(self, provider: Provider, start: int, stop: int | None) -> None:
        """A range is half-open and its end is clipped to the object."""
        self.raw_put(self.key("digits"), b"0123456789")
        got = provider.get(self.key("digits"), ByteRange(start, stop))
        assert got == b"0123456789"[start:stop]

    @pytest.mark.parametrize(("start", "stop"), [(10, None), (10, 11), (11, 20), (1 << 40, None)])
    def test_get_past_the_end_raises(
        self, provider: Provider, start: int, stop: int | None
    ) -> None:
        """A range that starts at or past the end raises RangeError."""
        self.raw_put(self.key("digits"), b"0123456789")
        with pytest.raises(RangeError):
            provider.get(self.key("digits"), ByteRange(start, stop))

    def test_get_of_an_empty_object(self, provider: Provider) -> None:
        """An empty object is empty bytes; any range of it starts past its end."""
        self.raw_put(self.key("empty"), b"")
        assert provider.get(self.key("empty")) == b""
        for byte_range in (ByteRange(0), ByteRange(0, 1)):
            with pytest.raises(RangeError):
                provider.get(self.key("empty"), byte_range)

    def test_get_of_a_missing_object_raises(self, provider: Provider) -> None:
        """A missing object raises NotFoundError, with a range too."""
        for byte_range in (None, ByteRange(0, 1)):
            with pytest.raises(NotFoundError):
                provider.get(self.key("missing"), byte_range)

    @pytest.mark.parametrize("source", ["head", "list", "put"])
    def test_get_pinned_to_what_there_is(self, provider: Provider, source: str) -> None:
        """A pin taken from head, a listing or a put lets reads through until the object changes."""
        key = self.key("pinned")
        info = provider.put(key, b"first version")
        if source == "head":
            info = provider.head(key)
        elif source == "list":
            info = next(iter(provider.list_objects(key)))
        assert provider.get(key, if_match=info) == b"first version"
        assert provider.get(key, ByteRange(6, 9), if_match=info) == b"ver"
        self.raw_put(key, b"another, longer version")
        for byte_range in (None, ByteRange(6, 9)):
            with pytest.raises(PreconditionError):
                provider.get(key, byte_range, if_match=info)

    def test_get_pinned_to_a_deleted_object_raises(self, provider: Provider) -> None:
        """A pin on an object that is gone never reads anything."""
        key = self.key("pinned")
        info = provider.put(key, b"first version")
        provider.delete([key])
        with pytest.raises((NotFoundError, PreconditionError)):
            provider.get(key, if_match=info)

    @pytest.mark.parametrize("pin", ["etag", b"etag", 7])
    def test_get_refuses_a_pin_that_is_no_description(self, provider: Provider, pin: Any) -> None:
        """if_match is an ObjectInfo, never a bare etag."""
        self.raw_put(self.key("pinned"), b"body")
        with pytest.raises(TypeError, match="ObjectInfo"):
            provider.get(self.key("pinned"), if_match=cast("Any", pin))


class HeadTests(Harness):
    """Descriptions of single objects."""

    def test_head_describes_the_object(self, provider: Provider) -> None:
        """Key, size, bare etag and an aware time of change are all there."""
        self.raw_put(self.key("described"), b"twelve bytes")
        info = provider.head(self.key("described"))
        assert info.key == self.key("described")
        assert info.size == 12
        assert info.etag
        assert '"' not in info.etag
        assert info.modified is not None
        assert info.modified.utcoffset() == timedelta(0)
        assert not info.is_prefix
        assert info.metadata == {}
        assert info.write_id is None

    def test_head_agrees_with_a_listing(self, provider: Provider) -> None:
        """Size, etag, version and time of change are the same from head and from a listing."""
        self.raw_put(self.key("described"), b"twelve bytes")
        info = provider.head(self.key("described"))
        (entry,) = provider.list_objects(self.key("described"))
        assert (entry.key, entry.size, entry.etag) == (info.key, info.size, info.etag)
        assert entry.modified is not None
        assert info.modified is not None
        # Headers carry whole seconds, listings may carry fractions.
        assert entry.modified.replace(microsecond=0) == info.modified.replace(microsecond=0)
        assert entry.version == info.version or None in {entry.version, info.version}

    def test_head_tells_a_change(self, provider: Provider) -> None:
        """Other contents have another etag or version."""
        key = self.key("described")
        self.raw_put(key, b"one")
        before = provider.head(key)
        self.raw_put(key, b"two, longer")
        after = provider.head(key)
        assert (before.etag, before.version) != (after.etag, after.version)

    def test_head_of_a_missing_object_raises(self, provider: Provider) -> None:
        """A missing object raises NotFoundError."""
        with pytest.raises(NotFoundError):
            provider.head(self.key("missing"))

    def test_head_of_a_prefix_raises(self, provider: Provider) -> None:
        """A prefix of a key is no object."""
        self.raw_put(self.key("directory/object"), b"x")
        for name in ("directory", "directory/obj"):
            with pytest.raises(NotFoundError):
                provider.head(self.key(name))

    def test_head_reads_metadata(self, provider: Provider) -> None:
        """Metadata that another client wrote is read."""
        if not provider.limits.keeps_metadata:
            self.raw_put(self.key("described"), b"x")
            assert provider.head(self.key("described")).metadata == {}
            return
        self.raw_put(self.key("described"), b"x", {"colour": "blue", "step-count": "42"})
        info = provider.head(self.key("described"))
        assert info.metadata == {"colour": "blue", "step-count": "42"}
