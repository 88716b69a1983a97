"""Signatures of requests to Alibaba Cloud OSS: V4, and V1 for what knows no other.

Both cover the ``Content-Type`` that arrives: a client that adds one of its own (libcurl does for
POST) must be given the same here. Neither depends on where the URL has the bucket.
"""

from __future__ import annotations

import base64
import hmac
import time
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import unquote

from providers.addresses import encode_key
from providers.signing import NO_HEADERS, UNSIGNED_PAYLOAD, ScopedSigner, Signer, canonical_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["OSSV1", "OSSV4"]

_SUBRESOURCES = frozenset({
    "accessPoint", "accessPointPolicy", "acl", "append", "asyncFetch",
    "bucketArchiveDirectRead", "bucketInfo", "callback", "callback-var", "cname", "comp",
    "continuation-token", "cors", "delete", "encryption", "endTime", "group", "httpsConfig",
    "inventory", "inventoryId", "lifecycle", "link", "live", "location", "logging",
    "metaQuery", "objectInfo", "objectMeta", "partNumber", "policy", "position",
    "publicAccessBlock", "qos", "qosInfo", "qosRequester", "redundancyTransition", "referer",
    "regionList", "replication", "replicationLocation", "replicationProgress",
    "requestPayment", "requesterQosInfo", "resourceGroup", "resourcePool",
    "resourcePoolBuckets", "resourcePoolInfo", "response-cache-control",
    "response-content-disposition", "response-content-encoding", "response-content-language",
    "response-content-type", "response-expires", "restore", "security-token", "sequential",
    "startTime", "stat", "status", "style", "styleName", "symlink", "tagging",
    "transferAcceleration", "uploadId", "uploads", "versionId", "versioning", "versions",
    "vod", "website", "worm", "wormExtend", "wormId", "x-oss-ac-forward-allow",
    "x-oss-ac-source-ip", "x-oss-ac-subnet-mask", "x-oss-ac-vpc-id",
    "x-oss-access-point-name", "x-oss-async-process", "x-oss-process",
    "x-oss-redundancy-transition-taskid", "x-oss-request-payer",
    "x-oss-target-redundancy-type", "x-oss-traffic-limit", "x-oss-write-get-object-response",
})  # fmt: skip
"""Query parameters that are part of a V1 signature.
Source: ``ProviderAuth`` of oss2 2.19.1, read 2026-11-30."""


class OSSV4(ScopedSigner):
    """Alibaba Cloud OSS signature V4, by header, of an unsigned payload.

    Args:
        access_key_id: names the credentials.
        access_key_secret: goes with it.
        security_token: of temporary credentials.
        region: the bucket's, without ``oss-``: ``cn-hangzhou``.
        service: the scope's product.
        additional_headers: further headers to sign where a request has them; by default what
            the service requires, which is ``x-oss-*``, ``Content-Type`` and ``Content-MD5``.
        now: seconds since the epoch, by the server's clock if this one is off.
    """

    __slots__ = ("_additional", "_signed_names")

    algorithm = "OSS4-HMAC-SHA256"
    vendor = "aliyun_v4"
    closing = "aliyun_v4_request"

    _ALWAYS = frozenset({"content-md5", "content-type"})
    _REPLACED = frozenset(
        {"authorization", "x-oss-content-sha256", "x-oss-date", "x-oss-security-token"}
    )

    def __init__(
        self,
        access_key_id: str,
        access_key_secret: str,
        security_token: str | None,
        region: str,
        service: str = "oss",
        *,
        additional_headers: Iterable[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(access_key_id, access_key_secret, security_token, region, service, now)
        lowered = {name.lower() for name in additional_headers} - self._ALWAYS
        self._additional = sorted(name for name in lowered if not name.startswith("x-oss-"))
        self._signed_names = self._ALWAYS.union(self._additional)

    def sign(
        self,
        method: str,
        bucket: str,
        key: str,
        query: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> dict[str, str]:
        """Return the headers to send: those given, and the signature.

        Args:
            method: ``GET``, in upper case.
            bucket: its name, wherever the URL has it; empty for the service itself.
            key: as it is, not encoded; empty for the bucket itself.
            query: encoded, as it stands in the URL.
            headers: to be sent with it.
        """
        moment = self._current()
        sent = {}
        signed = {}
        for name, value in headers.items():
            lower = name.lower()
            if lower not in self._REPLACED:
                sent[name] = value
                if lower.startswith("x-oss-") or lower in self._signed_names:
                    signed[lower] = value.strip()
        sent["x-oss-date"] = signed["x-oss-date"] = moment.stamp
        sent["x-oss-content-sha256"] = signed["x-oss-content-sha256"] = UNSIGNED_PAYLOAD
        if self._token:
            sent["x-oss-security-token"] = signed["x-oss-security-token"] = self._token
        lines = "\n".join([f"{name}:{signed[name]}" for name in sorted(signed)])
        additional = ";".join([name for name in self._additional if name in signed])
        resource = f"/{bucket}/{encode_key(key)}" if bucket else "/"
        if query:
            query = canonical_query(query, bare_names=True)
        canonical = f"{method}\n{resource}\n{query}\n{lines}\n\n{additional}\n{UNSIGNED_PAYLOAD}"
        authorization = f"{moment.credential}, Signature={self._signature(moment, canonical)}"
        if additional:
            authorization = f"{authorization}, AdditionalHeaders={additional}"
        sent["Authorization"] = authorization
        return sent


class OSSV1(Signer):
    """Alibaba Cloud OSS signature V1, by header; old private deployments know no other.

    Args:
        access_key_id: names the credentials.
        access_key_secret: goes with it.
        security_token: of temporary credentials.
        now: seconds since the epoch, by the server's clock if this one is off.
    """

    __slots__ = ("_access_key_id", "_date", "_key", "_now", "_token")

    _REPLACED = frozenset({"authorization", "date", "x-oss-date", "x-oss-security-token"})

    def __init__(
        self,
        access_key_id: str,
        access_key_secret: str,
        security_token: str | None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._access_key_id = access_key_id
        self._key = hmac.new(access_key_secret.encode(), digestmod="sha1")
        self._token = security_token
        self._now = now
        self._date = (0, formatdate(0, usegmt=True))

    def sign(
        self,
        method: str,
        bucket: str,
        key: str,
        query: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> dict[str, str]:
        """Return the headers to send: those given, and the signature.

        Args: as for ``OSSV4.sign``.
        """
        date = self._current_date()
        sent = {}
        signed = {}
        content = {"content-md5": "", "content-type": ""}
        for name, value in headers.items():
            lower = name.lower()
            if lower not in self._REPLACED:
                sent[name] = value
                if lower.startswith("x-oss-"):
                    signed[lower] = value.strip()
                elif lower in content:
                    content[lower] = value.strip()
        sent["Date"] = date
        if self._token:
            sent["x-oss-security-token"] = signed["x-oss-security-token"] = self._token
        lines = "".join([f"{name}:{signed[name]}\n" for name in sorted(signed)])
        resource = f"/{bucket}/{key}" if bucket else "/"
        text = (
            f"{method}\n{content['content-md5']}\n{content['content-type']}\n{date}\n"
            f"{lines}{resource}{_subresources(query) if query else ''}"
        )
        keyed = self._key.copy()
        keyed.update(text.encode())
        signature = base64.b64encode(keyed.digest()).decode("ascii")
        sent["Authorization"] = f"OSS {self._access_key_id}:{signature}"
        return sent

    def _current_date(self) -> str:
        second = int(self._now())
        known, date = self._date
        if known != second:
            date = formatdate(second, usegmt=True)
            self._date = (second, date)
        return date


def _subresources(query: str) -> str:
    """Return the part of a query that V1 signs, decoded and sorted, with its ``?``."""
    pairs = [pair.partition("=")[::2] for pair in query.split("&")]
    signed = sorted([(name, unquote(value)) for name, value in pairs if name in _SUBRESOURCES])
    if not signed:
        return ""
    return "?" + "&".join([f"{name}={value}" if value else name for name, value in signed])
