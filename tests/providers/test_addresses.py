from urllib.parse import urlsplit

import pytest

from providers.addresses import BucketAddress, Style, key_in
from providers.errors import SettingsError


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


@pytest.mark.parametrize("style", ["path", "virtual", "bound"])
@pytest.mark.parametrize("key", ["a//b", "bucket/a b", "a?b#c%2F", "/a", "é"])
def test_key_in_a_url(style: Style, key: str) -> None:
    """An error names the object that was asked for, wherever the URL has the bucket."""
    address = BucketAddress.at("https://s3.example:9000", "bucket", style)
    url = address.url(address.path(key), "partNumber=1")
    assert key_in(url, "bucket", bound=style == "bound") == key


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
