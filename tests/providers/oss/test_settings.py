"""Where requests go and how they are signed, from options and environment."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from providers import checksums, open_provider
from providers.counters import snapshot
from providers.errors import AccessDeniedError, SettingsError
from providers.options import OSSOptions
from providers.oss import OSSProvider
from providers.values import ByteRange
from tests.providers.oss.stores import BUCKET, opened, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.oss import OSSServer


def made(**fields: Any) -> OSSOptions:
    """Return the options as a provider resolves them."""
    return OSSProvider(BUCKET, OSSOptions(**fields)).options


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        ("oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou"),
        ("oss-ap-southeast-1.aliyuncs.com", "ap-southeast-1"),
        ("oss-us-west-1-internal.aliyuncs.com", "us-west-1"),
        ("cn-beijing.oss.aliyuncs.com", "cn-beijing"),
    ],
)
def test_region_is_read_off_the_endpoint(host: str, region: str) -> None:
    """Alibaba's own endpoints tell their region; https is the default."""
    options = made(endpoint=host)
    assert (options.endpoint, options.region) == (f"https://{host}", region)


@pytest.mark.parametrize(
    "host",
    [
        "oss-accelerate.aliyuncs.com",
        "oss-accelerate-overseas.aliyuncs.com",
        "cn-hangzhou-j-internal.oss-data-acc.aliyuncs.com",
        "oss.aliyuncs.com",
        "oss-internal.aliyuncs.com",
        "oss.example.com",
        "127.0.0.1:9000",
    ],
)
def test_endpoint_without_a_region_needs_one(host: str) -> None:
    """Where the endpoint tells no region, the error says what to set."""
    with pytest.raises(SettingsError, match=r"option region \(or OSS_REGION\)"):
        made(endpoint=f"http://{host}")
    for fields in ({"region": "cn-x"}, {"anonymous": True}, {"signature_version": "v1"}):
        assert made(endpoint=f"http://{host}", **fields).endpoint == f"http://{host}"


def test_endpoint_is_made_from_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region is enough; options win over the environment, field by field."""
    assert made(region="cn-beijing").endpoint == "https://oss-cn-beijing.aliyuncs.com"
    assert made(region="oss-cn-beijing").region == "cn-beijing"
    monkeypatch.setenv("OSS_REGION", "cn-shanghai")
    assert made().endpoint == "https://oss-cn-shanghai.aliyuncs.com"
    monkeypatch.setenv("OSS_ENDPOINT", "oss-cn-shanghai-internal.aliyuncs.com")
    assert made().endpoint == "https://oss-cn-shanghai-internal.aliyuncs.com"
    options = made(endpoint="http://oss.example.com", region="cn-other")
    assert (options.endpoint, options.region) == ("http://oss.example.com", "cn-other")


def test_missing_endpoint_raises() -> None:
    """Without endpoint and region the error names the bucket and what to set."""
    with pytest.raises(SettingsError, match=r"oss://a-bucket/: .*OSS_ENDPOINT.*OSS_REGION"):
        open_provider("oss://a-bucket/key")


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://oss.example.com",
        "https://",
        "https://user:secret@oss.example.com",
        "https://oss.example.com/path",
        "https://oss.example.com/?query",
        "https://[not-an-address",
        "https://oss.example.com:port",
        f"https://{BUCKET}.oss-cn-hangzhou.aliyuncs.com",
    ],
)
def test_wrong_endpoint_raises(endpoint: str) -> None:
    """An endpoint that would lose a part, or get the bucket twice, is refused."""
    with pytest.raises(SettingsError, match="endpoint") as caught:
        made(endpoint=endpoint, region="cn-test")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["Not_A_Bucket", "ab", "a" * 64, "-ab", "ab-", "a.b", "a b", "b\u00fc-cket", "abc\n", ""],
)
def test_invalid_bucket_name_raises(name: str) -> None:
    """A name that no bucket can have is told before anything is sent."""
    with pytest.raises(SettingsError, match="cannot be a bucket: names have 3 to 63 lower-case"):
        opened("http://127.0.0.1:9", name)


@pytest.mark.parametrize("name", ["abc", "a" * 63, "0-0", "a--b"])
def test_valid_bucket_name_is_taken(name: str) -> None:
    """Names at the edge of the rules are left to the service."""
    assert opened("http://127.0.0.1:9", name).uri("k") == f"oss://{name}/k"


@pytest.mark.parametrize(
    ("fields", "vendor"),
    [
        ({"endpoint": "https://oss-cn-hangzhou.aliyuncs.com"}, True),
        ({"endpoint": "https://oss-accelerate.aliyuncs.com", "region": "cn-hangzhou"}, True),
        ({"endpoint": "https://data.example.com", "region": "cn-x", "cname": True}, True),
        ({"endpoint": "https://oss.example.com", "region": "cn-x"}, False),
        ({"endpoint": "https://notaliyuncs.com", "region": "cn-x"}, False),
    ],
)
def test_limits_depend_on_the_endpoint(fields: dict[str, Any], vendor: bool) -> None:
    """Alibaba's own limits where Alibaba answers, safe ones elsewhere, options above both."""
    limits = OSSProvider(BUCKET, OSSOptions(**fields)).limits
    assert (limits.conditional_put, limits.equal_parts) == (vendor, not vendor)
    for flag in (True, False):
        chosen = OSSOptions(**fields, conditional_put=flag, equal_parts=flag)
        limits = OSSProvider(BUCKET, chosen).limits
        assert (limits.conditional_put, limits.equal_parts) == (flag, flag)


@pytest.mark.parametrize("version", ["v4", "v1"])
def test_bucket_goes_before_the_host(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Alibaba's endpoints are addressed as they insist on; the region comes off the endpoint."""
    monkeypatch.setenv("http_proxy", server.endpoint)
    provider = OSSProvider(
        BUCKET,
        OSSOptions(
            endpoint="http://oss-cn-test.aliyuncs.com",
            access_key_id="AKID",
            access_key_secret="SECRET",
            signature_version=version,
        ),
    )
    odd = "a//b/../ %20+é?#&"
    provider.put(odd, b"body", if_absent=True)
    assert provider.get(odd) == b"body"
    assert [entry.key for entry in provider.list_objects()] == [odd]
    assert {r.headers["host"] for r in server.requests} == {f"{BUCKET}.oss-cn-test.aliyuncs.com"}


def test_bound_domain_goes_without_the_bucket(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A domain bound to the bucket is the host as it is."""
    monkeypatch.setenv("http_proxy", server.endpoint)
    server.add_cname("data.example.com", BUCKET)
    provider = opened("http://data.example.com", cname=True)
    provider.put("key", b"body")
    assert provider.get("key") == b"body"
    assert {r.headers["host"] for r in server.requests} == {"data.example.com"}


def test_anonymous_reads_a_public_bucket(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsigned requests read what is public and write nothing, credentials or not."""
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "SECRET")
    server.create_bucket(BUCKET, public=True)
    store(server, "key", b"body")
    server.requests.clear()
    options = OSSOptions(endpoint=server.endpoint, anonymous=True)
    provider = OSSProvider(BUCKET, options)
    assert provider.get("key") == b"body"
    assert [entry.key for entry in provider.list_objects()] == ["key"]
    with pytest.raises(AccessDeniedError):
        provider.put("key", b"other")
    assert not [r for r in server.requests if "authorization" in r.headers]


@pytest.mark.parametrize("package", ["oss2", "fastcrc"])
@pytest.mark.parametrize("verb", ["head", "list", "delete"])
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str, verb: str) -> None:
    """Without the extra the error says how to install it."""
    monkeypatch.setitem(sys.modules, package, None)
    provider = opened("http://127.0.0.1:9")
    calls: dict[str, Callable[[], object]] = {
        "head": lambda: provider.head("key"),
        "list": lambda: list(provider.list_objects()),
        "delete": lambda: provider.delete(["key"]),
    }
    with pytest.raises(SettingsError, match=r"pip install 'torch-cloud-connector\[oss\]'"):
        calls[verb]()


def test_reads_need_no_sdk(server: OSSServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are signed and sent without oss2."""
    store(server, "key", b"body")
    monkeypatch.setitem(sys.modules, "oss2", None)
    assert opened(server.endpoint).get("key") == b"body"
    assert opened(server.endpoint).get("key", ByteRange(1, 3)) == b"od"


def test_reads_without_fastcrc_are_unverified(
    server: OSSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing computes the CRC-64 a body is handed over, and counted as unverified."""
    store(server, "key", b"body")
    provider = opened(server.endpoint)
    before = snapshot().unverified_reads
    assert provider.get("key") == b"body"
    assert snapshot().unverified_reads == before
    monkeypatch.setitem(sys.modules, "fastcrc", None)
    monkeypatch.setitem(sys.modules, "fastcrc.crc64", None)
    # What computes a checksum is looked for once a process.
    checksums._updates.cache_clear()
    try:
        assert provider.get("key") == b"body"
    finally:
        checksums._updates.cache_clear()
    assert snapshot().unverified_reads == before + 1
