"""Whole objects against the checksum that the service tells of them.

The libraries that compute them come with the extras of each cloud and are loaded by the first
body that needs one. Without its library a body counts as unverified; it is never an error.
"""

from __future__ import annotations

import binascii
import enum
import functools
import hashlib
import importlib
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from providers.planning import combine_crc

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checksum", "RangedSum", "Verdict", "Verify", "compare", "find", "parse"]

_log = logging.getLogger(__name__)

Verify: TypeAlias = Literal["auto", "all", "none"]
"""Which checksums to compare: those that cost little, those and the SHAs and MD5, none."""

Pieces: TypeAlias = "bytes | memoryview | list[bytes]"
"""A body; a view is of flat bytes."""

_PIECE_BYTES: Final = 256 << 10
"""What is summed, and copied where a library takes bytes only, while it is in the cache."""


@dataclass(frozen=True, slots=True)
class _Algorithm:
    """How a checksum is written and computed.

    Attributes:
        size_bytes: of its value.
        polynomial: of a CRC, reflected; 0: this is a digest of hashlib.
        module: holds the function that computes it.
        function: its name.
        package: what to install for it.
        takes_views: whether the function takes any buffer, not bytes only.
    """

    size_bytes: int
    polynomial: int = 0
    module: str = "hashlib"
    function: str = ""
    package: str = ""
    takes_views: bool = True


# By the names that services use, the best first. All CRCs are reflected, with initial value and
# final mask of ones.
# Source: https://reveng.sourceforge.io/crc-catalogue/all.htm (CRC-32/ISCSI, CRC-64/NVME, CRC-64/XZ,
# CRC-32/ISO-HDLC), read 2026-12-01. OSS calls CRC-64/XZ after ECMA-182, whose polynomial it has.
_ALGORITHMS: Final = {
    "crc32c": _Algorithm(4, 0x82F63B78, "google_crc32c", "extend", "google-crc32c", False),
    "crc64nvme": _Algorithm(
        8, 0x9A6C9329AC4BC9B5, "awscrt.checksums", "crc64nvme", "awscrt", False
    ),
    "crc64ecma": _Algorithm(8, 0xC96C5795D7870F42, "fastcrc.crc64", "xz", "fastcrc"),
    "crc32": _Algorithm(4, 0xEDB88320, "zlib", "crc32"),
    "sha256": _Algorithm(32),
    "sha1": _Algorithm(20),
    "md5": _Algorithm(16),
}
_RANKS: Final = {name: rank for rank, name in enumerate(_ALGORITHMS)}

_TOLD = re.compile(
    rb"(?i)\n(x-goog-hash|x-oss-hash-crc64ecma|"
    rb"x-amz-checksum-(?:crc32c?|crc64nvme|sha1|sha256|type)):[ \t]*([^\r\n]*)"
)
_LONGEST_STATUS: Final = len(b"HTTP/1.1 206")


class Checksum(NamedTuple):
    """What a service tells of an object's bytes.

    Attributes:
        algorithm: ``crc32c``, ``crc64nvme``, ``crc64ecma``, ``crc32``, ``sha256``, ``sha1``, ``md5``.
        value: a number for the CRCs, the digest for the others.
    """

    algorithm: str
    value: int | bytes


class Verdict(enum.Enum):
    """What comparing a body with its checksum showed."""

    RIGHT = "right"
    WRONG = "wrong"
    UNVERIFIED = "unverified"


# ---- What is told --------------------------------------------------------------------------


def find(lines: list[bytes]) -> Checksum | None:
    """Return the best checksum that an answer's headers tell of the whole object.

    ``x-amz-checksum-*`` counts only where the answer is the whole object: of a part or a range
    it may describe that alone, and where its type is COMPOSITE it describes checksums.

    Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html,
    https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooghash,
    https://www.alibabacloud.com/help/en/oss/developer-reference/getobject, read 2026-12-01.

    Args:
        lines: as libcurl gives them, status line first; of several answers the last counts.
    """
    text = b"".join(lines)
    begin = text.rfind(b"\nHTTP/") + 1
    best: Checksum | None = None
    amazon_counts = b" 206" not in text[begin : begin + _LONGEST_STATUS]
    for header, value in _TOLD.findall(text, begin):
        name = header.lower().decode()
        if name == "x-goog-hash":
            told = [pair.strip().partition(b"=")[::2] for pair in value.split(b",")]
            for algorithm, hashed in told:
                best = _better(best, algorithm.decode("latin-1"), hashed)
        elif name == "x-oss-hash-crc64ecma":
            best = _better(best, "crc64ecma", value)
        elif name == "x-amz-checksum-type":
            amazon_counts = amazon_counts and value.strip().upper() != b"COMPOSITE"
        elif amazon_counts:
            best = _better(best, name.removeprefix("x-amz-checksum-"), value)
    return best
