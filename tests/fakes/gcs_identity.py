"""How Google Cloud Storage names a version of an object, in its two interfaces.

The JSON API's etag is made from generation and metageneration; the XML API's ETag is the MD5 in
hexadecimal, except for objects that were put together from others: those have no MD5, and a
composed one tells from how many it was made.
"""

import base64
import re
from typing import Any

from tests.fakes.gcs_backend import Resource
from tests.fakes.wire import Answer


class Composites:
    """Remembers which versions were put together from others, and what encrypts them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int | None] = {}
        self._kms_keys: dict[tuple[str, str, str], str] = {}

    def add(self, resource: Resource, count: int | None) -> None:
        """Note a version without MD5, and its component count if it has one."""
        self._counts[_version(resource)] = count

    def encrypt(self, resource: Resource, kms_key_name: str | None) -> None:
        """Note the key that a version is said to be encrypted with."""
        if kms_key_name:
            self._kms_keys[_version(resource)] = kms_key_name

    def count(self, resource: Resource) -> int:
        """How many components an object contributes to the next compose."""
        return self._counts.get(_version(resource)) or 1

    def dress(self, value: Any) -> Any:
        """Put right every resource in a JSON document."""
        if isinstance(value, list):
            return [self.dress(one) for one in value]
        if not isinstance(value, dict):
            return value
        if {"bucket", "name", "generation"} <= value.keys():
            return self._dress_one(value)
        return {name: self.dress(one) for name, one in value.items()}

    def dress_headers(self, answer: Answer, bucket: str, key: str) -> Answer:
        """Put right the headers of an object that the XML API answers with."""
        generation = answer.header("x-goog-generation")
        if generation is None:
            return answer
        hashes = dict(re.findall(r"(\w+)=([^,]+)", answer.header("x-goog-hash") or ""))
        resource = {"bucket": bucket, "name": key, "generation": generation}
        resource |= {"md5Hash": hashes.get("md5", ""), "crc32c": hashes.get("crc32c", "")}
        for name, value in self.headers(resource):
            answer = answer.with_header(name, value)
        return answer

    def headers(self, resource: Resource) -> list[tuple[str, str]]:
        """What the XML API says about a version."""
        dressed = self._dress_one(resource)
        digest = dressed.get("md5Hash")
        etag = base64.b64decode(digest).hex() if digest else f"-{dressed['etag']}"
        hashes = f"crc32c={dressed['crc32c']}" + (f",md5={digest}" if digest else "")
        headers = [
            ("ETag", f'"{etag}"'),
            ("x-goog-generation", dressed["generation"]),
            ("x-goog-metageneration", dressed.get("metageneration", "1")),
            ("x-goog-hash", hashes),
        ]
        if count := dressed.get("componentCount"):
            headers.append(("x-goog-component-count", str(count)))
        if kms_key_name := dressed.get("kmsKeyName"):
            headers.append(("x-goog-encryption-kms-key-name", kms_key_name))
        return headers

    def _dress_one(self, resource: Resource) -> Resource:
        dressed = {**resource, "etag": _json_etag(resource)}
        if _version(resource) in self._counts:
            dressed.pop("md5Hash", None)
            if count := self._counts[_version(resource)]:
                dressed["componentCount"] = count
        if kms_key_name := self._kms_keys.get(_version(resource)):
            dressed["kmsKeyName"] = kms_key_name
        return dressed


def project(document: Resource, fields: str | None) -> Resource:
    """Leave only what `fields=` asks for, in the one form that listing uses."""
    if fields is None:
        return document
    inner = re.search(r"items\(([^)]*)\)", fields)
    outer = re.sub(r"\([^)]*\)", "", fields).split(",")
    kept = {name: value for name, value in document.items() if name in outer}
    if inner and "items" in kept:
        names = inner[1].split(",")
        kept["items"] = [
            {name: item[name] for name in names if name in item} for item in kept["items"]
        ]
    return kept


def _version(resource: Resource) -> tuple[str, str, str]:
    return resource["bucket"], resource["name"], resource["generation"]


def _json_etag(resource: Resource) -> str:
    generation, metageneration = resource["generation"], resource.get("metageneration", "1")
    message = b"\x08" + _varint(int(generation)) + b"\x10" + _varint(int(metageneration))
    return base64.b64encode(message).decode()


def _varint(value: int) -> bytes:
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
