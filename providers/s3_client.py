"""boto3 clients for one bucket's options, and what botocore's exceptions mean."""

from __future__ import annotations

import base64
import functools
import hashlib
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from providers.errors import (
    AccessDeniedError,
    LimitError,
    ProviderError,
    ServiceError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)

if TYPE_CHECKING:
    from pydantic import SecretStr

    from providers.options import S3Options, TransferOptions

__all__ = ["Clients", "content_md5", "explain_sdk_error"]

_AMAZON = ("amazonaws.com", "amazonaws.com.cn", "api.aws", "amazonaws.eu")
"""Domains of Amazon's own endpoints. Source: endpoint rule set of botocore 1.44."""

_NO_CREDENTIALS = (
    "boto3 found no credentials in the options, the environment (AWS_ACCESS_KEY_ID), the AWS "
    "files (AWS_PROFILE) or a metadata service; set one of them, or anonymous=True for a public "
    "bucket"
)


class Clients:
    """boto3 clients of one bucket's options, which differ in patience only.

    Args:
        options: endpoint, region, credentials; the latter are looked for at the first request.
        transfer: timeouts and the number of connections.

    Attributes:
        usual: for most requests.
        endpoint: where requests go.
        amazon: whether that is Amazon itself.

    Raises:
        SettingsError: boto3 is missing, or half a key pair was given.
    """

    def __init__(self, options: S3Options, transfer: TransferOptions) -> None:
        self._options, self._transfer = options, transfer
        self._session = _session(options)
        self._opening = threading.Lock()
        self._patient: Any = None
        self.amazon = options.endpoint is None or _is_amazon(options.endpoint)
        self.usual = self._client(transfer.first_byte_timeout_seconds)
        if not _is_amazon(self.usual.meta.endpoint_url) and self.amazon:
            # The environment or a profile names another endpoint; only a client tells.
            self.amazon = False
            self.usual = self._client(transfer.first_byte_timeout_seconds)
        self.endpoint: str = self.usual.meta.endpoint_url

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

    def _client(self, read_timeout_seconds: float) -> Any:
        from botocore import UNSIGNED
        from botocore.config import Config

        options, style = self._options, self._options.addressing_style
        if style == "auto":
            style = "virtual" if self.amazon else "path"
        when = "when_supported" if self.checksums else "when_required"
        config = Config(
            signature_version=UNSIGNED if options.anonymous else "s3v4",
            connect_timeout=self._transfer.connect_timeout_seconds,
            read_timeout=read_timeout_seconds,
            max_pool_connections=self._transfer.max_connections,
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3={"addressing_style": style},
            request_checksum_calculation=when,
            response_checksum_validation=when,
        )
        region = self._session.region_name or "us-east-1"
        client = self._session.client(
            "s3", endpoint_url=options.endpoint, region_name=region, config=config
        )
        if not self.checksums:
            client.meta.events.register("before-sign.s3.DeleteObjects", _sign_with_md5)
        return client


def _is_amazon(endpoint: str) -> bool:
    return (urlsplit(endpoint).hostname or "").endswith(_AMAZON)


def _session(options: S3Options) -> Any:
    """Return a boto3 session; the service models, slow to load, are loaded once a process."""
    try:
        import boto3
        import botocore.session
    except ImportError:
        raise SettingsError(
            "s3:// needs boto3; install it with: pip install 'torch-cloud-connector[s3]'"
        ) from None
    explicit = options.access_key_id is not None and "secret_access_key" not in options.dropped
    if explicit and options.secret_access_key is None:
        raise SettingsError("S3Options: access_key_id was given without secret_access_key")
    if options.access_key_id is None and options.secret_access_key is not None:
        raise SettingsError("S3Options: secret_access_key was given without access_key_id")
    core = botocore.session.get_session()
    core.register_component("data_loader", _loader())
    return boto3.session.Session(
        aws_access_key_id=options.access_key_id if explicit else None,
        aws_secret_access_key=_revealed(options.secret_access_key),
        aws_session_token=_revealed(options.session_token),
        region_name=options.region,
        profile_name=options.profile,
        botocore_session=core,
    )


@functools.lru_cache(maxsize=1)
def _loader() -> Any:
    from botocore.loaders import create_loader

    return create_loader()


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _sign_with_md5(request: Any, **_: Any) -> None:
    """Replace the CRC that only Amazon knows by the MD5 that every store knows."""
    for name in [n for n in request.headers if n.lower().startswith("x-amz-checksum-")]:
        del request.headers[name]
    del request.headers["x-amz-sdk-checksum-algorithm"]
    request.headers["Content-MD5"] = content_md5(request.body)


def content_md5(data: Any) -> str:
    """Return the ``Content-MD5`` of a buffer."""
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def explain_sdk_error(error: Exception, uri: str, operation: str) -> ProviderError | None:
    """Say what an exception of botocore means that is no answer of the service.

    The class decides, never the message; None: not botocore's.
    """
    from botocore import exceptions as sdk

    table: tuple[tuple[tuple[type[Exception], ...], type[ProviderError], str], ...] = (
        (
            (sdk.NoCredentialsError, sdk.PartialCredentialsError),
            AccessDeniedError,
            _NO_CREDENTIALS,
        ),
        (
            (
                sdk.CredentialRetrievalError,
                sdk.RefreshWithMFAUnsupportedError,
                sdk.SSOError,
                sdk.TokenRetrievalError,
                sdk.UnauthorizedSSOTokenError,
                sdk.NoAuthTokenError,
                sdk.MetadataRetrievalError,
            ),
            AccessDeniedError,
            "boto3 could not get credentials",
        ),
        ((sdk.SSLError,), SettingsError, "TLS failed; check the endpoint and the CA bundle"),
        ((sdk.ConnectTimeoutError,), TimedOutError, "no connection in time"),
        ((sdk.ReadTimeoutError,), TimedOutError, "no answer in time"),
        (
            (
                sdk.HTTPClientError,
                sdk.ConnectionError,
                sdk.IncompleteReadError,
                sdk.ResponseStreamingError,
                sdk.ReadTimeoutError,
                sdk.FlexibleChecksumError,
                sdk.ChecksumError,
            ),
            UnavailableError,
            "the connection failed",
        ),
        (
            (
                sdk.ParamValidationError,
                sdk.InvalidMaxRetryAttemptsError,
                sdk.ConfigNotFound,
                sdk.ConfigParseError,
                sdk.ProfileNotFound,
                sdk.NoRegionError,
                sdk.UnknownSignatureVersionError,
                sdk.EndpointProviderError,
            ),
            SettingsError,
            "boto3 refuses these settings",
        ),
        ((sdk.ValidationError,), LimitError, "boto3 refuses this request"),
        ((sdk.BotoCoreError,), ServiceError, "boto3 failed"),
    )
    for kinds, kind, advice in table:
        if isinstance(error, kinds):
            return kind(f"{advice}: {error}", uri=uri, operation=operation)
    return None
