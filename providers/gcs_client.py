"""The way to Google Cloud Storage: endpoint, credentials, one session; what its libraries raise."""

from __future__ import annotations

import base64
import os
import re
import warnings
from dataclasses import dataclass
from datetime import timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from providers.bodies import Body
from providers.errors import (
    AccessDeniedError,
    ProviderError,
    ServiceError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.gcs_access import GCSAccess
from providers.gcs_answers import Answer, AnswerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.connections import Connection
    from providers.options import GCSOptions, TransferOptions

__all__ = ["GCSClient", "crc32c", "explain_library_error", "is_google", "open_client", "resolved"]

_GOOGLE = ".googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_SUCCESS = range(200, 300)
_TOKEN = re.compile(r"[!-~]+")
_ENDPOINT = re.compile(r"(https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?)/*")

_NO_CREDENTIALS = (
    "there are no usable credentials: {tried} (run 'gcloud auth application-default login', set "
    "GOOGLE_APPLICATION_CREDENTIALS or the options credentials_file or access_token, or "
    "anonymous=True for a public bucket)"
)
_DEFAULT_CHAIN = (
    "google-auth looked at GOOGLE_APPLICATION_CREDENTIALS, gcloud's own file and the metadata "
    "server"
)


# ---- Settings ------------------------------------------------------------------------------


def resolved(options: GCSOptions, uri: str) -> GCSOptions:
    """Return the options with the endpoint filled in from the environment.

    What ``STORAGE_EMULATOR_HOST`` names, and any endpoint on plain ``http``, is an emulator:
    it gets no credentials unless the options have some.

    Raises:
        SettingsError: the endpoint is no URL of a host, there are credentials of two kinds, or
            the token is none.
    """
    named = options.access_token, options.credentials_file, options.anonymous or None
    if sum(one is not None for one in named) > 1:
        raise _wrong(
            uri, "access_token, credentials_file and anonymous exclude each other; set one of them"
        )
    if options.access_token is not None and not _TOKEN.fullmatch(_token(options)):
        raise _wrong(uri, "access_token is empty or holds characters that no token has")
    from_environment = os.environ.get("STORAGE_EMULATOR_HOST", "").strip()
    if options.endpoint is not None:
        endpoint = _checked(options.endpoint, "https", uri)
    elif from_environment:
        endpoint = _checked(from_environment, "http", uri)
    else:
        return options
    emulator = options.endpoint is None or endpoint.startswith("http:")
    anonymous = options.anonymous or (
        emulator and not any(named) and "access_token" not in options.dropped
    )
    return options.model_copy(update={"endpoint": endpoint, "anonymous": anonymous})


def _token(options: GCSOptions) -> str:
    # A secret mounted as a file often brings a line's end along.
    return "" if options.access_token is None else options.access_token.get_secret_value().strip()


def _checked(endpoint: str, scheme: str, uri: str) -> str:
    """Return ``scheme://host[:port]``."""
    url = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    found = _ENDPOINT.fullmatch(url)
    if not found:
        raise _wrong(
            uri, f"the endpoint {endpoint!r} is not of the form https://host or http://host:port"
        )
    return found[1]


def _wrong(uri: str, message: str) -> SettingsError:
    return SettingsError(message, uri=uri, operation="open")


def is_google(options: GCSOptions) -> bool:
    """Whether the service behind resolved options is Google's own."""
    if options.endpoint is None:
        return True
    return f".{urlsplit(options.endpoint).hostname}".endswith(_GOOGLE)


# ---- The client ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GCSClient:
    """One session for both APIs.

    Attributes:
        credentials: of google-auth, which the session shares.
        token_request: what google-auth fetches tokens by.
        session: a ``google.auth.transport.requests.AuthorizedSession``.
        endpoint: where requests go.
        transfer: says how long to wait.
        project: billed for requests; None: the bucket's own.
    """

    credentials: Any
    token_request: Any
    session: Any
    endpoint: str
    transfer: TransferOptions
    project: str | None

    def access(self, bucket: str, *, renewing: bool) -> GCSAccess:
        """Return endpoint and token, a new one if ``renewing``.

        Raises:
            google.auth.exceptions.GoogleAuthError: there is no token to be had.
        """
        credentials = self.credentials
        headers: dict[str, str] = {}
        if renewing:
            credentials.refresh(self.token_request)
        credentials.before_request(self.token_request, "GET", self.endpoint, headers)
        expiry = getattr(credentials, "expiry", None)
        # A naive time in UTC.
        expires_at = expiry.replace(tzinfo=timezone.utc).timestamp() if expiry else None
        return GCSAccess(self.endpoint, bucket, headers, expires_at)

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: memoryview | None = None,
        *,
        patient: bool = False,
        as_stored: bool = False,
    ) -> Answer:
        """Send one request, once, and return the answer.

        Args:
            method: of HTTP.
            path: from the root of the endpoint, percent-encoded.
            query: parameters, not yet encoded; one without a value stands alone.
            headers: beside the credentials.
            body: what to send.
            patient: wait ``completion_timeout_seconds`` for the answer.
            as_stored: leave the body of a success as it is, should it be compressed.

        Raises:
            AnswerError: the status says no success.
        """
        times = self.transfer
        wait = times.completion_timeout_seconds if patient else times.first_byte_timeout_seconds
        # Whoever does not accept gzip gets objects stored so decompressed, with other sizes.
        raw = {"Accept-Encoding": "gzip"} if as_stored else {}
        with self.session.request(
            method,
            f"{self.endpoint}{path}{_query(query or {})}",
            data=Body(body) if body else None,
            headers={**raw, **(headers or {})},
            timeout=(times.connect_timeout_seconds, wait),
            allow_redirects=False,
            stream=True,
        ) as response:
            success = response.status_code in _SUCCESS
            data = response.raw.read(decode_content=not (as_stored and success))
        answer = Answer(response.status_code, response.headers, data)
        if not success:
            raise AnswerError(answer)
        return answer


def _query(parameters: Mapping[str, str]) -> str:
    pairs = (
        f"{name}={quote(value, safe='')}" if value else name for name, value in parameters.items()
    )
    return f"?{'&'.join(pairs)}" if parameters else ""


def crc32c(data: bytes | memoryview) -> str:
    """Return the base64 CRC32C of a buffer, as the service writes it."""
    import google_crc32c

    value = 0
    # It takes nothing but bytes; pieces keep the copies small.
    for piece in [data] if isinstance(data, bytes) else map(bytes, Body(data)):
        value = google_crc32c.extend(value, piece)
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def open_client(
    options: GCSOptions, transfer: TransferOptions, connection: Connection
) -> GCSClient:
    """Open a client, with resolved options; finds the credentials.

    Raises:
        SettingsError: google-cloud-storage, or a part of it, is not installed.
        google.auth.exceptions.GoogleAuthError: there are no credentials.
    """
    try:
        import google_crc32c  # noqa: F401 wanted by the first body that is checked
        import requests
        from google.auth.transport.requests import AuthorizedSession, Request
    except ImportError as error:
        raise SettingsError(
            "gs:// needs google-cloud-storage; install it with: "
            f"pip install 'torch-cloud-connector[gcs]' ({error})"
        ) from error
    credentials = _credentials(options)
    token_request = Request(requests.Session())
    session: Any = AuthorizedSession(  # type: ignore[no-untyped-call]
        credentials,
        # Exactly one layer retries, and it is not this one: neither on 401 nor for tokens.
        max_refresh_attempts=0,
        auth_request=token_request,
    )
    adapter = requests.adapters.HTTPAdapter(
        pool_maxsize=transfer.max_connections, pool_block=True, max_retries=0
    )
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    endpoint = options.endpoint or f"https://storage.{credentials.universe_domain}"
    # The environment is read once, for reads and all else alike.
    session.trust_env = False
    session.proxies = connection.proxies(endpoint)
    session.verify, session.cert = connection.trusted, connection.shown
    connection.tell_unverified(endpoint)
    return GCSClient(credentials, token_request, session, endpoint, transfer, options.project)


def _credentials(options: GCSOptions) -> Any:
    import google.auth
    import google.auth.credentials
    import google.oauth2.credentials

    if options.anonymous:
        return google.auth.credentials.AnonymousCredentials()  # type: ignore[no-untyped-call]
    if options.access_token is not None:
        return google.oauth2.credentials.Credentials(  # type: ignore[no-untyped-call]
            token=_token(options), quota_project_id=options.project
        )
    if options.credentials_file is None:
        return google.auth.default(scopes=_SCOPES, quota_project_id=options.project)[0]
    with warnings.catch_warnings():
        # It warns of files from strangers; this one the user named.
        warnings.simplefilter("ignore", DeprecationWarning)
        return google.auth.load_credentials_from_file(  # type: ignore[no-untyped-call]
            options.credentials_file, scopes=_SCOPES, quota_project_id=options.project
        )[0]


# ---- What the libraries raise --------------------------------------------------------------


def explain_library_error(
    error: Exception, options: GCSOptions, uri: str, operation: str
) -> ProviderError | None:
    """Say what an exception of google-auth, requests or urllib3 means.

    The class decides, never the message; None: of none of them.
    """
    from google.auth import exceptions as auth

    if isinstance(error, auth.GoogleAuthError):
        kind, advice = _of_google_auth(error, options)
    elif (found := _of_requests(error)) is not None:
        kind, advice = found
    else:
        return None
    return kind(f"{advice}: {error}", uri=uri, operation=operation)


def _of_google_auth(error: Any, options: GCSOptions) -> tuple[type[ProviderError], str]:
    import requests
    from google.auth import exceptions as auth

    causes = [error, error.__cause__, getattr(error.__cause__, "__cause__", None)]
    if any(isinstance(cause, requests.exceptions.SSLError) for cause in causes):
        return SettingsError, "TLS failed on the way to a token; check the CA bundle"
    if isinstance(error, auth.DefaultCredentialsError):
        tried = options.credentials_file or _DEFAULT_CHAIN
        if options.dropped:
            tried = (
                f"{', '.join(options.dropped)} stayed behind when the options were pickled "
                f"(pickle_secrets=True keeps it); {tried}"
            )
        return AccessDeniedError, _NO_CREDENTIALS.format(tried=tried)
    if isinstance(error, auth.MutualTLSChannelError | auth.ClientCertError):
        return SettingsError, "the client certificate cannot be used"
    if isinstance(error, auth.TimeoutError):
        return TimedOutError, "no token in time"
    # A refresh that fails for lack of a connection says so by its cause alone.
    if error.retryable or any(isinstance(cause, auth.TransportError) for cause in causes):
        return UnavailableError, "no token could be had just now"
    return AccessDeniedError, "google-auth could not get a token; the credentials are refused"


def _of_requests(error: Exception) -> tuple[type[ProviderError], str] | None:
    import requests.exceptions as sent
    import urllib3.exceptions as read

    table: tuple[tuple[tuple[type[Exception], ...], type[ProviderError], str], ...] = (
        ((sent.SSLError,), SettingsError, "TLS failed; check the endpoint and the CA bundle"),
        ((sent.ConnectTimeout,), TimedOutError, "no connection in time"),
        ((sent.Timeout, read.TimeoutError, TimeoutError), TimedOutError, "no answer in time"),
        (
            (
                sent.MissingSchema,
                sent.InvalidSchema,
                sent.InvalidURL,
                sent.InvalidHeader,
                sent.URLRequired,
            ),
            SettingsError,
            "requests refuses the endpoint, the proxy or a header",
        ),
        (
            (
                sent.ConnectionError,
                sent.ChunkedEncodingError,
                sent.ContentDecodingError,
                read.HTTPError,
                ConnectionError,
            ),
            UnavailableError,
            "the connection failed",
        ),
        ((sent.RequestException,), ServiceError, "requests failed"),
        ((OSError,), SettingsError, "a file that the settings name cannot be read"),
    )
    for kinds, kind, advice in table:
        if isinstance(error, kinds):
            return kind, advice
    return None
