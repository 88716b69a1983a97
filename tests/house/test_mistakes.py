"""What goes wrong most gives one clear line that names what and where."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from connector import Checkpoint, MapDataset, TransferOptions
from connector.manifest import ManifestError
from providers import (
    AccessDeniedError,
    GCSOptions,
    NotFoundError,
    Options,
    OSSOptions,
    S3Options,
    SettingsError,
    UnavailableError,
)
from providers.retry import without_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.servers.fake_gcs import GCSServer
    from tests.servers.oss import OSSServer
    from tests.servers.s3 import S3Server

_NOBODY = "http://127.0.0.1:9"
_CLOUDS = ("s3", "gs", "oss")


@pytest.fixture(scope="module")
def options(juicefs: S3Server, fake_gcs: GCSServer, oss_server: OSSServer) -> Mapping[str, Options]:
    """By scheme, how to reach a store that holds `mistakes-bucket`."""
    for server in (juicefs, fake_gcs, oss_server):
        server.make_bucket("mistakes-bucket")
    keys: dict[str, Any] = {"access_key_id": juicefs.access_key}
    return {
        "s3": S3Options(endpoint=juicefs.endpoint, secret_access_key=juicefs.secret_key, **keys),
        "gs": GCSOptions(endpoint=fake_gcs.endpoint),
        "oss": OSSOptions(
            endpoint=oss_server.endpoint,
            region=oss_server.region,
            access_key_id=oss_server.access_key,
            access_key_secret=oss_server.secret_key,
        ),
    }


def _line(kind: type[Exception], mistake: Callable[[], object], *words: str) -> None:
    with without_waiting(), pytest.raises(kind) as caught:
        mistake()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("scheme", _CLOUDS)
def test_a_missing_bucket(scheme: str, options: Mapping[str, Options]) -> None:
    """The line names the URI and says that it is the bucket."""
    uri = f"{scheme}://there-is-none/train/"
    _line(
        NotFoundError,
        lambda: MapDataset.from_prefix(uri, options=options[scheme]),
        f"list {uri}",
        "bucket",
    )


@pytest.mark.parametrize("scheme", _CLOUDS)
def test_a_missing_key(scheme: str, options: Mapping[str, Options]) -> None:
    """The line names the object."""
    uri = f"{scheme}://mistakes-bucket/no.jpg"
    dataset = MapDataset.from_objects([uri], options=options[scheme])
    _line(NotFoundError, lambda: dataset[0], f"get {uri}", "404")
    checkpoint = Checkpoint(f"{scheme}://mistakes-bucket/runs", options=options[scheme])
    _line(NotFoundError, lambda: checkpoint.load("1.pt"), f"{scheme}://mistakes-bucket/runs/1.pt")


@pytest.mark.parametrize(("scheme", "field"), [("s3", "secret_access_key"),
                                               ("oss", "access_key_secret")])  # fmt: skip
def test_a_wrong_secret(scheme: str, field: str, options: Mapping[str, Options]) -> None:
    """The line names the option to look at, and not its value."""
    known = {name: getattr(options[scheme], name) for name in options[scheme].model_fields_set}
    wrong = type(options[scheme])(**{**known, field: "not-the-secret"})
    uri = f"{scheme}://mistakes-bucket/train/"
    with pytest.raises(AccessDeniedError, match=field) as caught:
        MapDataset.from_prefix(uri, options=wrong)
    assert f"list {uri}" in str(caught.value)
    assert "not-the-secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", _CLOUDS)
def test_nobody_at_the_endpoint(scheme: str, options: Mapping[str, Options]) -> None:
    """The line names the URI and the endpoint, after all attempts."""
    known = {name: getattr(options[scheme], name) for name in options[scheme].model_fields_set}
    closed = type(options[scheme])(**{**known, "endpoint": _NOBODY})
    uri = f"{scheme}://mistakes-bucket/train/"
    _line(
        UnavailableError,
        lambda: MapDataset.from_prefix(
            uri, options=closed, transfer=TransferOptions(max_attempts=2)
        ),
        f"list {uri}",
        "127.0.0.1",
        "gave up after 2 attempts",
    )


def test_an_unknown_scheme() -> None:
    """The line lists the schemes there are."""
    _line(SettingsError, lambda: MapDataset.from_prefix("hdfs://a/b"), "'hdfs'", "gs", "oss", "s3")


@pytest.mark.parametrize(("scheme", "package", "extra"), [("s3", "boto3", "s3"),
                                                          ("gs", "google.auth", "gcs"),
                                                          ("oss", "oss2", "oss")])  # fmt: skip
def test_a_missing_extra(scheme: str, package: str, extra: str) -> None:
    """The line is the one to type into a shell."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from providers import open_provider, SettingsError\n"
        "try:\n"
        f"    list(open_provider('{scheme}://bucket', region='x').list_objects())\n"
        "except SettingsError as error:\n"
        "    print(error)\n"
    ).replace(", region='x'" if scheme == "gs" else "\0", "")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'torch-cloud-connector[{extra}]'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_bad_option() -> None:
    """The line names the model, the field and what there is."""
    _line(SettingsError, lambda: S3Options(endpont="x"), "S3Options", "'endpont'", "endpoint")  # type: ignore[call-arg]
    _line(SettingsError, lambda: TransferOptions(max_attempts=0), "'max_attempts'", "1")


def test_a_bad_row(tmp_path: Path) -> None:
    """The line names the manifest and the row's line in it."""
    (tmp_path / "m.jsonl").write_text('{"key": "a"}\n\n{"kay": "b"}\n')
    uri = f"file://{tmp_path}/m.jsonl"
    _line(ManifestError, lambda: MapDataset.from_manifest_file(uri), f"{uri} line 3", "key")
