"""Keys are byte strings: nothing in them is decoded, folded or normalised."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest

from providers.errors import ProviderError
from providers.testing.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.base import Provider

__all__ = ["ODD_KEYS", "OddKey", "OddKeyTests"]


class OddKey(NamedTuple):
    """A key, and what it turns into where something on the way decodes, folds or cuts it."""

    key: str
    folded: str


ODD_KEYS: Mapping[str, OddKey] = MappingProxyType(
    {
        "double slash": OddKey("a//b", "a/b"),
        "dot": OddKey("a/./b", "a/b"),
        "dot dot": OddKey("a/../b", "b"),
        "trailing slash": OddKey("a/", "a"),
        "trailing dot": OddKey("a/b.", "a/b"),
        "question mark": OddKey("a?b=c", "a"),
        "hash": OddKey("a#b", "a"),
        "percent": OddKey("a%20b", "a b"),
        "percent slash": OddKey("a%2Fb", "a/b"),
        "lone percent": OddKey("100%", "100%25"),
        "plus": OddKey("a+b", "a b"),
        "space": OddKey("a b", "a+b"),
        "outer spaces": OddKey(" a ", "a"),
        "xml": OddKey("a&b<c>d'e\"f&amp;", "a&b<c>d'e\"f&"),
        "marks": OddKey("!*'()~$,;:@=[]{}|^`", "!*'()~$,"),
        "backslash": OddKey("a\\b", "a/b"),
        "nfc": OddKey("caf\u00e9", "cafe\u0301"),
        "nfd": OddKey("cafe\u0301", "caf\u00e9"),
        "cjk": OddKey("\u6a21\u578b/\u6743\u91cd", "??/??"),
        "astral": OddKey("\U0001f600", "?"),
        "hidden": OddKey(".hidden", "hidden"),
        "upper case": OddKey("A/B", "a/b"),
        "long": OddKey("/".join(["n" * 200] * 4), "n" * 200),
        "long name": OddKey("n" * 900, "n" * 255),
    }
)
"""By name, which is what a test class may declare in ``unsupported_odd_keys``."""

OBJECT_BELOW_OBJECT = "object below object"


class OddKeyTests(Harness):
    """Each key reaches the store as it is, or the store is known not to keep it."""

    @pytest.mark.parametrize("name", list(ODD_KEYS))
    def test_odd_key(self, provider: Provider, name: str) -> None:
        """Put, get, head, list, copy and delete mean exactly this key."""
        odd, folded = ODD_KEYS[name]
        if name in self.unsupported_odd_keys:
            assert not self._survives(provider, odd)
            return
        key = self.key(odd)
        if not _is_directory(folded, odd):
            self.fill({folded: b"neighbour"})
        before = self.stored()
        provider.put(key, b"the odd one")
        assert self.raw_get(key) == b"the odd one"
        assert provider.get(key) == b"the odd one"
        assert (provider.head(key).key, provider.head(key).size) == (key, 11)
        assert set(self.listed(provider)) == {odd, *before}
        assert self.listed(provider, odd)[:1] == [odd]
        provider.copy(key, self.key("copied"))
        assert self.raw_get(self.key("copied")) == b"the odd one"
        provider.delete([key, self.key("copied")])
        assert self.stored() == before
        for neighbour in before:
            assert self.raw_get(self.key(neighbour)) == b"neighbour"

    def test_odd_key_in_parts(self, provider: Provider) -> None:
        """An upload in parts and a compose mean exactly this key as well."""
        odd = "a %20+&<\u00e9?#b"
        with provider.start_multipart(self.key(odd)) as upload:
            upload.put_part(1, b"in parts")
            upload.complete()
        assert self.raw_get(self.key(odd)) == b"in parts"
        provider.compose([self.key(odd)], self.key(f"{odd} composed"))
        assert self.raw_get(self.key(f"{odd} composed")) == b"in parts"

    def test_odd_key_below_a_key(self, provider: Provider) -> None:
        """One key may be the directory of another, unless the store is a tree of files."""
        supported = OBJECT_BELOW_OBJECT not in self.unsupported_odd_keys
        assert self._holds_both(provider) == supported

    def test_unsupported_odd_keys_are_named(self) -> None:
        """What a test class declares is in the table of odd keys."""
        assert self.unsupported_odd_keys <= {*ODD_KEYS, OBJECT_BELOW_OBJECT}

    def _survives(self, provider: Provider, odd: str) -> bool:
        try:
            provider.put(self.key(odd), b"the odd one")
            return (
                self.stored() == {odd}
                and self.listed(provider) == [odd]
                and provider.get(self.key(odd)) == b"the odd one"
            )
        except ProviderError:
            return False

    def _holds_both(self, provider: Provider) -> bool:
        try:
            provider.put(self.key("both"), b"above")
            provider.put(self.key("both/below"), b"below")
            return self.listed(provider) == ["both", "both/below"] and (
                provider.get(self.key("both")) == b"above"
            )
        except ProviderError:
            return False


def _is_directory(folded: str, odd: str) -> bool:
    """Whether a tree of files could not hold both."""
    return odd.startswith(f"{folded}/") and odd != f"{folded}/"
