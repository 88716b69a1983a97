"""A wrong region, or an endpoint of another one, is corrected once by what OSS answers."""

from __future__ import annotations

import logging
import pickle
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from providers.errors import AccessDeniedError, ServiceError, SettingsError
from providers.options import OSSOptions
from providers.oss_regions import region_of, relocated
from providers.retry import without_waiting
from tests.fakes.oss import OSSServer
from tests.fakes.oss.clients import ACCESS_KEY_ID, SECRET
from tests.providers.oss.stores import BUCKET, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from providers.oss import OSSProvider

HERE, THERE = "oss-cn-beijing.aliyuncs.com", "oss-cn-hangzhou.aliyuncs.com"
ELSEWHERE = {"Code": "AccessDenied", "Endpoint": THERE}
MISSIGNED = {"Code": "InvalidArgument", "EC": "0002-00000226"}


@pytest.fixture
def server() -> Iterator[OSSServer]:
    """A server of one region, with a bucket that answers at its endpoint only."""
    with OSSServer({ACCESS_KEY_ID: SECRET}, region="cn-hangzhou") as running, without_waiting():
        running.create_bucket(BUCKET)
        running.move_bucket(BUCKET, THERE)
        yield running


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the vendor's names mean this machine, for everything but libcurl."""
    look_up = socket.getaddrinfo

    def found(host: Any, *rest: Any, **named: Any) -> Any:
        ours = isinstance(host, str) and host.endswith(".aliyuncs.com")
        return look_up("127.0.0.1" if ours else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", found)


def at(server: OSSServer, host: str, region: str) -> OSSProvider:
    """Return a provider of the bucket by an endpoint's name, which libcurl finds too."""
    provider = opened(f"http://{host}:{server.port}", region=region)
    names = (f"{BUCKET}.{name}:{server.port}:127.0.0.1" for name in (HERE, THERE))
    provider.connection = replace(provider.connection, addresses=tuple(names))
    return provider


CALLS: dict[str, Callable[[OSSProvider], Any]] = {
    "get": lambda provider: provider.get("key"),
    "head": lambda provider: provider.head("key"),
    "list": lambda provider: list(provider.list_objects()),
    "put": lambda provider: provider.put("other", b"body"),
    "multipart": lambda provider: provider.start_multipart("whole").abort(),
}


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize(
    ("host", "region"),
    [(HERE, "cn-beijing"), (THERE, "cn-beijing")],
    ids=["another endpoint", "another signing region"],
)
def test_a_wrong_region_is_corrected_once(
    server: OSSServer, caplog: pytest.LogCaptureFixture, host: str, region: str, verb: str
) -> None:
    """One refused request is all it costs, whichever came first; the log says what to set."""
    at(server, THERE, "cn-hangzhou").put("key", b"body")
    provider = at(server, host, region)
    server.requests.clear()
    with caplog.at_level(logging.WARNING, "providers.oss_regions"):
        CALLS[verb](provider)
    assert [record.status // 100 for record in server.requests][:2] == [4, 2]
    (record,) = caplog.records
    place = f"http://{THERE}:{server.port}"
    assert f"is in the region cn-hangzhou: requests go to {place}" in record.getMessage()
    server.requests.clear()
    for call in CALLS.values():
        call(provider)
    assert {record.status // 100 for record in server.requests} == {2}


def test_copies_know_the_region_that_was_found(server: OSSServer) -> None:
    """What a worker is given goes to the right place at once."""
    provider = at(server, HERE, "cn-beijing")
    provider.put("key", b"body")
    copied = pickle.loads(pickle.dumps(provider))  # noqa: S301
    assert copied.options.region == "cn-hangzhou"
    assert copied.options.endpoint == f"http://{THERE}:{server.port}"


def test_an_endpoint_that_is_not_the_vendors_is_not_left(server: OSSServer) -> None:
    """Signed requests do not go wherever some server says; the error names the place."""
    provider = opened(server.endpoint, region="cn-hangzhou")
    with pytest.raises(AccessDeniedError, match=f"the bucket is at {THERE}; set the option"):
        provider.get("key")
    assert len(server.requests) == 1


def test_a_region_that_no_host_tells_is_named_in_the_error(server: OSSServer) -> None:
    """Where only the user can know the region, the error says which option it is."""
    server.move_bucket(BUCKET, "127.0.0.1")
    provider = opened(server.endpoint, region="cn-beijing")
    for call in (CALLS["get"], CALLS["list"]):
        with pytest.raises(ServiceError, match=r"set the option region \(or OSS_REGION\)"):
            call(provider)


def test_a_bucket_that_is_sent_in_circles_fails(server: OSSServer) -> None:
    """An answer that leads back is the end of it."""
    server.move_bucket(BUCKET, "oss-cn-shanghai.aliyuncs.com")
    provider = at(server, HERE, "cn-beijing")
    addresses = (f"{BUCKET}.oss-cn-shanghai.aliyuncs.com:{server.port}:127.0.0.1",)
    provider.connection = replace(
        provider.connection, addresses=provider.connection.addresses + addresses
    )
    with pytest.raises(ServiceError, match="signing region"):
        provider.get("key")
    assert len(server.requests) == 2


def test_a_region_that_is_missing_is_asked_for() -> None:
    """An accelerator's name tells none, and V4 cannot sign without."""
    with pytest.raises(SettingsError, match="signatures need the region"):
        opened("https://oss-accelerate.aliyuncs.com", region=None)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        ("oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou"),
        ("cn-hangzhou.oss.aliyuncs.com", "cn-hangzhou"),
        ("oss-ap-southeast-1.aliyuncs.com", "ap-southeast-1"),
        ("oss-accelerate.aliyuncs.com", None),
        ("oss-cn-hangzhou.aliyuncs.com.example.org", None),
        ("127.0.0.1", None),
    ],
)
def test_regions_of_hosts(host: str, region: str | None) -> None:
    """The vendor's names tell it, accelerators and other hosts do not."""
    assert region_of(host) == region


@pytest.mark.parametrize(
    ("endpoint", "region", "fields", "found"),
    [
        (f"https://{HERE}", "cn-beijing", ELSEWHERE, (f"https://{THERE}", "cn-hangzhou")),
        (f"https://{HERE}:8443", "cn-beijing", ELSEWHERE, (f"https://{THERE}:8443", "cn-hangzhou")),
        (f"https://{THERE}", "cn-beijing", MISSIGNED, (f"https://{THERE}", "cn-hangzhou")),
        (f"https://{THERE}", "cn-hangzhou", MISSIGNED, None),
        (f"https://{THERE}", "cn-hangzhou", ELSEWHERE, None),
        (f"https://{HERE}", "cn-beijing", {"Endpoint": "oss.example.org"}, None),
        ("https://oss.example.org", "cn-beijing", ELSEWHERE, None),
        (f"https://{HERE}", "cn-beijing", {"Code": "AccessDenied"}, None),
    ],
)
def test_where_a_refusal_leads(
    endpoint: str, region: str, fields: dict[str, str], found: tuple[str, str] | None
) -> None:
    """Only from one place of the vendor's to another, and only if it is another."""
    options = relocated(OSSOptions(endpoint=endpoint, region=region), fields)
    assert (options and (options.endpoint, options.region)) == found
