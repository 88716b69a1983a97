"""What ``compose`` promises, and ``compose_many`` above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.errors import LimitError, NotFoundError, PreconditionError, UnsupportedError
from providers.testing.harness import Harness, narrowed, noise
from providers.transfer import compose_many

if TYPE_CHECKING:
    from providers.base import Provider

__all__ = ["ComposeTests"]

_MOST_BYTES = 16_000_000


class ComposeTests(Harness):
    """Server-side joins, exact to the byte."""

    @pytest.fixture
    def unit(self, provider: Provider) -> int:
        """Bytes of a source that the service joins wherever it stands."""
        return max(
            provider.limits.min_join_bytes, provider.limits.min_part_bytes * _joins(provider), 5
        )

    def sources(self, sizes: list[int]) -> tuple[list[str], bytes]:
        """Write sources with distinct contents; return their keys and their bytes joined."""
        bodies = [noise(size, seed) for seed, size in enumerate(sizes)]
        keys = [self.key(f"source-{number}") for number in range(len(sizes))]
        for key, body in zip(keys, bodies, strict=True):
            self.raw_put(key, body)
        return keys, b"".join(bodies)

    def test_compose_joins_in_order(self, provider: Provider, unit: int) -> None:
        """The order of the sources, not of their keys, is the order of the bytes."""
        keys, _ = self.sources([unit, unit, 3])
        info = provider.compose([keys[1], keys[0], keys[2]], self.key("whole"))
        assert self.raw_get(self.key("whole")) == noise(unit, 1) + noise(unit, 0) + noise(3, 2)
        assert (info.key, info.size) == (self.key("whole"), 2 * unit + 3)
        assert self.stored() == {"source-0", "source-1", "source-2", "whole"}
        assert self.raw_unfinished_uploads() == []

    def test_compose_replaces_a_source(self, provider: Provider, unit: int) -> None:
        """The destination may be among the sources, more than once."""
        keys, _ = self.sources([unit, unit])
        provider.compose([keys[1], keys[0], keys[1]], keys[1])
        assert self.raw_get(keys[1]) == noise(unit, 1) + noise(unit, 0) + noise(unit, 1)

    def test_compose_of_one_is_a_copy(self, provider: Provider) -> None:
        """A single source, of any size, is copied, its metadata with it."""
        metadata = {"colour": "blue"} if provider.limits.keeps_metadata else None
        provider.put(self.key("source"), b"tiny", metadata=metadata)
        info = provider.compose([self.key("source")], self.key("whole"))
        assert info.size == 4
        assert self.raw_get(self.key("whole")) == b"tiny"
        assert provider.head(self.key("whole")).metadata == (metadata or {})

    def test_compose_leaves_empty_sources_out(self, provider: Provider, unit: int) -> None:
        """Empty sources add nothing and are no error, wherever they stand."""
        keys, whole = self.sources([0, unit, 0, 0, 3, 0])
        provider.compose(keys, self.key("whole"))
        assert self.raw_get(self.key("whole")) == whole

    def test_compose_of_empty_sources_is_empty(self, provider: Provider) -> None:
        """If all sources are empty, so is the destination."""
        keys, _ = self.sources([0, 0])
        for sources in (keys, keys[:1]):
            assert provider.compose(sources, self.key("whole")).size == 0
            assert self.raw_get(self.key("whole")) == b""
            provider.delete([self.key("whole")])

    def test_compose_of_nothing_raises(self, provider: Provider) -> None:
        """No source at all is a mistake of the caller."""
        with pytest.raises(ValueError, match="no source"):
            provider.compose([], self.key("whole"))

    def test_compose_with_a_missing_source_raises(self, provider: Provider, unit: int) -> None:
        """A missing source raises NotFoundError and leaves the destination alone."""
        keys, _ = self.sources([unit])
        self.raw_put(self.key("whole"), b"old")
        with pytest.raises(NotFoundError):
            provider.compose([keys[0], self.key("missing"), keys[0]], self.key("whole"))
        assert self.raw_get(self.key("whole")) == b"old"

    @pytest.mark.parametrize("count", [1, 2])
    def test_compose_of_a_changed_source_raises(
        self, provider: Provider, unit: int, count: int
    ) -> None:
        """A source given as its description is pinned: a change raises, nothing is written."""
        keys, _ = self.sources([unit] * count)
        infos = [provider.head(key) for key in keys]
        self.raw_put(keys[-1], noise(unit + 1, 99))
        with pytest.raises(PreconditionError):
            provider.compose(infos, self.key("whole"))
        assert "whole" not in self.stored()
        assert self.raw_unfinished_uploads() == []

    def test_compose_of_too_many_is_refused(
        self, provider: Provider, unit: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More sources than one call takes are refused; empty ones do not count."""
        narrowed(monkeypatch, provider, max_sources=2)
        keys, _ = self.sources([unit, 0, 5])
        with pytest.raises(LimitError, match="compose_many"):
            provider.compose([keys[0], keys[0], keys[2]], self.key("whole"))
        assert "whole" not in self.stored()
        provider.compose(keys, self.key("whole"))
        assert self.raw_get(self.key("whole")) == noise(unit, 0) + noise(5, 2)

    def test_compose_of_a_small_source(self, provider: Provider, unit: int) -> None:
        """A source under the smallest the service joins is refused, unless it is the last."""
        smallest = provider.limits.min_join_bytes
        keys, whole = self.sources([smallest - 1, unit])
        if smallest > 1:
            with pytest.raises(LimitError, match="compose_many"):
                provider.compose(keys, self.key("whole"))
            assert "whole" not in self.stored()
            assert self.raw_unfinished_uploads() == []
        else:
            provider.compose(keys, self.key("whole"))
            assert self.raw_get(self.key("whole")) == whole

    def test_compose_if_absent(self, provider: Provider, unit: int) -> None:
        """if_absent is honoured where the limits say so, for one source and for several."""
        keys, whole = self.sources([unit, 3])
        if not provider.limits.conditional_put:
            with pytest.raises(UnsupportedError, match="conditional_put"):
                provider.compose(keys, self.key("whole"), if_absent=True)
            return
        provider.compose(keys, self.key("whole"), if_absent=True)
        for sources in (keys, keys[:1]):
            with pytest.raises(PreconditionError):
                provider.compose(sources, self.key("whole"), if_absent=True)
        assert self.raw_get(self.key("whole")) == whole
        assert self.raw_unfinished_uploads() == []

    @pytest.mark.parametrize("count", [1, 2])
    def test_compose_sets_metadata(self, provider: Provider, unit: int, count: int) -> None:
        """Metadata given to compose is the destination's, for one source and for several."""
        keys, whole = self.sources([unit] * count)
        if not provider.limits.keeps_metadata:
            with pytest.raises(UnsupportedError, match="keeps_metadata"):
                provider.compose(keys, self.key("whole"), metadata={"colour": "blue"})
            return
        provider.compose(keys, self.key("whole"), metadata={"colour": "blue"})
        assert provider.head(self.key("whole")).metadata == {"colour": "blue"}
        assert self.raw_get(self.key("whole")) == whole

    @pytest.mark.parametrize("shape", ["small", "mixed", "small first", "large first", "one"])
    def test_compose_many_joins_sources_of_any_size(
        self, provider: Provider, unit: int, shape: str
    ) -> None:
        """Whatever the service joins by itself, the bytes are exact and nothing is left over."""
        little = max(1, min(provider.limits.min_join_bytes // 3, 1_000_000))
        sizes = {
            "small": [little, 0, little + 1, 1, little + 2],
            "mixed": [little, unit, 1, little, unit + 1, 7],
            "small first": [1, 0, unit, little],
            "large first": [unit, 1, little],
            "one": [little],
        }[shape]
        keys, whole = self.sources(sizes)
        composed = compose_many(provider, keys, self.key("whole"))
        assert self.raw_get(self.key("whole")) == whole
        assert composed.info.size == len(whole)
        assert composed.way in {"server", "mixed", "client"}
        assert (composed.client_bytes == 0) == (composed.way == "server")
        names = {key[len(self.prefix) :] for key in keys}
        assert self.stored() == names | {"whole"}
        assert self.raw_unfinished_uploads() == []

    def test_compose_many_joins_more_than_one_call_takes(self, provider: Provider) -> None:
        """More sources than a call takes are joined in order and no temporary is left."""
        count = 2 * min(provider.limits.max_sources, 40) + 3
        keys, whole = self.sources([10 + number for number in range(count)])
        composed = compose_many(provider, keys, self.key("whole"))
        assert self.raw_get(self.key("whole")) == whole
        assert composed.info.size == len(whole)
        assert len(self.stored()) == count + 1
        assert self.raw_unfinished_uploads() == []

    def test_compose_many_onto_a_source(self, provider: Provider, unit: int) -> None:
        """The destination may be among the sources of compose_many as well."""
        keys, whole = self.sources([7, unit, 1])
        compose_many(provider, keys, keys[0])
        assert self.raw_get(keys[0]) == whole
        assert len(self.stored()) == 3


def _joins(provider: Provider) -> bool:
    """Whether sources become parts of an upload, so that the limits of parts hold for them."""
    return provider.limits.joins_server_side
