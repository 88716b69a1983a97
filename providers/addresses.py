"""Where a bucket's objects are found over HTTP, and how keys and queries are spelled there.

Keys are opaque: ``a//b``, ``a/../b``, ``?`` and ``#`` mean themselves, so whoever sends these
URLs must not normalise their paths.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import SplitResult, quote, unquote, urlsplit

from providers.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BucketAddress", "Style", "encode_key", "encode_query", "is_address", "key_in"]

Style = Literal["path", "virtual", "bound"]
"""Where the bucket's name goes: into the path, before the host, or nowhere since the endpoint
already stands for the bucket (a CNAME, an access point, what an SDK resolved)."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST_LABELS = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII)
_is_plain = re.compile(r"[A-Za-z0-9/_.~-]*", re.ASCII).fullmatch


def encode_key(key: str) -> str:
    """Percent-encode a key for a path: slashes stay, all but letters, digits, ``_.-~`` goes."""
    return key if _is_plain(key) else quote(key, safe="/")


def encode_query(parameters: Mapping[str, str]) -> str:
    """Percent-encode a query; a parameter without a value is written ``name=``."""
    return "&".join(
        [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in parameters.items()]
    )


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """The place of one bucket, worked out once; a URL then costs two concatenations.

    Attributes:
        origin: scheme and host, ``https://bucket.s3.eu-central-1.amazonaws.com``.
        host: the value of the ``Host`` header, with the port where it is not the scheme's own.
        root: path of the bucket, without a slash at its end; may be empty.
    """

    origin: str
    host: str
    root: str

    @classmethod
    def at(cls, endpoint: str, bucket: str, style: Style) -> BucketAddress:
        """Work out the address of a bucket.

        Args:
            endpoint: URL of the service, or of the bucket if ``style`` is ``bound``.
            bucket: its name.
            style: where the name goes.

        Raises:
            SettingsError: the endpoint is no ``http`` or ``https`` URL of a host and perhaps a
                path, or the bucket's name and its host make no host name.
        """
        parts, host = _split(endpoint)
        root = parts.path.rstrip("/")
        if style == "path":
            root = f"{root}/{quote(bucket, safe='')}"
        elif style == "virtual":
            # Anything else could end the host early and send signed requests elsewhere.
            if not _HOST_LABELS.fullmatch(bucket) or is_address(parts.hostname or ""):
                raise SettingsError(
                    f"bucket {bucket!r} cannot be put before the host of {endpoint!r}; "
                    "use path-style addressing"
                )
            host = f"{bucket}.{host}"
        return cls(f"{parts.scheme}://{host}", host, root)

    def path(self, key: str = "") -> str:
        """Return the encoded path of an object, or of the bucket itself."""
        return f"{self.root}/{encode_key(key)}" if key else self.root or "/"

    def url(self, path: str, query: str = "") -> str:
        """Join a path of ``path`` and a query of ``encode_query`` to the URL to ask for."""
        return f"{self.origin}{path}?{query}" if query else f"{self.origin}{path}"


def key_in(url: str, bucket: str, *, bound: bool = False) -> str:
    """Return the key of the object that a URL asks for.

    Args:
        url: made by ``BucketAddress``.
        bucket: may be before the host, or the first word of the path.
        bound: the host stands for the bucket.
    """
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    hosted = bound or (parts.hostname or "").startswith(f"{bucket}.")
    return path if hosted else path.removeprefix(f"{bucket}/")


def _split(endpoint: str) -> tuple[SplitResult, str]:
    """Split an endpoint into its parts and the ``Host`` header that goes with it."""
    try:
        parts = urlsplit(endpoint)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError(f"endpoint {endpoint!r} is not a URL: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS or not name:
        raise SettingsError(
            f"endpoint {endpoint!r} must be an http or https URL, 'https://host' say"
        )
    if parts.username is not None or parts.query or parts.fragment:
        # The endpoint is not repeated: what precedes its "@" may be a password.
        raise SettingsError(
            f"the endpoint at {name!r} may hold a scheme, a host, a port and a path only"
        )
    if ":" in name:
        name = f"[{name}]"
    if port is None or port == _DEFAULT_PORTS[parts.scheme]:
        return parts, name
    return parts, f"{name}:{port}"


def is_address(host: str) -> bool:
    """Whether a host is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
