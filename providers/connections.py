"""How a store is reached: certificates, proxy, protocol. Decided once, for every client alike."""

from __future__ import annotations

import logging
import os
import re
import ssl
import urllib.request
import warnings
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from providers.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.options import HttpOptions

__all__ = ["Connection", "choose_ca"]

_log = logging.getLogger(__name__)

_SDK_VARIABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "s3": ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
        "gs": ("REQUESTS_CA_BUNDLE",),
        "oss": ("REQUESTS_CA_BUNDLE",),
    }
)
"""What each cloud's own SDK reads. Source: botocore's ``configprovider`` and ``args``;
requests' ``Session.merge_environment_settings``, read 2026-12-01."""

_VARIABLES = ("SSL_CERT_FILE", "CURL_CA_BUNDLE")

_unverified: set[str] = set()
"""Hosts that the log has said are not verified."""

_SYSTEM_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Debian, Fedora, SUSE, Alpine and macOS. Source: Go's ``crypto/x509/root_linux.go``."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How one store is reached; the same value for its SDK and for the data plane.

    Attributes:
        ca: file or directory of the certificates that are trusted; see ``choose_ca``.
        verify_tls: False: any certificate is.
        client_certificate: PEM file that this client shows.
        client_key: PEM file of its key, where the certificate's file does not hold it.
        proxy: URL of a proxy; empty: none; None: what the environment says for each host.
        http2: offer HTTP/2; by default 1.1, one request a connection.
        addresses: ``host:port:address``, used instead of looking the name up.
    """

    ca: str
    verify_tls: bool = True
    client_certificate: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    http2: bool = False
    addresses: tuple[str, ...] = ()

    @classmethod
    def by(cls, scheme: str, options: HttpOptions) -> Connection:
        """Return how the options of a scheme say that its stores are reached.

        Raises:
            SettingsError: a file that is named does not exist.
        """
        named = options.client_certificate, options.client_key
        for name, path in zip(("client_certificate", "client_key"), named, strict=True):
            if path is not None and not os.path.isfile(path):  # noqa: PTH113 paths stay text here
                raise SettingsError(f"option {name} names {path!r}: no such file")
        if options.client_key and not options.client_certificate:
            raise SettingsError("option client_key goes with client_certificate, which is missing")
        return cls(
            choose_ca(scheme, options.ca_file),
            options.verify_tls,
            options.client_certificate,
            options.client_key,
            options.proxy,
            options.http2,
        )

    @property
    def trusted(self) -> str | bool:
        """The trusted certificates, in the form that requests and botocore take."""
        return self.ca if self.verify_tls else False

    @property
    def shown(self) -> tuple[str, str] | str | None:
        """The client's certificate, in the form that requests and botocore take."""
        if self.client_certificate and self.client_key:
            return self.client_certificate, self.client_key
        return self.client_certificate

    def tell_unverified(self, endpoint: str) -> None:
        """Log once that an endpoint is not verified, in place of urllib3's warning each time."""
        place = urlsplit(endpoint)
        if self.verify_tls or place.scheme != "https":
            return
        import urllib3.exceptions  # noqa: PLC0415 comes with the SDKs, whose clients ask for this

        host = rf"([^']+\.)?{re.escape(place.hostname or '')}'"
        warnings.filterwarnings(
            "ignore",
            f"Unverified HTTPS request is being made to host '{host}",
            urllib3.exceptions.InsecureRequestWarning,
        )
        if place.netloc not in _unverified:
            _unverified.add(place.netloc)
            _log.warning("verify_tls=False: nobody checks whether %s is who it says", place.netloc)

    def trust(self, context: ssl.SSLContext) -> None:
        """Make a context of Python's trust and show what this connection does."""
        if not self.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif os.path.isdir(self.ca):  # noqa: PTH112 paths stay text here
            context.load_verify_locations(capath=self.ca)
        else:
            context.load_verify_locations(cafile=self.ca)
        if self.client_certificate:
            context.load_cert_chain(self.client_certificate, self.client_key)

    def proxy_for(self, url: str) -> str:
        """Return the proxy for a URL; empty: none."""
        return _choose_proxy(url) if self.proxy is None else self.proxy

    def proxies(self, url: str) -> dict[str, str]:
        """Return the proxy for a URL by its scheme, in the form that requests takes."""
        proxy = self.proxy_for(url)
        return {urlsplit(url).scheme: proxy} if proxy else {}


def choose_ca(scheme: str, option: str | None = None) -> str:
    """Return the file or directory of trusted certificates.

    The first of: the option, what the cloud's SDK reads, ``SSL_CERT_FILE``,
    ``CURL_CA_BUNDLE``, the system's file, certifi's.

    Raises:
        SettingsError: the one that is named does not exist, or there is none at all.
    """
    named = [("option ca_file", option)] if option else []
    named += [
        (name, os.environ[name])
        for name in (*_SDK_VARIABLES.get(scheme, ()), *_VARIABLES)
        if os.environ.get(name)
    ]
    for name, path in named:
        if not os.path.exists(path):  # noqa: PTH110 paths stay text here
            raise SettingsError(f"{name} names {path!r} for trusted certificates: no such file")
        return path
    for path in (ssl.get_default_verify_paths().cafile, *_SYSTEM_FILES):
        if path and os.path.isfile(path):  # noqa: PTH113 the same
            return path
    return _bundled()


def _bundled() -> str:
    try:
        import certifi  # noqa: PLC0415 wanted only where the system has no certificates
    except ImportError:
        raise SettingsError(
            "found no trusted certificates: install the system's ca-certificates or certifi, "
            "or name a file in SSL_CERT_FILE"
        ) from None
    return certifi.where()


def _choose_proxy(url: str) -> str:
    """Return the proxy that Python's own clients would use for a URL; empty: none."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return ""
    return proxy
