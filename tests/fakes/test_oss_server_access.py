"""Whom the OSS server lets in, and how it wants to be addressed."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import alibabacloud_oss_v2 as oss_v2
import oss2
import pytest

from tests.fakes.oss import OSSServer
from tests.fakes.oss.clients import ACCESS_KEY_ID, SECRET, Access, first_sdk, second_sdk

BUCKET = "the-bucket"
VERSIONS = ["v1", "v4"]


@pytest.fixture
def server() -> Iterator[OSSServer]:
    """A server with one bucket that holds one object, and a temporary key."""
    with OSSServer({ACCESS_KEY_ID: SECRET}) as running:
        running.create_bucket(BUCKET)
        running.add_credentials("STS.id", "sts-secret", "a token/+=", hours_from_now(1))
        with first_sdk(Access(running.endpoint), BUCKET) as bucket:
            bucket.put_object("key", b"data")
        yield running


def hours_from_now(hours: int) -> datetime:
    """A moment relative to now."""
    return datetime.now(timezone.utc) + timedelta(hours=hours)


def refusal(access: Access) -> tuple[int, str]:
    """Status and code both SDKs get for a read and a head, which must agree."""
    codes = set()
    with first_sdk(access, BUCKET) as bucket:
        for read in (bucket.get_object, bucket.head_object):
            with pytest.raises(oss2.exceptions.ServerError) as error:
                read("key")
            codes.add((error.value.status, error.value.code))
    with second_sdk(access) as client:
        with pytest.raises(oss_v2.exceptions.OperationError) as failure:
            client.head_object(oss_v2.HeadObjectRequest(bucket=BUCKET, key="key"))
        cause: Any = failure.value.unwrap()
        codes.add((cause.status_code, cause.code))
    assert len(codes) == 1, codes
    return codes.pop()


def raw(
    server: OSSServer, method: str, target: str, headers: dict[str, str], body: bytes = b""
) -> tuple[int, bytes]:
    """Status and body of a request exactly as given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, target, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_secret(server: OSSServer, version: str) -> None:
    """A signature made with another secret is refused."""
    access = Access(server.endpoint, version, secret="other")
    assert refusal(access) == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_key(server: OSSServer, version: str) -> None:
    """An access key id the server does not know is refused, and so is one taken away."""
    access = Access(server.endpoint, version, access_key_id="other")
    assert refusal(access) == (403, "InvalidAccessKeyId")
    server.remove_credentials(ACCESS_KEY_ID)
    assert refusal(Access(server.endpoint, version)) == (403, "InvalidAccessKeyId")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seconds", [-16 * 60, 16 * 60])
def test_skewed_clock(server: OSSServer, version: str, seconds: int) -> None:
    """A request signed 15 minutes off is refused, with the server's own time in `Date`."""
    server.clock_offset_seconds = seconds
    assert refusal(Access(server.endpoint, version)) == (403, "RequestTimeTooSkewed")
    with (
        second_sdk(Access(server.endpoint, version)) as client,
        pytest.raises(oss_v2.exceptions.OperationError) as error,
    ):
        client.get_object(oss_v2.GetObjectRequest(bucket=BUCKET, key="key"))
    ahead = error.value.unwrap().timestamp - datetime.now(timezone.utc)
    assert abs(ahead.total_seconds() - seconds) < 60


@pytest.mark.parametrize("version", VERSIONS)
def test_security_token(server: OSSServer, version: str) -> None:
    """A temporary key needs its own token, until it expires."""

    def access(token: str | None) -> Access:
        return Access(server.endpoint, version, "STS.id", "sts-secret", token)

    with first_sdk(access("a token/+="), BUCKET) as bucket:
        assert bucket.get_object("key").read() == b"data"
    assert refusal(access("other token")) == (403, "InvalidSecurityToken")
    assert refusal(access(None)) == (403, "InvalidAccessKeyId")
    server.add_credentials("STS.id", "sts-secret", "a token/+=", hours_from_now(-1))
    assert refusal(access("a token/+=")) == (403, "SecurityTokenExpired")


def test_wrong_region(server: OSSServer) -> None:
    """A V4 signature is good in one region only."""
    assert refusal(Access(server.endpoint, region="cn-other")) == (400, "InvalidArgument")


@pytest.mark.parametrize("version", VERSIONS)
def test_presigned_urls(server: OSSServer, version: str) -> None:
    """A presigned URL needs no header, until it expires or is changed."""
    with first_sdk(Access(server.endpoint, version), BUCKET) as bucket:
        url = bucket.sign_url("GET", "key", 60)
        target = url.removeprefix(server.endpoint)
        assert raw(server, "GET", target, {}) == (200, b"data")
        assert raw(server, "DELETE", target, {})[0] == 403
        assert raw(server, "GET", target.replace("/key?", "/other?"), {})[0] == 403
        server.clock_offset_seconds = 61
        status, body = raw(server, "GET", target, {})
        assert (status, b"Request has expired." in body) == (403, True)


def test_additional_headers_are_signed(server: OSSServer) -> None:
    """A V4 signature covers the additional headers it names, in a header or in a URL."""
    signed = {"Range": "bytes=1-2"}
    with first_sdk(Access(server.endpoint), BUCKET) as bucket:
        sign_request = bucket.auth._sign_request
        bucket.auth._sign_request = lambda *words: sign_request(*words, {"range"})
        assert bucket.get_object("key", headers=signed).read() == b"at"
        assert "AdditionalHeaders=range" in server.requests[-1].headers["authorization"]
        url = bucket.sign_url("GET", "key", 60, headers=signed, additional_headers={"range"})
    target = url.removeprefix(server.endpoint)
    assert raw(server, "GET", target, signed) == (206, b"at")
    assert raw(server, "GET", target, {"Range": "bytes=0-1"})[0] == 403


def test_anonymous(server: OSSServer) -> None:
    """Without a signature a private bucket is closed, and a public one can only be read."""
    private = f"/{BUCKET}/key"
    assert raw(server, "GET", private, {})[0] == 403
    server.create_bucket(BUCKET, public=True)
    assert raw(server, "GET", private, {}) == (200, b"data")
    assert raw(server, "HEAD", private, {}) == (200, b"")
    assert b"<Key>key</Key>" in raw(server, "GET", f"/{BUCKET}/?list-type=2", {})[1]
    assert raw(server, "PUT", private, {}, b"new")[0] == 403
    assert raw(server, "DELETE", private, {})[0] == 403
    assert server.objects(BUCKET) == {"key": b"data"}


@pytest.mark.parametrize("version", VERSIONS)
def test_virtual_hosted_addressing(server: OSSServer, version: str) -> None:
    """A bucket before the service's host name is found, through either SDK."""
    access = Access("http://oss-local.test", version, proxy=server.endpoint)
    with first_sdk(access, BUCKET) as bucket:
        bucket.put_object("a//b c", b"data")
        assert [entry.key for entry in oss2.ObjectIteratorV2(bucket)] == ["a//b c", "key"]
    with second_sdk(access) as client:
        answer = client.get_object(oss_v2.GetObjectRequest(bucket=BUCKET, key="a//b c"))
        assert answer.body.read() == b"data"
        answer.body.close()
    assert server.requests[-1].headers["host"] == f"{BUCKET}.oss-local.test"


def test_path_style_is_refused_by_host_name(server: OSSServer) -> None:
    """A bucket in the path is accepted for addresses and localhost only."""
    for host in ("oss-local.test", "oss-cn-test.aliyuncs.com", "example.test:80"):
        status, body = raw(server, "GET", f"/{BUCKET}/key", {"Host": host})
        assert (status, b"SecondLevelDomainForbidden" in body) == (403, True)
    server.create_bucket(BUCKET, public=True)
    for host in ("localhost:80", "127.0.0.1", "[::1]:80"):
        assert raw(server, "GET", f"/{BUCKET}/key", {"Host": host}) == (200, b"data")
    for host in (f"{BUCKET}.localhost:80", f"{BUCKET}.oss-cn-test.aliyuncs.com"):
        assert raw(server, "GET", "/key", {"Host": host}) == (200, b"data")


def test_cname(server: OSSServer) -> None:
    """A host name of the user's own can stand for a bucket."""
    server.create_bucket(BUCKET, public=True)
    server.add_cname("data.example.test", BUCKET)
    assert raw(server, "GET", "/key", {"Host": "data.example.test"}) == (200, b"data")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Encoding": "aws-chunked"},
        {"x-amz-trailer": "x-amz-checksum-crc32"},
        {"x-amz-checksum-crc32": "AAAAAA=="},
    ],
)
def test_s3_framing_is_refused(server: OSSServer, headers: dict[str, str]) -> None:
    """What S3 SDKs add by default is not understood."""
    with (
        first_sdk(Access(server.endpoint), BUCKET) as bucket,
        pytest.raises(oss2.exceptions.InvalidArgument),
    ):
        bucket.put_object("key", b"new", headers=headers)
    assert server.objects(BUCKET) == {"key": b"data"}


def test_batch_delete_needs_its_digest(server: OSSServer) -> None:
    """A batch delete without Content-MD5, or with a wrong one, deletes nothing."""
    body = "<Delete><Object><Key>key</Key></Object></Delete>"
    with first_sdk(Access(server.endpoint), BUCKET) as bucket:
        for digest, code in (
            (None, "MissingArgument"),
            ("nonsense", "InvalidDigest"),
            ("1B2M2Y8AsgTpgAmY7PhCfg==", "BadDigest"),
        ):
            headers = {"Content-MD5": digest} if digest else {}
            with pytest.raises(oss2.exceptions.ServerError) as error:
                bucket._do("POST", BUCKET, "", params={"delete": ""}, data=body, headers=headers)
            assert (error.value.status, error.value.code) == (400, code)
    assert server.objects(BUCKET) == {"key": b"data"}


def test_what_is_not_served_says_so(server: OSSServer) -> None:
    """A subresource the server does not have is refused, never taken for something else."""
    with first_sdk(Access(server.endpoint), BUCKET) as bucket:
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.get_object_tagging("key")
        assert (error.value.status, error.value.code) == (501, "NotImplemented")


def test_expect_continue_and_garbage(server: OSSServer) -> None:
    """A client that waits for 100 gets it, and one that does not speak HTTP is sent away."""
    server.create_bucket(BUCKET, public=True)
    headers = {"Expect": "100-continue", "Content-Length": "0"}
    assert raw(server, "GET", f"/{BUCKET}/key", headers) == (200, b"data")
    assert raw(server, "GET", f"/{BUCKET}/key", {"Content-Length": "many"})[0] == 400


def test_as_a_process() -> None:
    """The module serves on its own, says when it is ready, and stops when told."""
    words = [sys.executable, "-m", "tests.fakes.oss", "--access-key-id", "id"]
    words += ["--access-key-secret", "secret", "--bucket", BUCKET, "--anonymous-read"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().split()[-1]
        access = Access(endpoint, access_key_id="id", secret="secret")
        with first_sdk(access, BUCKET) as bucket:
            bucket.put_object("key", b"data")
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", f"/{BUCKET}/key")
            assert connection.getresponse().read() == b"data"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
