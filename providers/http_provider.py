"""Providers whose reads are signed here and sent by the data plane, whoever does the rest."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing, suppress
from multiprocessing import context
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from providers.access import Access, AccessSlot, Clock
from providers.answers import http_date
from providers.base import Provider
from providers.clients import ClientSlot
from providers.connections import Connection
from providers.errors import ProviderError, SettingsError
from providers.gets import Get
from providers.http import fetch
from providers.options import HttpOptions
from providers.puts import PutConnections, explain_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.options import Options, TransferOptions
    from providers.puts import PutAnswer
    from providers.values import ByteRange, HttpRequest, ObjectInfo

__all__ = ["HttpProvider", "operation_of"]

_SUCCESSES = range(200, 300)


def operation_of(request: HttpRequest | None) -> str:
    """Return the verb that a signed request is part of."""
    if request is None:
        return "get"
    is_part = request.method == "PUT" and "partNumber=" in request.url.partition("?")[2]
    return "put_part" if is_part else request.method.lower()


class HttpProvider(Provider):
    """One bucket of a store that is reached over HTTP.

    Args: as for ``Provider``.

    Attributes:
        connection: how the store is reached, by its SDK and by the data plane alike.
        clock: the service's time, as far as this machine's is off.
    """

    options_type: ClassVar[type[Options]] = HttpOptions
    signs_reads: ClassVar[bool] = True
    options: HttpOptions

    def __init__(
        self, bucket: str, options: Options | None = None, transfer: TransferOptions | None = None
    ) -> None:
        super().__init__(bucket, options, transfer)
        try:
            self.connection = Connection.by(self.scheme, self.options)
        except SettingsError as error:
            raise SettingsError(str(error), uri=self.uri(), operation="open") from None
        self.clock = Clock()
        self.access: AccessSlot[Access] = AccessSlot(self._ask_for_access, self.clock)
        connection, times = self.connection, self.transfer
        self._puts: ClientSlot[PutConnections] = ClientSlot(
            lambda: PutConnections(connection, times)
        )

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), self._travelling())

    def _travelling(self) -> Access | None:
        """Return what a copy signs with; like all secrets it goes into spawned processes only."""
        if context.get_spawning_popen() is not None:
            # Asked for once here, or each of many workers would load the SDK to ask.
            with suppress(ProviderError):  # The worker's own reads will say what is missing.
                self.access.get()
        elif not self.options.pickle_secrets:
            return None
        return self.access.access

    def __setstate__(self, access: Access) -> None:
        self.access.adopt(access)

    def _ask_for_access(self, renewing: bool) -> Access | None:
        try:
            return self._find_access(renewing)
        except ProviderError:
            raise
        except Exception as error:
            explained = self._translate(error, "sign", "")
            if explained is None:
                raise
            raise explained from error

    # ---- What a backend supplies ---------------------------------------------------------

    @abstractmethod
    def _find_access(self, renewing: bool) -> Access | None:
        """Ask the SDK what to sign reads with; None where this bucket's cannot be signed here.

        Args:
            renewing: there was something before, which has expired, soon will, or was refused.

        Raises:
            ProviderError: there are no credentials; or what the SDK raises, for ``_translate``.
        """

    @abstractmethod
    def _read_headers(
        self, byte_range: ByteRange | None, if_match: ObjectInfo | None
    ) -> Mapping[str, str]:
        """Return the headers of a GET, to be signed with it."""

    def note_time(self, headers: Mapping[str, str]) -> None:
        """Remember what time it is at the service, which an answer has refused this one's for."""
        told = http_date(next((v for n, v in headers.items() if n.lower() == "date"), None))
        if told is not None:
            self.clock.note(told.timestamp())

    # ---- Requests with bodies ------------------------------------------------------------

    def send_body(
        self,
        operation: str,
        key: str,
        headers: Mapping[str, str],
        body: memoryview,
        query: str = "",
        payload_hash: str | None = None,
    ) -> PutAnswer:
        """Send one signed PUT, once, and return the answer of a success.

        Args:
            operation: for errors to name.
            key: of the object.
            headers: to be sent and signed.
            body: sent as it lies in memory.
            query: percent-encoded.
            payload_hash: as for ``Sign``.

        Raises:
            ProviderError: anything else.
        """
        sign = self.access.get()
        if sign is None:
            raise self.limit_error(operation, key, "requests of this bucket cannot be signed here")
        request = sign(key, headers, "PUT", query, payload_hash)
        try:
            answer = self._puts.get().send(request, body)
        except Exception as error:
            explained = explain_failure(error, self.uri(key), operation)
            if explained is None:
                raise
            raise explained from error
        if answer.status not in _SUCCESSES:
            raise self.explain(request, answer.status, answer.headers, answer.body)
        return answer

    # ---- Reads ---------------------------------------------------------------------------

    @override
    def signed_get(
        self, key: str, byte_range: ByteRange | None = None, *, if_match: ObjectInfo | None = None
    ) -> HttpRequest | None:
        self.check_get(key, if_match)
        sign = self.access.get()
        return None if sign is None else sign(key, self._read_headers(byte_range, if_match))

    @override
    def _read(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        return self._fetch(Get(self, key, byte_range, if_match), self.transfer)

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        once = self.transfer.model_copy(update={"max_attempts": 1})
        return self._fetch(Get(self, key, byte_range, if_match), once)

    def _fetch(self, get: Get, transfer: TransferOptions) -> bytes:
        with closing(fetch([get], transfer)) as answers:
            _, body = next(answers)
        if isinstance(body, ProviderError):
            try:
                raise body
            finally:
                del body  # Its traceback holds this frame.
        return body if isinstance(body, bytes) else bytes(body)
