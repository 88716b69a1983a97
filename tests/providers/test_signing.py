import hashlib
import pickle
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import boto3
import botocore.auth
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from providers import signing
from providers.addresses import BucketAddress, encode_query
from providers.oss_signing import OSSV1, OSSV4
from providers.signing import UNSIGNED_PAYLOAD, BearerToken, Signer, SigV4
from tests.providers.signing_cases import (
    LIVE_KEYS,
    REGION,
    ask,
    few,
    headers_with,
    keys,
    lowered,
    many,
    methods,
    queries,
    seconds,
    tokens,
    words,
)
from tests.servers.s3 import S3Server

NAMED_ENDPOINTS = [
    *["https://s3.eu-central-1.amazonaws.com", "https://Store.Example:8443/"],
    *["https://store.example:443", "http://store.example:80", "http://localhost:9000/gateway/s3"],
]
NUMERIC_ENDPOINTS = ["http://127.0.0.1:9000", "http://[::1]:9000", "https://10.0.0.1/gateway/"]
addresses = st.one_of(
    st.builds(
        BucketAddress.at,
        st.sampled_from(NAMED_ENDPOINTS),
        st.just("my.bucket-1"),
        st.sampled_from(["path", "virtual", "bound"]),
    ),
    st.builds(
        BucketAddress.at,
        st.sampled_from(NUMERIC_ENDPOINTS),
        st.just("my.bucket-1"),
        st.sampled_from(["path", "bound"]),
    ),
)


def botocore_headers(
    credentials: tuple[str, str, str | None],
    request: AWSRequest,
    second: int,
    *,
    unsigned: bool = False,
) -> dict[str, str]:
    """All headers of a request that botocore's own signer has signed."""
    moment = datetime.fromtimestamp(second, timezone.utc)
    if unsigned:
        request.context["client_config"] = SimpleNamespace(s3={"payload_signing_enabled": False})
    with patch.object(botocore.auth, "get_current_datetime", lambda: moment):
        S3SigV4Auth(Credentials(*credentials), "s3", REGION).add_auth(request)
    return dict(request.headers.items())


@many
@given(
    method=methods,
    key=keys,
    address=addresses,
    secret=words,
    token=tokens,
    query=queries,
    headers=headers_with("x-amz-"),
    body=st.sampled_from([b"", b"body"]),
    unsigned=st.booleans(),
    second=seconds,
)
def test_sigv4_equals_botocore(
    method: str,
    key: str,
    address: BucketAddress,
    secret: str,
    token: str | None,
    query: dict[str, str],
    headers: dict[str, str],
    body: bytes,
    unsigned: bool,
    second: int,
) -> None:
    """SigV4 sends the very headers botocore sends, for any key, endpoint, query and header."""
    path, text = address.path(key), encode_query(query)
    payload = UNSIGNED_PAYLOAD if unsigned else hashlib.sha256(body).hexdigest()
    ours = SigV4("AKID", secret, token, REGION, now=lambda: second + 0.75).sign(
        method, address.host, path, text, headers, payload
    )
    request = AWSRequest(method, address.url(path, text), headers=headers, data=body)
    theirs = botocore_headers(("AKID", secret, token), request, second, unsigned=unsigned)
    assert ours == theirs


@many
@given(value=st.text(" \tab", max_size=8))
def test_sigv4_spaces_in_headers_equal_botocore(value: str) -> None:
    """Spaces around and within a header's value are signed as botocore signs them."""
    headers = {"x-amz-meta-note": value}
    ours = SigV4("AKID", "secret", None, REGION, now=lambda: 0).sign(
        "PUT", "store.example", "/bucket/key", "", headers
    )
    request = AWSRequest("PUT", "https://store.example/bucket/key", headers=headers)
    assert ours == botocore_headers(("AKID", "secret", None), request, 0)


@many
@given(query=queries, second=seconds)
def test_sigv4_of_parameters_equals_botocore(query: dict[str, str], second: int) -> None:
    """An encoded query is signed as botocore signs the same parameters before encoding them."""
    address = BucketAddress.at("https://store.example", "bucket", "path")
    ours = SigV4("AKID", "secret", None, REGION, now=lambda: second).sign(
        "GET", address.host, address.path(), encode_query(query)
    )
    request = AWSRequest("GET", address.url(address.path()), params=query)
    assert ours == botocore_headers(("AKID", "secret", None), request, second)


class _CapturedError(Exception):
    """Carries a request out of boto3 before it is sent."""


def capture(request: Any, **_: Any) -> None:
    """Stop at the moment of sending."""
    raise _CapturedError(request)


@pytest.fixture(
    scope="module",
    params=[
        ("https://s3.eu-central-1.amazonaws.com", "virtual", None),
        ("https://s3.eu-central-1.amazonaws.com", "path", "token/+="),
        ("http://127.0.0.1:9000", "path", None),
        ("https://store.example:8443", "virtual", "token"),
        ("https://store.example/gateway", "virtual", None),
        ("https://store.example/gateway/", "path", None),
    ],
    ids=lambda parameters: "-".join(str(parameter) for parameter in parameters),
)
def sdk(request: pytest.FixtureRequest) -> Any:
    """A boto3 client that stops before it sends, its address, and its session token."""
    endpoint, style, token = request.param
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="AKID",
        aws_secret_access_key="secret",
        aws_session_token=token,
        config=Config(s3={"addressing_style": style}, retries={"total_max_attempts": 1}),
    )
    client.meta.events.register("before-send.s3", capture)
    yield client, BucketAddress.at(endpoint, "bucket", style), token
    client.close()


def sent_by(call: Any, **arguments: Any) -> tuple[str, dict[str, str]]:
    """URL and headers of the request that a boto3 call would send."""
    with pytest.raises(_CapturedError) as caught:
        call(**arguments)
    request = caught.value.args[0]
    headers = {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in request.headers.items()
        # The SDK's notes on its own retries come after the signature.
        if not name.startswith("amz-sdk-")
    }
    return request.url, headers


def stamp_of(headers: Mapping[str, str]) -> float:
    """When a request was signed."""
    moment = datetime.strptime(headers["X-Amz-Date"] + "+0000", "%Y%m%dT%H%M%SZ%z")
    return moment.timestamp()


@few
@given(key=keys, start=st.integers(0, 1 << 40))
def test_url_and_signature_of_a_whole_client(sdk: Any, key: str, start: int) -> None:
    """A ranged, pinned GET has the URL and the headers that boto3's client would send."""
    client, address, token = sdk
    url, theirs = sent_by(
        client.get_object, Bucket="bucket", Key=key, Range=f"bytes={start}-", IfMatch='"etag"'
    )
    signer = SigV4("AKID", "secret", token, REGION, now=lambda: stamp_of(theirs))
    path = address.path(key)
    assert address.url(path) == url
    assert signer.sign("GET", address.host, path, "", theirs) == theirs


@few
@given(prefix=st.just("") | keys)
def test_list_of_a_whole_client(sdk: Any, prefix: str) -> None:
    """A page of a listing is asked for and signed as boto3's client does it."""
    client, address, token = sdk
    url, theirs = sent_by(client.list_objects_v2, Bucket="bucket", Prefix=prefix)
    signer = SigV4("AKID", "secret", token, REGION, now=lambda: stamp_of(theirs))
    query = encode_query({"list-type": "2", "prefix": prefix, "encoding-type": "url"})
    path = address.path()
    assert urlsplit(address.url(path, query))[:3] == urlsplit(url)[:3]
    assert sorted(query.split("&")) == sorted(urlsplit(url).query.split("&"))
    assert signer.sign("GET", address.host, path, query, theirs) == theirs


def test_headers_left_out_are_those_of_botocore() -> None:
    """What SigV4 does not sign is what the installed botocore does not sign."""
    assert frozenset(botocore.auth.SIGNED_HEADERS_BLACKLIST) == signing._LEFT_TO_PROXIES


@pytest.mark.parametrize("key", LIVE_KEYS)
def test_a_strict_s3_server_accepts(juicefs: S3Server, juicefs_bucket: str, key: str) -> None:
    """A server that checks SigV4 answers a signed range, a signed list, and refuses a forgery."""
    client = juicefs.client()
    client.put_object(Bucket=juicefs_bucket, Key=key, Body=b"0123456789")
    client.close()
    address = BucketAddress.at(juicefs.endpoint, juicefs_bucket, "path")
    signer = SigV4(juicefs.access_key, juicefs.secret_key, None, juicefs.region)
    path = address.path(key)
    headers = signer.sign("GET", address.host, path, "", {"Range": "bytes=2-4"})
    assert ask(address, "GET", path, "", headers) == (206, b"234")
    assert ask(address, "GET", path, "", {**headers, "Range": "bytes=3-4"})[0] == 403

    query = encode_query({"prefix": key, "list-type": "2", "max-keys": "5"})
    headers = signer.sign("GET", address.host, address.path(), query)
    assert ask(address, "GET", address.path(), query, headers)[0] == 200


class Clock:
    """A clock to be set by hand."""

    def __init__(self, second: float) -> None:
        self.second = second

    def __call__(self) -> float:
        """Return the second it was set to."""
        return self.second


def test_a_day_passes() -> None:
    """A signer that lives past midnight signs as a new one would, and so back again."""
    clock = Clock(0)
    credentials = ("AKID", "secret", None)
    v4, oss_v4 = SigV4(*credentials, REGION, now=clock), OSSV4(*credentials, REGION, now=clock)
    oss_v1 = OSSV1(*credentials, now=clock)
    seen = set()
    for second in (86_399, 86_399.9, 86_400, 86_401, 86_400 * 400, 86_399):
        clock.second = second
        for old, new in (
            (v4, SigV4(*credentials, REGION, now=clock)),
            (oss_v4, OSSV4(*credentials, REGION, now=clock)),
            (oss_v1, OSSV1(*credentials, now=clock)),
        ):
            signed = [signer.sign("GET", "bucket", "/key") for signer in (old, new)]
            assert signed[0] == signed[1]
            seen.add(signed[0]["Authorization"])
    assert len(seen) == 3 * 4


SIGNERS = [
    SigV4("AKID", "the-secret", "the-token", REGION, now=lambda: 5),
    OSSV4("AKID", "the-secret", "the-token", REGION, now=lambda: 5),
    OSSV1("AKID", "the-secret", "the-token", now=lambda: 5),
]


@pytest.mark.parametrize("signer", SIGNERS, ids=lambda signer: type(signer).__name__)
def test_signing_again_replaces_what_was_signed(signer: SigV4 | OSSV4 | OSSV1) -> None:
    """Headers that carry an old signature, in any case of letters, get one new one."""
    once = signer.sign("GET", "bucket", "/key", "", {"Range": "bytes=0-1"})
    for stale in (once, lowered(once), {**once, "Authorization": "stale"}):
        again = signer.sign("GET", "bucket", "/key", "", stale)
        assert lowered(again) == lowered(once)
        assert len(again) == len(once)


@pytest.mark.parametrize(
    "signer", [*SIGNERS, BearerToken("the-token")], ids=lambda signer: type(signer).__name__
)
def test_secrets_stay(signer: Signer) -> None:
    """A signer neither shows its secrets nor pickles them."""
    assert "the-" not in repr(signer) + str(signer)
    with pytest.raises(TypeError, match="holds secrets"):
        pickle.dumps(signer)


def test_bearer_token() -> None:
    """A token goes into the Authorization header, in place of any other."""
    given_headers = {"Range": "bytes=0-1", "authorization": "Bearer old"}
    assert BearerToken("ya29.x").sign(given_headers) == {
        "Range": "bytes=0-1",
        "Authorization": "Bearer ya29.x",
    }
    assert BearerToken("ya29.x").sign() == {"Authorization": "Bearer ya29.x"}
    assert given_headers["authorization"] == "Bearer old"


def test_threads_share_a_signer() -> None:
    """Threads that sign while the clock runs from day to day get consistent signatures."""
    ticking = threading.local()
    ticking.second = 0
    signer = SigV4("AKID", "secret", None, REGION, now=lambda: ticking.second)

    def sign(start: int) -> list[bool]:
        right = []
        for step in range(500):
            ticking.second = start + 43_200 * step
            fresh = SigV4("AKID", "secret", None, REGION, now=lambda: ticking.second)
            arguments = ("GET", "host", f"/{step}")
            right.append(signer.sign(*arguments) == fresh.sign(*arguments))
        return right

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(sign, range(8)))
    assert all(all(result) for result in results)
