import base64
import hashlib
import logging
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from types import ModuleType

import crcmod
import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import checksums
from providers.checksums import Checksum, RangedSum, Verdict, compare, find, parse

DIGITS = b"123456789"

# What each algorithm makes of b"123456789".
# Source: https://reveng.sourceforge.io/crc-catalogue/17plus.htm, the "check" of CRC-32/ISCSI,
# CRC-64/NVME, CRC-64/XZ and CRC-32/ISO-HDLC, read 2026-12-01.
CHECKS = {
    "crc32c": 0xE3069283,
    "crc64nvme": 0xAE8B14860A799888,
    "crc64ecma": 0x995DC9BBDF1939FA,
    "crc32": 0xCBF43926,
}
# Source: RFC 1321, A.5 (MD5); FIPS 180-2, appendices A.1 and B.1 (SHA-1, SHA-256): of b"abc".
DIGESTS = {
    "md5": "900150983cd24fb0d6963f7d28e17f72",
    "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
}
POLYNOMIALS = {name: checksums._ALGORITHMS[name].polynomial for name in CHECKS}


def slow_crc(data: bytes, crc: int, polynomial: int) -> int:
    """Compute a reflected CRC bit by bit, as its definition says."""
    mask = (1 << polynomial.bit_length()) - 1
    crc ^= mask
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
    return crc ^ mask


@pytest.fixture(autouse=True)
def _crc64nvme(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand in for awscrt, which is large: its function, and no other buffer than bytes."""

    def crc64nvme(data: bytes, previous: int = 0) -> int:
        if type(data) is not bytes:
            raise TypeError("bytes only")
        return slow_crc(data, previous, 0x9A6C9329AC4BC9B5)

    package, module = ModuleType("awscrt"), ModuleType("awscrt.checksums")
    vars(module)["crc64nvme"] = crc64nvme
    monkeypatch.setitem(sys.modules, "awscrt", package)
    monkeypatch.setitem(sys.modules, "awscrt.checksums", module)
    checksums._updates.cache_clear()
    yield
    checksums._updates.cache_clear()


def encoded(value: int, size_bytes: int) -> str:
    """Write a CRC as Amazon and Google do."""
    return base64.b64encode(value.to_bytes(size_bytes, "big")).decode()


def answer(*headers: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    """Write the headers of an answer as libcurl gives them."""
    lines = [status, "Date: Tue, 01 Dec 2026 10:00:00 GMT", *headers, "Content-Length: 9", ""]
    return "".join([f"{line}\r\n" for line in lines]).encode()


class TestFinding:
    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            (["x-goog-hash: crc32c=4waSgw=="], ("crc32c", CHECKS["crc32c"])),
            (
                ["x-goog-hash: crc32c=4waSgw==", "x-goog-hash: md5=JfnnlDI7RTiF9RgfG2JNCw=="],
                ("crc32c", CHECKS["crc32c"]),
            ),
            (
                ["x-goog-hash: md5=JfnnlDI7RTiF9RgfG2JNCw==", "x-goog-hash: crc32c=4waSgw=="],
                ("crc32c", CHECKS["crc32c"]),
            ),
            (
                ["X-Goog-Hash: crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfG2JNCw=="],
                ("crc32c", CHECKS["crc32c"]),
            ),
            (
                ["x-goog-hash:  md5=JfnnlDI7RTiF9RgfG2JNCw==, crc32c=4waSgw==  "],
                ("crc32c", CHECKS["crc32c"]),
            ),
            (
                ["x-goog-hash: md5=JfnnlDI7RTiF9RgfG2JNCw=="],
                ("md5", hashlib.md5(DIGITS, usedforsecurity=False).digest()),
            ),
            (["x-goog-hash: new=AAAA,crc32c=4waSgw=="], ("crc32c", CHECKS["crc32c"])),
            (["x-amz-checksum-crc32: y/Q5Jg=="], ("crc32", CHECKS["crc32"])),
            (["X-AMZ-Checksum-CRC32C: 4waSgw=="], ("crc32c", CHECKS["crc32c"])),
            (
                ["x-amz-checksum-crc64nvme: rosUhgp5mIg=", "x-amz-checksum-type: FULL_OBJECT"],
                ("crc64nvme", CHECKS["crc64nvme"]),
            ),
            (
                ["x-amz-checksum-sha1:98O8HYCOBHMqNl8EcRGoaPfEJ+g="],
                ("sha1", base64.b64decode("98O8HYCOBHMqNl8EcRGoaPfEJ+g=")),
            ),
            (
                ["x-amz-checksum-sha256: FeKw09l/2CAQmmNI2OBQrEB/fk8ZsbFrXT+F0Q5zXyU="],
                ("sha256", base64.b64decode("FeKw09l/2CAQmmNI2OBQrEB/fk8ZsbFrXT+F0Q5zXyU=")),
            ),
            (
                [
                    "x-amz-checksum-sha256: FeKw09l/2CAQmmNI2OBQrEB/fk8ZsbFrXT+F0Q5zXyU=",
                    "x-amz-checksum-crc32: y/Q5Jg==",
                ],
                ("crc32", CHECKS["crc32"]),
            ),
            (["x-oss-hash-crc64ecma: 11051210869376104954"], ("crc64ecma", CHECKS["crc64ecma"])),
            (["X-Oss-Hash-Crc64ecma: 0"], ("crc64ecma", 0)),
            (["x-goog-hash: crc32c=AAAAAA=="], ("crc32c", 0)),
        ],
    )
    def test_each_form_is_read(self, headers: list[str], expected: tuple[str, int | bytes]) -> None:
        """Every service's form gives the algorithm and value that are quickest to compare."""
        assert find(answer(*headers)) == expected

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            ['ETag: "25f9e794323b453885f5181f1b624d0b"'],
            ["x-amz-checksum-crc32: y/Q5Jg==", "x-amz-checksum-type: COMPOSITE"],
            ["x-amz-checksum-type: COMPOSITE", "x-amz-checksum-crc32: y/Q5Jg=="],
            [
                "x-amz-checksum-type: composite ",
                "x-amz-checksum-sha1: 98O8HYCOBHMqNl8EcRGoaPfEJ+g=",
            ],
            ["x-amz-checksum-crc32: y/Q5Jg==-2"],
            [
                "x-amz-checksum-crc32: y/Q5Jg==",
                "x-amz-checksum-crc32c: ",
                "x-amz-checksum-type: COMPOSITE",
            ],
            ["x-amz-checksum-sha256: FeKw09l/2CAQmmNI2OBQrEB/fk8ZsbFrXT+F0Q5zXyU=-17"],
            ["x-amz-checksum-type: FULL_OBJECT"],
            ["x-amz-checksum-crc32: "],
            ["x-amz-checksum-crc32: y/Q5"],
            ["x-amz-checksum-crc32: y/Q!Jg=="],
            ["x-amz-checksum-crc32: =======A"],
            ["x-amz-checksum-crc64nvme: y/Q5Jg=="],
            ["x-amz-checksum-xxhash64: rosUhgp5mIg="],
            ["x-amz-meta-x-goog-hash: crc32c=4waSgw=="],
            ["x-amz-meta-note: x-goog-hash: crc32c=4waSgw=="],
            ["x-goog-hash: crc32c"],
            ["x-goog-hash: sha1=98O8HYCOBHMqNl8EcRGoaPfEJ+g"],
            ["x-oss-hash-crc64ecma: "],
            ["x-oss-hash-crc64ecma: -1"],
            ["x-oss-hash-crc64ecma: 12a"],
            ["x-oss-hash-crc64ecma: " + "1" * 5000],
        ],
    )
    def test_what_is_not_of_the_whole_object_is_left_out(self, headers: list[str]) -> None:
        """Sums of checksums, unknown algorithms and malformed values verify nothing."""
        assert find(answer(*headers)) is None

    def test_the_next_best_is_taken_where_the_best_is_malformed(self) -> None:
        """One bad value does not hide a good one."""
        told = find(answer("x-goog-hash: crc32c=nonsense,md5=JfnnlDI7RTiF9RgfG2JNCw=="))
        assert told is not None
        assert told.algorithm == "md5"

    def test_the_last_answer_counts(self) -> None:
        """What an interim answer says is not of the object."""
        interim = answer("x-goog-hash: crc32c=AAAAAA==", status="HTTP/1.1 100 Continue")
        final = answer("x-oss-hash-crc64ecma: 7")
        assert find(interim + final) == ("crc64ecma", 7)
        assert find(interim + answer()) is None

    @pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
    def test_what_amazon_sends_with_a_range_does_not_count(self, version: str) -> None:
        """Of a range it may be the range's own; GCS and OSS tell the whole object's."""
        status = f"{version} 206 "
        assert find(answer("x-amz-checksum-crc32: y/Q5Jg==", status=status)) is None
        assert find(answer("x-goog-hash: crc32c=4waSgw==", status=status)) is not None
        assert find(answer("x-oss-hash-crc64ecma: 7", status=status)) is not None
        whole = answer("x-amz-checksum-crc32: y/Q5Jg==", status=f"{version} 200 ")
        assert find(whole) is not None

    @given(st.lists(st.binary(max_size=60), max_size=8))
    def test_no_header_breaks_it(self, lines: list[bytes]) -> None:
        """Whatever bytes a server sends, they are read or left out."""
        names = (b"", b"x-goog-hash: crc32c=", b"x-amz-checksum-sha1: ", b"x-oss-hash-crc64ecma: ")
        for name in names:
            find(b"HTTP/1.1 200 OK\r\n" + b"".join([name + line + b"\r\n" for line in lines]))

    @pytest.mark.parametrize(
        ("told", "expected"),
        [
            ("crc32c:4waSgw==", ("crc32c", CHECKS["crc32c"])),
            ("crc64ecma:11051210869376104954", ("crc64ecma", CHECKS["crc64ecma"])),
            ("crc32:y/Q5Jg==-2", None),
            ("etag:25f9e794323b453885f5181f1b624d0b", None),
            ("crc32é:y/Q5Jg==", None),
            ("", None),
            (None, None),
        ],
    )
    def test_a_description_is_read_likewise(
        self, told: str | None, expected: tuple[str, int] | None
    ) -> None:
        """The checksum of an ``ObjectInfo`` is understood, or none."""
        assert parse(told) == expected


class TestComparing:
    @pytest.mark.parametrize("algorithm", CHECKS)
    @pytest.mark.parametrize(
        "body",
        [DIGITS, memoryview(bytearray(DIGITS)), [b"1234", b"", b"56789"], [DIGITS]],
        ids=["bytes", "view", "pieces", "piece"],
    )
    def test_published_values_are_right(
        self, algorithm: str, body: "bytes | memoryview | list[bytes]"
    ) -> None:
        """Each CRC is the published one, however the body is cut, and no other value passes."""
        value = CHECKS[algorithm]
        for verify in ("auto", "all"):
            assert compare(Checksum(algorithm, value), body, verify) is Verdict.RIGHT
            assert compare(Checksum(algorithm, value ^ 1), body, verify) is Verdict.WRONG

    @pytest.mark.parametrize("algorithm", CHECKS)
    @given(st.binary(max_size=300))
    def test_sums_follow_their_definition(self, algorithm: str, data: bytes) -> None:
        """Any body's CRC is what the bit-by-bit definition gives."""
        told = Checksum(algorithm, slow_crc(data, 0, POLYNOMIALS[algorithm]))
        assert compare(told, data) is Verdict.RIGHT

    @pytest.mark.parametrize("algorithm", ["crc32c", "crc64ecma", "crc32"])
    def test_large_views_are_summed_whole(self, algorithm: str) -> None:
        """A view longer than a piece, of an odd length, has the sum of the same bytes."""
        data = os.urandom(3 * checksums._PIECE_BYTES + 17)
        mask = (1 << POLYNOMIALS[algorithm].bit_length()) - 1
        independent: dict[str, Callable[[bytes], int]] = {
            "crc32c": crcmod.mkCrcFun(0x11EDC6F41, initCrc=0, xorOut=mask),
            "crc64ecma": crcmod.mkCrcFun(0x142F0E1EBA9EA3693, initCrc=0, xorOut=mask),
            "crc32": zlib.crc32,
        }
        told = Checksum(algorithm, independent[algorithm](data))
        for view in (memoryview(data), memoryview(bytearray(data))):
            assert compare(told, view) is Verdict.RIGHT
        damaged = bytearray(data)
        damaged[-1] ^= 0x80
        assert compare(told, memoryview(damaged)) is Verdict.WRONG

    @pytest.mark.parametrize("algorithm", DIGESTS)
    def test_digests_are_compared_only_where_all_is(self, algorithm: str) -> None:
        """The SHAs and MD5 cost too much by default, and are right where they are asked for."""
        told = Checksum(algorithm, bytes.fromhex(DIGESTS[algorithm]))
        assert compare(told, b"abc", "auto") is Verdict.UNVERIFIED
        assert compare(told, b"abd", "auto") is Verdict.UNVERIFIED
        for body in (b"abc", memoryview(b"abc"), [b"a", b"bc"]):
            assert compare(told, body, "all") is Verdict.RIGHT
        assert compare(told, b"abd", "all") is Verdict.WRONG

    def test_none_compares_nothing(self) -> None:
        """Turned off, or without anything told, a body is unverified."""
        assert compare(Checksum("crc32", 1), DIGITS, "none") is Verdict.UNVERIFIED
        assert compare(None, DIGITS, "all") is Verdict.UNVERIFIED

    def test_an_empty_object_has_a_checksum(self) -> None:
        """Nothing sums up to zero, and anything else is wrong."""
        for body in (b"", memoryview(b""), list[bytes]()):
            assert compare(Checksum("crc32c", 0), body) is Verdict.RIGHT
            assert compare(Checksum("crc32c", 1), body) is Verdict.WRONG

    @pytest.mark.parametrize("algorithm", ["crc32c", "crc64nvme", "crc64ecma"])
    def test_without_its_library_a_body_is_unverified(
        self, algorithm: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A missing library fails no read; the log says once what to install."""
        libraries = checksums._ALGORITHMS[algorithm].libraries
        for library in libraries:
            monkeypatch.setitem(sys.modules, library.module, None)
        told = Checksum(algorithm, CHECKS[algorithm])
        with caplog.at_level(logging.INFO, "providers.checksums"):
            assert compare(told, b"damaged") is Verdict.UNVERIFIED
            assert compare(told, DIGITS, "all") is Verdict.UNVERIFIED
            assert not RangedSum(told).wanted
        (record,) = caplog.records
        assert libraries[0].package in record.getMessage()

    @pytest.mark.parametrize(
        ("algorithm", "library"),
        [(name, library) for name in CHECKS for library in checksums._ALGORITHMS[name].libraries],
        ids=str,
    )
    def test_each_library_gives_the_published_value(
        self, algorithm: str, library: checksums._Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whichever library is there, sums of any buffer, in one piece or more, are the same."""
        for other in checksums._ALGORITHMS[algorithm].libraries:
            if other is not library:
                monkeypatch.setitem(sys.modules, other.module, None)
        told = Checksum(algorithm, CHECKS[algorithm])
        for body in (DIGITS, memoryview(bytearray(DIGITS)), [b"12345", b"6789"]):
            assert compare(told, body) is Verdict.RIGHT
            assert compare(Checksum(algorithm, 1), body) is Verdict.WRONG

    def test_an_old_library_is_as_good_as_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A library that does not know the algorithm yet leaves bodies unverified."""
        monkeypatch.delattr(sys.modules["awscrt.checksums"], "crc64nvme")
        told = Checksum("crc64nvme", CHECKS["crc64nvme"])
        assert compare(told, DIGITS) is Verdict.UNVERIFIED

    def test_crc32c_in_python_is_as_good_as_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where google-crc32c was not compiled, reads are not slowed a thousand times."""
        monkeypatch.setattr(google_crc32c, "implementation", "python")
        monkeypatch.setitem(sys.modules, "fastcrc.crc32", None)
        assert compare(Checksum("crc32c", CHECKS["crc32c"]), DIGITS) is Verdict.UNVERIFIED


cuts = st.lists(st.integers(0, 400), max_size=8)


class TestRanges:
    @pytest.mark.parametrize("algorithm", CHECKS)
    @given(data=st.binary(max_size=400), at=cuts, random=st.randoms(use_true_random=False))
    def test_ranges_in_any_order_make_the_whole(
        self, algorithm: str, data: bytes, at: list[int], random: Random
    ) -> None:
        """However an object is cut, and in whatever order ranges come, damage is found."""
        value = slow_crc(data, 0, POLYNOMIALS[algorithm])
        bounds = sorted({0, len(data), *(cut for cut in at if cut <= len(data))})
        ranges = list(pairwise(bounds))
        random.shuffle(ranges)
        right, wrong = RangedSum(Checksum(algorithm, value)), RangedSum(Checksum(algorithm, ~value))
        for total in (right, wrong):
            for start, stop in ranges:
                total.add(start, data[start:stop])
        assert right.wanted
        assert right.verdict(len(data)) is Verdict.RIGHT
        assert wrong.verdict(len(data)) is Verdict.WRONG

    def test_one_damaged_range_is_found(self) -> None:
        """A single wrong bit in one of many ranges makes the whole wrong."""
        data = os.urandom(64 << 10)
        for damaged_range in range(8):
            total = RangedSum(Checksum("crc32c", google_crc32c.value(data)))
            for index in reversed(range(8)):
                body = bytearray(data[index << 13 : (index + 1) << 13])
                body[100] ^= index == damaged_range
                total.add(index << 13, memoryview(body))
            assert total.verdict(len(data)) is Verdict.WRONG

    def test_threads_add_at_once(self) -> None:
        """Ranges added by many threads are all in the sum."""
        data, size = os.urandom(1 << 20), 1 << 12
        total = RangedSum(Checksum("crc32", zlib.crc32(data)))
        begin = threading.Barrier(8)

        def work(first: int) -> None:
            begin.wait()
            for start in range(first * size, len(data), 8 * size):
                total.add(start, memoryview(data)[start : start + size])

        threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert total.verdict(len(data)) is Verdict.RIGHT

    @pytest.mark.parametrize(
        "ranges",
        [[], [(0, 4)], [(4, 9)], [(0, 4), (5, 9)], [(0, 9), (3, 5)], [(0, 6), (3, 9)], [(0, 12)]],
    )
    def test_ranges_that_are_not_the_object_are_an_error(
        self, ranges: list[tuple[int, int]]
    ) -> None:
        """Gaps and overlaps are mistakes of the caller, not damage of the object."""
        total = RangedSum(Checksum("crc32", CHECKS["crc32"]))
        for start, stop in ranges:
            total.add(start, (DIGITS * 2)[start:stop])
        with pytest.raises(ValueError, match="the ranges added"):
            total.verdict(9)

    @pytest.mark.parametrize(
        ("told", "verify"),
        [
            (None, "all"),
            (Checksum("crc32", 1), "none"),
            (Checksum("sha1", b"x"), "auto"),
            (Checksum("md5", b"x"), "all"),
        ],
    )
    def test_what_cannot_be_compared_asks_for_nothing(
        self, told: Checksum | None, verify: checksums.Verify
    ) -> None:
        """Without a sum that can be joined nothing is wanted, and the object is unverified."""
        total = RangedSum(told, verify)
        total.add(5, b"anything")
        assert not total.wanted
        assert total.verdict(9) is Verdict.UNVERIFIED


def test_importing_loads_no_library() -> None:
    """The libraries of the clouds are loaded by the first body that needs one."""
    code = (
        "import sys, providers.checksums\n"
        "raise SystemExit(bool(sys.modules.keys() & {'google_crc32c', 'fastcrc', 'awscrt'}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
