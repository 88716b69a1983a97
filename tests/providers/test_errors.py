"""The tree of errors: what they are, what they say, how they travel."""

import copy
import pickle

import pytest

import providers
from providers import errors
from providers.errors import ProviderError

BUILT_IN: dict[str, type[Exception]] = {
    "NotFoundError": FileNotFoundError,
    "AccessDeniedError": PermissionError,
    "RangeError": ValueError,
    "UnsupportedError": NotImplementedError,
    "UnavailableError": ConnectionError,
    "TimedOutError": TimeoutError,
    "LimitError": ValueError,
    "SettingsError": ValueError,
}
RETRYABLE = {"UnavailableError", "ThrottledError", "TimedOutError"}
NAMES = sorted(errors.__all__)
EXTRAS = {
    "uri": "s3://bucket/key",
    "operation": "get",
    "status": 503,
    "code": "SlowDown",
    "request_id": "0A1B",
}


@pytest.mark.parametrize("name", NAMES)
class TestEachError:
    def test_it_has_its_place_in_the_tree(self, name: str) -> None:
        """Each is a ProviderError, and of the built-in type that users already catch."""
        kind = getattr(errors, name)
        assert issubclass(kind, ProviderError)
        assert issubclass(kind, BUILT_IN.get(name, Exception))
        assert kind.retryable == (name in RETRYABLE)
        assert getattr(providers, name) is kind

    def test_it_is_drawn(self, name: str) -> None:
        """The drawing in the module's docstring shows it with its built-in type and its nature."""
        lines = [line for line in str(errors.__doc__).splitlines() if name in line.split()]
        if name == "ProviderError":
            assert lines == ["ProviderError"]
            return
        (line,) = (line for line in lines if line.startswith(("├──", "└──")))
        built_in = BUILT_IN.get(name)
        assert ("(" in line) == (built_in is not None)
        assert built_in is None or f"({built_in.__name__})" in line
        assert line.rstrip().endswith("retryable") == (name in RETRYABLE)

    def test_it_says_everything_in_one_line(self, name: str) -> None:
        """Operation, URI, message, status, code and request id are in the text, on one line."""
        error = getattr(errors, name)("went\n  wrong", **EXTRAS)
        expected = "get s3://bucket/key: went wrong (status 503, code SlowDown, request id 0A1B)"
        assert str(error) == expected

    def test_it_says_only_what_is_known(self, name: str) -> None:
        """What is not known leaves no gap in the text."""
        kind = getattr(errors, name)
        assert str(kind("went wrong")) == "went wrong"
        assert str(kind("went wrong", uri="s3://b/k")) == "s3://b/k: went wrong"
        assert str(kind("went wrong", status=404, code="")) == "went wrong (status 404)"

    def test_it_crosses_processes(self, name: str) -> None:
        """A pickle, and a copy, keep type, text and extras; its type and text make it again."""
        error = getattr(errors, name)("went wrong", retry_after_seconds=1.5, **EXTRAS)
        for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 our own
            assert type(copied) is type(error)
            assert str(copied) == str(error)
            assert copied.retry_after_seconds == 1.5
            assert {extra: getattr(copied, extra) for extra in EXTRAS} == EXTRAS
        assert str(type(error)(str(error))) == str(error)


def test_there_are_no_other_errors() -> None:
    """Every subclass that the package defines is in the one tree, exported and drawn."""

    def below(kind: type[ProviderError]) -> set[type[ProviderError]]:
        return {kind}.union(*(below(child) for child in kind.__subclasses__()))

    ours = {kind.__name__ for kind in below(ProviderError) if kind.__module__.startswith("provid")}
    assert ours == set(NAMES)
