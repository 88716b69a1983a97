"""Which bucket and key a request means."""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote_plus, unquote_to_bytes

from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import RawRequest, Request

_MAX_KEY_BYTES = 1023


def locate(raw: RawRequest, cnames: Mapping[str, str]) -> Request:
    """Read bucket, key and query off a request.

    Args:
        raw: The request.
        cnames: Host names that stand for one bucket each.

    Raises:
        ServiceError: The host does not allow this form of address, or the key is not valid.
    """
    path, _, query = _origin_form(raw.target).partition(b"?")
    host = _host_name(raw.headers.get("host", ""))
    bucket = cnames.get(host) or _bucket_of(host)
    rest = path.removeprefix(b"/")
    if bucket is None:
        first, _, rest = rest.partition(b"/")
        bucket = first.decode("latin-1") or None
        if bucket is not None and not _allows_path_style(host):
            raise ServiceError("SecondLevelDomainForbidden", ec="0003-00000101", Bucket=bucket)
    return Request(
        raw.method, bucket, _valid_key(rest), _decode_query(query), raw.headers, raw.body
    )


def _origin_form(target: bytes) -> bytes:
    """The target without scheme and host, which a client sends when it believes in a proxy."""
    if target.startswith(b"/"):
        return target
    _, _, after = target.partition(b"://")
    slash = after.find(b"/")
    return after[slash:] if slash >= 0 else b"/"


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


@lru_cache(maxsize=1024)
def _allows_path_style(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def _bucket_of(host: str) -> str | None:
    """The bucket a host name begins with, or None for the service's own name.

    The service's names begin with `oss-` (`oss-cn-hangzhou.aliyuncs.com`, `oss-local.test`) or
    have two labels; `localhost` is a service too.
    """
    if _allows_path_style(host):
        return None
    label, _, domain = host.partition(".")
    is_service = label.startswith("oss-") and not domain.startswith("oss-")
    if is_service or ("." not in domain and domain != "localhost"):
        return None
    return label


def _valid_key(encoded: bytes) -> str:
    name = unquote_to_bytes(encoded)
    if len(name) > _MAX_KEY_BYTES or name.startswith((b"/", b"\\")):
        raise ServiceError("InvalidObjectName", ObjectName=name.decode("utf-8", "replace"))
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ServiceError("InvalidObjectName", "The object name is not UTF-8.") from error


def _decode_query(query: bytes) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in query.decode("latin-1").split("&") if pair)
    try:
        return {
            unquote_plus(name, errors="strict"): unquote_plus(value, errors="strict")
            for name, _, value in pairs
        }
    except UnicodeDecodeError as error:
        raise ServiceError("InvalidArgument", "The query is not UTF-8.") from error
