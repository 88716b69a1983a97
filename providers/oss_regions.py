"""Where a bucket of OSS is: what an endpoint's host tells, and what refusals of a wrong one do."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.options import OSSOptions

__all__ = ["region_of", "relocated", "told_place"]

_log = logging.getLogger(__name__)

# Names of endpoints, of accelerators among them, which tell no region.
# Source: https://help.aliyun.com/zh/oss/user-guide/regions-and-endpoints, read 2026-11-30.
_REGIONS_IN_HOSTS = (
    re.compile(r"oss-(?!accelerate)([a-z]+-[a-z0-9-]+?)(?:-internal)?\.aliyuncs\.com"),
    re.compile(r"([a-z]+-[a-z0-9-]+?)(?:-internal)?\.oss\.aliyuncs\.com"),
)
_SIGNED_FOR_ANOTHER = "0002-00000226"
"""EC of a V4 signature for another region than the endpoint's.
Source: https://help.aliyun.com/zh/oss/support/0002-00000226, read 2026-12-01."""


def region_of(host: str) -> str | None:
    """Return the region that a host of the vendor's stands for."""
    for pattern in _REGIONS_IN_HOSTS:
        match = pattern.fullmatch(host)
        if match:
            return match[1]
    return None


def told_place(fields: Mapping[str, str]) -> str | None:
    """Say in words what a refusal tells of where the bucket is; None: nothing.

    Source: https://help.aliyun.com/zh/oss/support/http-status-code-403 (AccessDenied, "must be
    addressed using the specified endpoint"), read 2026-12-01.

    Args:
        fields: of the error document.
    """
    if endpoint := fields.get("Endpoint"):
        return f"the bucket is at {endpoint}; set the option endpoint or region accordingly"
    if fields.get("EC") == _SIGNED_FOR_ANOTHER:
        return "set the option region (or OSS_REGION) to the bucket's"
    return None


def relocated(options: OSSOptions, fields: Mapping[str, str]) -> OSSOptions | None:
    """Return options that lead where a refusal says the bucket is; None: it tells nothing new.

    Signed requests follow from one host of the vendor's to another only.

    Args:
        options: resolved ones, by which the refused request was sent.
        fields: of the error document.
    """
    endpoint = options.endpoint or ""
    host = urlsplit(endpoint).hostname or ""
    here, there = region_of(host), fields.get("Endpoint", host)
    told = region_of(there)
    if here is None or told is None:
        return None
    moved = there != host
    if not moved and (fields.get("EC") != _SIGNED_FOR_ANOTHER or told == options.region):
        return None
    endpoint = endpoint.replace(host, there, 1)
    _log.warning(
        "the bucket is in the region %s: requests go to %s from now on, signed for it; set the "
        "options region and endpoint so", told, endpoint,
    )  # fmt: skip
    return options.model_copy(update={"endpoint": endpoint, "region": told})
