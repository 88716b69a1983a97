"""A provider against a dict, driven by Hypothesis."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from providers.errors import LimitError, NotFoundError, RangeError
from providers.testing.harness import Harness
from providers.transfer import compose_many
from providers.values import ByteRange

if TYPE_CHECKING:
    from providers.base import Provider

__all__ = ["ModelTests", "ProviderMachine"]

# No key is the directory of another: not every store can hold both.
_NAMES = ("a", "a.", "b-", "b/c d", "b/c%20d", "b/d/e", "b0", "é", "ﬁ", "𐀀/x")
_NO_NAMES = ("b", "b/", "missing")

_names = st.sampled_from(_NAMES)
_bodies = st.binary(max_size=40)
_prefixes = st.sampled_from(("", "a", "b", "b/", "b/c", "b/d/", "é", "x"))
_bounds = st.none() | st.sampled_from((*_NAMES, "b/", "c", "~"))
_numbers = itertools.count()


class ProviderMachine(RuleBasedStateMachine):
    """Does the same to a provider and to a dict, and compares.

    Args:
        provider: the provider under test.
        prefix: every run works below a prefix of its own, under this one.
    """

    def __init__(self, provider: Provider, prefix: str) -> None:
        super().__init__()
        self.provider = provider
        self.prefix = f"{prefix}run-{next(_numbers)}/"
        self.model: dict[str, bytes] = {}

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.provider.delete([self._key(name) for name in self.model])

    def _key(self, name: str) -> str:
        return self.prefix + name

    def _write(self, name: str, call: Any, expected: bytes | None) -> None:
        """Run a write that succeeds, or fails for want of a source."""
        if expected is None:
            with pytest.raises(NotFoundError):
                call()
            return
        info = call()
        assert (info.key, info.size) == (self._key(name), len(expected))
        self.model[name] = expected

    @rule(name=_names, body=_bodies)
    def put(self, name: str, body: bytes) -> None:
        """Write an object."""
        self._write(name, lambda: self.provider.put(self._key(name), body), body)

    @rule(names=st.lists(_names, max_size=3))
    def delete(self, names: list[str]) -> None:
        """Delete objects, missing ones too."""
        self.provider.delete([self._key(name) for name in names])
        for name in names:
            self.model.pop(name, None)

    @rule(name=_names | st.sampled_from(_NO_NAMES))
    def get(self, name: str) -> None:
        """Read and describe an object."""
        if name not in self.model:
            for verb in (self.provider.get, self.provider.head):
                with pytest.raises((NotFoundError, LimitError)):
                    verb(self._key(name))
            return
        info = self.provider.head(self._key(name))
        assert info.size == len(self.model[name])
        assert self.provider.get(self._key(name), if_match=info) == self.model[name]

    @rule(name=_names, start=st.integers(0, 45), length=st.none() | st.integers(1, 45))
    def get_range(self, name: str, start: int, length: int | None) -> None:
        """Read a range of an object."""
        byte_range = ByteRange(start, None if length is None else start + length)
        expected = self.model.get(name)
        if expected is not None and start < len(expected):
            got = self.provider.get(self._key(name), byte_range)
            assert got == expected[start : byte_range.stop]
            return
        with pytest.raises(NotFoundError if expected is None else RangeError):
            self.provider.get(self._key(name), byte_range)

    @rule(prefix=_prefixes, after=_bounds, before=_bounds, delimiter=st.sampled_from((None, "/")))
    def list_objects(
        self, prefix: str, after: str | None, before: str | None, delimiter: str | None
    ) -> None:
        """List with a prefix, bounds and a delimiter."""
        names = set()
        for name in self.model:
            if name.startswith(prefix):
                at = name.find(delimiter, len(prefix)) if delimiter else -1
                names.add(name if at < 0 else name[: at + 1])
        expected = [
            name
            for name in sorted(names, key=str.encode)
            if (after is None or name > after) and (before is None or name < before)
        ]
        entries = self.provider.list_objects(
            self._key(prefix),
            start_after=None if after is None else self._key(after),
            stop_before=None if before is None else self._key(before),
            delimiter=delimiter,
        )
        got = {entry.key[len(self.prefix) :]: entry for entry in entries}
        assert list(got) == expected
        for name, entry in got.items():
            assert entry.is_prefix == (name not in self.model)
            assert entry.size == len(self.model.get(name, b""))

    @rule(name=_names, body=st.binary(min_size=1, max_size=40), ends=st.sampled_from("cae"))
    def multipart(self, name: str, body: bytes, ends: str) -> None:
        """Upload in one part, then complete, abort, or leave the block early."""
        with self.provider.start_multipart(self._key(name)) as upload:
            upload.put_part(1, body)
            if ends == "c":
                self._write(name, upload.complete, body)
            elif ends == "a":
                upload.abort()

    @rule(name=_names, sources=st.lists(_names, min_size=1, max_size=5))
    def compose(self, name: str, sources: list[str]) -> None:
        """Join objects, the destination among them or not."""
        bodies = [self.model.get(source) for source in sources]
        expected = None if None in bodies else b"".join(body for body in bodies if body)
        keys = [self._key(source) for source in sources]
        self._write(name, lambda: compose_many(self.provider, keys, self._key(name)).info, expected)

    @rule(name=_names, source=_names)
    def copy(self, name: str, source: str) -> None:
        """Copy an object, onto itself too."""
        self._write(
            name,
            lambda: self.provider.copy(self._key(source), self._key(name)),
            self.model.get(source),
        )


class ModelTests(Harness):
    """The provider and a dict agree."""

    def test_provider_agrees_with_a_dict(self, provider: Provider) -> None:
        """Whatever Hypothesis does to both, they answer alike."""
        factory: Any = lambda: ProviderMachine(provider, self.prefix)  # noqa: E731 typed as a class
        run_state_machine_as_test(
            factory,
            settings=settings(
                max_examples=self.model_examples,
                stateful_step_count=20,
                deadline=None,
                # Twenty steps can be read as they are; on a real server shrinking takes minutes.
                phases=(Phase.generate,),
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        assert self.stored() == set()
        assert self.raw_unfinished_uploads() == []
