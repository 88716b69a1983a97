from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import oss2
import oss2.auth
import pytest
from alibabacloud_oss_v2 import credentials as v2_credentials
from alibabacloud_oss_v2.signer.v1 import SignerV1
from alibabacloud_oss_v2.signer.v4 import SignerV4
from alibabacloud_oss_v2.types import HttpRequest as V2Request
from alibabacloud_oss_v2.types import SigningContext
from hypothesis import example, given
from hypothesis import strategies as st

from providers import oss_signing
from providers.addresses import BucketAddress, encode_query
from providers.oss_signing import OSSV1, OSSV4
from tests.providers.signing_cases import (
    LIVE_KEYS,
    ask,
    headers_with,
    keys,
    lowered,
    many,
    methods,
    names,
    queries,
    seconds,
    tokens,
    words,
)
from tests.servers.oss import OSSServer


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


@pytest.mark.parametrize("name", ["x-oss-meta-note", "Content-Type"])
@pytest.mark.parametrize(
    "signer",
    [
        OSSV1("AKID", "secret", None, now=lambda: 0),
        OSSV4("AKID", "secret", None, "cn-test", now=lambda: 0),
    ],
    ids=["v1", "v4"],
)
def test_spaces_around_headers(signer: OSSV1 | OSSV4, name: str) -> None:
    """Spaces around a value, which HTTP takes off, are not signed; those within are."""
    signed = {
        value: signer.sign("PUT", "bucket", "key", "", {name: value})["Authorization"]
        for value in ("a b", " a b\t", "a  b")
    }
    assert signed["a b"] == signed[" a b\t"] != signed["a  b"]


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
