import hashlib
import http.client
import pickle
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode, urlsplit

import boto3
import botocore.auth
import oss2
import oss2.auth
import pytest
from alibabacloud_oss_v2 import credentials as v2_credentials
from alibabacloud_oss_v2.signer.v1 import SignerV1
from alibabacloud_oss_v2.signer.v4 import SignerV4
from alibabacloud_oss_v2.types import HttpRequest as V2Request
from alibabacloud_oss_v2.types import SigningContext
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import example, given, settings
from hypothesis import strategies as st

from providers import oss_signing, signing
from providers.addresses import BucketAddress, Style, encode_key, encode_query
from providers.errors import SettingsError
from providers.oss_signing import OSSV1, OSSV4
from providers.signing import EMPTY_PAYLOAD, UNSIGNED_PAYLOAD, BearerToken, Signer, SigV4
from tests.servers.oss import OSSServer
from tests.servers.s3 import S3Server

REGION = "eu-central-1"
many = settings(deadline=None)
few = settings(deadline=None, max_examples=30)
ODD_KEYS = [
    *["a//b", "a/./b", "a/../b", "./a", "../a", "/a", "//", "a/", ".", ".."],
    *["a?b", "a#b", "a%20b", "a%2Fb", "a+b", "a b", " a ", "a~b", "a=b&c", "a;b", "a:b@c"],
    *["bäume/übung.jpg", "訓練/データ", "a\U0001f600b", "a\u0301", "\x01\x1f\x7f\x80", "a\tb\nc"],
    *["*!'()[]{}|\\^`\"<>$,", "train/n01440764/n01440764_10026.jpg"],
]

keys = st.one_of(
    st.sampled_from(ODD_KEYS),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.lists(st.sampled_from("/.?#%+~ =&aZ09ä-_"), min_size=1, max_size=20).map("".join),
)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
sentences = st.lists(words, min_size=1, max_size=3).map(" ".join)
tokens = st.none() | words
seconds = st.integers(0, 4_102_444_800)
methods = st.sampled_from(["GET", "PUT", "HEAD"])
payloads = st.sampled_from([EMPTY_PAYLOAD, UNSIGNED_PAYLOAD, hashlib.sha256(b"body").hexdigest()])
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
list_queries = st.fixed_dictionaries(
    {"list-type": st.just("2"), "prefix": st.just("") | keys},
    optional={
        "start-after": keys,
        "continuation-token": words,
        "delimiter": st.just("/"),
        "max-keys": st.just("1000"),
        "encoding-type": st.just("url"),
        "prefix-": words,
    },
)
part_queries = st.fixed_dictionaries({"partNumber": st.just("7"), "uploadId": words})
queries: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}), list_queries, part_queries, st.just({"uploads": ""})
)


def headers_with(own: str) -> st.SearchStrategy[dict[str, str]]:
    """Headers of a read or a write, with some of the vendor's own."""
    return st.fixed_dictionaries(
        {},
        optional={
            "Range": st.just("bytes=0-99") | st.just("bytes=5-"),
            "If-Match": st.just('"9b2cf535f27731c974343645a3985328"'),
            "if-none-match": st.just("*"),
            "Content-Type": st.just("text/plain; charset=utf-8"),
            "Content-MD5": st.just("1B2M2Y8AsgTpgAmY7PhCfg=="),
            "User-Agent": words,
            "Expect": st.just("100-continue"),
            f"{own}copy-source": keys.map(lambda key: f"/source/{encode_key(key)}"),
            f"{own.title()}Meta-Note": sentences,
            f"{own}meta-note-2": sentences,
        },
    )


# ---- Against botocore --------------------------------------------------------------------


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


# ---- Against oss2 and the SDK V2 -----------------------------------------------------------


def oss2_headers(
    auth: Any, request: oss2.http.Request, bucket: str, key: str, second: int, *extra: Any
) -> dict[str, str]:
    """Headers of a request signed by oss2, names in lower case, without those oss2 adds."""
    moment = datetime.fromtimestamp(second, timezone.utc).replace(tzinfo=None)
    date = oss2.utils.http_date(second)
    with (
        patch.object(oss2.auth, "datetime", SimpleNamespace(utcnow=lambda: moment)),
        patch.object(oss2.utils, "http_date", lambda: date),
    ):
        auth._sign_request(request, bucket, key, *extra)
    return {name.lower(): value for name, value in request.headers.items() if value is not None}


def oss2_provider(secret: str, token: str | None) -> oss2.credentials.StaticCredentialsProvider:
    """Credentials for oss2."""
    return oss2.credentials.StaticCredentialsProvider("AKID", secret, token)


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


oss_headers = headers_with("x-oss-").map(lambda headers: {"User-Agent": "tests", **headers})
additional_names = st.lists(st.sampled_from(["Range", "if-none-match", "If-Match", "Content-Type"]))


@many
@given(
    method=methods,
    bucket=names,
    key=st.just("") | keys,
    secret=words,
    token=tokens,
    query=queries,
    headers=oss_headers,
    additional=additional_names,
    second=seconds,
)
def test_oss_v4_equals_both_sdks(
    method: str,
    bucket: str,
    key: str,
    secret: str,
    token: str | None,
    query: dict[str, str],
    headers: dict[str, str],
    additional: list[str],
    second: int,
) -> None:
    """OSS V4 sends the very headers oss2 sends, with the signature the SDK V2 makes."""
    signer = OSSV4(
        *("AKID", secret, token, "cn-test"),
        additional_headers=additional,
        now=lambda: second + 0.75,
    )
    ours = signer.sign(method, bucket, key, encode_query(query), headers)

    present = sorted({name.lower() for name in additional} & set(lowered(headers)))
    request = oss2.http.Request(
        *(method, "https://unused.example"), params=query, headers=headers, region="cn-test",
        product="oss",
    )  # fmt: skip
    auth = oss2.ProviderAuthV4(oss2_provider(secret, token))
    assert lowered(ours) == oss2_headers(auth, request, bucket, key, second, present)

    context = v2_context(method, bucket, key, query, headers, second, token=token, secret=secret)
    context.additional_headers = {name.lower() for name in additional}
    SignerV4().sign(context)
    theirs = context.request.headers["Authorization"]
    assert authorization_fields(ours["Authorization"]) == authorization_fields(theirs)


def v2_context(
    method: str,
    bucket: str,
    key: str,
    query: dict[str, str],
    headers: dict[str, str],
    second: int,
    *,
    secret: str,
    token: str | None,
) -> SigningContext:
    """A request as the SDK V2 hands it to its signers."""
    url = f"https://unused.example/?{urlencode(query)}" if query else "https://unused.example/"
    url = url.replace("+", "%20")
    provider = v2_credentials.StaticCredentialsProvider("AKID", secret, token)
    return SigningContext(
        product="oss",
        region="cn-test",
        bucket=bucket,
        key=key,
        request=V2Request(method, url, headers=dict(headers)),
        credentials=provider.get_credentials(),
        signing_time=datetime.fromtimestamp(second, timezone.utc),
    )


def authorization_fields(value: str) -> dict[str, str]:
    """The fields of an Authorization header of V4; the SDKs differ in order and spaces."""
    scheme, _, rest = value.partition(" ")
    pairs = (field.strip().rsplit("=", 1) for field in rest.split(","))
    return {"scheme": scheme, **dict(pairs)}


@many
@given(
    method=methods,
    bucket=names,
    key=st.just("") | keys,
    secret=words,
    token=tokens,
    query=queries,
    headers=oss_headers,
    second=seconds,
)
@example("GET", "b", "k", "s", None, {"acl": "", "versionId": "a b+c%20&ä"}, {}, 0)
def test_oss_v1_equals_both_sdks(
    method: str,
    bucket: str,
    key: str,
    secret: str,
    token: str | None,
    query: dict[str, str],
    headers: dict[str, str],
    second: int,
) -> None:
    """OSS V1 sends the very headers oss2 sends, with the signature the SDK V2 makes."""
    signer = OSSV1("AKID", secret, token, now=lambda: second + 0.75)
    headers = {"User-Agent": "tests", **headers}
    ours = signer.sign(method, bucket, key, encode_query(query), headers)

    request = oss2.http.Request(method, "https://unused.example", params=query, headers=headers)
    auth = oss2.ProviderAuth(oss2_provider(secret, token))
    assert lowered(ours) == oss2_headers(auth, request, bucket, key, second)

    # The SDK V2 sends the token of V1 by another name and unsigned; the rest is the same.
    whole = {**headers, "x-oss-security-token": token} if token else headers
    context = v2_context(method, bucket, key, query, whole, second, token=None, secret=secret)
    SignerV1().sign(context)
    assert ours["Authorization"] == context.request.headers["Authorization"]


def test_subresources_are_those_of_oss2() -> None:
    """The queries that V1 signs are those the installed oss2 signs."""
    assert oss2.ProviderAuth._subresource_key_set == oss_signing._SUBRESOURCES


@pytest.mark.parametrize("auth_class", [oss2.ProviderAuthV4, oss2.ProviderAuth])
def test_oss_service_itself(auth_class: Any) -> None:
    """A request that is to no bucket is signed as oss2 signs it."""
    signer = (
        OSSV4("AKID", "secret", None, "cn-test", now=lambda: 1)
        if auth_class is oss2.ProviderAuthV4
        else OSSV1("AKID", "secret", None, now=lambda: 1)
    )
    headers = {"User-Agent": "tests"}
    ours = signer.sign("GET", "", "", "", headers)
    request = oss2.http.Request(
        *("GET", "https://unused.example"), headers=headers, region="cn-test", product="oss"
    )
    auth = auth_class(oss2_provider("secret", None))
    assert lowered(ours) == oss2_headers(auth, request, "", "", 1)


def test_cloud_box_is_another_service() -> None:
    """The scope names the product and the region it was given."""
    signer = OSSV4("AKID", "secret", None, "cb-123", "oss-cloudbox", now=lambda: 0)
    credential = "Credential=AKID/19700101/cb-123/oss-cloudbox/aliyun_v4_request,"
    assert credential in signer.sign("GET", "bucket", "key")["Authorization"]


# ---- Against servers that check --------------------------------------------------------------


def ask(
    address: BucketAddress, method: str, path: str, query: str, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Send a request as it is and return status and body."""
    connection = http.client.HTTPConnection(address.host, timeout=20)
    try:
        connection.putrequest(
            method, f"{path}?{query}" if query else path, skip_accept_encoding=True
        )
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


LIVE_KEYS = ["plain/key.bin", "a b+c%20~d", "bäume/訓練?x=1#y", "=&;:@!'()*,$"]


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


@pytest.mark.parametrize("version", ["v1", "v4", "v4 with range"])
@pytest.mark.parametrize("key", [*LIVE_KEYS, "a//b", "a/../b", "a/./b"])
def test_a_strict_oss_server_accepts(
    oss_server: OSSServer, oss_bucket: str, key: str, version: str
) -> None:
    """A server that checks V1 and V4 answers a signed range and a list, and refuses a forgery."""
    credentials = (oss_server.access_key, oss_server.secret_key, None)
    signer: OSSV1 | OSSV4 = OSSV1(*credentials)
    if version != "v1":
        additional = ["Range"] if version == "v4 with range" else []
        signer = OSSV4(*credentials, oss_server.region, additional_headers=additional)
    oss_server.bucket(oss_bucket).put_object(key, b"0123456789")
    address = BucketAddress.at(oss_server.endpoint, oss_bucket, "path")
    path = address.path(key)
    wanted = {"Range": "bytes=2-4", "x-oss-range-behavior": "standard"}
    headers = signer.sign("GET", oss_bucket, key, "", wanted)
    assert ask(address, "GET", path, "", headers) == (206, b"234")
    assert ask(address, "HEAD", path, "", headers)[0] == 403

    query = encode_query({"list-type": "2", "prefix": key, "continuation-token": ""})
    headers = signer.sign("GET", oss_bucket, "", query)
    assert ask(address, "GET", address.path(), query, headers)[0] == 200


# ---- Addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "style", "url"),
    [
        ("https://s3.example", "path", "https://s3.example/bucket/a//b"),
        ("https://S3.Example:443/", "virtual", "https://bucket.s3.example/a//b"),
        ("http://s3.example:443", "virtual", "http://bucket.s3.example:443/a//b"),
        ("https://data.example", "bound", "https://data.example/a//b"),
        ("http://[::1]:80/x/", "path", "http://[::1]/x/bucket/a//b"),
        ("http://[::1]:90/x", "bound", "http://[::1]:90/x/a//b"),
    ],
)
def test_urls(endpoint: str, style: Style, url: str) -> None:
    """The bucket goes where the style says, and default ports and trailing slashes go."""
    address = BucketAddress.at(endpoint, "bucket", style)
    assert address.url(address.path("a//b")) == url
    assert address.host == urlsplit(url).netloc


@pytest.mark.parametrize(("style", "root"), [("path", "/bucket"), ("virtual", "/"), ("bound", "/")])
def test_path_of_the_bucket_itself(style: Style, root: str) -> None:
    """A listing asks for the bucket's own path."""
    address = BucketAddress.at("https://s3.example", "bucket", style)
    assert address.url(address.path(), "list-type=2") == f"{address.origin}{root}?list-type=2"


@pytest.mark.parametrize(
    "endpoint",
    [
        *["s3.example", "s3.example:9000", "ftp://s3.example", "https://", "", "https://h:x"],
        *["https://h?x=1", "https://h#x", "https://h:99999", "http://[::1"],
    ],
)
def test_endpoints_that_are_none(endpoint: str) -> None:
    """What is no plain URL of a host is refused by an error that names the endpoint's fault."""
    with pytest.raises(SettingsError, match="endpoint"):
        BucketAddress.at(endpoint, "bucket", "path")


def test_a_password_in_an_endpoint_is_not_repeated() -> None:
    """An endpoint with credentials is refused, and the error does not show them."""
    with pytest.raises(SettingsError, match=r"s3\.example") as caught:
        BucketAddress.at("https://user:hunter2@s3.example", "bucket", "path")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("bucket", ["evil.example/", "evil.example#", "a@b", "Bucket", "", "-a"])
def test_buckets_that_cannot_stand_in_a_host(bucket: str) -> None:
    """No bucket's name can send a signed request to another host."""
    with pytest.raises(SettingsError, match="path-style"):
        BucketAddress.at("https://s3.example", bucket, "virtual")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9000", "[::1]:9000"])
def test_no_bucket_before_a_numeric_address(host: str) -> None:
    """A bucket before a numeric address would be no host: the error names the other style."""
    with pytest.raises(SettingsError, match="path-style"):
        BucketAddress.at(f"http://{host}", "bucket", "virtual")


# ---- Clocks, secrets, threads ------------------------------------------------------------------


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
