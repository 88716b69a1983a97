"""What ``list_objects`` promises."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from providers.errors import AccessDeniedError, NotFoundError
from providers.testing.harness import Harness, keys_of
from providers.testing.wrappers import FaultyProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from providers.base import Provider

__all__ = ["NAMES", "ListTests"]

# In byte order. UTF-16 would put the astral key before the ligature, a tree walk "b/" before "b-".
NAMES = ("Z", "a", "a.", "b-", "b/c", "b/d/e", "b0", "bc", "z", "é", "ﬁ", "𐀀")


class ListTests(Harness):
    """Order, prefixes, bounds, delimiters, pages, and errors that are no empty lists."""

    @pytest.fixture
    def filled(self, provider: Provider) -> Provider:
        """A provider of a bucket with a dozen objects."""
        self.fill(dict.fromkeys(reversed(NAMES), b"x"))
        return provider

    def test_list_of_nothing_yields_nothing(self, provider: Provider) -> None:
        """An empty bucket, and a prefix nothing matches, yield nothing."""
        assert self.listed(provider) == []
        self.raw_put(self.key("a"), b"x")
        assert self.listed(provider, "nothing") == []

    def test_list_is_in_byte_order(self, filled: Provider) -> None:
        """Keys come in UTF-8 byte order, whatever order the service or the tree has."""
        assert self.listed(filled) == list(NAMES)
        assert sorted(NAMES, key=str.encode) == list(NAMES)

    def test_list_describes_the_objects(self, provider: Provider) -> None:
        """Entries carry size, bare etag and an aware time of change."""
        self.raw_put(self.key("a"), b"four")
        (entry,) = provider.list_objects(self.prefix)
        assert entry.size == 4
        assert entry.etag
        assert '"' not in entry.etag
        assert entry.modified is not None
        assert entry.modified.tzinfo is not None
        assert not entry.is_prefix

    @pytest.mark.parametrize("prefix", ["b", "b/", "b/d", "b/c", "b/cx", "bc", "é", "a", "x"])
    def test_list_takes_a_raw_prefix(self, filled: Provider, prefix: str) -> None:
        """A prefix is a string, not a directory."""
        assert self.listed(filled, prefix) == [n for n in NAMES if n.startswith(prefix)]

    @pytest.mark.parametrize("prefix", ["", "b"])
    def test_list_bounds_are_exclusive(self, filled: Provider, prefix: str) -> None:
        """Both bounds leave the named key out, whether or not it exists."""
        starts = (None, "", "a", "b/", "b/c", "b/z", "bb", "ﬁ", "𐀀")
        stops = (None, "Z", "b/d", "b0", "b1", "𐀀")
        for start_after, stop_before in itertools.product(starts, stops):
            expected = [
                name
                for name in NAMES
                if name.startswith(prefix)
                and (start_after is None or name > start_after)
                and (stop_before is None or name < stop_before)
            ]
            got = self.listed(filled, prefix, start_after=start_after, stop_before=stop_before)
            assert got == expected, (start_after, stop_before)

    def test_list_groups_by_a_delimiter(self, filled: Provider) -> None:
        """Common prefixes come once, marked, in their place among the keys."""
        entries = list(filled.list_objects(self.prefix, delimiter="/"))
        names = [entry.key[len(self.prefix) :] for entry in entries]
        assert names == ["Z", "a", "a.", "b-", "b/", "b0", "bc", "z", "é", "ﬁ", "𐀀"]
        assert [e.key[len(self.prefix) :] for e in entries if e.is_prefix] == ["b/"]

    def test_list_groups_below_a_prefix(self, filled: Provider) -> None:
        """Grouping begins after the prefix, wherever that ends."""
        assert self.listed(filled, "b/", delimiter="/") == ["b/c", "b/d/"]
        assert self.listed(filled, "b", delimiter="/") == ["b-", "b/", "b0", "bc"]
        assert self.listed(filled, "b/d", delimiter="/") == ["b/d/"]

    def test_list_applies_bounds_to_common_prefixes(self, filled: Provider) -> None:
        """With a delimiter the bounds apply to the names that come out."""
        assert self.listed(filled, "b", delimiter="/", start_after="b/") == ["b0", "bc"]
        assert self.listed(filled, "b", delimiter="/", start_after="b-") == ["b/", "b0", "bc"]
        assert self.listed(filled, "b", delimiter="/", stop_before="b/") == ["b-"]
        assert self.listed(filled, "b", delimiter="/", stop_before="b0") == ["b-", "b/"]

    def test_list_shows_each_change_at_once(self, provider: Provider) -> None:
        """A put shows, a delete hides, in the next listing."""
        provider.put(self.key("a"), b"x")
        provider.put(self.key("b"), b"x")
        assert self.listed(provider) == ["a", "b"]
        provider.delete([self.key("a")])
        assert self.listed(provider) == ["b"]

    def test_list_goes_on_beyond_a_page(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Pages come as they are needed: whole, in order, each key once. A delete takes as many."""
        names = [f"{number:05}" for number in range(self.many_objects)]
        self.raw_put_many(self.key(name) for name in names)
        sent = _requests_of(provider, monkeypatch)
        assert next(iter(provider.list_objects(self.prefix))).key == self.key(names[0])
        assert len(sent) == 1 or not provider.limits.lists_in_order
        assert self.listed(provider) == names
        assert self.listed(provider, start_after=names[-3]) == names[-2:]
        assert self.listed(provider, "0", delimiter="7")[:2] == ["00000", "00001"]
        provider.delete(self.key(name) for name in names[1:])
        assert self.stored() == {names[0]}

    def test_list_is_lazy(self, provider: Provider) -> None:
        """Nothing is asked for before the first entry is."""
        self.raw_put(self.key("a"), b"x")
        watched = FaultyProvider(provider)
        entries = watched.list_objects(self.prefix)
        assert isinstance(entries, Iterator)
        assert watched.calls == []
        assert next(entries).key == self.key("a")
        assert [call.operation for call in watched.calls] == ["list"]

    def test_list_of_a_missing_bucket_raises(self) -> None:
        """A missing bucket is an error, not an empty one."""
        missing = self.make_missing_bucket_provider()
        if missing is None:
            pytest.skip("every bucket of this store exists")
        with pytest.raises(NotFoundError):
            keys_of(missing.list_objects(self.prefix))

    def test_list_without_permission_raises(self) -> None:
        """Refused credentials are an error, not an empty bucket."""
        denied = self.make_denied_provider()
        if denied is None:
            pytest.skip("this store knows no credentials")
        with pytest.raises(AccessDeniedError):
            keys_of(denied.list_objects(self.prefix))


def _requests_of(provider: Provider, patch: pytest.MonkeyPatch) -> list[str]:
    """Record the operation of each request that the provider sends."""
    sent: list[str] = []
    send = provider.request

    def recording(operation: str, key: str, call: Callable[[], Any]) -> Any:
        sent.append(operation)
        return send(operation, key, call)

    patch.setattr(provider, "request", recording)
    return sent
