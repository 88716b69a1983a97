"""One object as an open binary file: its bytes in memory, or ranges of it on demand."""

from __future__ import annotations

import io
import operator
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

from connector.binary_file import BinaryFile, flat_view
from connector.ranges import Ranges, Whole
from connector.ranks import in_worker
from connector.read_ahead import ReadAhead, piece_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

    from providers import ObjectInfo, Provider, TransferOptions

__all__ = ["ObjectReader"]

_FIRST_WINDOW_BYTES = 64 << 10
"""Read after a jump: its transfer takes less than a request's round trip."""

_WINDOW_GROWTH = 4
"""How many times what was read in sequence the next read fetches."""

_RUN_BYTES = 1 << 20
"""After so many bytes in sequence, or one range, a thread reads ahead."""


class ObjectReader(BinaryFile):
    """An open binary file over one object; it behaves as ``io.BytesIO`` does.

    With ``data`` it holds the object's bytes, needs no store, and pickles with them. Without,
    it reads on demand and every read is pinned to one version of the object. Small reads go
    through one buffer of at most ``transfer.range_size_bytes``: little is read after a jump,
    more with each read that follows on, and in the end a thread fetches what follows: at most
    ``transfer.read_ahead_bytes``, in parallel ranges, until a jump or ``close``. A larger read
    after a jump, or of that many bytes, fetches exactly what is wanted, several ranges at once,
    straight into the caller's buffer.

    An object whose bytes were fetched from the first to the last is compared with the checksum
    that ``info`` tells of it.

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
        IntegrityError: at any read: the object is no longer the one of ``info``, or its bytes
            are not those that its checksum tells of.
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

    _ranges: Ranges  # only of a lazy reader, as is the next
    _whole: Whole

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
            self._ranges = Ranges.open(provider, info, self.uri, transfer or provider.transfer)
            self._whole = Whole(self._ranges)
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
        self._run_bytes = 0
        self._fetched_to = 0
        self._stream: ReadAhead | None = None

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
        self._drop_stream()

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
        filled = self._copy_window(self._position, view)
        while filled < len(view):
            at, rest = self._position + filled, view[filled:]
            if self._goes_straight(at, len(rest)):
                self._read_straight(at, rest)
                break
            self._fetch_window(at, len(rest))
            filled += self._copy_window(at, rest)
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
        while not 0 <= at - self._window_start < len(self._window):
            self._fetch_window(at, wanted)
        return at - self._window_start

    def _fetch_window(self, at: int, wanted: int) -> None:
        """Take the next piece read ahead, or read ``wanted`` bytes and some more.

        Nothing comes where what was read ahead has ended: the caller decides anew.
        """
        if self._take_piece(at):
            return
        transfer, sequential = self._ranges.transfer, self._follows(at)
        run = self._run_bytes if sequential else 0
        ahead = min(max(_FIRST_WINDOW_BYTES, run * _WINDOW_GROWTH), transfer.range_size_bytes)
        stop = min(self.size, at + max(min(wanted, transfer.range_size_bytes), ahead))
        # A jump to the end (a zip's directory) takes the whole tail at once.
        start = at if sequential else max(0, min(at, stop - ahead))
        window = self._ranges.read(start, stop)
        self._whole.add(start, window)
        self._window, self._window_start, self._fetched_to = window, start, stop
        self._run_bytes = run + stop - start

    # ---- Past the window -----------------------------------------------------------------

    def _follows(self, at: int) -> bool:
        return 0 <= at - self._fetched_to <= self._ranges.transfer.max_gap_bytes

    def _runs(self, at: int) -> bool:
        """Whether so much was read in sequence up to ``at`` that more will be."""
        enough = min(_RUN_BYTES, self._ranges.transfer.range_size_bytes)
        return self._follows(at) and self._run_bytes >= enough

    def _goes_straight(self, at: int, wanted: int) -> bool:
        """Whether a read is best made into the caller's buffer."""
        transfer = self._ranges.transfer
        if wanted < transfer.range_size_bytes:
            return False
        stream, fills = self._stream_at(at), wanted >= transfer.read_ahead_bytes
        if stream is None:
            return fills or not self._runs(at)
        if fills:
            stream.finish()
        return False

    def _read_straight(self, at: int, view: memoryview) -> None:
        self._ranges.read_into(at, view)
        if len(view) == self.size:
            self._whole.add_checked()
        else:
            self._whole.add(at, view)
        # Reads that large need nobody to run ahead of them.
        fills = len(view) >= self._ranges.transfer.read_ahead_bytes
        self._run_bytes = 0 if fills else len(view) + self._run_bytes * self._follows(at)
        self._fetched_to = at + len(view)

    def _stream_at(self, at: int) -> ReadAhead | None:
        """Return what is read ahead, if it goes on at ``at`` and in this process."""
        stream = self._stream
        if stream is None:
            return None
        if stream.is_mine and 0 <= at - stream.position <= self._ranges.transfer.max_gap_bytes:
            return stream
        self._drop_stream()
        return None

    def _take_piece(self, at: int) -> bool:
        """Make the piece with ``at``, if one comes, the window; false: nothing is read ahead."""
        stream, transfer = self._stream_at(at), self._ranges.transfer
        if stream is None:
            left = self.size - at
            if not (transfer.read_ahead_bytes and self._runs(at) and left > piece_bytes(transfer)):
                return False
            stream = self._stream = ReadAhead(self._ranges, at)
        try:
            while (start := stream.position) <= at:
                piece = stream.take()
                if piece is None:
                    self._drop_stream()
                    break
                self._whole.add(start, piece)
                self._window, self._window_start = piece, start
                self._fetched_to = start + len(piece)
                self._run_bytes += len(piece)
        except BaseException:
            self._drop_stream()
            raise
        return True

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


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
