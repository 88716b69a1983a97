"""Amazon's part, played by canned answers: nothing leaves here."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from botocore.awsrequest import AWSResponse, HTTPHeaders

from providers.puts import PutAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from providers.s3 import S3Provider
    from providers.values import HttpRequest

SESSION = (
    b"<CreateSessionResult><Credentials><AccessKeyId>SESSION</AccessKeyId><SecretAccessKey>S"
    b"</SecretAccessKey><SessionToken>TOKEN</SessionToken><Expiration>2100-01-01T00:00:00Z"
    b"</Expiration></Credentials></CreateSessionResult>"
)
"""What opens an S3 Express bucket."""


class _Raw(io.BytesIO):
    """A body as urllib3 gives it."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Yield all there is."""
        yield self.read()


class Amazon:
    """Answers in the place of the network, and keeps the requests."""

    def __init__(self, provider: S3Provider) -> None:
        self.requests: list[Any] = []
        self.bodies: list[bytes] = []
        self.pieces: list[int] = []
        self.status = 200
        self.headers: dict[str, str] = {"ETag": '"etag"'}
        self.body = b""
        for client in (provider.clients.usual, provider.clients.patient):
            client.meta.events.register_last("before-send.s3", self._answer)
        provider._puts = cast("Any", self)

    def get(self) -> Amazon:
        """Stand in for the connections over which bodies are sent."""
        return self

    def send(self, request: HttpRequest, body: memoryview) -> PutAnswer:
        """Answer a request with a body."""
        headers = HTTPHeaders()
        for name, value in (*request.headers.items(), ("Content-Length", str(len(body)))):
            headers[name] = value
        self.requests.append(SimpleNamespace(url=request.url, headers=headers))
        self.bodies.append(bytes(body))
        return PutAnswer(self.status, self.headers, self.body)

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        self.requests.append(request)
        body = request.body
        if body is not None and not isinstance(body, bytes):
            self.pieces = [len(piece) for piece in body]
            body = b"".join(body)
        self.bodies.append(body or b"")
        answer = SESSION if request.url.endswith("/?session") else self.body
        headers = {"Content-Length": str(len(answer)), **self.headers}
        return AWSResponse(request.url, self.status, headers, _Raw(answer))


def header(request: Any, name: str) -> str:
    """Return a header as text."""
    value = request.headers.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)
