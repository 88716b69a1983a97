"""fake-gcs-server as the GCS front uses it: a few verbs, conditions, checksums, error documents."""

import base64
import hashlib
import http.client
import json
import urllib.parse
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape

import google_crc32c

from tests.fakes.wire import Answer, Message, Request, Upstream

Resource = dict[str, Any]
"""An object's metadata in the JSON API's words."""

XML_HEADER = "<?xml version='1.0' encoding='UTF-8'?>"
NOT_MET = "At least one of the pre-conditions you specified did not hold."
_REASONS = {400: "invalid", 404: "notFound", 409: "conflict", 412: "conditionNotMet"}


class Refusal(Exception):  # noqa: N818 (an answer, not a failure of ours)
    """A request that the service refuses; the interface that took it words the answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    def as_xml(self) -> Answer:
        """The answer of the XML API."""
        text = f"<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message></Error>"
        return xml_answer(text, status=self.status)

    def as_json(self) -> Answer:
        """The answer of the JSON API."""
        reason = _REASONS.get(self.status, self.code)
        detail = {"message": self.message, "domain": "global", "reason": reason}
        error = {"code": self.status, "message": self.message, "errors": [detail]}
        return json_answer({"error": error}, status=self.status)

    def as_text(self) -> Answer:
        """The answer of the JSON API to a request for an object's data."""
        headers = (("Content-Type", "text/html; charset=UTF-8"),)
        return Answer(self.status, headers, self.message.encode())


@dataclass(frozen=True, slots=True)
class Conditions:
    """The generation a request insists on; 0 stands for an absent object."""

    match: str | None
    not_match: str | None = None

    @classmethod
    def of(cls, request: Request, source: str = "") -> "Conditions":
        """Read them from the query (`source="Source"`: those on a copy's source) or headers."""
        query = parameters(request)
        headers = request.headers if not source else {}
        return cls(
            query.get(f"if{source}GenerationMatch", headers.get("x-goog-if-generation-match")),
            query.get(f"if{source}GenerationNotMatch"),
        )

    def check(self, resource: Resource | None) -> None:
        """Refuse if the object is not of the generation asked for."""
        generation = resource["generation"] if resource else "0"
        mismatch = self.match is not None and self.match != generation
        if mismatch or self.not_match == generation:
            raise Refusal(412, "PreconditionFailed", NOT_MET)


class Backend:
    """The server behind the front, through one connection, without any of the front's repairs."""

    def __init__(self, upstream: Upstream, host: str) -> None:
        self._upstream = upstream
        self._host = host

    def forward(self, message: Message, *, target: str = "", keeps_host: bool = False) -> Answer:
        """Pass a request on.

        Args:
            message: The request.
            target: Replaces path and query.
            keeps_host: The server knows XML requests by its own name, and gives back links to
                itself under the name a JSON request used.
        """
        head = message.request
        lines = message.head.split(b"\r\n")
        lines[0] = f"{head.method} {target or head.target} HTTP/1.1".encode("latin-1")
        if not keeps_host:
            named = f"Host: {self._host}".encode()
            lines = [named if line.lower().startswith(b"host:") else line for line in lines]
        body = message.framed_body, message.body
        return self._upstream.exchange(Message(head, b"\r\n".join(lines), *body))

    def call(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Make a request of the front's own."""
        fields = {"Host": self._host, "Content-Length": str(len(body)), **(headers or {})}
        lines = [f"{method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        path, _, query = target.partition("?")
        request = Request(method, path, query, MappingProxyType({}))
        return self._upstream.exchange(Message(request, head, body, body))

    def has_bucket(self, bucket: str) -> bool:
        """Whether the bucket exists."""
        return self.call("GET", f"/storage/v1/b/{bucket}").status == HTTPStatus.OK

    def resource(self, bucket: str, key: str) -> Resource | None:
        """The object's metadata, or None if there is no such object."""
        answer = self.call("GET", object_path(bucket, key))
        return json.loads(answer.body) if answer.status == HTTPStatus.OK else None

    def missing(self, bucket: str, key: str = "") -> Refusal:
        """Why something was not found: for lack of the object, or of the whole bucket."""
        if self.has_bucket(bucket):
            return Refusal(404, "NoSuchKey", f"No such object: {bucket}/{key}")
        return Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")

    def wanted_generation(self, request: Request, bucket: str, key: str) -> str | None:
        """The generation that a read insists on, or None; "absent" is settled here."""
        conditions = Conditions.of(request)
        if conditions.match == "0":
            conditions.check(self.resource(bucket, key))
            return None
        return conditions.match

    def read(self, bucket: str, key: str, generation: str) -> bytes:
        """The whole object, of one generation."""
        target = f"{object_path(bucket, key)}?alt=media&generation={generation}"
        answer = self.call("GET", target)
        if answer.status != HTTPStatus.OK:
            raise self.missing(bucket, key)
        return answer.body

    def store(self, bucket: str, key: str, body: bytes, resource: Resource) -> Resource:
        """Write an object in one piece; it gets a new generation."""
        boundary = uuid.uuid4().hex
        kind = resource.get("contentType", "application/octet-stream")
        head = json.dumps({**resource, "name": key}).encode()
        parts = [("application/json", head), (kind, body)]
        framed = [
            f"--{boundary}\r\ncontent-type: {kind}\r\n\r\n".encode() + part + b"\r\n"
            for kind, part in parts
        ]
        framed.append(f"--{boundary}--\r\n".encode())
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart"
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        answer = self.call("POST", target, headers, b"".join(framed))
        if answer.status == HTTPStatus.NOT_FOUND:
            raise self.missing(bucket)
        if answer.status != HTTPStatus.OK:
            raise http.client.HTTPException(answer)
        stored: Resource = json.loads(answer.body)
        return stored


def object_path(bucket: str, key: str) -> str:
    """The JSON API's path of an object."""
    return f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}"


def parameters(request: Request) -> dict[str, str]:
    """The query, decoded."""
    return dict(urllib.parse.parse_qsl(request.query, keep_blank_values=True))


def crc32c(data: bytes) -> str:
    """A CRC32C as Google writes it."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def md5(data: bytes) -> str:
    """An MD5 as Google writes it."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def check_hashes(data: bytes, headers: Mapping[str, str], resource: Resource | None = None) -> None:
    """Refuse data that is not what its sender says it is."""
    resource = resource or {}
    claims = [("md5", headers.get("content-md5")), ("md5", resource.get("md5Hash"))]
    claims.append(("crc32c", resource.get("crc32c")))
    for field in headers.get("x-goog-hash", "").split(","):
        name, _, value = field.strip().partition("=")
        claims.append((name, value))
    for name, claimed in claims:
        real = {"md5": md5, "crc32c": crc32c}.get(name)
        if real and claimed and claimed != real(data):
            message = f"Provided {name} {claimed} doesn't match calculated {name} {real(data)}."
            raise Refusal(400, "BadDigest", message)


def json_answer(value: object, status: int = 200) -> Answer:
    """An answer with a JSON document."""
    headers = (("Content-Type", "application/json; charset=UTF-8"),)
    return Answer(status, headers, json.dumps(value).encode())


def xml_answer(text: str, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """An answer with an XML document."""
    kind = ("Content-Type", "application/xml; charset=UTF-8")
    return Answer(status, (kind, *headers), (XML_HEADER + text).encode())
