"""Connections that fail, lead elsewhere, or are used again."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from providers.errors import ProviderError, SettingsError, UnavailableError
from providers.testing.harness import noise
from providers.values import ByteRange
from tests.providers.s3.stores import PART_BYTES, made

if TYPE_CHECKING:
    from pathlib import Path

    from providers.s3 import S3Provider
    from tests.fakes.front import Front
    from tests.providers.s3.stores import Store


def test_refused_connection_raises() -> None:
    """Nothing listens: the error names the endpoint and counts the attempts."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        provider = made("bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b")
        with pytest.raises(UnavailableError, match="ould not connect") as caught:
            provider.get("key")
    assert endpoint.removeprefix("http://") in str(caught.value)
    assert "get s3://bucket/key: the endpoint cannot be reached" in str(caught.value)
    assert "gave up after 3 attempts" in str(caught.value)


def test_unknown_host_raises() -> None:
    """A name that does not resolve is told as such."""
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    provider = made("bucket", max_attempts=1, endpoint="http://s3.invalid", **keys)
    with pytest.raises(UnavailableError, match=r"cannot be reached.*s3\.invalid"):
        provider.get("key")


def test_http_server_behind_https_raises(store: Store) -> None:
    """A TLS endpoint that speaks none is a mistake in the settings, not tried again."""
    endpoint = store.server.endpoint.replace("http:", "https:")
    with pytest.raises(SettingsError, match=r"does not speak TLS.*is it http://\?") as caught:
        store.opened(endpoint).get("key")
    assert "gave up" not in str(caught.value)


def test_bundle_that_is_not_there_raises(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in AWS_CA_BUNDLE is told with the path, before anything is read."""
    path = tmp_path / "nothing.pem"
    monkeypatch.setenv("AWS_CA_BUNDLE", str(path))
    endpoint = store.server.endpoint.replace("http:", "https:")
    with pytest.raises(SettingsError, match=f"open s3://.*AWS_CA_BUNDLE names '{path}'"):
        store.opened(endpoint)


def test_connections_serve_again(provider: S3Provider, front: Front, store: Store) -> None:
    """Every answer, an error's too, is read to its end and leaves its connection usable."""
    provider.put("key", noise(PART_BYTES))
    for call in (
        lambda: provider.get("missing"),
        lambda: provider.head("missing"),
        lambda: provider.get("key", ByteRange(1 << 40)),
    ):
        with pytest.raises(ProviderError):
            call()
    assert provider.get("key", ByteRange(1, 2)) == noise(PART_BYTES)[1:2]
    provider.copy("key", "copied")
    provider.compose(["key", "key"], "whole")
    provider.start_multipart("other").abort()
    assert len(list(provider.list_objects())) == 3
    provider.delete(["key", "copied", "whole", "odd\r"])
    assert store.keys() == []
    # One for reads, one for requests that may take minutes, one for all others.
    assert {record.connection for record in front.requests} == {1, 2, 3, 4}
