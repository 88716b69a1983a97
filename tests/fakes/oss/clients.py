"""The vendor's two SDKs, pointed at the server; nothing else here imports them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import alibabacloud_oss_v2 as oss_v2
import oss2

ACCESS_KEY_ID = "AKID"
SECRET = "SECRET"


@dataclass(frozen=True, slots=True)
class Access:
    """How a client signs and where it connects.

    Args:
        endpoint: As the SDK is told.
        version: Of the signature, `v1` or `v4`.
        access_key_id: Who signs.
        secret: With what.
        token: Security token of a temporary key.
        region: The scope of a V4 signature.
        proxy: Where to connect instead, so that host names need not resolve.
    """

    endpoint: str
    version: str = "v4"
    access_key_id: str = ACCESS_KEY_ID
    secret: str = field(default=SECRET, repr=False)
    token: str | None = field(default=None, repr=False)
    region: str = "cn-test"
    proxy: str | None = None


@contextlib.contextmanager
def first_sdk(access: Access, bucket: str) -> Iterator[Any]:
    """A bucket of oss2."""
    provider = oss2.StaticCredentialsProvider(access.access_key_id, access.secret, access.token)
    kind = oss2.ProviderAuthV4 if access.version == "v4" else oss2.ProviderAuth
    session = oss2.Session()
    try:
        yield oss2.Bucket(
            kind(provider),
            access.endpoint,
            bucket,
            session=session,
            region=access.region,
            proxies={"http": access.proxy} if access.proxy else None,
        )
    finally:
        session.session.close()


@contextlib.contextmanager
def second_sdk(access: Access) -> Iterator[Any]:
    """A client of alibabacloud-oss-v2."""
    config = oss_v2.config.load_default()
    config.credentials_provider = oss_v2.credentials.StaticCredentialsProvider(
        access.access_key_id, access.secret, access.token
    )
    config.endpoint = access.endpoint
    config.region = access.region
    config.signature_version = access.version
    config.retry_max_attempts = 1
    config.proxy_host = {"http": access.proxy} if access.proxy else None
    client = oss_v2.Client(config)
    try:
        yield client
    finally:
        client._client._options.http_client.close()
