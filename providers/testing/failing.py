"""What errors promise: a type to match on, one line to read, and a way across processes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from providers.errors import AccessDeniedError, NotFoundError, ProviderError
from providers.testing.harness import Harness
from providers.values import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from providers.base import Provider

__all__ = ["ErrorTests"]

_EXTRAS = ("uri", "operation", "status", "code", "request_id", "retry_after_seconds")


class ErrorTests(Harness):
    """Errors, as raised by the backend."""

    @pytest.mark.parametrize("verb", ["get", "range", "head", "copy", "compose"])
    def test_error_names_uri_and_operation(self, provider: Provider, verb: str) -> None:
        """The message is one line with the object's URI and the operation."""
        error = self._raised(NotFoundError, lambda: self._missing(provider, verb))
        assert provider.uri(self.key("missing")) in str(error)
        assert error.operation is not None
        assert error.operation in str(error)
        assert "\n" not in str(error)

    @pytest.mark.parametrize("verb", ["get", "range", "head"])
    def test_error_pickles(self, provider: Provider, verb: str) -> None:
        """A copy from another process has the type, the message and the extras."""
        error = self._raised(NotFoundError, lambda: self._missing(provider, verb))
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301 our own bytes
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        for name in _EXTRAS:
            assert getattr(copied, name) == getattr(error, name)

    @pytest.mark.parametrize("verb", ["get", "range", "head"])
    def test_error_survives_a_data_loader(self, provider: Provider, verb: str) -> None:
        """Rebuilt from its type and message alone, as a worker's error is, it reads the same."""
        error = self._raised(NotFoundError, lambda: self._missing(provider, verb))
        assert str(type(error)(str(error))) == str(error)

    def test_error_of_refused_credentials(self) -> None:
        """Refused credentials raise AccessDeniedError from every verb, without the secrets."""
        denied = self.make_denied_provider()
        if denied is None:
            pytest.skip("this store knows no credentials")
        self.raw_put(self.key("a"), b"x")
        for verb in (
            lambda: denied.get(self.key("a")),
            lambda: denied.head(self.key("a")),
            lambda: denied.put(self.key("b"), b"x"),
            lambda: denied.start_multipart(self.key("b")),
            lambda: denied.copy(self.key("a"), self.key("b")),
        ):
            error = self._raised(AccessDeniedError, verb)
            assert not [secret for secret in self.secrets if secret in str(error)]
        assert self.stored() == {"a"}

    def test_error_of_a_missing_bucket(self) -> None:
        """A missing bucket raises NotFoundError from every verb."""
        missing = self.make_missing_bucket_provider()
        if missing is None:
            pytest.skip("every bucket of this store exists")
        for verb in (
            lambda: missing.get(self.key("a")),
            lambda: missing.head(self.key("a")),
            lambda: missing.put(self.key("a"), b"x"),
        ):
            self._raised(NotFoundError, verb)

    def test_repr_tells_the_uri_and_no_secret(self, provider: Provider) -> None:
        """A provider's repr names its URI, and neither it nor the options' show a secret."""
        text = repr(provider) + repr(provider.options) + str(provider.options)
        assert provider.uri() in text
        assert not [secret for secret in self.secrets if secret in text]

    def _missing(self, provider: Provider, verb: str) -> object:
        key, other = self.key("missing"), self.key("other")
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: provider.get(key),
            "range": lambda: provider.get(key, ByteRange(0, 1)),
            "head": lambda: provider.head(key),
            "copy": lambda: provider.copy(key, other),
            "compose": lambda: provider.compose([key], other),
        }
        return calls[verb]()

    def _raised(self, kind: type[ProviderError], call: Callable[[], object]) -> ProviderError:
        with pytest.raises(kind) as caught:
            call()
        return caught.value
