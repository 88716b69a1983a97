"""The JSON API of Google Cloud Storage, where the server behind the front differs from it."""

import email
import json
import re
import urllib.parse
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.fakes.gcs_backend import (
    NOT_MET,
    Backend,
    Conditions,
    Refusal,
    Resource,
    check_hashes,
    json_answer,
    object_path,
    parameters,
)
from tests.fakes.gcs_identity import Composites, project
from tests.fakes.wire import Answer, Message

_MAX_SOURCES = 32
_OBJECT = re.compile(
    r"(?P<download>/download)?/storage/v1/b/(?P<bucket>[^/]+)/o/(?P<key>.+?)"
    r"(?P<verb>/compose|/(?:rewriteTo|copyTo)/b/(?P<to_bucket>[^/]+)/o/(?P<to_key>.+))?"
)
_UPLOAD = re.compile(r"(?:/resumable)?/upload/storage/v1/b/(?P<bucket>[^/]+)/o")
_LIST = re.compile(r"/storage/v1/b/(?P<bucket>[^/]+)/o/?")


@dataclass(frozen=True, slots=True)
class JSONInterface:
    """Answers JSON requests; what it does not know better it passes on."""

    composites: Composites
    sessions: dict[str, tuple[str, str, Conditions]] = field(default_factory=dict)

    def respond(self, message: Message, backend: Backend) -> Answer:
        """Answer one request."""
        reads_data = parameters(message.request).get("alt") == "media"
        try:
            return self._route(message, backend)
        except Refusal as refusal:
            return refusal.as_text() if reads_data else refusal.as_json()

    def _route(self, message: Message, backend: Backend) -> Answer:
        path = message.request.path
        if found := _UPLOAD.fullmatch(path):
            return self._upload(message, backend, urllib.parse.unquote(found["bucket"]))
        if found := _LIST.fullmatch(path):
            return self._list(message, backend, urllib.parse.unquote(found["bucket"]))
        if found := _OBJECT.fullmatch(path):
            names = {
                name: urllib.parse.unquote(value)
                for name, value in found.groupdict().items()
                if value
            }
            return self._object(message, backend, names)
        return self._dress(backend.forward(message, keeps_host=True))

    def _object(self, message: Message, backend: Backend, names: dict[str, str]) -> Answer:
        bucket, key = names["bucket"], names["key"]
        if names.get("verb") == "/compose":
            return self._compose(message, backend, bucket, key)
        if "verb" in names:
            _check(message, backend, names["to_bucket"], names["to_key"])
            self._check_source(message, backend, bucket, key)
        elif message.request.method in {"GET", "HEAD"}:
            return self._get(message, backend, bucket, key)
        else:
            _check(message, backend, bucket, key, absent_is_missing=True)
        if names.get("verb", "").startswith("/rewriteTo") and message.body:
            return self._rewrite(message, backend, names)
        answer = backend.forward(message, keeps_host=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            absent = "verb" in names and backend.resource(bucket, key)
            raise backend.missing(names["to_bucket"] if absent else bucket, key)
        if message.request.method == "DELETE" and answer.status == HTTPStatus.OK:
            return Answer(204)
        if "verb" in names and answer.status == HTTPStatus.OK:
            self._encrypt_copy(message, json.loads(answer.body)["resource"])
        return self._dress(answer)

    def _rewrite(self, message: Message, backend: Backend, names: dict[str, str]) -> Answer:
        """Copy with a description of its own: what that leaves out is not the copy's."""
        source = backend.resource(names["bucket"], names["key"])
        if source is None:
            raise backend.missing(names["bucket"], names["key"])
        data = backend.read(names["bucket"], names["key"], source["generation"])
        described = json.loads(message.body)
        stored = backend.store(names["to_bucket"], names["to_key"], data, described)
        self._encrypt_copy(message, stored)
        return self._dress(json_answer({"done": True, "resource": stored}))

    def _encrypt_copy(self, message: Message, resource: Resource) -> None:
        self.composites.encrypt(resource, parameters(message.request).get("destinationKmsKeyName"))

    def _check_source(self, message: Message, backend: Backend, bucket: str, key: str) -> None:
        conditions = Conditions.of(message.request, "Source")
        wanted = parameters(message.request).get("sourceGeneration")
        resource = backend.resource(bucket, key)
        if resource is None or wanted not in {None, resource["generation"]}:
            raise backend.missing(bucket, key)
        conditions.check(resource)

    def _get(self, message: Message, backend: Backend, bucket: str, key: str) -> Answer:
        wanted = backend.wanted_generation(message.request, bucket, key)
        # The server ignores the condition but honours a generation, and that in one step.
        target = f"{message.request.target}&generation={wanted}" if wanted else ""
        answer = backend.forward(message, target=target, keeps_host=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            if wanted and backend.resource(bucket, key):
                raise Refusal(412, "PreconditionFailed", NOT_MET)
            raise backend.missing(bucket, key)
        if parameters(message.request).get("alt") == "media":
            return self.composites.dress_headers(answer, bucket, key)
        return self._dress(answer)

    def _list(self, message: Message, backend: Backend, bucket: str) -> Answer:
        answer = backend.forward(message, keeps_host=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            raise backend.missing(bucket)
        return self._dress(answer, parameters(message.request).get("fields"))

    def _upload(self, message: Message, backend: Backend, bucket: str) -> Answer:
        query = parameters(message.request)
        if (session := self.sessions.get(query.get("upload_id", ""))) is not None:
            session[2].check(backend.resource(*session[:2]))
            answer = backend.forward(message, keeps_host=True)
            if answer.status == HTTPStatus.OK:
                # Whoever asks again after this must not find its own object in the way.
                del self.sessions[query["upload_id"]]
            return self._dress(answer)
        resource, data = _sent(message, query.get("uploadType", ""))
        key = query.get("name") or resource.get("name", "")
        if data is not None:
            check_hashes(data, message.request.headers, resource)
        _check(message, backend, bucket, key)
        answer = backend.forward(message, keeps_host=True)
        if answer.status == HTTPStatus.NOT_FOUND:
            raise backend.missing(bucket)
        location = answer.header("location") or ""
        if "upload_id=" in location:
            upload_id = location.rpartition("upload_id=")[2]
            self.sessions[upload_id] = bucket, key, Conditions.of(message.request)
        return self._dress(answer)

    def _compose(self, message: Message, backend: Backend, bucket: str, key: str) -> Answer:
        document = json.loads(message.body)
        sources = document.get("sourceObjects", [])
        if not sources:
            raise Refusal(400, "required", "You must provide at least one source component.")
        if len(sources) > _MAX_SOURCES:
            text = f"The number of source components provided ({len(sources)} > 32) is too large."
            raise Refusal(400, "invalid", text)
        if not backend.has_bucket(bucket):
            raise backend.missing(bucket)
        _check(message, backend, bucket, key)
        resources = [_source(backend, bucket, source) for source in sources]
        bodies = [backend.read(bucket, one["name"], one["generation"]) for one in resources]
        stored = backend.store(bucket, key, b"".join(bodies), document.get("destination", {}))
        self.composites.add(stored, sum(self.composites.count(one) for one in resources))
        self.composites.encrypt(stored, parameters(message.request).get("kmsKeyName"))
        return self._dress(backend.call("GET", object_path(bucket, key)))

    def _dress(self, answer: Answer, fields: str | None = None) -> Answer:
        if not (answer.header("content-type") or "").startswith("application/json"):
            return answer
        try:
            value = json.loads(answer.body)
        except ValueError:
            return answer
        if answer.status == HTTPStatus.OK and isinstance(value, dict):
            value = project(self.composites.dress(value), fields)
        return Answer(answer.status, answer.headers, json.dumps(value).encode())


def _check(
    message: Message, backend: Backend, bucket: str, key: str, *, absent_is_missing: bool = False
) -> None:
    conditions = Conditions.of(message.request)
    if conditions == Conditions(None, None):
        return
    resource = backend.resource(bucket, key)
    if resource is None and absent_is_missing:
        raise backend.missing(bucket, key)
    conditions.check(resource)


def _source(backend: Backend, bucket: str, source: Resource) -> Resource:
    name = source["name"]
    resource = backend.resource(bucket, name)
    wanted = source.get("generation")
    if resource is None or str(wanted or resource["generation"]) != resource["generation"]:
        text = f"Object {name} (generation: {wanted or 0}) not found."
        raise Refusal(404, "NoSuchKey", text)
    match = source.get("objectPreconditions", {}).get("ifGenerationMatch")
    Conditions(None if match is None else str(match)).check(resource)
    return resource


def _sent(message: Message, kind: str) -> tuple[Resource, bytes | None]:
    """The metadata and the data of an upload, whichever of them it has."""
    if kind == "media":
        return {}, message.body
    if kind == "resumable":
        return json.loads(message.body or b"{}"), None
    header = f"Content-Type: {message.request.headers.get('content-type', '')}\r\n\r\n"
    boundary = email.message_from_string(header).get_boundary()
    if boundary is None:
        raise Refusal(400, "badRequest", "A multipart upload needs a boundary.")
    # Split by hand: a parser of mail would change line ends in the data.
    _, head, data, *_ = (b"\r\n" + message.body).split(f"\r\n--{boundary}".encode())
    resource: Resource = json.loads(head.partition(b"\r\n\r\n")[2])
    return resource, data.partition(b"\r\n\r\n")[2]
