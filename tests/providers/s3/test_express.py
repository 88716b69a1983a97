"""S3 Express: sessions instead of plain signatures, and listings with habits of their own."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from providers.errors import ServiceError, UnavailableError, UnsupportedError
from providers.retry import without_waiting
from providers.values import ByteRange, ObjectInfo, UploadInfo
from tests.providers.s3.amazon import Amazon, header
from tests.providers.s3.stores import made

BUCKET = "b--use1-az4--x-s3"
HOST = f"https://{BUCKET}.s3express-use1-az4.us-east-1.amazonaws.com"
KEYS: dict[str, Any] = {
    "access_key_id": "AKID",
    "secret_access_key": "SECRET",
    "region": "us-east-1",
}


def listing(*keys: str, prefixes: tuple[str, ...] = ()) -> bytes:
    """Return a page of a listing that names keys in the order given."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size>"
        "<LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        for key in keys
    ) + "".join(f"<CommonPrefixes><Prefix>{p}</Prefix></CommonPrefixes>" for p in prefixes)
    document = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
    return document.encode()


def test_requests_are_signed_by_a_session() -> None:
    """One session, asked of the bucket's zone, signs all requests that follow."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    provider.put("a", b"body")
    provider.put("b", b"body")
    assert [request.url for request in amazon.requests] == [
        f"{HOST}/?session",
        f"{HOST}/a",
        f"{HOST}/b",
    ]
    for request in amazon.requests[1:]:
        assert "Credential=SESSION/" in header(request, "authorization")
        assert "/us-east-1/s3express/aws4_request" in header(request, "authorization")
        assert header(request, "x-amz-s3session-token") == "TOKEN"


def test_listing_is_sorted_here() -> None:
    """What comes in any order goes out in the contract's."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    amazon.body = listing("b", "a/z", "\u00e9", "a/b", prefixes=("a-/",))
    names = [entry.key for entry in provider.list_objects()]
    assert names == ["a-/", "a/b", "a/z", "b", "\u00e9"]


@pytest.mark.parametrize(
    ("prefix", "asked"), [("", None), ("tr", None), ("a/", "a/"), ("a/tr", "a/"), ("/", "/")]
)
def test_listing_asks_what_directories_know(prefix: str, asked: str | None) -> None:
    """Raw prefixes and bounds hold, though the service takes whole segments and no start."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    folder = asked or ""
    keys = [f"{folder}{name}" for name in ("train2", "other", "train", "tr", "zebra")]
    amazon.body = listing(*keys, prefixes=(f"{folder}trial/",))
    found = provider.list_objects(prefix, start_after=f"{folder}tr", delimiter="/")
    wanted = [f"{folder}{name}" for name in ("train", "train2", "trial/", "zebra")]
    assert [entry.key for entry in found] == [key for key in wanted if key.startswith(prefix)]
    url = amazon.requests[-1].url
    assert "start-after" not in url
    expected = "" if asked is None else asked.replace("/", "%2F")
    assert f"prefix={expected}&" in f"{url}&"


def test_another_delimiter_is_refused() -> None:
    """Groups by anything but a slash would be wrong, so none are asked for."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    with pytest.raises(UnsupportedError, match=r"list s3://.*only '/' delimits"):
        list(provider.list_objects("a-b", delimiter="-"))
    assert amazon.requests == []


def test_unfinished_uploads_are_those_of_a_raw_prefix() -> None:
    """Directories know whole segments only, and say keys encoded, so that XML can hold them."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    upload = (
        "<Upload><Key>a%2F{}</Key><UploadId>{}</UploadId>"
        "<Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload>"
    )
    amazon.body = (
        "<ListMultipartUploadsResult><EncodingType>url</EncodingType>"
        "<IsTruncated>false</IsTruncated>"
        + "".join(upload.format(*names) for names in (("tr%0D+ain", "1"), ("other", "2")))
        + "</ListMultipartUploadsResult>"
    ).encode()
    started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert list(provider.list_uploads("a/tr")) == [UploadInfo("a/tr\r ain", "1", started)]
    assert "prefix=a%2F&" in f"{amazon.requests[-1].url}&"


def test_what_is_written_is_kept_as_told() -> None:
    """Encryption goes with what boto3 sends too: a put and the start of an upload."""
    provider = made(BUCKET, sse="aws:kms", sse_kms_key_id="k", sse_bucket_key=True, **KEYS)
    amazon = Amazon(provider)
    provider.put("a", b"x")
    amazon.body = (
        b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
    )
    provider.start_multipart("b")
    for request in amazon.requests[-2:]:
        assert header(request, "x-amz-server-side-encryption") == "aws:kms"
        assert header(request, "x-amz-server-side-encryption-aws-kms-key-id") == "k"
        assert header(request, "x-amz-server-side-encryption-bucket-key-enabled") == "true"


# ---- Reads ---------------------------------------------------------------------------------


def test_reads_go_through_boto3(caplog: pytest.LogCaptureFixture) -> None:
    """What only botocore can sign is read by it, and the log says once that this is slower."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    amazon.body = b"0123456789"
    for _ in range(3):
        assert provider.get("a") == b"0123456789"
    assert provider.signed_get("a") is None
    assert caplog.text.count("S3 Express") == 1
    assert [request.url for request in amazon.requests] == [f"{HOST}/?session", *[f"{HOST}/a"] * 3]
    for request in amazon.requests[1:]:
        assert header(request, "x-amz-s3session-token") == "TOKEN"


def test_ranges_and_pins_go_through_boto3() -> None:
    """A part of a version is asked for as such, and another part is no answer."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    amazon.body = b"234"
    amazon.headers["Content-Range"] = "bytes 2-4/10"
    pin = ObjectInfo("a", size=10, etag="etag")
    assert provider.get("a", ByteRange(2, 5), if_match=pin) == b"234"
    assert header(amazon.requests[-1], "range") == "bytes=2-4"
    assert header(amazon.requests[-1], "if-match") == '"etag"'
    with pytest.raises(ServiceError, match="bytes=5-7 was asked for"):
        provider.get("a", ByteRange(5, 8))


def test_short_bodies_are_read_again() -> None:
    """A body that ends early is never returned short, whoever reads it."""
    provider = made(BUCKET, **KEYS)
    amazon = Amazon(provider)
    amazon.body = b"0123456789"
    amazon.headers["Content-Length"] = "11"
    with without_waiting(), pytest.raises(UnavailableError, match="gave up after 3 attempts"):
        provider.get("a")
    assert [request.url for request in amazon.requests[1:]] == [f"{HOST}/a"] * 3
