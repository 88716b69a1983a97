"""The XML API of Google Cloud Storage: `/bucket/key`, and S3's verbs on it."""

import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from xml.sax.saxutils import escape

from tests.fakes.gcs_backend import (
    NOT_MET,
    Backend,
    Conditions,
    Refusal,
    Resource,
    check_hashes,
    crc32c,
    md5,
    parameters,
    xml_answer,
)
from tests.fakes.gcs_identity import Composites
from tests.fakes.gcs_uploads import Uploads, assemble
from tests.fakes.wire import Answer, Message

_META = "x-goog-meta-"
_KMS_KEY = "x-goog-encryption-kms-key-name"


@dataclass(frozen=True, slots=True)
class XMLInterface:
    """Answers XML requests; what it does not know better it passes on."""

    uploads: Uploads
    composites: Composites

    def respond(self, message: Message, backend: Backend) -> Answer:
        """Answer one request."""
        bucket, _, key = message.request.path.removeprefix("/").partition("/")
        call = _Call(message, backend, urllib.parse.unquote(bucket), urllib.parse.unquote(key))
        try:
            return self._verb(call)(call)
        except Refusal as refusal:
            return refusal.as_xml()

    def _verb(self, call: "_Call") -> Callable[["_Call"], Answer]:
        query = call.query
        if not call.key:
            return self._list_uploads if "uploads" in query else self._bucket
        if "uploads" in query:
            return self._start
        if "uploadId" in query:
            verbs = {"PUT": self._part, "POST": self._complete, "DELETE": self._abort}
            return verbs.get(call.method, self._list_parts)
        return {"PUT": self._put, "DELETE": self._delete}.get(call.method, self._get)

    def _bucket(self, call: "_Call") -> Answer:
        answer = call.backend.forward(call.message)
        if answer.status == HTTPStatus.NOT_FOUND:
            raise call.backend.missing(call.bucket)
        return answer

    def _get(self, call: "_Call") -> Answer:
        wanted = call.backend.wanted_generation(call.message.request, call.bucket, call.key)
        # The server ignores the condition but honours a generation, and that in one step.
        target = f"{call.message.request.path}?generation={wanted}" if wanted else ""
        answer = call.backend.forward(call.message, target=target)
        if answer.status == HTTPStatus.NOT_FOUND:
            if wanted and call.backend.resource(call.bucket, call.key):
                raise Refusal(412, "PreconditionFailed", NOT_MET)
            raise call.backend.missing(call.bucket, call.key)
        answer = self.composites.dress_headers(answer, call.bucket, call.key)
        if call.headers.get("if-match", answer.header("etag")) != answer.header("etag"):
            raise Refusal(412, "PreconditionFailed", NOT_MET)
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            message = "The requested range cannot be satisfied."
            raise Refusal(416, "InvalidRange", message)
        return answer

    def _put(self, call: "_Call") -> Answer:
        if "x-goog-copy-source" in call.headers or "compose" in call.query:
            raise Refusal(501, "NotImplemented", "This front copies and composes by JSON only.")
        check_hashes(call.body, call.headers)
        call.check_conditions()
        stored = call.backend.store(call.bucket, call.key, call.body, call.resource())
        self.composites.encrypt(stored, call.headers.get(_KMS_KEY))
        return Answer(200, tuple(self.composites.headers(stored)))

    def _delete(self, call: "_Call") -> Answer:
        call.check_conditions()
        answer = call.backend.forward(call.message)
        if answer.status == HTTPStatus.NOT_FOUND:
            raise call.backend.missing(call.bucket, call.key)
        return Answer(204)

    def _start(self, call: "_Call") -> Answer:
        if not call.backend.has_bucket(call.bucket):
            raise call.backend.missing(call.bucket)
        kms_key = call.headers.get(_KMS_KEY)
        return xml_answer(self.uploads.start(call.bucket, call.key, call.resource(), kms_key))

    def _part(self, call: "_Call") -> Answer:
        upload = self.uploads.find(call.bucket, call.key, call.query["uploadId"])
        check_hashes(call.body, call.headers)
        part = self.uploads.put_part(upload, call.query.get("partNumber", ""), call.body)
        hashes = f"crc32c={crc32c(call.body)},md5={md5(call.body)}"
        return Answer(200, (("ETag", part.etag), ("x-goog-hash", hashes)))

    def _complete(self, call: "_Call") -> Answer:
        upload = self.uploads.find(call.bucket, call.key, call.query["uploadId"])
        body = assemble(upload, call.body)
        call.check_conditions()
        stored = call.backend.store(call.bucket, call.key, body, upload.resource)
        self.composites.add(stored, None)
        self.composites.encrypt(stored, upload.kms_key)
        self.uploads.forget(upload)
        headers = self.composites.headers(stored)
        text = (
            "<CompleteMultipartUploadResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
            f"<Location>http://storage.googleapis.com/{call.bucket}/{escape(call.key)}</Location>"
            f"<Bucket>{call.bucket}</Bucket><Key>{escape(call.key)}</Key>"
            f"<ETag>{escape(headers[0][1])}</ETag></CompleteMultipartUploadResult>"
        )
        return xml_answer(text, headers=headers[1:])

    def _abort(self, call: "_Call") -> Answer:
        self.uploads.forget(self.uploads.find(call.bucket, call.key, call.query["uploadId"]))
        return Answer(204)

    def _list_parts(self, call: "_Call") -> Answer:
        upload = self.uploads.find(call.bucket, call.key, call.query["uploadId"])
        after = int(call.query.get("part-number-marker", "0"))
        page = min(int(call.query.get("max-parts", "1000")), 1000)
        return xml_answer(self.uploads.list_parts(upload, after, page))

    def _list_uploads(self, call: "_Call") -> Answer:
        if not call.backend.has_bucket(call.bucket):
            raise call.backend.missing(call.bucket)
        return xml_answer(self.uploads.list_uploads(call.bucket, call.query))


class _Call:
    """One request, taken apart."""

    def __init__(self, message: Message, backend: Backend, bucket: str, key: str) -> None:
        self.message = message
        self.backend = backend
        self.bucket = bucket
        self.key = key
        self.method = message.request.method
        self.headers = message.request.headers
        self.body = message.body
        self.query = parameters(message.request)

    def resource(self) -> Resource:
        """The metadata that headers give to a new object."""
        metadata = {
            name.removeprefix(_META): value
            for name, value in self.headers.items()
            if name.startswith(_META)
        }
        resource: Resource = {"metadata": metadata} if metadata else {}
        if "content-type" in self.headers:
            resource["contentType"] = self.headers["content-type"]
        if "x-goog-storage-class" in self.headers:
            resource["storageClass"] = self.headers["x-goog-storage-class"]
        return resource

    def check_conditions(self) -> None:
        """Refuse a write to another generation than the one it insists on."""
        conditions = Conditions.of(self.message.request)
        if conditions.match is not None:
            conditions.check(self.backend.resource(self.bucket, self.key))
