"""What becomes of an object that has come whole: compared with its checksum, unpacked if asked."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from providers.checksums import Verdict, compare, find
from providers.errors import IntegrityError, ServiceError
from providers.gets import joined, size_of

if TYPE_CHECKING:
    from providers.checksums import Checksum
    from providers.errors import ProviderError
    from providers.gets import Pieces, Wanted
    from providers.handles import Slot
    from providers.options import TransferOptions

__all__ = ["Finisher"]


class Finisher:
    """Finishes the bodies of one stream.

    Args:
        options: say what is compared and whether to unpack.

    Attributes:
        unverified: objects that could not be compared since the count was last taken.
    """

    def __init__(self, options: TransferOptions) -> None:
        self._verify = options.verify
        self._decode = options.decode_content
        self.unverified = 0

    def finish(
        self, get: Wanted, told: Checksum | None, slot: Slot, body: Pieces
    ) -> Pieces | ProviderError:
        """Return a body that may be handed over, or why it may not.

        Args:
            get: what was asked for.
            told: the checksum of an earlier attempt's answer, whose bytes are part of this body.
            slot: has the last answer's headers.
            body: of the object or the range.
        """
        if get.byte_range is not None:
            if get.told is not None and not get.told and (found := find(slot.head())) is not None:
                get.told.append(found)
            return body
        told = told or find(slot.head())
        verdict = compare(told, body, self._verify)
        if verdict is Verdict.WRONG and told is not None:
            return IntegrityError(
                f"the {size_of(body)} bytes that came do not match the {told.algorithm} that the "
                "service tells of the object",
                uri=get.provider.uri(get.key),
                operation="get",
            )
        if verdict is Verdict.UNVERIFIED:
            self.unverified += 1
        if self._decode and _is_packed(slot.lines):
            return _unpacked(get, body)
        return body


def _is_packed(lines: list[bytes]) -> bool:
    return any(line.lower().split(b":")[0] == b"content-encoding" and b"gzip" in line.lower()
               for line in lines)  # fmt: skip


def _unpacked(get: Wanted, body: Pieces) -> Pieces | ProviderError:
    try:
        unpacked = gzip.decompress(joined(body))
    except (EOFError, OSError, zlib.error) as error:
        problem = f"it is labelled as gzip and cannot be unpacked ({error})"
    else:
        if get.into is None:
            return [unpacked]
        problem = "a compressed object cannot be unpacked into a buffer of its stored size"
    return ServiceError(
        f"{problem}; decode_content=False gives the bytes as stored",
        uri=get.provider.uri(get.key),
        operation="get",
    )
