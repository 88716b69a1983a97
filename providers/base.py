"""The provider contract: the verbs, their edge cases stated once, checked once, retried once.

A backend supplies the underscored methods, each of which sends one request and lets its
client's exceptions out; this class checks arguments, retries, and settles unclear writes.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from providers.counters import count
from providers.errors import (
    LimitError,
    NotFoundError,
    ProviderError,
)
from providers.listings import Lister
from providers.planning import plan_join
from providers.values import ByteRange, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from providers.uploads import MultipartUpload
    from providers.values import HttpRequest

__all__ = ["WRITE_ID", "Provider"]

WRITE_ID = "connector-write-id"
"""Metadata key of the random mark by which a lost answer to a write is settled."""


class Provider(Lister):
    """One bucket seen through one set of options; its methods take keys.

    Thread-safe. Pickles its options, never a live client. Opens its client on first use,
    and after a fork abandons what it inherited and opens its own.

    Args:
        bucket: name of the bucket; empty for ``file``.
        options: of this scheme.
        transfer: timeouts, sizes and the retry policy.
    """

    delete_batch: ClassVar[int] = 1
    signs_reads: ClassVar[bool] = False
    """Whether ``signed_get`` gives requests; streams of others have a pool of threads."""
    pins_by_etag: ClassVar[bool] = False
    """Whether an answer with another etag than a pin's shows that the object changed."""

    # ---- The verbs -----------------------------------------------------------------------

    def head(self, key: str) -> ObjectInfo:
        """Return what the service says of one object.

        Raises:
            NotFoundError: there is none.
        """
        self.check_key(key, "head")
        return self.request("head", key, lambda: self._head(key))

    def get(
        self,
        key: str,
        byte_range: ByteRange | None = None,
        *,
        if_match: ObjectInfo | None = None,
    ) -> bytes:
        """Return the object's bytes, or those of a range; never fewer than there are.

        Args:
            key: the object.
            byte_range: half-open; its end is clipped to the object.
            if_match: pins the read to the version that this value describes.

        Raises:
            NotFoundError: there is no such object.
            RangeError: the range starts at or past the end.
            PreconditionError: the object is no longer the one of ``if_match``.
        """
        self.check_get(key, if_match)
        return self._read(key, byte_range, if_match)

    def check_get(self, key: str, if_match: ObjectInfo | None) -> None:
        """Refuse a read that no service could do.

        Raises:
            LimitError: the key is none.
            TypeError: the pin is none.
        """
        self.check_key(key, "get")
        if if_match is not None and not isinstance(if_match, ObjectInfo):
            raise TypeError(f"if_match takes an ObjectInfo, not {type(if_match).__name__}")

    def _read(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        """Send the checked request of a ``get``, and retry it."""
        return self.get_by_client(key, byte_range, if_match)

    def get_by_client(
        self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None
    ) -> bytes:
        """Do a ``get`` through the backend's own client, whatever ``signed_get`` says."""
        body = self.request("get", key, lambda: self._get(key, byte_range, if_match))
        count(bytes_read=len(body))
        return body

    def put(
        self,
        key: str,
        data: Any,
        *,
        if_absent: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Write an object by one request: readers see the old one or the new one.

        Args:
            key: the object; an existing one is replaced.
            data: any C-contiguous buffer, fully read when this returns.
            if_absent: fail where there is one already.
            metadata: keys of lower-case letters, digits and dashes; printable ASCII values.

        Raises:
            PreconditionError: ``if_absent`` and there is an object.
            LimitError: too large for one put.
            UnsupportedError: ``if_absent`` where ``limits.conditional_put`` is false, metadata
                where ``limits.keeps_metadata`` is.
        """
        view = self.buffer(data)
        self._check_write(key, "put", if_absent, metadata)
        if view.nbytes > self.limits.max_put_bytes:
            raise self.limit_error(
                "put", key, f"{view.nbytes} bytes exceed the {self.limits.max_put_bytes} of one "
                "put; use start_multipart"
            )  # fmt: skip
        count(bytes_written=view.nbytes)
        if not if_absent:
            return self.request(
                "put", key, lambda: self._put(key, view, if_absent=False, metadata=metadata or {})
            )
        marked, write_id = _mark(metadata)
        return self.settle(
            "put", key, lambda: self._put(key, view, if_absent=True, metadata=marked), write_id
        )

    def start_multipart(
        self, key: str, *, if_absent: bool = False, metadata: Mapping[str, str] | None = None
    ) -> MultipartUpload:
        """Begin an upload in parts; the object appears when it is completed.

        Args: as for ``put``.
        """
        self._check_write(key, "start_multipart", if_absent, metadata)
        marked, write_id = _mark(metadata)
        return self.request(
            "start_multipart",
            key,
            lambda: self._start_multipart(key, write_id, if_absent=if_absent, metadata=marked),
        )

    def compose(
        self,
        sources: Sequence[str | ObjectInfo],
        destination: str,
        *,
        if_absent: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Join objects of the bucket in order, on the server, atomically.

        Args:
            sources: keys, or ``ObjectInfo`` values, which are then pinned; at least one.
                Empty objects are left out.
            destination: may be among the sources.
            if_absent: as for ``put``.
            metadata: as for ``put``.

        Raises:
            ValueError: there is no source.
            NotFoundError: a source is missing.
            PreconditionError: a pinned source changed.
            LimitError: more than ``limits.max_sources``, or a source the service cannot
                join; ``providers.transfer.compose_many`` works around both.
        """
        if not sources:
            raise ValueError(f"compose {self.uri(destination)}: there is no source")
        self._check_write(destination, "compose", if_absent, metadata)
        infos = [s if isinstance(s, ObjectInfo) else self.head(s) for s in sources]
        full = [info for info in infos if info.size]
        if len(full) > self.limits.max_sources:
            raise self.limit_error(
                "compose", destination, f"{len(full)} sources, at most "
                f"{self.limits.max_sources} fit one call; compose_many takes more"
            )  # fmt: skip
        if not full:
            return self.put(destination, b"", if_absent=if_absent, metadata=metadata)
        if len(full) == 1 and not if_absent and metadata is None:
            return self._copy_pinned(full[0], destination)
        marked, write_id = _mark(metadata)
        return self._compose(full, destination, write_id, if_absent=if_absent, metadata=marked)

    def copy(self, source: str, destination: str) -> ObjectInfo:
        """Copy within the bucket, on the server, any size, metadata included.

        Raises:
            NotFoundError: there is no source.
        """
        self.check_key(destination, "copy")
        return self._copy_pinned(self.head(source), destination)

    def _copy_pinned(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        if source.key == destination:
            return source
        if source.size > self.limits.max_copy_bytes:
            marked, write_id = _mark(source.metadata)
            return self._compose([source], destination, write_id, if_absent=False, metadata=marked)
        return self.request("copy", destination, lambda: self._copy(source, destination))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is no error. Tries all before it raises.

        Args:
            keys: any iterable of keys; a single string is refused, being one too.

        Raises:
            ProviderError: the first failure, with the count of keys that failed.
        """
        if isinstance(keys, str):
            raise TypeError(f"delete takes a list of keys; write [{keys!r}]")
        failures: list[ProviderError] = []
        left = iter(keys)
        while batch := list(islice(left, self.delete_batch)):
            failures.extend(self._try_delete(batch))
        if failures:
            first = failures[0]
            if len(failures) == 1:
                raise first
            raise type(first)(f"{first} - and {len(failures) - 1} more keys failed") from first

    def _try_delete(self, keys: list[str]) -> list[ProviderError]:
        failures: list[ProviderError] = []
        batch = []
        for key in keys:
            try:
                self.check_key(key, "delete")
                batch.append(key)
            except LimitError as error:
                failures.append(error)
        if not batch:
            return failures
        try:
            return failures + self.request("delete", batch[0], lambda: self._delete(batch))
        except NotFoundError as error:
            # A missing bucket is an error; a missing key, on services that answer 404, is not.
            return [*failures, error] if error.code == "NoSuchBucket" else failures
        except ProviderError as error:
            return failures + [error] * len(batch)

    # ---- The hot path --------------------------------------------------------------------

    def signed_get(
        self,
        key: str,  # noqa: ARG002 the contract's arguments; this default needs none
        byte_range: ByteRange | None = None,  # noqa: ARG002
        *,
        if_match: ObjectInfo | None = None,  # noqa: ARG002
    ) -> HttpRequest | None:
        """Return the signed request of a ``get``, or None: "call the verb"."""
        return None

    # ---- What a backend supplies: one request each ---------------------------------------

    @abstractmethod
    def _head(self, key: str) -> ObjectInfo: ...

    @abstractmethod
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        """Return exactly the bytes asked for; a short body raises ``UnavailableError``."""

    @abstractmethod
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo: ...

    @abstractmethod
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload: ...

    @abstractmethod
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo: ...

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        """Delete one batch and return the failures of single keys."""

    def _compose(
        self,
        sources: list[ObjectInfo],
        destination: str,
        write_id: str,
        *,
        if_absent: bool,
        metadata: Mapping[str, str],
    ) -> ObjectInfo:
        """Join through copied parts; services with a compose of their own override this."""
        self.require("joins_server_side", "compose", destination)
        plan = plan_join([s.size for s in sources], self.transfer.part_size_bytes, self.limits)
        if any(len(part) > 1 for part in plan):
            raise self.limit_error(
                "compose", destination, "a source is too small, or of another size than this "
                f"service joins (smallest {self.limits.min_join_bytes} bytes"
                f"{', equal parts' if self.limits.equal_parts else ''}); use compose_many"
            )  # fmt: skip
        upload = self.request(
            "compose",
            destination,
            lambda: self._start_multipart(
                destination, write_id, if_absent=if_absent, metadata=metadata
            ),
        )
        with upload:
            for number, (piece,) in enumerate(plan, 1):
                source = sources[piece.source]
                upload.copy_part(number, source, ByteRange(piece.start, piece.stop))
            return upload.complete()


def _mark(metadata: Mapping[str, str] | None) -> tuple[dict[str, str], str]:
    """Add a fresh write id to the metadata."""
    write_id = secrets.token_hex(8)
    return {**(metadata or {}), WRITE_ID: write_id}, write_id
