"""From a scheme to its provider, the third party's too."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.errors import SettingsError
from providers.gcs import GCSProvider
from providers.local import LocalProvider
from providers.memory import MemoryProvider
from providers.options import GCSOptions, LocalOptions, S3Options, TransferOptions
from providers.oss import OSSProvider
from providers.registry import ENTRY_POINTS, open_provider, provider_type, schemes
from providers.s3 import S3Provider

TINY_MODULE = '''
"""A third party's provider."""

from providers.memory import MemoryProvider
from providers.options import Options


class TinyOptions(Options):
    """Options of tiny://."""

    colour: str = "red"


class TinyProvider(MemoryProvider):
    """Objects under another name."""

    scheme = "tiny"
    options_type = TinyOptions


class Usurper(MemoryProvider):
    """Claims a scheme that is taken."""
'''
TINY_ENTRY_POINTS = f"""
[{ENTRY_POINTS}]
tiny = tiny_store:TinyProvider
memory = tiny_store:Usurper
broken = no_such_module:Provider
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory into which a second package is installed."""
    site = tmp_path / "site"
    information = site / "tiny_store-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "tiny_store.py").write_text(TINY_MODULE)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-store\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(TINY_ENTRY_POINTS)
    return site


class TestThirdParties:
    @pytest.fixture(autouse=True)
    def _installed(self, site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.syspath_prepend(str(site))
        yield
        sys.modules.pop("tiny_store", None)

    def test_a_scheme_comes_with_a_package(self) -> None:
        """An installed package's scheme opens its provider, which works like any other."""
        provider = open_provider("tiny://bucket/any/key", colour="blue", max_attempts=3)
        assert type(provider).__name__ == "TinyProvider"
        assert provider.options.model_dump()["colour"] == "blue"
        assert provider.transfer.max_attempts == 3
        provider.put("a", b"x")
        assert provider.get("a") == b"x"
        assert provider.uri("a") == "tiny://bucket/a"

    def test_its_scheme_is_listed(self) -> None:
        """The schemes that can be opened include it."""
        assert schemes() == ("broken", "file", "gs", "memory", "oss", "s3", "tiny")

    def test_its_provider_pickles(self) -> None:
        """Its provider crosses processes with its options."""
        provider = open_provider("tiny://bucket", colour="blue")
        copied = pickle.loads(pickle.dumps(provider))  # noqa: S301 our own bytes
        assert type(copied) is type(provider)
        assert copied.options == provider.options

    def test_its_options_are_checked(self) -> None:
        """Its own options' names are checked as ours are."""
        with pytest.raises(SettingsError, match="colour"):
            open_provider("tiny://bucket", color="blue")

    def test_no_package_takes_a_built_in_scheme(self) -> None:
        """An installed package cannot redirect a scheme of ours."""
        assert type(open_provider("memory://bucket")) is MemoryProvider

    def test_a_broken_package_says_what_is_missing(self) -> None:
        """A package whose provider cannot be imported raises what its import raised."""
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            open_provider("broken://bucket")


def test_a_package_is_found_by_a_fresh_process(site: Path) -> None:
    """Nothing but the package on the path is needed."""
    script = "from providers import open_provider; print(open_provider('tiny://b/k'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{site}:{Path(__file__).parents[2]}"},
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "TinyProvider('tiny://b/')\n"


class TestBuiltIns:
    @pytest.mark.parametrize(
        ("uri", "kind"),
        [
            ("s3://bucket", S3Provider),
            ("s3a://bucket/key", S3Provider),
            ("gs://bucket", GCSProvider),
            ("gcs://bucket/key", GCSProvider),
            ("oss://bucket", OSSProvider),
            ("file:///directory/", LocalProvider),
            ("memory://bucket", MemoryProvider),
            ("MEMORY://bucket", MemoryProvider),
        ],
    )
    def test_a_scheme_opens_its_provider(
        self, uri: str, kind: type[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each scheme and alias opens its provider; nothing is sent yet."""
        monkeypatch.setenv("OSS_REGION", "cn-hangzhou")
        provider = open_provider(uri)
        assert type(provider) is kind
        assert provider_type(kind.scheme) is kind
        assert provider.bucket == ("" if kind is LocalProvider else "bucket")

    def test_an_unknown_scheme_lists_the_known(self) -> None:
        """The error names the scheme, those there are, and the way to add one."""
        with pytest.raises(SettingsError) as caught:
            open_provider("ftp://host/file")
        text = str(caught.value)
        assert "'ftp'" in text
        assert "file, gs, memory, oss, s3" in text
        assert ENTRY_POINTS in text

    @pytest.mark.parametrize(
        ("uri", "module", "extra"),
        [
            ("s3://bucket", "boto3", "s3"),
            ("gs://bucket", "google.auth.transport.requests", "gcs"),
            ("oss://bucket", "oss2", "oss"),
        ],
    )
    def test_a_missing_extra_says_what_to_install(
        self, uri: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without its SDK a provider opens, and its first use says what to install."""
        monkeypatch.setitem(sys.modules, module, None)
        provider = (
            open_provider(uri, region="cn-hangzhou") if extra == "oss" else open_provider(uri)
        )
        with pytest.raises(SettingsError, match=rf"torch-cloud-connector\[{extra}\]"):
            provider.head("key")


class TestKeywords:
    def test_keywords_find_their_model(self) -> None:
        """Fields of the scheme's options and of TransferOptions go where they belong."""
        provider = open_provider("s3://b", endpoint="http://127.0.0.1:1", max_attempts=2)
        assert provider.options == S3Options(endpoint="http://127.0.0.1:1")
        assert provider.transfer == TransferOptions(max_attempts=2)

    def test_keywords_go_on_top_of_models(self) -> None:
        """A keyword changes one field of the options given, and leaves the others."""
        provider = open_provider(
            "s3://b",
            options=S3Options(endpoint="http://127.0.0.1:1", region="there"),
            transfer=TransferOptions(max_attempts=2, max_in_flight=7),
            region="here",
            max_in_flight=8,
        )
        assert provider.options == S3Options(endpoint="http://127.0.0.1:1", region="here")
        assert provider.transfer == TransferOptions(max_attempts=2, max_in_flight=8)

    def test_a_keyword_on_top_is_checked(self) -> None:
        """A field changed by keyword is validated like any other."""
        with pytest.raises(SettingsError, match="addressing_style"):
            open_provider("s3://b", options=S3Options(region="here"), addressing_style="odd")

    def test_a_keyword_keeps_secrets(self) -> None:
        """Changing one field loses no secret of the others."""
        options = S3Options.model_validate({"access_key_id": "a", "secret_access_key": "hush"})
        changed = open_provider("s3://b", options=options, region="here").options
        assert isinstance(changed, S3Options)
        assert changed.secret_access_key is not None
        assert changed.secret_access_key.get_secret_value() == "hush"

    def test_an_unknown_keyword_is_refused(self) -> None:
        """A misspelt keyword is an error, not an option ignored."""
        with pytest.raises(SettingsError, match="'max_atempts'"):
            open_provider("memory://b", max_atempts=3)

    def test_options_of_another_scheme_are_refused(self) -> None:
        """Options of the wrong kind are refused, by name."""
        with pytest.raises(SettingsError, match="must be S3Options, not GCSOptions"):
            open_provider("s3://b", options=GCSOptions())

    def test_the_local_root_comes_from_the_uri_or_the_option(self, tmp_path: Path) -> None:
        """The directory part of the URI is the root unless an option widens it."""
        opened = open_provider(f"file://{tmp_path}/a/b")
        assert opened.options == LocalOptions(root=f"{tmp_path}/a")
        widened = open_provider(f"file://{tmp_path}/a/b", root=str(tmp_path))
        assert widened.options == LocalOptions(root=str(tmp_path))
