"""What libcurl's own failures mean: of sending, connecting, TLS, and proxies."""

from __future__ import annotations

import pycurl

from providers.errors import (
    IntegrityError,
    ProviderError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)

__all__ = ["explain_failure", "explain_tunnel"]

_FIRST_ERROR, _FIRST_SERVER_ERROR = 300, 500
_UNTRUSTED = frozenset(
    (
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_ISSUER_ERROR,
    )
)
_UNSENDABLE = frozenset(
    (pycurl.E_UNSUPPORTED_PROTOCOL, pycurl.E_URL_MALFORMAT, pycurl.E_BAD_FUNCTION_ARGUMENT)
)
_UNREACHED = frozenset(
    (pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_CONNECT)
)
_NOT_TLS = ":0A00010B:"
"""OpenSSL's code of an answer that is no TLS at all."""


def explain_failure(code: int, message: str, uri: str, ca: str) -> ProviderError:
    """Say what a failed transfer of libcurl's means.

    Args:
        code: libcurl's.
        message: goes with it.
        uri: of the object that was asked for.
        ca: file or directory of the certificates that are trusted.
    """
    kind: type[ProviderError] = SettingsError
    if code == pycurl.E_OPERATION_TIMEDOUT:
        kind, told = TimedOutError, message
    elif code in _UNTRUSTED:
        told = (
            f"the certificate is not trusted, or cannot be used: {message}; trusted are those "
            f"of {ca} (option ca_file)"
        )
    elif code == pycurl.E_SSL_CONNECT_ERROR and _NOT_TLS in message:
        told = f"the endpoint does not speak TLS: {message}; is it http://?"
    elif code == pycurl.E_FILESIZE_EXCEEDED:
        kind, told = IntegrityError, f"far more bytes came than were asked for: {message}"
    elif code in _UNSENDABLE:
        told = f"the request cannot be sent: {message}"
    else:
        what = "the endpoint cannot be reached" if code in _UNREACHED else "the connection broke"
        kind, told = UnavailableError, f"{what}: {message}"
    return kind(told, uri=uri, operation="get")


def explain_tunnel(status: int, uri: str) -> ProviderError | None:
    """Say that a proxy refused to connect, if it did.

    Args:
        status: of its answer to CONNECT; 0: there was none.
        uri: of the object that was asked for.
    """
    if status < _FIRST_ERROR:
        return None
    refusal = f"the proxy did not connect to the endpoint: it answered {status}"
    if status < _FIRST_SERVER_ERROR:
        return SettingsError(
            f"{refusal}; see to the option proxy, its user and password, or except the host "
            "in NO_PROXY",
            uri=uri,
            operation="get",
        )
    return UnavailableError(refusal, uri=uri, operation="get")
