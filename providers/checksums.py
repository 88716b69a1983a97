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
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from providers.planning import combine_crc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Checksum", "RangedSum", "Verdict", "Verify", "compare", "crc_of", "find",
           "joined", "parse"]  # fmt: skip

_log = logging.getLogger(__name__)

Verify: TypeAlias = Literal["auto", "all", "none"]
"""Which checksums to compare: those that cost little, those and the SHAs and MD5, none."""

Body: TypeAlias = "bytes | memoryview | list[bytes]"
"""In one piece or several; a view is of flat bytes."""

_Compute: TypeAlias = "Callable[[bytes | memoryview, int], int]"
_PIECE_BYTES: Final = 256 << 10


class _Library(NamedTuple):
    """What computes a CRC.

    Attributes:
        package: what to install for it.
        module: holds the function.
        function: its name; it takes a buffer and the CRC so far.
        crc_first: whether it takes them the other way round.
    """

    package: str
    module: str
    function: str
    crc_first: bool = False


class _Algorithm(NamedTuple):
    """How a checksum is written and computed.

    Attributes:
        size_bytes: of its value.
        polynomial: of a CRC, reflected; 0: this is a digest of hashlib.
        libraries: of a CRC, the fastest first.
    """

    size_bytes: int
    polynomial: int = 0
    libraries: tuple[_Library, ...] = ()


# By the names that services use, the best first. All CRCs are reflected, with initial value and
# final mask of ones.
# Source: https://reveng.sourceforge.io/crc-catalogue/17plus.htm (CRC-32/ISCSI, CRC-64/NVME,
# CRC-64/XZ, CRC-32/ISO-HDLC), read 2026-12-01. OSS names CRC-64/XZ after its polynomial.
# On 100 KB, in microseconds: google-crc32c 5, fastcrc 8 (CRC-32C), 11 (CRC-32), 10 (CRC-64/XZ),
# zlib 43.
_ALGORITHMS: Final = {
    "crc32c": _Algorithm(
        4,
        0x82F63B78,
        (
            _Library("google-crc32c", "google_crc32c", "extend", crc_first=True),
            _Library("fastcrc", "fastcrc.crc32", "iscsi"),
        ),
    ),
    "crc64nvme": _Algorithm(
        8, 0x9A6C9329AC4BC9B5, (_Library("awscrt", "awscrt.checksums", "crc64nvme"),)
    ),
    "crc64ecma": _Algorithm(8, 0xC96C5795D7870F42, (_Library("fastcrc", "fastcrc.crc64", "xz"),)),
    "crc32": _Algorithm(
        4,
        0xEDB88320,
        (
            _Library("fastcrc", "fastcrc.crc32", "iso_hdlc"),
            _Library("Python with zlib", "zlib", "crc32"),
        ),
    ),
    "sha256": _Algorithm(32),
    "sha1": _Algorithm(20),
    "md5": _Algorithm(16),
}


def _pair(name: bytes, separator: bytes) -> bytes:
    """Return a pattern for a name and a value of its length, each a group, and their end."""
    size = _ALGORITHMS[name.decode()].size_bytes
    value = rb"[a-z0-9+/]{%d}%s" % (-(-size * 4 // 3), b"=" * (-size % 3))
    if name == b"crc64ecma":
        value = rb"[0-9]{1,20}"
    return rb"(?:(%s)%s(%s)[ \t]*(?:[,\r\n]|$))" % (name, separator, value)


def _pattern(goog: bytes, oss: bytes, *amazon: bytes) -> re.Pattern[bytes]:
    """Return a pattern that finds one of these: its last group is the value, the other its name."""
    forms = [
        rb"goog-hash:(?:[^\r\n]*?[ \t,])?" + _pair(goog, b"="),
        *([rb"oss-hash-" + _pair(oss, rb":[ \t]*")] if oss else []),
        *(rb"amz-checksum-" + _pair(name, rb":[ \t]*") for name in amazon),
    ]
    return re.compile(rb"\n[xX]-(?i:" + b"|".join(forms) + b")")


_ANY = re.compile(rb"\n[xX]-(?i:goog-hash|oss-hash|amz-checksum)")
_CRC = _pattern(b"crc32c", b"crc64ecma", b"crc64nvme", b"crc32c", b"crc32")
_DIGEST = _pattern(b"md5", b"", b"sha256", b"sha1")
_DESCRIBED = re.compile(b"(?i)" + b"|".join(_pair(n.encode(), b":") for n in _ALGORITHMS))
_COMPOSITE = re.compile(rb"\n[xX]-(?i:amz-checksum-type:[ \t]*COMPOSITE)")
_STATUS_BYTES: Final = len(b"HTTP/1.1 206")


class Checksum(NamedTuple):
    """What a service tells of an object's bytes.

    Attributes:
        algorithm: ``crc32c``, ``crc64nvme``, ``crc64ecma`` (CRC-64/XZ), ``crc32``, ``sha256``,
            ``sha1`` or ``md5``.
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


def find(head: bytes) -> Checksum | None:
    """Return the best checksum that an answer's headers tell of the whole object.

    GCS and OSS send the whole object's with ranges too. What Amazon S3 and its like send with a
    range may be anything, and what has a part count or the type COMPOSITE sums up checksums.

    Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_Checksum.html,
    https://cloud.google.com/storage/docs/xml-api/reference-headers,
    https://www.alibabacloud.com/help/en/oss/use-cases/check-data-transmission-integrity-by-using-crc-64,
    read 2026-12-01.

    Args:
        head: raw header lines, status line first; of several answers the last counts.
    """
    begin = head.rfind(b"\nHTTP/") + 1
    if _ANY.search(head, begin) is None:
        return None
    told = _CRC.search(head, begin) or _DIGEST.search(head, begin)
    if told is None:
        return None
    if b"-checksum-" in told[0].lower() and (
        b" 206" in head[begin : begin + _STATUS_BYTES] or _COMPOSITE.search(head, begin)
    ):
        return None
    return _read(told)


def parse(told: str | None) -> Checksum | None:
    """Read the checksum of an ``ObjectInfo``: ``algorithm:value`` in the service's own form."""
    found = _DESCRIBED.fullmatch((told or "").encode())
    return _read(found) if found else None


def _read(found: re.Match[bytes]) -> Checksum:
    """Read what a pattern found, whose value has the right length."""
    index = found.lastindex or 0
    name, text = found[index - 1].lower().decode(), found[index]
    if name == "crc64ecma":
        return Checksum(name, int(text))
    value = binascii.a2b_base64(text)
    return Checksum(name, int.from_bytes(value, "big") if _ALGORITHMS[name].polynomial else value)


# ---- What arrived --------------------------------------------------------------------------


def compare(told: Checksum | None, body: Body, verify: Verify = "auto") -> Verdict:
    """Say whether a body is what the service told of it.

    Args:
        told: from ``find`` or ``parse``; None verifies nothing.
        body: the whole object.
        verify: which checksums are worth their time.
    """
    if told is None or verify == "none":
        return Verdict.UNVERIFIED
    pieces = body if isinstance(body, list) else [body]
    found: int | bytes
    if isinstance(told.value, bytes):
        if verify != "all":
            return Verdict.UNVERIFIED
        digest = hashlib.new(told.algorithm, usedforsecurity=False)
        for piece in pieces:
            digest.update(piece)
        found = digest.digest()
    else:
        update = _updates(told.algorithm)
        if update is None:
            return Verdict.UNVERIFIED
        found = 0
        for piece in pieces:
            found = update(piece, found)
    return Verdict.RIGHT if found == told.value else Verdict.WRONG


def crc_of(algorithm: str, data: bytes | memoryview) -> Checksum:
    """Return the CRC of a buffer, by the fastest library there is.

    Raises:
        LookupError: none of those that compute it is installed.
    """
    update = _updates(algorithm)
    if update is None:
        raise LookupError(f"nothing computes a {algorithm} here")
    return Checksum(algorithm, update(data, 0))


def joined(parts: Iterable[tuple[Checksum | None, int]]) -> Checksum | None:
    """Return the CRC of consecutive parts; None: one is not known, or they are of several kinds.

    Args:
        parts: CRC and bytes of each, in order.
    """
    total: Checksum | None = None
    for part, size_bytes in parts:
        if part is None or not isinstance(part.value, int):
            return None
        if total is None:
            total = part
        elif total.algorithm != part.algorithm or not isinstance(total.value, int):
            return None
        else:
            polynomial = _ALGORITHMS[part.algorithm].polynomial
            whole = combine_crc(total.value, part.value, size_bytes, polynomial)
            total = Checksum(part.algorithm, whole)
    return total


class RangedSum:
    """The checksum of one object that arrives as ranges, several at once and in any order.

    Threads may add at once. SHA and MD5 can't be joined from ranges and verify nothing here.

    Args:
        told: of the whole object.
        verify: which checksums are worth their time.
    """

    __slots__ = ("_runs", "_told", "_update")

    def __init__(self, told: Checksum | None, verify: Verify = "auto") -> None:
        self._told = told
        wanted = told is not None and verify != "none" and isinstance(told.value, int)
        self._update = _updates(told.algorithm) if told is not None and wanted else None
        # Where each run of ranges ends: where it starts, and its CRC. A range that follows
        # the end of a run makes it longer; what is left is joined at the end.
        self._runs: dict[int, tuple[int, int]] = {}

    @property
    def wanted(self) -> bool:
        """Whether there is anything to compare with: if not, nothing need be added."""
        return self._update is not None

    def add(self, start: int, data: bytes | memoryview) -> None:
        """Take in bytes that are there for good, each once.

        Args:
            start: where in the object they lie.
            data: may change afterwards.
        """
        if self._update is None or not len(data):
            return
        first, value = self._runs.pop(start, (start, 0))
        self._runs[start + len(data)] = first, self._update(data, value)

    def verdict(self, size_bytes: int) -> Verdict:
        """Say whether all ranges together are what the service told.

        Args:
            size_bytes: of the object.

        Raises:
            ValueError: a range was added twice, or not at all.
        """
        if self._told is None or self._update is None:
            return Verdict.UNVERIFIED
        polynomial = _ALGORITHMS[self._told.algorithm].polynomial
        total = reached = 0
        runs = sorted((start, stop, value) for stop, (start, value) in self._runs.items())
        for start, stop, value in runs:
            if start != reached:
                raise ValueError(f"the ranges added are not one after the other at byte {reached}")
            total = combine_crc(total, value, stop - start, polynomial)
            reached = stop
        if reached != size_bytes:
            raise ValueError(f"the ranges added have {reached} bytes, the object {size_bytes}")
        return Verdict.RIGHT if total == self._told.value else Verdict.WRONG


@functools.cache
def _updates(name: str) -> _Compute | None:
    """Return what extends a CRC by a buffer, loading its library; None: there is none."""
    libraries = _ALGORITHMS[name].libraries
    for library in libraries:
        compute = _load(library)
        if compute is not None:
            return compute if _takes_views(compute) else functools.partial(_copying, compute)
    _log.info(
        "objects whose checksum is a %s are read unverified: %s is not installed, too old or not "
        "compiled",
        name,
        libraries[0].package,
    )
    return None


def _load(library: _Library) -> _Compute | None:
    try:
        module = importlib.import_module(library.module)
        function: Callable[..., int] = getattr(module, library.function)
    except (ImportError, AttributeError):
        return None
    # Where google-crc32c has no wheel it computes in Python, a thousand times as slowly.
    if getattr(module, "implementation", "c") == "python":
        return None
    return (lambda data, crc: function(crc, data)) if library.crc_first else function


def _takes_views(compute: _Compute) -> bool:
    """Whether a library's version takes any buffer, not bytes only."""
    try:
        compute(memoryview(bytearray(1)), 0)
    except TypeError:
        return False
    return True


def _copying(compute: _Compute, data: bytes | memoryview, crc: int) -> int:
    """Extend a CRC by any buffer with a library that takes bytes only."""
    if isinstance(data, bytes):
        return compute(data, crc)
    # In pieces that are summed, and their memory used again, while they are in the cache.
    for start in range(0, len(data), _PIECE_BYTES):
        crc = compute(bytes(data[start : start + _PIECE_BYTES]), crc)
    return crc
