"""What the data plane sends to S3 against what botocore sends: address and signature alike."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import boto3
import botocore.auth
import pytest
from botocore import UNSIGNED
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from hypothesis import example, given
from hypothesis import strategies as st

from providers import access
from providers.values import ByteRange, ObjectInfo
from tests.providers.s3.stores import made
from tests.providers.signing_cases import few, keys, lowered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from providers.s3 import S3Provider

SECOND = 1_796_000_000
BUCKET = "a-bucket"
KEYS = {"access_key_id": "AKID", "secret_access_key": "SECRET"}
COMPARED = frozenset(
    {
        "authorization",
        "if-match",
        "range",
        "x-amz-checksum-mode",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
    }
)
"""All but what describes the client itself."""


@dataclass(frozen=True)
class Case:
    """One way to reach a bucket.

    Attributes:
        host: where the request must go, so that two wrong answers don't agree.
        options: of the provider.
        bucket: its name.
        config: lines of the AWS config file.
        style: told to the test's own client, where the provider has a rule of its own.
    """

    host: str
    options: Mapping[str, Any] = field(default_factory=dict)
    bucket: str = BUCKET
    config: str = ""
    style: str | None = None


CASES = {
    "virtual": Case("https://a-bucket.s3.eu-central-1.amazonaws.com/"),
    "path": Case(
        "https://s3.eu-central-1.amazonaws.com/a-bucket/",
        {"addressing_style": "path"},
        style="path",
    ),
    "dots": Case(
        "https://s3.eu-central-1.amazonaws.com/a.dotted.bucket/", bucket="a.dotted.bucket"
    ),
    "endpoint": Case(
        "http://127.0.0.1:9000/a-bucket/", {"endpoint": "http://127.0.0.1:9000"}, style="path"
    ),
    "endpoint with a path": Case(
        "https://gateway.internal:8443/base/s3/a-bucket/",
        {"endpoint": "https://gateway.internal:8443/base/s3"},
        style="path",
    ),
    "virtual on an endpoint": Case(
        "https://a-bucket.store.internal/",
        {"endpoint": "https://store.internal", "addressing_style": "virtual"},
        style="virtual",
    ),
    "default port": Case(
        "https://store.internal/a-bucket/",
        {"endpoint": "https://store.internal:443"},
        style="path",
    ),
    "dual stack": Case(
        "https://a-bucket.s3.dualstack.eu-central-1.amazonaws.com/",
        config="use_dualstack_endpoint = true\n",
    ),
    "accelerated": Case(
        "https://a-bucket.s3-accelerate.amazonaws.com/",
        config="s3 =\n  use_accelerate_endpoint = true\n",
    ),
    "FIPS": Case(
        "https://a-bucket.s3-fips.us-gov-west-1.amazonaws.com/",
        {"region": "us-gov-west-1"},
        config="use_fips_endpoint = true\n",
    ),
    "GovCloud": Case(
        "https://a-bucket.s3.us-gov-west-1.amazonaws.com/", {"region": "us-gov-west-1"}
    ),
    "China": Case("https://a-bucket.s3.cn-north-1.amazonaws.com.cn/", {"region": "cn-north-1"}),
    "us-east-1": Case("https://a-bucket.s3.amazonaws.com/", {"region": "us-east-1"}),
    "access point": Case(
        "https://point-abcdefgh1234-s3alias.s3.eu-central-1.amazonaws.com/",
        bucket="point-abcdefgh1234-s3alias",
    ),
    "Outposts": Case(
        "https://test-accessp-o0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3"
        ".op-0b1d075431d83bebd.s3-outposts.eu-central-1.amazonaws.com/",
        bucket="test-accessp-o0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3",
    ),
    "session": Case(
        "https://a-bucket.s3.eu-central-1.amazonaws.com/", {"session_token": "a token/+="}
    ),
    "anonymous": Case("https://a-bucket.s3.eu-central-1.amazonaws.com/", {"anonymous": True}),
}


class Botocore:
    """A client of the test's own, whose requests go nowhere."""

    def __init__(self, case: Case) -> None:
        options = {"region": "eu-central-1", **case.options}
        anonymous = options.get("anonymous", False)
        self.bucket = case.bucket
        self.checksums = "endpoint" not in options
        self.client = boto3.session.Session().client(
            "s3",
            region_name=options["region"],
            endpoint_url=options.get("endpoint"),
            aws_access_key_id=None if anonymous else KEYS["access_key_id"],
            aws_secret_access_key=None if anonymous else KEYS["secret_access_key"],
            aws_session_token=options.get("session_token"),
            config=Config(
                signature_version=UNSIGNED if anonymous else "s3v4",
                s3={"addressing_style": case.style} if case.style else None,
                response_checksum_validation="when_required",
            ),
        )
        events = self.client.meta.events
        events.register("before-sign.s3", self._forget_itself)
        events.register("before-send.s3", self._answer)
        self.request: Any = None

    @staticmethod
    def _forget_itself(request: Any, **_: Any) -> None:
        """Drop what tells of the SDK and its attempts, and is signed with all else."""
        for name in [name for name in request.headers if name.lower().startswith("amz-sdk-")]:
            del request.headers[name]

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        self.request = request
        return AWSResponse(request.url, 200, {"Content-Length": "0"}, io.BytesIO())

    def get(
        self, key: str, byte_range: ByteRange | None, if_match: str | None
    ) -> tuple[str, dict[str, str]]:
        """Return URL and headers of the GET that botocore sends."""
        arguments: dict[str, str] = {}
        if byte_range is not None:
            arguments["Range"] = byte_range.header
        elif self.checksums:
            arguments["ChecksumMode"] = "ENABLED"
        if if_match is not None:
            arguments["IfMatch"] = f'"{if_match}"'
        moment = datetime.fromtimestamp(SECOND, timezone.utc)
        with patch.object(botocore.auth, "get_current_datetime", lambda: moment):
            self.client.get_object(Bucket=self.bucket, Key=key, **arguments)
        headers = {
            name: value.decode() if isinstance(value, bytes) else str(value)
            for name, value in self.request.headers.items()
        }
        return self.request.url, headers


@pytest.fixture(scope="module", params=list(CASES.values()), ids=list(CASES))
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Case, S3Provider, Botocore]]:
    """A case, and both sides made for it."""
    case: Case = request.param
    path = tmp_path_factory.mktemp("aws") / "config"
    path.write_text(f"[default]\n{case.config}")
    options = {"region": "eu-central-1", **KEYS, **case.options}
    if case.options.get("anonymous"):
        options = {name: value for name, value in options.items() if name not in KEYS}
    frozen = SimpleNamespace(time=lambda: SECOND + 0.75, monotonic=lambda: 0.0)
    with pytest.MonkeyPatch.context() as patched, patch.object(access, "time", frozen):
        patched.setenv("AWS_CONFIG_FILE", str(path))
        yield case, made(case.bucket, **options), Botocore(case)


@few
@given(
    key=keys,
    byte_range=st.none() | st.sampled_from([ByteRange(0), ByteRange(5, 99)]),
    etag=st.none() | st.just("9b2cf535f27731c974343645a3985328"),
)
@example(key="a/../b//c/./d?e#f%20+~\u00e9\U0001f600 *'()", byte_range=None, etag=None)
def test_reads_are_those_of_botocore(
    both: tuple[Case, S3Provider, Botocore],
    key: str,
    byte_range: ByteRange | None,
    etag: str | None,
) -> None:
    """Address, path and signed headers are botocore's, wherever the bucket is."""
    case, provider, botocore_client = both
    pin = ObjectInfo(key, size=1, etag=etag) if etag else None
    request = provider.signed_get(key, byte_range, if_match=pin)
    url, headers = botocore_client.get(key, byte_range, etag)
    assert request is not None
    assert request.method == "GET"
    # The scheme's own port, which botocore keeps in the URL alone.
    assert request.url == url.replace(":443/", "/", 1)
    assert request.url.startswith(case.host)
    theirs = {name: value for name, value in lowered(headers).items() if name in COMPARED}
    assert lowered(request.headers) == theirs
    assert ("authorization" in theirs) != bool(case.options.get("anonymous"))
