"""What the data plane sends to Google Cloud Storage: a real server finds what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import assume, example, given

from providers.gcs import GCSProvider
from providers.options import GCSOptions
from providers.values import ByteRange, ObjectInfo
from tests.providers.gcs.access import RawBucket, provider, raw_bucket
from tests.providers.signing_cases import few, keys, many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.fake_gcs import GCSServer


@pytest.fixture(scope="module")
def bucket(fake_gcs: GCSServer) -> Iterator[RawBucket]:
    """A bucket, reached by the vendor's SDK."""
    with raw_bucket(fake_gcs, fake_gcs.make_bucket("odd-keys")) as raw:
        yield raw


@few
@given(key=keys)
@example(key="a/../b//c/./d?e#f%20+~\u00e9\U0001f600 *'()")
@example(key="..a/..")
@example(key="a%2F..%2Fb")
def test_odd_keys_are_found(bucket: RawBucket, key: str) -> None:
    """What the vendor's SDK has written under a key is read by it, whole and in part."""
    # Neither of them allows these.
    assume(key not in {".", ".."} and not set(key) & {"\r", "\n", "\0"})
    body = f"the body of {key}".encode()
    bucket.put(key, body)
    gcs = provider(bucket.endpoint, bucket.name)
    assert gcs.get(key) == body
    assert gcs.get(key, ByteRange(4, 8)) == b"body"


@many
@given(key=keys)
def test_paths_hold_nothing_to_fold(key: str) -> None:
    """A key is one segment of the path, so that nothing on the way takes dots for steps."""
    assume(key not in {".", ".."})
    gcs = GCSProvider("a.bucket", GCSOptions(access_token="token"))
    request = gcs.signed_get(key)
    assert request is not None
    parts = urlsplit(request.url)
    assert (parts.scheme, parts.netloc) == ("https", "storage.googleapis.com")
    assert parts.path.split("/")[:2] == ["", "a.bucket"]
    assert [unquote(segment) for segment in parts.path.split("/")[2:]] == [key]
    assert (parts.query, parts.fragment) == ("", "")


def test_headers_are_those_of_the_session() -> None:
    """Token, payer, range and generation go along; gzip is accepted, for objects as stored."""
    options = GCSOptions(access_token="token\n", project="payer")
    gcs = GCSProvider("a-bucket", options)
    pin = ObjectInfo("key", size=9, etag="etag", version="1234")
    request = gcs.signed_get("key", ByteRange(2, 5), if_match=pin)
    assert request is not None
    headers = {name.lower(): value for name, value in request.headers.items()}
    # google-auth tells of the kind of its credentials.
    headers.pop("x-goog-api-client", None)
    assert headers == {
        "accept-encoding": "gzip",
        "authorization": "Bearer token",
        "range": "bytes=2-4",
        "x-goog-if-generation-match": "1234",
        "x-goog-user-project": "payer",
    }


def test_anonymous_reads_carry_no_token() -> None:
    """What is public is asked for without one, at Google itself too."""
    request = GCSProvider("a-bucket", GCSOptions(anonymous=True)).signed_get("key")
    assert request is not None
    assert request.url == "https://storage.googleapis.com/a-bucket/key"
    assert dict(request.headers) == {"Accept-Encoding": "gzip"}


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://[::1]:4443", "http://[::1]:4443/a-bucket/k"),
        ("storage.europe-west3.rep.googleapis.com/",
         "https://storage.europe-west3.rep.googleapis.com/a-bucket/k"),
        ("https://private.googleapis.com", "https://private.googleapis.com/a-bucket/k"),
    ],
)  # fmt: skip
def test_endpoints_are_asked_as_named(endpoint: str, url: str) -> None:
    """Regional and private endpoints are those of the option."""
    options = GCSOptions(endpoint=endpoint, access_token="token")
    request = GCSProvider("a-bucket", options).signed_get("k")
    assert request is not None
    assert request.url == url
