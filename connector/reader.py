"""One object as an open binary file: its bytes in memory, or ranges of it on demand."""

from __future__ import annotations

import io
import operator
from dataclasses import dataclass, replace
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

from connector.binary_file import BinaryFile, flat_view
from connector.ranks import in_worker
from providers import ByteRange, IntegrityError, ObjectInfo, PreconditionError, RangeError
from providers.transfer import Get, read_into

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

    from providers import Provider, TransferOptions

__all__ = ["ObjectReader"]

_FIRST_WINDOW_BYTES = 64 << 10
"""Read after a jump: its transfer takes less than a request's round trip."""

_WINDOW_GROWTH = 4
"""How much further each read goes while access stays sequential."""


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of one version of one object, complete or an error.

    Attributes:
        provider: where the object is.
        info: the version that every read is pinned to.
        size: bytes of that version.
        uri: as the script wrote it.
        transfer: sizes and concurrency.
    """

    provider: Provider
    info: ObjectInfo
    size: int
    uri: str
    transfer: TransferOptions

    @classmethod
    def open(
        cls, provider: Provider, info: ObjectInfo, uri: str, transfer: TransferOptions
    ) -> _Ranges:
        """Ask for the version and the size where the caller does not know them."""
        pinned = info.etag is not None or info.version is not None
        if pinned and info.size:
            return cls(provider, info, info.size, uri, transfer)
        found = provider.head(info.key)
        ranges = cls(provider, info if pinned else found, found.size, uri, transfer)
        if info.size not in (0, found.size):
            ranges.fail(f"it had {info.size} bytes, now it has {found.size}", None)
        return ranges

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes of [start, stop)."""
        span = ByteRange(start, stop)
        return self._checked(span, self._get(span).run())

    def read_into(self, start: int, view: memoryview) -> None:
        """Fill ``view`` from ``start`` on, several ranges at once."""
        try:
            read_into(
                self.provider,
                replace(self.info, size=self.size),
                view,
                start=start,
                transfer=self.transfer,
            )
        except (PreconditionError, RangeError) as error:
            self.fail(str(error), error)

    def _get(self, span: ByteRange) -> Get:
        return Get(self.provider, self.info.key, span, self.info, span.length_in(self.size))

    def _checked(self, span: ByteRange, body: bytes | Exception) -> bytes:
        if isinstance(body, PreconditionError | RangeError):
            self.fail(str(body), body)
        if isinstance(body, Exception):
            try:
                raise body
            finally:
                # Its traceback holds this frame, which must not hold it in turn.
                del body
        if len(body) != span.length_in(self.size):
            self.fail(
                f"bytes {span.start} to {span.stop} of {self.size} came as {len(body)} bytes", None
            )
        return body

    def fail(self, reason: str, cause: Exception | None) -> NoReturn:
        """Say that this version of the object is gone."""
        raise IntegrityError(
            f"the object changed while it was read ({reason}); open it again to read the new one",
            uri=self.uri,
            operation="get",
        ) from cause


class ObjectReader(BinaryFile):
    """An open binary file over one object; it behaves as ``io.BytesIO`` does.

    With ``data`` it holds the object's bytes, needs no store, and pickles with them. Without,
    it reads on demand and every read is pinned to one version of the object. Small reads go
    through one buffer of at most ``transfer.range_size_bytes``: little is read after a jump,
    more with each read that follows on. Larger reads fetch exactly what is wanted, in ranges
    of that size, several at once, straight into the caller's buffer.

    A read that fails moves nothing: the next one starts at the same byte. Not for use by
    several threads at once.

    Args:
        provider: where the object is.
        info: the object; reads are pinned to its etag or version. Without both, or without
            a size, a lazy reader asks the store first.
        uri: as the script wrote it; default: ``provider.uri(info.key)``.
        data: the object's bytes, where they are in memory already.
        label: of the sample, any JSON value.
        fields: the other fields of the sample's manifest row.
        transfer: sizes and concurrency; default: the provider's.

    Raises:
        IntegrityError: at any read: the object is no longer the one of ``info``.
        ValueError: at any use after ``close``.

    Attributes:
        uri: as the script wrote it.
        bucket: the object's bucket; empty for ``file``.
        key: the object's key.
        size: bytes.
        etag: as the service sent it, without its quotes; None where unknown.
        label: of the sample; None without one.
        fields: the other fields of the sample's manifest row.
        info: what is known of the object.
    """

    _ranges: _Ranges  # only of a lazy reader

    def __init__(
        self,
        provider: Provider,
        info: ObjectInfo,
        *,
        uri: str | None = None,
        data: Buffer | None = None,
        label: Any = None,
        fields: Mapping[str, Any] | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        super().__init__()
        self.uri = provider.uri(info.key) if uri is None else uri
        self.bucket = provider.bucket
        self.label = label
        self.fields: Mapping[str, Any] = {} if fields is None else fields
        if data is None:
            self._ranges = _Ranges.open(provider, info, self.uri, transfer or provider.transfer)
            self._hold(self._ranges.info, self._ranges.size, b"", lazy=True)
        else:
            held = data if isinstance(data, bytes) else bytes(data)
            self._hold(info, len(held), held, lazy=False)

    def _hold(self, info: ObjectInfo, size: int, window: bytes, *, lazy: bool) -> None:
        """Start at position 0 with what is in memory."""
        self.info = info
        self.key = info.key
        self.size = size
        self.etag = info.etag
        self._lazy = lazy
        self._position = 0
        self._window = window
        self._window_start = 0
        self._window_bytes = 0
        self._fetched_to = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri!r}, {self.size} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        if self._lazy:
            refusal = (
                f"{self.uri} ({self.size} bytes) is read on demand and cannot be pickled: read "
                "what you need of it inside transform, or raise TransferOptions.lazy_above_bytes "
                "above its size so that its bytes travel with it"
            )
            if not in_worker():
                raise TypeError(refusal)
            # A worker pickles in a thread whose errors nobody sees: its loader would wait for
            # ever. So the refusal travels instead, and is raised there.
            return _refuse, (refusal,)
        held = (self.uri, self.bucket, self.label, self.fields, self.info, self._window)
        return _restore, (type(self), *held)

    # ---- Reading -------------------------------------------------------------------------

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        count = self._count(size)
        offset = self._position - self._window_start
        if offset >= 0 and offset + count <= len(self._window):
            self._position += count
            return self._window[offset : offset + count]
        # BytesIO gives its buffer away without a copy; a bytearray would be copied.
        store = io.BytesIO()
        if count:
            store.seek(count - 1)
            store.write(b"\0")
            with store.getbuffer() as view:
                self._fill(view)
        return store.getvalue()

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        if memoryview(buffer).readonly:
            raise TypeError("readinto needs a writable buffer")
        view = flat_view(buffer)
        if view is None:
            data = self.read(memoryview(buffer).nbytes)
            with PickleBuffer(buffer).raw() as raw:
                raw[: len(data)] = data
            return len(data)
        with view[: self._count(len(view))] as wanted:
            self._fill(wanted)
            return len(wanted)

    @override
    def read1(self, size: int | None = -1, /) -> bytes:
        """Return at most ``size`` bytes, by at most one request; ``b""`` only at the end."""
        count = self._count(size)
        if not count:
            return b""
        wanted = 1 if size is None or size < 0 else min(count, self._ranges_bytes())
        offset = self._offset(self._position, wanted)
        piece = self._window[offset : offset + count]
        self._position += len(piece)
        return piece

    @override
    def readline(self, size: int | None = -1, /) -> bytes:
        at = self._position
        stop = at + self._count(size)
        pieces: list[bytes] = []
        while at < stop:
            offset = self._offset(at, 1)
            end = min(len(self._window), offset + stop - at)
            newline = self._window.find(b"\n", offset, end)
            piece = self._window[offset : end if newline < 0 else newline + 1]
            pieces.append(piece)
            at += len(piece)
            if newline >= 0:
                break
        self._position = at
        return b"".join(pieces)

    @override
    def readlines(self, hint: int | None = None, /) -> list[bytes]:
        bound = -1 if hint is None else operator.index(hint)
        lines: list[bytes] = []
        total = 0
        while line := self.readline():
            lines.append(line)
            total += len(line)
            if 0 < bound <= total:
                break
        return lines

    def peek(self, size: int = 0, /) -> bytes:  # noqa: ARG002 a hint, as for io.BufferedReader
        """Return bytes from the position on without moving it; ``b""`` only at the end."""
        if not self._count(-1):
            return b""
        offset = self._offset(self._position, 1)
        return self._window[offset:]

    # ---- Position and state --------------------------------------------------------------

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        moved = operator.index(offset)
        if whence == io.SEEK_SET and moved < 0:
            raise ValueError(f"negative seek value {moved}")
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in bases:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        self._position = max(0, bases[whence] + moved)
        return self._position

    @override
    def tell(self) -> int:
        self._check_open()
        return self._position

    @override
    def readable(self) -> bool:
        self._check_open()
        return True

    @override
    def seekable(self) -> bool:
        self._check_open()
        return True

    @override
    def writable(self) -> bool:
        self._check_open()
        return False

    @override
    def close(self) -> None:
        super().close()
        self._window = b""

    # ---- The window ----------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"this reader of {self.uri} is closed")

    def _count(self, size: int | None) -> int:
        """How many bytes a read of ``size`` from here on gives."""
        self._check_open()
        wanted = -1 if size is None else operator.index(size)
        left = max(0, self.size - self._position)
        return left if wanted < 0 else min(wanted, left)

    def _ranges_bytes(self) -> int:
        return self._ranges.transfer.range_size_bytes if self._lazy else self.size

    def _fill(self, view: memoryview) -> None:
        """Fill ``view`` from the position on, and move there once it is complete."""
        at = self._position + self._copy_window(self._position, view)
        rest = view[at - self._position :]
        if rest and len(rest) >= self._ranges_bytes():
            self._ranges.read_into(at, rest)
            self._fetched_to = at + len(rest)
        elif rest:
            self._fetch_window(at, len(rest))
            self._copy_window(at, rest)
        self._position += len(view)

    def _copy_window(self, at: int, view: memoryview) -> int:
        """Copy what the window has from ``at`` on; return how much that was."""
        offset = at - self._window_start
        if not 0 <= offset < len(self._window):
            return 0
        piece = memoryview(self._window)[offset : offset + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def _offset(self, at: int, wanted: int) -> int:
        """Return where ``at`` lies in the window, fetching one that holds it."""
        if not 0 <= at - self._window_start < len(self._window):
            self._fetch_window(at, wanted)
        return at - self._window_start

    def _fetch_window(self, at: int, wanted: int) -> None:
        """Read ``wanted`` bytes and some ahead: little after a jump, more in sequence."""
        transfer = self._ranges.transfer
        sequential = 0 <= at - self._fetched_to <= transfer.max_gap_bytes
        ahead = max(_FIRST_WINDOW_BYTES, self._window_bytes * _WINDOW_GROWTH if sequential else 0)
        ahead = min(ahead, transfer.range_size_bytes)
        stop = min(self.size, at + max(wanted, ahead))
        # A jump to the end (a zip's directory) takes the whole tail at once.
        start = at if sequential else max(0, min(at, stop - ahead))
        self._window = self._ranges.read(start, stop)
        self._window_start, self._window_bytes, self._fetched_to = start, ahead, stop


def _refuse(refusal: str) -> NoReturn:
    raise TypeError(refusal)


def _restore(
    kind: type[ObjectReader],
    uri: str,
    bucket: str,
    label: Any,
    fields: Mapping[str, Any],
    info: ObjectInfo,
    data: bytes,
) -> ObjectReader:
    """Make an unpickled reader: its bytes and what is known of them, but no store."""
    reader = kind.__new__(kind)
    reader.uri, reader.bucket, reader.label, reader.fields = uri, bucket, label, fields
    reader._hold(info, len(data), data, lazy=False)  # noqa: SLF001 half of its __reduce__
    return reader
