"""Options: names are checked, and secrets stay where they are."""

import copy
import logging
import multiprocessing
import pickle
from multiprocessing.connection import Connection
from typing import Any

import pytest
from pydantic import SecretStr

from providers.errors import SettingsError
from providers.memory import MemoryProvider
from providers.options import (
    GCSOptions,
    LocalOptions,
    Options,
    OSSOptions,
    S3Options,
    TransferOptions,
)

SECRETIVE: list[tuple[type[Options], dict[str, str], dict[str, str]]] = [
    (
        S3Options,
        {"access_key_id": "the-key-id", "region": "eu-central-1"},
        {"secret_access_key": "hush-secret", "session_token": "hush-token"},
    ),
    (GCSOptions, {"project": "the-project"}, {"access_token": "hush-token"}),
    (
        OSSOptions,
        {"access_key_id": "the-key-id", "region": "cn-hangzhou"},
        {"access_key_secret": "hush-secret", "security_token": "hush-token"},
    ),
]
each_kind = pytest.mark.parametrize(("kind", "public", "secret"), SECRETIVE)


def revealed(options: Options) -> dict[str, str]:
    """The literal secrets that options hold."""
    values = {name: getattr(options, name) for name in type(options).model_fields}
    return {n: v.get_secret_value() for n, v in values.items() if isinstance(v, SecretStr)}


def tell_secrets(options: Options, connection: Connection) -> None:
    """Send what a child process finds in its options."""
    connection.send(revealed(options))
    connection.close()


@each_kind
class TestSecrets:
    def test_secrets_are_never_shown(
        self, kind: type[Options], public: dict[str, str], secret: dict[str, str]
    ) -> None:
        """No text made of options holds a secret; other values may be seen."""
        options = kind(**public, **secret)
        shown = (
            f"{options!r} {options} {options.model_dump()} {options.model_dump_json()} "
            f"{MemoryProvider('b', options)!r}"
        )
        assert "hush" not in shown
        assert all(value in shown for value in public.values())

    def test_an_ordinary_pickle_drops_secrets(
        self, kind: type[Options], public: dict[str, str], secret: dict[str, str]
    ) -> None:
        """A pickle to a file or a cache holds no secret, and the copy knows what it lacks."""
        pickled = pickle.dumps(kind(**public, **secret))
        assert b"hush" not in pickled
        copied = pickle.loads(pickled)  # noqa: S301 our own bytes
        assert revealed(copied) == {}
        assert set(copied.dropped) == set(secret)
        assert {name: getattr(copied, name) for name in public} == public

    def test_a_copy_says_which_secrets_it_lacks(
        self,
        kind: type[Options],
        public: dict[str, str],
        secret: dict[str, str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Unpickling logs the names of what was left behind, after a second trip as well."""
        copied = pickle.loads(pickle.dumps(kind(**public, **secret)))  # noqa: S301 our own bytes
        with caplog.at_level(logging.WARNING, "providers.options"):
            again = pickle.loads(pickle.dumps(copied))  # noqa: S301 our own bytes
        assert set(again.dropped) == set(secret)
        assert all(name in caplog.text for name in secret)
        assert "pickle_secrets=True" in caplog.text
        assert "hush" not in caplog.text

    @pytest.mark.parametrize("start", ["spawn", "forkserver"])
    def test_a_process_being_spawned_gets_secrets(
        self, kind: type[Options], public: dict[str, str], secret: dict[str, str], start: str
    ) -> None:
        """A child process, a DataLoader's worker say, works with the same credentials."""
        context: Any = multiprocessing.get_context(start)
        receiving, sending = context.Pipe(duplex=False)
        arguments = (kind(**public, **secret), sending)
        child = context.Process(target=tell_secrets, args=arguments)
        child.start()
        sending.close()
        assert receiving.poll(60)
        assert receiving.recv() == secret
        child.join()

    def test_secrets_are_pickled_when_asked_for(
        self, kind: type[Options], public: dict[str, str], secret: dict[str, str]
    ) -> None:
        """pickle_secrets keeps them in every pickle."""
        options = kind(**public, **secret, pickle_secrets=True)
        copied = pickle.loads(pickle.dumps(options))  # noqa: S301 our own bytes
        assert revealed(copied) == secret
        assert copied.dropped == ()
        assert copied == options

    def test_a_copy_in_the_process_keeps_secrets(
        self, kind: type[Options], public: dict[str, str], secret: dict[str, str]
    ) -> None:
        """Copies that never leave the process are whole."""
        options = kind(**public, **secret)
        for copied in (copy.copy(options), copy.deepcopy(options), options.model_copy()):
            assert revealed(copied) == secret

    def test_a_bad_value_is_not_repeated(
        self, kind: type[Options], public: dict[str, str], secret: dict[str, str]
    ) -> None:
        """The error of a secret of the wrong type names the option and not its value."""
        name = next(iter(secret))
        with pytest.raises(SettingsError, match=name) as caught:
            kind(**public, **{name: ["hush-list"]})
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_options_without_secrets_pickle_whole(
        self,
        kind: type[Options],
        public: dict[str, str],
        secret: dict[str, str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Where there is nothing to drop, nothing is dropped and nothing logged."""
        assert secret
        options = kind(**public)
        copied = pickle.loads(pickle.dumps(options))  # noqa: S301 our own bytes
        assert copied == options
        assert copied.dropped == ()
        assert caplog.text == ""


@pytest.mark.parametrize("kind", [S3Options, GCSOptions, OSSOptions, LocalOptions, TransferOptions])
class TestFields:
    def test_an_unknown_name_is_refused(self, kind: type[Options]) -> None:
        """A misspelt option is an error that names it and lists those there are."""
        misspelt: dict[str, Any] = {"endpiont": "http://127.0.0.1"}
        with pytest.raises(SettingsError) as caught:
            kind(**misspelt)
        text = str(caught.value)
        assert kind.__name__ in text
        assert "'endpiont'" in text
        assert all(name in text for name in kind.model_fields)
        assert "\n" not in text

    def test_all_faults_are_told_at_once(self, kind: type[Options]) -> None:
        """Several faults come in one error."""
        misspelt: dict[str, Any] = {"nonsense": 1, "rubbish": 2}
        with pytest.raises(SettingsError) as caught:
            kind(**misspelt)
        assert "'nonsense'" in str(caught.value)
        assert "'rubbish'" in str(caught.value)

    def test_options_never_change(self, kind: type[Options]) -> None:
        """Options are frozen."""
        options = kind()
        for name in kind.model_fields:
            with pytest.raises(ValueError, match="frozen"):
                setattr(options, name, None)

    def test_every_field_is_documented(self, kind: type[Options]) -> None:
        """The docstring tells each field's meaning."""
        documented = "".join(str(base.__doc__) for base in kind.__mro__)
        assert [name for name in kind.model_fields if f"{name}:" not in documented] == []

    def test_defaults_make_sense(self, kind: type[Options]) -> None:
        """All fields have defaults, and options made of their own values are the same."""
        options = kind()
        assert kind(**options.model_dump()) == options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_in_flight", 0),
        ("max_attempts", 0),
        ("part_size_bytes", -1),
        ("give_up_after_seconds", 0),
        ("max_gap_bytes", -1),
        ("connect_timeout_seconds", "soon"),
        ("range_size_bytes", 1.5),
    ],
)
def test_a_transfer_option_out_of_range_is_refused(name: str, value: Any) -> None:
    """A number that makes no sense is an error that names the option."""
    with pytest.raises(SettingsError, match=f"option '{name}'"):
        TransferOptions(**{name: value})
