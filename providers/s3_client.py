"""How this process reaches S3: credentials, endpoint, and the boto3 clients made of them."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import logging
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from providers.addresses import BucketAddress
from providers.bodies import Body
from providers.connections import Connection
from providers.errors import AccessDeniedError, SettingsError
from providers.s3_access import S3Access, check_arguments
from providers.s3_errors import NO_CREDENTIALS, translate
from providers.s3_signing import resigning, scope_of

if TYPE_CHECKING:
    from pydantic import SecretStr

    from providers.access import Clock
    from providers.options import S3Options, TransferOptions

__all__ = ["Clients", "ReadableBody", "is_directory", "is_of_amazon", "open_clients"]

_AMAZON = (
    ".amazonaws.com", ".api.aws",
    ".amazonaws.com.cn", ".api.amazonwebservices.com.cn",
    ".amazonaws.eu", ".api.amazonwebservices.eu",
    ".c2s.ic.gov", ".api.aws.ic.gov",
    ".sc2s.sgov.gov", ".api.aws.scloud",
    ".cloud.adc-e.uk", ".api.cloud-aws.adc-e.uk",
    ".csp.hci.ic.gov", ".api.aws.hci.ic.gov",
)  # fmt: skip
"""Domains of Amazon's own endpoints. Source: partitions.json of botocore 1.44.8."""


def is_of_amazon(endpoint: str) -> bool:
    """Whether an endpoint is one of Amazon's own."""
    return f".{urlsplit(endpoint).hostname}".endswith(_AMAZON)


def is_directory(bucket: str) -> bool:
    """Whether a bucket is one of S3 Express, by its name."""
    # Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/
    # directory-bucket-naming-rules.html, read 2026-11-30.
    return bucket.endswith("--x-s3")


class Clients:
    """boto3 clients of one bucket, which differ in patience only.

    Args:
        bucket: its name.
        options: endpoint, region, credentials.
        transfer: timeouts and the number of connections.
        clock: signatures go by.

    Attributes:
        usual: for most requests.
        endpoint: where requests go.
        region: what requests are signed for.
        refreshable: whether asking for credentials again may bring others.
    """

    def __init__(
        self, bucket: str, options: S3Options, transfer: TransferOptions, clock: Clock
    ) -> None:
        self._bucket, self._clock = bucket, clock
        self._options, self._transfer = options, transfer
        self.refreshable = not (options.anonymous or _has_literal_keys(options))
        self._session = _session(options)
        self._opening = threading.Lock()
        self._patient: Any = None
        self._connection = Connection.by("s3", options)
        self.endpoint: str = options.endpoint or "https://s3.amazonaws.com"
        self.usual = self._client(transfer.first_byte_timeout_seconds)
        if self.usual.meta.endpoint_url != self.endpoint:
            # The environment, a profile or a region names another; only a client tells.
            told = self.amazon, self._proxies
            self.endpoint = self.usual.meta.endpoint_url
            if (self.amazon, self._proxies) != told:
                self.usual = self._client(transfer.first_byte_timeout_seconds)
        self._connection.tell_unverified(self.endpoint)
        self.region: str = self.usual.meta.region_name

    @property
    def amazon(self) -> bool:
        """Whether requests go to Amazon itself."""
        return is_of_amazon(self.endpoint)

    @property
    def _proxies(self) -> dict[str, str]:
        return self._connection.proxies(self.endpoint)

    @property
    def patient(self) -> Any:
        """A client for requests that may take minutes: complete, copy."""
        with self._opening:
            if self._patient is None:
                self._patient = self._client(self._transfer.completion_timeout_seconds)
            return self._patient

    @property
    def checksums(self) -> bool:
        """Whether the store's own checksums are sent and asked for."""
        wanted = self._options.checksums
        return self.amazon if wanted is None else wanted

    def checks(self, data: memoryview) -> dict[str, str]:
        """Return the arguments by which the store checks a body."""
        signed = not self._options.anonymous
        return check_arguments(data, checksums=self.checksums, signed=signed)

    def access(self) -> S3Access:
        """Return address and credentials of the bucket, as botocore itself would use them now.

        Raises:
            BotoCoreError: there are no credentials.
        """
        request = _prepared(self.usual, self._bucket)
        region, service = scope_of(request.headers) or (self.region, "s3")
        parts = urlsplit(request.url)
        bucket_url = f"{parts.scheme}://{parts.netloc}{parts.path.rpartition('/')[0]}"
        address = BucketAddress.at(bucket_url, self._bucket, "bound")
        if self._options.anonymous:
            return S3Access(address, region, service, self.checksums, self.amazon)
        frozen = self._frozen()
        return S3Access(
            address,
            region,
            service,
            self.checksums,
            self.amazon,
            frozen.access_key,
            frozen.secret_key,
            frozen.token,
            _expires_at(self._session.get_credentials()),
        )

    def _frozen(self) -> Any:
        return self._session.get_credentials().get_frozen_credentials()

    def _client(self, read_timeout_seconds: float) -> Any:
        from botocore import UNSIGNED
        from botocore.config import Config

        options = self._options
        when = "when_supported" if self.checksums else "when_required"
        # S3 Express wants the keys of a session, which botocore opens unless told how to sign.
        signed = None if is_directory(self._bucket) else "s3v4"
        config = Config(
            proxies=self._proxies,
            client_cert=self._connection.shown,
            signature_version=UNSIGNED if options.anonymous else signed,
            connect_timeout=self._transfer.connect_timeout_seconds,
            read_timeout=read_timeout_seconds,
            max_pool_connections=self._transfer.max_connections,
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3=self._details(),
            request_checksum_calculation=when,
            response_checksum_validation=when,
            # A complete may be silent for minutes, longer than routers remember connections.
            tcp_keepalive=True,
        )
        client = self._session.client(
            "s3",
            endpoint_url=options.endpoint,
            region_name=self._session.region_name or "us-east-1",
            verify=self._connection.trusted,
            config=config,
        )
        client.meta.events.register("before-call.s3", _follow_no_bucket)
        client.meta.events.register("before-send.s3", _send_in_pieces)
        client.meta.events.register("before-send.s3", _give_away)
        if not options.anonymous:
            client.meta.events.register("before-send.s3", resigning(self._clock, self._frozen))
        if not self.checksums:
            client.meta.events.register("before-sign.s3.DeleteObjects", _sign_with_md5)
        return client

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        style = self._options.addressing_style
        if style == "auto" and not self.amazon:
            style = "path"
        elif style == "auto" and self._options.endpoint and "." not in self._bucket:
            style = "virtual"
        if style != "auto":
            # Otherwise botocore chooses: virtual, where the certificate covers the bucket.
            details["addressing_style"] = style
        if self.amazon and self.checksums and self._is_encrypted():
            # As by botocore itself: TLS and the CRC protect a body, hashing it costs more.
            details["payload_signing_enabled"] = False
        return details

    def _is_encrypted(self) -> bool:
        return not (self._options.endpoint or "https:").startswith("http:")


class _PreparedError(Exception):
    """Takes a signed request out of botocore instead of sending it."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


_asking = threading.local()


def _give_away(request: Any, **_: Any) -> None:
    if getattr(_asking, "prepared", False):
        raise _PreparedError(request)


def _prepared(client: Any, bucket: str) -> Any:
    """Return what botocore would send to read an object, signed, from the endpoint it resolves."""
    _asking.prepared = True
    try:
        client.get_object(Bucket=bucket, Key="k")
    except _PreparedError as prepared:
        # botocore's frames hold the exception, whose traceback holds them, and with them all
        # that their callers have in hand, a body to send say.
        prepared.__traceback__ = None
        return prepared.request
    finally:
        _asking.prepared = False
    raise SettingsError("botocore answered a request by itself; remove its plug-ins")


def _expires_at(credentials: Any) -> float | None:
    expiry = getattr(credentials, "_expiry_time", None)
    return None if expiry is None else float(expiry.timestamp())


def open_clients(
    bucket: str, options: S3Options, transfer: TransferOptions, clock: Clock
) -> Clients:
    """Open the clients of a bucket. Sends nothing to it.

    Raises:
        SettingsError: boto3 is missing, or an option or a file of its own is wrong.
        AccessDeniedError: there are no credentials.
    """
    uri = f"s3://{bucket}/"
    try:
        return Clients(bucket, options, transfer, clock)
    except (AccessDeniedError, SettingsError) as error:
        raise type(error)(str(error), uri=uri, operation="open") from error.__cause__
    except ValueError as error:
        raise SettingsError(f"boto3 refuses it: {error}", uri=uri, operation="open") from error
    except Exception as error:
        explained = translate(error, uri, "open")
        if explained is None:
            raise
        raise explained from error


def _has_literal_keys(options: S3Options) -> bool:
    return options.access_key_id is not None and "secret_access_key" not in options.dropped


def _session(options: S3Options) -> Any:
    """Return a session with credentials, unless requests are to be anonymous."""
    boto3 = _load()
    import botocore.session

    literal = _has_literal_keys(options)
    _check_endpoint(options)
    _check_keys(options, literal=literal)
    core = botocore.session.get_session()
    session = boto3.session.Session(
        aws_access_key_id=options.access_key_id if literal else None,
        aws_secret_access_key=_revealed(options.secret_access_key),
        aws_session_token=_revealed(options.session_token),
        region_name=options.region,
        profile_name=options.profile,
        botocore_session=core,
    )
    core.register_component("data_loader", _loader())
    # A client made without credentials would never look for them again.
    if not options.anonymous and session.get_credentials() is None:
        dropped = (
            f"; {', '.join(options.dropped)} stayed behind when the options were pickled "
            "(pickle_secrets=True keeps them)"
            if options.dropped
            else ""
        )
        raise AccessDeniedError(f"{NO_CREDENTIALS}{dropped}")
    return session


def _load() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise SettingsError(
            f"s3:// needs boto3: pip install 'torch-cloud-connector[s3]' ({error})"
        ) from error
    log = logging.getLogger("botocore")
    if log.level == logging.NOTSET:
        # Below this it writes headers, and with them session tokens.
        log.setLevel(logging.INFO)
    return boto3


def _check_endpoint(options: S3Options) -> None:
    parts = urlsplit("https://of.amazon" if options.endpoint is None else options.endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError("the endpoint is no URL; write https://host, or http://host:9000, say")


def _check_keys(options: S3Options, *, literal: bool) -> None:
    secret, token = options.secret_access_key, options.session_token
    if literal and secret is None:
        raise SettingsError("access_key_id was given without secret_access_key")
    if not literal and (secret is not None or token is not None):
        raise SettingsError("secret_access_key or session_token was given without access_key_id")


@functools.lru_cache(maxsize=1)
def _loader() -> Any:
    """Load the service's model, which takes long, once a process."""
    from botocore.loaders import create_loader

    return create_loader()


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


class ReadableBody:
    """The body of a request, which botocore reads as a file to sign it, without a copy."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._at = 0

    def __len__(self) -> int:
        return len(self.data)

    def read(self, size: int | None = -1) -> memoryview:
        """Return the next bytes, all of them by default."""
        stop = len(self.data) if size is None or size < 0 else self._at + size
        piece = self.data[self._at : stop]
        self._at += len(piece)
        return piece

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place counted from the start, from here or from the end."""
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self.data)}
        self._at = bases[whence] + offset
        return self._at

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._at


def _follow_no_bucket(context: Any, **_: Any) -> None:
    """Leave it to ``recover`` to find the bucket's region.

    botocore asks for it on its own, each time anew in each process, and without end where
    the answer is a redirect too.
    """
    context.get("s3_redirect", {})["redirected"] = True


def _send_in_pieces(request: Any, **_: Any) -> None:
    if isinstance(request.body, ReadableBody):
        # Asking first costs a round trip, and a second where the store never answers it.
        del request.headers["Expect"]
        # What can be read as a file would go 16 KiB at a time.
        request.body = Body(request.body.data)


def _sign_with_md5(request: Any, **_: Any) -> None:
    """Replace the CRC that only Amazon knows by the MD5 that every store knows."""
    for name in [n for n in request.headers if n.lower().startswith("x-amz-checksum-")]:
        del request.headers[name]
    del request.headers["x-amz-sdk-checksum-algorithm"]
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode()
