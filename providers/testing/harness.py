"""What a backend's test class supplies, and what every group of tests stands on."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from providers.retry import without_waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from providers.base import Provider
    from providers.values import ObjectInfo

__all__ = ["Harness"]


class Harness:
    """Raw access that bypasses the provider, so that the provider never judges itself.

    Attributes:
        prefix: every key of the suite begins with it. Below it the bucket must be empty when
            a test starts: a fresh bucket, or a fresh prefix, for each test.
        many_objects: more than one page of the service's listings.
        shared_storage: whether other processes see the same objects.
        unsupported_odd_keys: names in ``odd_keys.ODD_KEYS`` that the *server* cannot keep as
            they are; the suite checks that it really cannot.
        uploads_have_keys: whether unfinished uploads tell what they would become.
        uploads_have_times: whether the server tells when they were begun.
        secrets: texts that must never appear in a ``repr`` or an error.
        model_examples: runs of the state machine.
    """

    prefix: str = ""
    many_objects: int = 1003
    shared_storage: bool = True
    unsupported_odd_keys: frozenset[str] = frozenset()
    uploads_have_keys: bool = True
    uploads_have_times: bool = True
    secrets: tuple[str, ...] = ()
    model_examples: int = 30

    # ---- Supplied by the subclass --------------------------------------------------------

    def make_provider(self) -> Provider:
        """Return a new provider of the bucket under test."""
        raise NotImplementedError

    def make_missing_bucket_provider(self) -> Provider | None:
        """Return a provider of a bucket that does not exist; None where all do."""
        raise NotImplementedError

    def make_denied_provider(self) -> Provider | None:
        """Return a provider whose credentials are refused; None where there are none."""
        raise NotImplementedError

    def raw_put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """Write an object, around the provider."""
        raise NotImplementedError

    def raw_get(self, key: str) -> bytes:
        """Read an object, around the provider; any exception where there is none."""
        raise NotImplementedError

    def raw_keys(self) -> set[str]:
        """Return every key of the bucket, around the provider."""
        raise NotImplementedError

    def raw_unfinished_uploads(self) -> list[Any]:
        """Return the uploads neither completed nor aborted, around the provider."""
        raise NotImplementedError

    def raw_put_many(self, keys: Iterable[str]) -> None:
        """Write one-byte objects; worth overriding where there is a faster way."""
        for key in keys:
            self.raw_put(key, b"x")

    # ---- Shared by the groups ------------------------------------------------------------

    @pytest.fixture(autouse=True)
    def _without_waiting(self) -> Iterator[None]:
        """No pauses between attempts: what a server cannot do, it cannot do later either."""
        with without_waiting():
            yield

    @pytest.fixture
    def provider(self) -> Provider:
        """A new provider of the bucket under test."""
        return self.make_provider()

    def key(self, name: str) -> str:
        """Return a key of this test."""
        return self.prefix + name

    def stored(self) -> set[str]:
        """Return the names of all objects there are, without the prefix."""
        start = len(self.prefix)
        return {key[start:] for key in self.raw_keys() if key.startswith(self.prefix)}

    def listed(self, provider: Provider, prefix: str = "", **arguments: Any) -> list[str]:
        """Return the names the provider lists, without the prefix."""
        for bound in ("start_after", "stop_before"):
            if arguments.get(bound) is not None:
                arguments[bound] = self.key(arguments[bound])
        entries = provider.list_objects(self.key(prefix), **arguments)
        return [entry.key[len(self.prefix) :] for entry in entries]

    def fill(self, bodies: Mapping[str, bytes]) -> None:
        """Write objects around the provider."""
        for name, body in bodies.items():
            self.raw_put(self.key(name), body)


def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes that no other seed gives."""
    return random.Random(seed).randbytes(size)  # noqa: S311 bodies are no secret


def narrowed(patch: pytest.MonkeyPatch, provider: Provider, **changes: Any) -> Provider:
    """Change some limits of a provider's class for one test, and return the provider."""
    limits = replace(provider.limits, **changes)
    patch.setattr(type(provider), "limits", property(lambda _: limits))
    return provider


def keys_of(entries: Iterator[ObjectInfo]) -> list[str]:
    """Return the keys of a listing."""
    return [entry.key for entry in entries]
