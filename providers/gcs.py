"""``gs://``: Google Cloud Storage, by its XML and JSON APIs through a session of google-auth."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from typing_extensions import override

from providers.answers import redirection, retry_after_seconds, user_metadata
from providers.checksums import joined, parse
from providers.clients import ClientSlot
from providers.errors import IntegrityError, ProviderError
from providers.gcs_answers import (
    LISTED_FIELDS,
    METADATA_PREFIX,
    Answer,
    AnswerError,
    check_arrived,
    described,
    document,
    element,
    explained,
    resource_info,
    stored_bytes,
)
from providers.gcs_client import (
    GCSClient,
    crc32c,
    explain_library_error,
    is_google,
    open_client,
    resolved,
)
from providers.gcs_multipart import GCSUpload, uploads_page
from providers.http_provider import HttpProvider, operation_of
from providers.options import GCSOptions, TransferOptions
from providers.uploads import check_published
from providers.values import ByteRange, Limits, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from providers.access import Access
    from providers.listings import Page, UploadsPage
    from providers.uploads import MultipartUpload
    from providers.values import HttpRequest, UploadInfo

__all__ = ["GCSProvider"]

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40

_IF_GENERATION = "x-goog-if-generation-match"
_CONTENT_TYPE = "application/octet-stream"
_UNAUTHORIZED = 401
_DESCRIPTION = ("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage",
                "contentType", "customTime", "metadata")  # fmt: skip
"""What of an object's resource a user may have set. Source:
https://cloud.google.com/storage/docs/json_api/v1/objects#resource, read 2026-12-01."""


class GCSProvider(HttpProvider):
    """One bucket of Google Cloud Storage or of an emulator."""

    scheme: ClassVar[str] = "gs"
    options_type = GCSOptions
    options: GCSOptions
    delete_batch: ClassVar[int] = 100
    # More than the 1,000 that the reference promises, which were seen to be granted.
    page_size: ClassVar[int] = 5000

    def __init__(
        self,
        bucket: str,
        options: GCSOptions | None = None,
        transfer: TransferOptions | None = None,
    ) -> None:
        super().__init__(bucket, options, transfer)
        self.options = settings = resolved(self.options, self.uri())
        times = self.transfer
        connection = self.connection
        self._clients: ClientSlot[GCSClient] = ClientSlot(
            lambda: open_client(settings, times, connection)
        )

    @property
    @override
    def limits(self) -> Limits:
        # Sources: https://cloud.google.com/storage/quotas (objects, composes) and
        # https://cloud.google.com/storage/docs/multipart-uploads (parts), read 2026-11-30.
        google = is_google(self.options)
        conditional, equal = self.options.conditional_put, self.options.equal_parts
        return Limits(
            min_part_bytes=5 * MIB,
            max_part_bytes=5 * GIB,
            max_parts=10_000,
            max_sources=32,
            min_join_bytes=1,
            max_put_bytes=5 * TIB,
            max_copy_bytes=5 * TIB,
            conditional_put=google if conditional is None else conditional,
            equal_parts=not google if equal is None else equal,
            lists_in_order=True,
            joins_server_side=False,
        )

    @override
    def check_key(self, key: str, operation: str) -> None:
        super().check_key(key, operation)
        if key in {".", ".."}:
            # Source: https://cloud.google.com/storage/docs/objects#naming, read 2026-11-30.
            raise self.limit_error(operation, key, "the service allows no object of this name")

    # ---- The two APIs --------------------------------------------------------------------

    def send_xml(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: memoryview | None = None,
        *,
        patient: bool = False,
        as_stored: bool = False,
    ) -> Answer:
        """Send one request about an object to the XML API; arguments as for the client's.

        Without a key it is about the bucket.
        """
        path = f"/{_quoted(self.bucket)}" + (f"/{_quoted(key)}" if key else "")
        return self._clients.get().send(
            method, path, query, headers, body, patient=patient, as_stored=as_stored
        )

    def _send_json(
        self, method: str, path: str, query: Mapping[str, str | None], body: Any = None
    ) -> dict[str, Any]:
        """Send one request to the JSON API, below the bucket's objects."""
        parameters = {**query, "userProject": self.options.project}
        sent = None if body is None else memoryview(json.dumps(body).encode())
        answer = self._clients.get().send(
            method,
            f"/storage/v1/b/{_quoted(self.bucket)}/o{path}",
            {name: value for name, value in parameters.items() if value},
            {} if body is None else {"Content-Type": "application/json"},
            sent,
            patient=method == "POST",
        )
        return document(answer)

    # ---- Reading -------------------------------------------------------------------------

    @override
    def _list_page(
        self,
        prefix: str,
        start_after: str | None,
        stop_before: str | None,
        delimiter: str | None,
        token: str | None,
    ) -> Page:
        query = {
            "prefix": prefix,
            "startOffset": start_after,
            # It counts objects, not the common prefixes that stand for them.
            "endOffset": None if delimiter else stop_before,
            "delimiter": delimiter,
            "pageToken": token,
            "maxResults": str(self.page_size),
            "fields": LISTED_FIELDS,
        }
        page = self._send_json("GET", "", query)
        entries = [resource_info(resource) for resource in page.get("items", ())]
        entries += [ObjectInfo(name, is_prefix=True) for name in page.get("prefixes", ())]
        return entries, page.get("nextPageToken") or None

    @override
    def _head(self, key: str) -> ObjectInfo:
        return self.describe(key, self.send_xml("HEAD", key, as_stored=True).headers)

    @override
    def _find_access(self, renewing: bool) -> Access | None:
        return self._clients.get().access(self.bucket, renewing=renewing)

    @override
    def _read_headers(
        self, byte_range: ByteRange | None, if_match: ObjectInfo | None
    ) -> Mapping[str, str]:
        headers = {} if byte_range is None else {"Range": byte_range.header}
        if if_match is not None and if_match.version is not None:
            headers[_IF_GENERATION] = if_match.version
        return headers

    # ---- Writing -------------------------------------------------------------------------

    @override
    def _put(
        self, key: str, data: memoryview, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        sent = crc32c(data)
        headers = {"x-goog-hash": f"crc32c={sent}", **self._new_object(metadata)}
        if if_absent:
            headers[_IF_GENERATION] = "0"
        answer = self.send_body("put", key, headers, data)
        check_arrived(answer.headers, sent, self.uri(key), "put")
        user, write_id = user_metadata(metadata)
        info = described(key, answer.headers, data.nbytes)
        return replace(info, metadata=user, write_id=write_id)

    def _new_object(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that say how a new object is to be kept, and what with it."""
        # Source: https://cloud.google.com/storage/docs/xml-api/reference-headers,
        # read 2026-12-01.
        told = {
            "Content-Type": _CONTENT_TYPE,
            "x-goog-storage-class": self.options.storage_class,
            "x-goog-encryption-kms-key-name": self.options.kms_key_name,
        }
        named = {f"{METADATA_PREFIX}{name}": value for name, value in metadata.items()}
        return {**named, **{name: value for name, value in told.items() if value is not None}}

    @override
    def _start_multipart(
        self, key: str, write_id: str, *, if_absent: bool, metadata: Mapping[str, str]
    ) -> MultipartUpload:
        answer = self.send_xml("POST", key, {"uploads": ""}, self._new_object(metadata))
        upload_id = element(answer, "InitiateMultipartUploadResult", "UploadId")
        return GCSUpload(self, key, write_id, upload_id, if_absent=if_absent)

    @override
    def _uploads_page(self, prefix: str, token: Any) -> UploadsPage:
        query = {
            "uploads": "",
            "encoding-type": "url",
            "max-uploads": str(self.uploads_page_size),
            **({"prefix": prefix} if prefix else {}),
            **(token or {}),
        }
        return uploads_page(self.send_xml("GET", "", query))

    @override
    def _abort_upload(self, upload: UploadInfo) -> None:
        self.send_xml("DELETE", upload.key, {"uploadId": upload.upload_id})

    @override
    def _compose(
        self,
        sources: list[ObjectInfo],
        destination: str,
        write_id: str,
        *,
        if_absent: bool,
        metadata: Mapping[str, str],
    ) -> ObjectInfo:
        # All are pinned: were the answer lost and the destination among the sources, a second
        # attempt would join the result of the first.
        pinned = [s if s.version is not None else self.head(s.key) for s in sources]
        body = {
            "sourceObjects": [
                {"name": s.key, "objectPreconditions": {"ifGenerationMatch": s.version}}
                for s in pinned
            ],
            "destination": {
                "contentType": _CONTENT_TYPE,
                "metadata": dict(metadata),
                **self._kept_in_class(),
            },
        }
        query = {
            "ifGenerationMatch": "0" if if_absent else None,
            "kmsKeyName": self.options.kms_key_name,
        }
        path = f"/{_quoted(destination)}/compose"
        info = self.settle(
            "compose",
            destination,
            lambda: resource_info(self._send_json("POST", path, query, body)),
            write_id,
        )
        if info.write_id == write_id:
            size_bytes = sum(s.size for s in pinned)
            sent = joined((parse(s.checksum), s.size) for s in pinned)
            check_published(info, size_bytes, sent, self.uri(destination), "compose")
        return info

    @override
    def _copy(self, source: ObjectInfo, destination: str) -> ObjectInfo:
        path = f"/{_quoted(source.key)}/rewriteTo/b/{_quoted(self.bucket)}/o/{_quoted(destination)}"
        description = self._description_to_copy(source)
        token: str | None = None
        while True:
            query = {
                "ifSourceGenerationMatch": source.version,
                "destinationKmsKeyName": self.options.kms_key_name,
                "rewriteToken": token,
            }
            # A large object may take several calls.
            progress = self._send_json("POST", path, query, description)
            if progress.get("done"):
                return resource_info(progress["resource"])
            token = progress["rewriteToken"]

    def _kept_in_class(self) -> dict[str, str]:
        chosen = self.options.storage_class
        return {} if chosen is None else {"storageClass": chosen}

    def _description_to_copy(self, source: ObjectInfo) -> dict[str, Any] | None:
        """Return what describes a copy; None: all that describes its source.

        A class can only be given together with all the rest: what is left out is lost.
        """
        if self.options.storage_class is None:
            return None
        query = {"ifGenerationMatch": source.version, "fields": ",".join(_DESCRIPTION)}
        told = self._send_json("GET", f"/{_quoted(source.key)}", query)
        return {name: told[name] for name in _DESCRIPTION if name in told} | self._kept_in_class()

    @override
    def _delete(self, keys: Sequence[str]) -> list[ProviderError]:
        if len(keys) == 1:
            self.send_xml("DELETE", keys[0])
            return []
        workers = min(len(keys), self.transfer.max_in_flight)
        with ThreadPoolExecutor(workers, thread_name_prefix="connector-delete") as pool:
            return list(chain(*pool.map(lambda key: self._try_delete([key]), keys)))

    # ---- Readers of answers --------------------------------------------------------------

    @override
    def explain(
        self, request: HttpRequest | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        path = urlsplit(request.url).path if request else ""
        key = unquote(path.removeprefix(f"/{_quoted(self.bucket)}/"))
        return self._error(operation_of(request), key, status, headers, body)

    @override
    def describe(self, key: str, headers: Mapping[str, str]) -> ObjectInfo:
        lower = {name.lower(): value for name, value in headers.items()}
        return described(key, lower, stored_bytes(lower))

    @override
    def recover(self, error: ProviderError) -> bool:
        if isinstance(error, IntegrityError):
            # Damaged on the way, most likely; if it is damaged again, then where it lies.
            return error.operation in {"get", "put_part"}
        literal = self.options.anonymous or self.options.access_token is not None
        if literal or error.status != _UNAUTHORIZED:
            return False
        self.access.renew(self._clients.drop)
        return True

    @override
    def _translate(self, error: Exception, operation: str, key: str) -> ProviderError | None:
        if isinstance(error, AnswerError):
            answer = error.answer
            return self._error(operation, key, answer.status, answer.headers, answer.body)
        return explain_library_error(error, self.options, self.uri(key), operation)

    def _error(
        self, operation: str, key: str, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderError:
        lower = {name.lower(): value for name, value in headers.items()}
        kind, message, code = explained(status, body)
        leads = redirection(status, lower)
        return kind(
            f"{message}; {leads}" if leads else message,
            uri=self.uri(key),
            operation=operation,
            status=status,
            code=code,
            request_id=lower.get("x-guploader-uploadid"),
            retry_after_seconds=retry_after_seconds(lower),
        )


def _quoted(name: str) -> str:
    """Encode a name to the last slash, so that nothing on the way takes ``..`` for a step up."""
    return quote(name, safe="")
