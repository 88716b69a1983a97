"""How this process reaches OSS: endpoint, region, credentials, and the client made of them."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from providers.addresses import encode_query
from providers.errors import AccessDeniedError, SettingsError
from providers.oss_access import Credentials
from providers.oss_regions import region_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from providers.access import Clock
    from providers.connections import Connection
    from providers.options import OSSOptions, TransferOptions
    from providers.oss_access import OSSAccess

__all__ = [
    "OSSClient",
    "environment_credentials",
    "find_credentials",
    "is_of_the_vendor",
    "open_client",
    "resolved",
]

_VENDOR = ".aliyuncs.com"
# Source: https://help.aliyun.com/zh/oss/user-guide/bucket-naming-conventions, read 2026-12-01.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", re.ASCII)


@dataclass(frozen=True, slots=True)
class OSSClient:
    """What oss2 needs for one bucket in one process.

    Attributes:
        bucket: waits ``first_byte_timeout_seconds`` for answers.
        patient: waits ``completion_timeout_seconds``; shares the connections.
        credentials: both sign with; None: with nothing.
    """

    bucket: Any
    patient: Any
    credentials: Credentials | None


def resolved(options: OSSOptions, bucket: str) -> OSSOptions:
    """Return the options with endpoint and region filled in from the environment.

    Raises:
        SettingsError: no bucket has that name, there is no endpoint, or no region where the
            signature needs one.
    """
    if not _BUCKET.fullmatch(bucket):
        raise _wrong(
            bucket,
            f"{bucket!r} cannot be a bucket: names have 3 to 63 lower-case letters, digits and "
            "dashes, and no dash at either end",
        )
    region = options.region or os.environ.get("OSS_REGION", "").strip()
    region = region.removeprefix("oss-")
    endpoint = options.endpoint or os.environ.get("OSS_ENDPOINT", "").strip()
    if not endpoint and not region:
        raise _wrong(
            bucket,
            "there is no endpoint; set the option endpoint (or OSS_ENDPOINT) to "
            "'https://oss-cn-hangzhou.aliyuncs.com', say, or the option region (or OSS_REGION)",
        )
    endpoint = _checked(endpoint or f"https://oss-{region}{_VENDOR}", bucket, options)
    region = region or region_of(_host(endpoint)) or ""
    if not region and options.signature_version == "v4" and not options.anonymous:
        raise _wrong(
            bucket,
            f"signatures need the region, which {endpoint} does not tell; set the option region "
            "(or OSS_REGION) to 'cn-hangzhou', say",
        )
    return options.model_copy(update={"endpoint": endpoint, "region": region or None})


def _checked(endpoint: str, bucket: str, options: OSSOptions) -> str:
    """Return the endpoint as ``scheme://host[:port]``; https unless it says http itself."""
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    try:
        parts = urlsplit(endpoint)
        _ = parts.port  # refuses what is no number
    except ValueError as error:
        raise _wrong(bucket, f"the endpoint is no URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise _wrong(bucket, "the endpoint is not of the form https://host or https://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise _wrong(bucket, f"the endpoint {endpoint!r} must end after the host; a bucket or "
                     "path does not belong in it")  # fmt: skip
    if parts.hostname.startswith(f"{bucket}.") and not options.cname:
        raise _wrong(
            bucket,
            f"the endpoint {endpoint!r} begins with the bucket, which goes before it anyway; "
            "leave it out, or set cname=True if this is a domain bound to the bucket",
        )
    return f"{parts.scheme}://{parts.netloc}"


def _wrong(bucket: str, message: str) -> SettingsError:
    return SettingsError(message, uri=f"oss://{bucket}/", operation="open")


def _host(endpoint: str) -> str:
    return urlsplit(endpoint).hostname or ""


def is_of_the_vendor(options: OSSOptions) -> bool:
    """Whether the service behind the endpoint is Alibaba's own; a bound domain leads there."""
    return options.cname or _host(options.endpoint or "").endswith(_VENDOR)


def find_credentials(options: OSSOptions, bucket: str) -> Credentials:
    """Return the options' credentials, else the environment's.

    Raises:
        SettingsError: half a pair.
        AccessDeniedError: there are none.
    """
    key_id, secret = options.access_key_id, options.access_key_secret
    if key_id and secret:
        token = options.security_token
        return Credentials(
            key_id,
            secret.get_secret_value(),
            token.get_secret_value() if token else None,
            literal=True,
        )
    if (key_id or secret) and not options.dropped:
        raise _wrong(bucket, "access_key_id and access_key_secret go together; one is missing")
    found = environment_credentials()
    if found is None:
        raise AccessDeniedError(
            f"there are no credentials: {_absence(options)}, and OSS_ACCESS_KEY_ID and "
            "OSS_ACCESS_KEY_SECRET are not both set; anonymous=True reads public buckets",
            uri=f"oss://{bucket}/",
            operation="sign",
        )
    return found


def environment_credentials() -> Credentials | None:
    """Return the credentials in the environment as it is now, if they are whole."""
    # A secret mounted as a file often brings a line's end along.
    key_id = os.environ.get("OSS_ACCESS_KEY_ID", "").strip()
    secret = os.environ.get("OSS_ACCESS_KEY_SECRET", "").strip()
    token = os.environ.get("OSS_SESSION_TOKEN", "").strip()
    return Credentials(key_id, secret, token or None) if key_id and secret else None


def _absence(options: OSSOptions) -> str:
    if options.dropped:
        return (
            f"{', '.join(options.dropped)} stayed behind when the options were pickled "
            "(pickle_secrets=True keeps them)"
        )
    return "access_key_id and access_key_secret are not given"


def open_client(
    bucket: str,
    options: OSSOptions,
    transfer: TransferOptions,
    connection: Connection,
    find: Callable[[], OSSAccess],
    clock: Clock,
) -> OSSClient:
    """Make the client of a bucket, with resolved options. Sends nothing.

    Args:
        bucket: its name.
        options: resolved ones.
        transfer: timeouts and the number of connections.
        connection: how the store is reached.
        find: returns what reads are signed with, and all else.
        clock: signatures go by.

    Raises:
        SettingsError: oss2 is not installed.
    """
    oss2 = _load()
    access = find()
    signed = access.signed(clock)
    auth = oss2.AnonymousAuth() if signed is None else _Auth(signed)
    session = oss2.Session(pool_size=transfer.max_connections)
    # The environment is read once, for reads and all else alike.
    session.session.trust_env = False
    session.session.proxies = connection.proxies(options.endpoint or "")
    session.session.verify, session.session.cert = connection.trusted, connection.shown
    connection.tell_unverified(options.endpoint or "")
    # A redirect would carry the security token to another host.
    session.session.max_redirects = 0

    def waiting(seconds: float) -> Any:
        return oss2.Bucket(
            auth,
            options.endpoint,
            bucket,
            is_cname=options.cname,
            session=session,
            connect_timeout=(transfer.connect_timeout_seconds, seconds),
            # Its checksum runs in Python where crcmod was built without a compiler.
            enable_crc=False,
            region=options.region,
        )

    return OSSClient(
        waiting(transfer.first_byte_timeout_seconds),
        waiting(transfer.completion_timeout_seconds),
        access.credentials,
    )


def _load() -> Any:
    try:
        import fastcrc  # noqa: F401 needed by the first body that is checked
        import oss2
    except ImportError as error:
        raise SettingsError(
            f"oss:// needs oss2 and fastcrc: pip install 'torch-cloud-connector[oss]' ({error})"
        ) from error
    log = logging.getLogger("oss2")
    if log.level == logging.NOTSET:
        # Below a warning it writes headers, and with them security tokens.
        log.setLevel(logging.WARNING)
    return oss2


class _Auth:
    """Signs what oss2 sends as reads are signed; oss2's own goes by this machine's clock alone.

    Args:
        sign: of ``OSSV4`` or ``OSSV1``.
    """

    def __init__(self, sign: Callable[..., dict[str, str]]) -> None:
        self._sign = sign

    def _sign_request(self, request: Any, bucket: str, key: str) -> None:
        query = encode_query(request.params)
        request.headers.update(self._sign(request.method, bucket, key, query, request.headers))
