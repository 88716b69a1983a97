"""What the data plane sends to OSS against what oss2 sends: address and signature alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import oss2
import oss2.auth
import oss2.http
import oss2.utils
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from providers import access
from providers.options import OSSOptions
from providers.oss import OSSProvider
from providers.values import ByteRange, ObjectInfo
from tests.providers.signing_cases import few, keys, lowered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import requests

SECOND = 1_796_000_000
BUCKET = "a-bucket"
COMPARED = frozenset(
    {
        "authorization",
        "if-match",
        "range",
        "x-oss-content-sha256",
        "x-oss-date",
        "x-oss-range-behavior",
        "x-oss-security-token",
    }
)
"""All but what describes the client itself."""


@dataclass(frozen=True)
class Case:
    """One way to reach a bucket.

    Attributes:
        host: where the request must go, so that two wrong answers don't agree.
        options: of the provider.
    """

    host: str
    options: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "virtual": Case("https://a-bucket.oss-cn-test.aliyuncs.com/"),
    "plain HTTP and a port": Case(
        "http://a-bucket.oss.internal:8080/", {"endpoint": "http://oss.internal:8080"}
    ),
    "default port": Case(
        "https://a-bucket.oss.internal/", {"endpoint": "https://oss.internal:443"}
    ),
    "bound domain": Case(
        "https://data.example.com/", {"endpoint": "https://data.example.com", "cname": True}
    ),
    "address": Case("http://127.0.0.1:9000/a-bucket/", {"endpoint": "http://127.0.0.1:9000"}),
    "localhost": Case("http://localhost:9000/a-bucket/", {"endpoint": "http://localhost:9000"}),
    "session": Case("https://a-bucket.oss-cn-test.aliyuncs.com/", {"security_token": "a token/+="}),
    "anonymous": Case(
        "https://a-bucket.oss-cn-test.aliyuncs.com/",
        {"anonymous": True, "access_key_id": None, "access_key_secret": None},
    ),
}


class _SentError(Exception):
    """In place of an answer."""


class Sdk:
    """A bucket of the test's own in oss2, whose requests go nowhere."""

    def __init__(self, options: OSSOptions) -> None:
        self.version = options.signature_version
        self.session = oss2.Session()
        self.sent: requests.PreparedRequest | None = None
        self.session.session.send = self._keep
        auth: Any = oss2.AnonymousAuth()
        if not options.anonymous:
            token, secret = options.security_token, options.access_key_secret
            kind = oss2.ProviderAuthV4 if self.version == "v4" else oss2.ProviderAuth
            auth = kind(
                oss2.StaticCredentialsProvider(
                    options.access_key_id,
                    secret.get_secret_value() if secret else None,
                    token.get_secret_value() if token else "",
                )
            )
        self.bucket = oss2.Bucket(
            auth,
            options.endpoint,
            BUCKET,
            is_cname=options.cname,
            session=self.session,
            region=options.region,
        )

    def _keep(self, request: requests.PreparedRequest, **_: Any) -> None:
        self.sent = request
        raise _SentError

    def get(self, key: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return URL and headers of the GET that oss2 sends."""
        moment = datetime.fromtimestamp(SECOND, timezone.utc).replace(tzinfo=None)
        date = oss2.utils.http_date(SECOND)
        with (
            patch.object(oss2.auth, "datetime", SimpleNamespace(utcnow=lambda: moment)),
            patch.object(oss2.utils, "http_date", lambda: date),
            pytest.raises(_SentError),
        ):
            self.bucket.get_object(key, headers=dict(headers))
        if self.sent is None:
            raise RuntimeError("nothing was sent")
        return str(self.sent.url), {str(n): str(v) for n, v in self.sent.headers.items()}


@pytest.fixture(scope="module", params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    """A way to reach a bucket."""
    found: Case = request.param
    return found


@pytest.fixture(scope="module", params=["v4", "v1"])
def both(request: pytest.FixtureRequest, case: Case) -> Iterator[tuple[OSSProvider, Sdk]]:
    """Both sides made for a case and a signature."""
    fields: dict[str, Any] = {
        "endpoint": "https://oss-cn-test.aliyuncs.com",
        "region": "cn-test",
        "access_key_id": "AKID",
        "access_key_secret": "SECRET",
        **case.options,
        "signature_version": request.param,
    }
    options = OSSOptions(**fields)
    frozen = SimpleNamespace(time=lambda: SECOND + 0.75, monotonic=lambda: 0.0)
    with patch.object(access, "time", frozen):
        yield OSSProvider(BUCKET, options), Sdk(options)


@few
@given(
    key=keys,
    byte_range=st.none() | st.sampled_from([ByteRange(0), ByteRange(5, 99)]),
    etag=st.none() | st.just("9B2CF535F27731C974343645A3985328"),
)
@example(key="a/../b//c/./d?e#f%20+~\u00e9\U0001f600 *'()", byte_range=None, etag=None)
def test_reads_are_those_of_oss2(
    case: Case,
    both: tuple[OSSProvider, Sdk],
    key: str,
    byte_range: ByteRange | None,
    etag: str | None,
) -> None:
    """Address, path and signed headers are oss2's, wherever the bucket is."""
    # Refused by either before anything is signed.
    assume(key[0] not in "/\\" and key not in {".", ".."})
    provider, sdk = both
    pin = ObjectInfo(key, size=1, etag=etag) if etag else None
    request = provider.signed_get(key, byte_range, if_match=pin)
    headers = dict(provider._read_headers(byte_range, pin))
    url, sent = sdk.get(key, headers)
    assert request is not None
    assert request.method == "GET"
    # oss2 encodes slashes too, and keeps the scheme's own port; both mean the same to the service.
    assert request.url == url.replace(":443/", "/", 1).replace("%2F", "/")
    assert request.url.startswith(case.host)
    compared = COMPARED if sdk.version == "v4" else COMPARED | {"date"}
    theirs = {name: value for name, value in lowered(sent).items() if name in compared}
    assert lowered(request.headers) == theirs
    assert ("authorization" in theirs) != bool(case.options.get("anonymous"))
