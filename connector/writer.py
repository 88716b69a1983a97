"""One object being written: published whole by a clean close, or not at all."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from typing_extensions import override

from connector.any_buffer import byte_views
from connector.binary_file import BinaryFile
from connector.part_threads import in_part_thread
from connector.parts import Parts
from providers import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from connector.any_buffer import Writable
    from providers import ObjectInfo, Provider, TransferOptions

__all__ = ["ObjectWriter"]

_log = logging.getLogger(__name__)

_FINALISER_WAIT_SECONDS = 30.0
"""A dropped writer's upload is aborted by another thread; its finaliser waits this long."""

_TORCH_FOLLOW_UP = "[enforce fail at inline_container"
"""How torch.save hides a failed write: it closes its zip file, which fails in turn."""


class ObjectWriter(BinaryFile):
    """A file opened for writing that becomes an object when it is closed without an error.

    ``close()``, or the end of a ``with`` block, publishes; nothing else does. An error, a
    block that raises, ``abort()``, a writer dropped without closing: the old object stands
    and no unfinished upload is left. After an error every use raises again, ``close()`` too.
    While an exception from after the writer's opening is being handled, in ``finally`` say,
    or in the exit of a wrapper such as ``io.TextIOWrapper``, ``close()`` aborts and passes
    that exception on; to publish all the same, close the writer after the handler, or by a
    ``with`` block of its own.

    ``write`` takes any buffer and copies it: the caller's memory may change once it has
    returned. Objects up to ``transfer.multipart_threshold_bytes`` are written by one put. Larger
    ones go in parts, ``transfer.max_parts_in_flight`` at once, while the caller goes on; the
    writer holds those and one that it fills, within its share of ``transfer.max_unsent_bytes``.
    What a part fails with is raised by the next ``write``, or by ``close``. Without a
    ``size_hint``, or beyond it, parts double with every tenth of the parts that are left, after
    16 GiB with the default sizes, so that an object of any size fits.

    Belongs to one thread at a time, and to the process that opened it: a forked child can
    neither publish nor abort it.

    Args:
        provider: where the object will be.
        key: its key.
        uri: as the script wrote it; default: ``provider.uri(key)``.
        if_absent: fail, on closing, where there is an object already.
        size_hint: bytes that will be written, where known; may be exceeded by an eighth.
        metadata: as for ``Provider.put``.
        transfer: sizes of parts; default: the provider's.

    Raises:
        ValueError: ``size_hint`` is negative.
        LimitError: the key, or an object of ``size_hint`` bytes, is beyond the store's limits.
        UnsupportedError: ``if_absent`` or ``metadata`` where the store has no such thing.
    """

    _state = "aborted"  # until all is set up

    def __init__(
        self,
        provider: Provider,
        key: str,
        *,
        uri: str | None = None,
        if_absent: bool = False,
        size_hint: int | None = None,
        metadata: Mapping[str, str] | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        super().__init__()
        provider.check_key(key, "write")
        if if_absent:
            provider.require("conditional_put", "write", key)
        if metadata:
            provider.require("keeps_metadata", "write", key)
        self.uri = provider.uri(key) if uri is None else uri
        self.key = key
        self._parts = Parts(
            provider,
            key,
            if_absent=if_absent,
            metadata=metadata,
            size_hint=size_hint,
            transfer=transfer or provider.transfer,
        )
        self._info: ObjectInfo | None = None
        self._error: BaseException | None = None
        self._failure: Callable[[], ProviderError] | None = None
        self._pid = os.getpid()
        self._opened_under = sys.exc_info()[1]
        self._state = "open"
        _open_writers.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri!r}, {self._state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the writer of {self.uri} cannot be pickled or copied")

    @property
    def info(self) -> ObjectInfo:
        """What the store says of the object.

        Raises:
            ValueError: it is not published.
        """
        if self._info is None:
            raise ValueError(f"{self.uri} is not published: its writer is {self._state}")
        return self._info

    # ---- Writing -------------------------------------------------------------------------

    @override
    def write(self, buffer: Writable, /) -> int:
        if self._state == "dropped":
            return byte_views(buffer)[0]
        self._check_usable("write")
        size, views = byte_views(buffer)
        try:
            for view in views:
                self._parts.add(view)
        except BaseException as error:
            self._fail(error)
            raise
        return size

    @override
    def tell(self) -> int:
        self._check_open()
        return self._parts.size

    @override
    def writable(self) -> bool:
        self._check_open()
        return True

    @override
    def readable(self) -> bool:
        self._check_open()
        return False

    @override
    def seekable(self) -> bool:
        self._check_open()
        return False

    # ---- The end: published, or nothing ----------------------------------------------------

    @override
    def close(self) -> None:
        """Publish the object; quiet once it is published or aborted.

        Raises:
            ProviderError: it could not be published, now or in an earlier call.
            PreconditionError: ``if_absent`` and there is an object.
        """
        handled = sys.exc_info()[1]
        if self._state == "open":
            self._check_usable("close")
            if handled is None or handled is self._opened_under:
                self._publish()
            else:
                self._pass_on(handled)
        elif self._state == "dropped":
            self._end("failed")
        else:
            failed = self._error
            self._end(self._state)
            if failed is not None and failed is handled:
                raise failed
            if self._failure is not None:
                raise self._failure()

    def abort(self) -> None:
        """Publish nothing and drop what was sent; quiet where the writer is done already.

        Raises:
            ProviderError: what was sent could not be dropped. It stays invisible.
        """
        if self._state == "open" and self._pid == os.getpid():
            self._end("aborted")
            self._parts.drop()

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._state == "open":
            self._check_usable("close")
            self._publish()
        elif error is None:
            self.close()
        elif self._pid == os.getpid():
            self._leave(error)

    @override
    def __del__(self) -> None:
        # Python's own finaliser would call close(), which publishes.
        self._abandon()

    def _dealloc_warn(self, source: object) -> None:
        """Hear from ``io`` that a wrapper was dropped: it will write what it holds, and close."""
        if self._state == "open":
            self._remember(f"a {type(source).__name__} around it was dropped without close()")
            self._abandon()
            self._state = "dropped"

    # ---- State ---------------------------------------------------------------------------

    def _publish(self) -> None:
        try:
            self._info = self._parts.publish()
        except BaseException as error:
            self._fail(error)
            self._end("failed")
            raise
        self._end("closed")
        self._parts.drop_quietly()

    def _pass_on(self, handled: BaseException) -> NoReturn:
        """Abort, because this close is part of an exception's way out."""
        _log.warning("%s is not published: it was closed while %r was being handled",
                     self.uri, handled)  # fmt: skip
        self._end("aborted")
        self._parts.drop_quietly()
        raise handled

    def _end(self, state: str) -> None:
        """Be done; ``closed`` is true from here on."""
        self._state = state
        self._error = self._opened_under = None
        _open_writers.discard(self)
        super().close()

    def _fail(self, error: BaseException) -> None:
        """Publish nothing, now or later."""
        self._state = "failed"
        self._error = error
        kind = type(error) if isinstance(error, ProviderError) else ProviderError
        self._remember(f"an earlier error stands ({error!r})", kind)
        self._parts.drop_quietly()

    def _remember(self, reason: str, kind: type[ProviderError] = ProviderError) -> None:
        """Keep the reason, but not the error itself: its traceback holds the caller's tensors."""
        self._failure = partial(
            kind, f"nothing was published: {reason}; write it anew", uri=self.uri, operation="write"
        )

    def _leave(self, error: BaseException) -> None:
        """End a block that raises, showing the failed write rather than what came of it."""
        failed, was_open = self._error, self._state == "open"
        self._end("aborted" if was_open else self._state)
        if was_open:
            self._parts.drop_quietly()
        if failed is not None and str(error).startswith(_TORCH_FOLLOW_UP):
            raise failed

    def _abandon(self) -> None:
        """Abort because nobody is left who could close the writer."""
        if self._state != "open" or self._pid != os.getpid():
            return
        _log.warning("a writer of %s was dropped without close(): nothing is published", self.uri)
        self._state = "aborted"
        # A collector may run anywhere, inside this thread's own requests and their locks too.
        thread = threading.Thread(
            target=self._parts.drop_quietly, name="connector-abort", daemon=True
        )
        thread.start()
        _aborting.add(thread)
        if not in_part_thread():
            # What is aborted may wait for the very part that this thread sends.
            thread.join(_FINALISER_WAIT_SECONDS)

    def abandon_at_exit(self) -> None:
        """Abort because the interpreter ends; no thread can start any more."""
        if self._state == "open" and self._pid == os.getpid():
            self._state = "aborted"
            self._parts.drop_quietly()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"this writer of {self.uri} is closed")

    def _check_usable(self, operation: str) -> None:
        self._check_open()
        if self._failure is not None:
            raise self._failure()
        if self._pid != os.getpid():
            raise RuntimeError(
                f"{operation} {self.uri}: its writer belongs to process {self._pid}; a forked "
                "child opens one of its own"
            )


_open_writers: weakref.WeakSet[ObjectWriter] = weakref.WeakSet()
_aborting: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _abort_all() -> None:
    for writer in list(_open_writers):
        writer.abandon_at_exit()
    for thread in list(_aborting):
        thread.join(_FINALISER_WAIT_SECONDS)
