"""What ``put``, ``copy`` and ``delete`` promise."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from providers.errors import (
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    UnsupportedError,
)
from providers.testing.harness import Harness, narrowed, noise
from providers.testing.wrappers import Fault, FaultyProvider

if TYPE_CHECKING:
    from providers.base import Provider

__all__ = ["CopyTests", "DeleteTests", "PutTests"]

_BUFFERS: dict[str, Any] = {
    "bytes": b"some bytes",
    "bytearray": bytearray(b"some bytes"),
    "memoryview": memoryview(b"not some bytes")[4:],
    "array": array("d", [1.5, -2.25]),
    "numpy": np.arange(6, dtype=np.int32).reshape(2, 3),
    "numpy scalar": np.array(2.5),
    "empty": b"",
    "empty numpy": np.zeros((0, 3)),
    "megabyte": noise(1 << 20),
}


class PutTests(Harness):
    """Single writes."""

    @pytest.mark.parametrize("kind", list(_BUFFERS))
    def test_put_takes_any_contiguous_buffer(self, provider: Provider, kind: str) -> None:
        """Whatever the buffer's type and shape, its bytes are what is stored."""
        data = _BUFFERS[kind]
        expected = bytes(memoryview(data)) if kind != "empty numpy" else b""
        info = provider.put(self.key("put"), data)
        assert self.raw_get(self.key("put")) == expected
        assert (info.key, info.size) == (self.key("put"), len(expected))

    def test_put_refuses_scattered_memory(self, provider: Provider) -> None:
        """A buffer that is not C-contiguous raises ValueError, and nothing is written."""
        for data in (memoryview(b"0123456789")[::2], np.arange(6).reshape(2, 3).T):
            with pytest.raises(ValueError, match="C-contiguous"):
                provider.put(self.key("put"), data)
        assert self.stored() == set()

    def test_put_has_read_the_buffer_when_it_returns(self, provider: Provider) -> None:
        """The caller may change the buffer afterwards."""
        data = bytearray(b"before")
        provider.put(self.key("put"), data)
        data[:] = b"after."
        data.extend(b"and longer")
        assert self.raw_get(self.key("put")) == b"before"

    def test_put_replaces(self, provider: Provider) -> None:
        """A second put of the key replaces the object, a shorter one too."""
        provider.put(self.key("put"), b"a long first version")
        provider.put(self.key("put"), b"second")
        assert self.raw_get(self.key("put")) == b"second"
        assert provider.head(self.key("put")).size == 6

    def test_put_if_absent(self, provider: Provider) -> None:
        """if_absent is honoured where the limits say so, and refused where they do not."""
        key = self.key("put")
        if not provider.limits.conditional_put:
            with pytest.raises(UnsupportedError, match="conditional_put"):
                provider.put(key, b"x", if_absent=True)
            assert self.stored() == set()
            return
        info = provider.put(key, b"first", if_absent=True)
        assert info.size == 5
        with pytest.raises(PreconditionError):
            provider.put(key, b"second", if_absent=True)
        assert self.raw_get(key) == b"first"
        provider.delete([key])
        provider.put(key, b"third", if_absent=True)
        assert self.raw_get(key) == b"third"

    def test_put_if_absent_survives_a_lost_answer(self, provider: Provider) -> None:
        """A write whose answer got lost is found to be its own and not called a conflict."""
        if not (provider.limits.conditional_put and provider.limits.keeps_metadata):
            pytest.skip("needs conditional_put and keeps_metadata")
        lost = Fault("put", UnsupportedError("lost"), after=True)
        with pytest.raises(UnsupportedError, match="lost"):
            FaultyProvider(provider, [lost]).put(self.key("not retried"), b"x", if_absent=True)
        key = self.key("put")
        lost = Fault("put", PreconditionError("a retry met its own first attempt"), after=True)
        info = FaultyProvider(provider, [lost]).put(key, b"mine", if_absent=True)
        assert info.size == 4
        assert self.raw_get(key) == b"mine"

    def test_put_keeps_metadata(self, provider: Provider) -> None:
        """Metadata comes back from head as it was given, and a later put replaces it."""
        key = self.key("put")
        if not provider.limits.keeps_metadata:
            with pytest.raises(UnsupportedError, match="keeps_metadata"):
                provider.put(key, b"x", metadata={"colour": "blue"})
            assert self.stored() == set()
            return
        metadata = {"colour": "dark blue", "step-count": "42", "x": "~!@#$%^&*()_+=[]{};:,./<>?"}
        provider.put(key, b"x", metadata=metadata)
        assert provider.head(key).metadata == metadata
        provider.put(key, b"x")
        assert provider.head(key).metadata == {}

    @pytest.mark.parametrize(
        ("name", "value"),
        [("Upper", "x"), ("", "x"), ("a b", "x"), ("a_b", "x"), ("a", "é"), ("a", "two\nlines")],
    )
    def test_put_refuses_metadata_that_would_not_survive(
        self, provider: Provider, name: str, value: str
    ) -> None:
        """Metadata that some service would change is refused before anything is sent."""
        with pytest.raises((LimitError, UnsupportedError)):
            provider.put(self.key("put"), b"x", metadata={name: value})
        assert self.stored() == set()

    def test_put_beyond_the_largest_is_refused(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More than one put may hold is refused before anything is sent."""
        narrowed(monkeypatch, provider, max_put_bytes=10)
        with pytest.raises(LimitError, match="start_multipart"):
            provider.put(self.key("put"), b"01234567890")
        assert self.stored() == set()
        provider.put(self.key("put"), b"0123456789")
        assert self.raw_get(self.key("put")) == b"0123456789"

    @pytest.mark.parametrize("kind", ["empty", "too long", "surrogate"])
    def test_put_refuses_a_key_no_service_takes(self, provider: Provider, kind: str) -> None:
        """A key that is empty, too long or not Unicode text is refused by every verb."""
        longest = provider.max_key_bytes
        key = {"empty": "", "too long": "k" * (longest + 1), "surrogate": "\ud800"}[kind]
        for verb in (
            lambda: provider.put(key, b"x"),
            lambda: provider.get(key),
            lambda: provider.head(key),
            lambda: provider.copy(key, self.key("other")),
            lambda: provider.delete([key]),
            lambda: provider.start_multipart(key),
            lambda: provider.compose([key], self.key("other")),
        ):
            with pytest.raises(LimitError):
                verb()
        assert self.stored() == set()


class CopyTests(Harness):
    """Copies within the bucket."""

    def test_copy_copies(self, provider: Provider) -> None:
        """Source and destination hold the same bytes afterwards; a destination is replaced."""
        body = noise(100_000)
        self.fill({"source": body, "directory/destination": b"old"})
        info = provider.copy(self.key("source"), self.key("directory/destination"))
        assert (info.key, info.size) == (self.key("directory/destination"), len(body))
        assert self.raw_get(self.key("directory/destination")) == body
        assert self.raw_get(self.key("source")) == body

    def test_copy_of_an_empty_object(self, provider: Provider) -> None:
        """An empty object is copied like any other."""
        self.fill({"source": b""})
        assert provider.copy(self.key("source"), self.key("destination")).size == 0
        assert self.raw_get(self.key("destination")) == b""

    def test_copy_keeps_metadata(self, provider: Provider) -> None:
        """Metadata travels with a copy, where there is any."""
        metadata = {"colour": "blue"} if provider.limits.keeps_metadata else None
        provider.put(self.key("source"), b"x", metadata=metadata)
        provider.copy(self.key("source"), self.key("destination"))
        assert provider.head(self.key("destination")).metadata == (metadata or {})

    def test_copy_onto_itself_changes_nothing(self, provider: Provider) -> None:
        """A copy onto itself leaves the object and its metadata as they are."""
        metadata = {"colour": "blue"} if provider.limits.keeps_metadata else None
        provider.put(self.key("source"), b"the body", metadata=metadata)
        provider.copy(self.key("source"), self.key("source"))
        assert self.raw_get(self.key("source")) == b"the body"
        assert provider.head(self.key("source")).metadata == (metadata or {})

    def test_copy_of_a_missing_object_raises(self, provider: Provider) -> None:
        """A missing source raises NotFoundError and leaves the destination alone."""
        self.fill({"destination": b"old"})
        with pytest.raises(NotFoundError):
            provider.copy(self.key("missing"), self.key("destination"))
        assert self.raw_get(self.key("destination")) == b"old"


class DeleteTests(Harness):
    """Deletes; those of many keys are in the listing group, where there are many."""

    def test_delete_deletes_what_is_named(self, provider: Provider) -> None:
        """Named keys go, others stay; a missing one is no error, nor is a key named twice."""
        self.fill({"a": b"x", "b": b"x", "c/d": b"x"})
        provider.delete([self.key(name) for name in ("a", "missing", "c/d", "a")])
        assert self.stored() == {"b"}

    def test_delete_of_nothing_is_quiet(self, provider: Provider) -> None:
        """No keys, or only missing ones, are no error."""
        provider.delete([])
        provider.delete([self.key("missing"), self.key("directory/missing")])
        assert self.stored() == set()

    def test_delete_takes_any_iterable(self, provider: Provider) -> None:
        """A generator of keys is as good as a list."""
        self.fill({"a": b"x", "b": b"x"})
        provider.delete(self.key(name) for name in "ab")
        assert self.stored() == set()

    def test_delete_refuses_a_single_string(self, provider: Provider) -> None:
        """A string, which is an iterable of strings, is refused before it deletes its letters."""
        self.raw_put(self.key("a"), b"x")
        with pytest.raises(TypeError, match="list of keys"):
            provider.delete(cast("Any", self.key("a")))
        assert self.stored() == {"a"}

    def test_delete_tries_all_before_it_raises(self, provider: Provider) -> None:
        """One key that cannot be deleted keeps none of the others from being tried."""
        self.fill({"a": b"x", "b": b"x"})
        one_by_one = FaultyProvider(
            provider, [Fault("delete", UnsupportedError("refused"), attempts=[1, 3])]
        )
        vars(one_by_one).update(delete_batch=1)
        with pytest.raises(UnsupportedError, match="1 more keys failed"):
            one_by_one.delete(self.key(name) for name in ("first", "a", "third", "b"))
        assert self.stored() == set()

    def test_delete_tries_the_rest_of_a_refused_batch(self, provider: Provider) -> None:
        """A key that no service takes keeps none of its neighbours from being deleted."""
        self.fill({"a": b"x", "b": b"x"})
        too_long = "k" * (provider.max_key_bytes + 1)
        with pytest.raises(LimitError):
            provider.delete([self.key("a"), too_long, self.key("b")])
        assert self.stored() == set()

    def test_delete_without_permission_raises(self) -> None:
        """Refused credentials are an error."""
        denied = self.make_denied_provider()
        if denied is None:
            pytest.skip("this store knows no credentials")
        with pytest.raises(ProviderError):
            denied.delete([self.key("a")])
