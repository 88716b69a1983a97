"""A front for fake-gcs-server that behaves as Google Cloud Storage does.

It adds what the server lacks:
- the XML multipart API (start, part, complete, abort, list of parts and of uploads), which the
  server answers with 400; parts are kept here, the whole object is stored in one upload;
- XML PUT of an object, which the server answers with 400 too.

And it repairs, wherever the server was seen to differ:
- preconditions by generation were ignored everywhere but on a JSON multipart upload: on reads of
  data and metadata, JSON and XML; on media and resumable uploads, deletes, patches, copies;
- compose ignored the generations and preconditions of its sources and its destination, kept the
  old generation of an object it replaced, answered 500 for a missing source or bucket, took an
  empty list of sources, reported an MD5 and no component count;
- checksums sent with an upload (`crc32c`, `md5Hash`, `x-goog-hash`, `Content-MD5`) were not
  compared with the data;
- errors had no code: XML had plain text, JSON had the phrase instead of a reason such as
  `notFound`; a missing bucket looked like a missing object (their status 404 was right, for lists
  as well); a range past the end was 416, rightly, but without the XML document;
- both interfaces gave the base64 MD5 as ETag, and `If-Match` was ignored;
- a delete was answered 200 with `null` instead of 204;
- `fields=` on a list was ignored;
- a rewrite ignored the description that was sent with it, and nothing knew of encryption keys;
- metadata named the server in `mediaLink` and `selfLink`, so that the SDK's downloads would go
  round the front; and XML requests were answered only under the server's own name.

Not repaired: batch requests pass as they are; a resumable upload's checksums and the projection of
anything but a list are ignored; XML copy and compose answer 501; `storageClass` is not a header.
"""

import http.client
import threading

from tests.fakes.front import Front
from tests.fakes.gcs_backend import Backend
from tests.fakes.gcs_identity import Composites
from tests.fakes.gcs_json import JSONInterface
from tests.fakes.gcs_uploads import Uploads
from tests.fakes.gcs_xml import XMLInterface
from tests.fakes.wire import Answer, Message, Upstream

_JSON_ROOTS = ("/storage/v1/", "/upload/", "/resumable/", "/download/", "/batch/", "/_internal/")


class GCSMultipartFront(Front):
    """A `Front` that only fake-gcs-server may stand behind; every rule of `Front` works here too.

    Args:
        upstream: The endpoint of fake-gcs-server.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.uploads = Uploads()
        composites = Composites()
        self._xml = XMLInterface(self.uploads, composites)
        self._json = JSONInterface(composites)
        # Checking a condition and acting on it must be one step, so writes go one at a time.
        self._writing = threading.Lock()

    def respond(self, message: Message, upstream: Upstream) -> Answer:
        """Answer one request as Google Cloud Storage would."""
        backend = Backend(upstream, "{}:{}".format(*self.upstream))
        try:
            answer = self._answer(message, backend)
        except (OSError, http.client.HTTPException) as error:
            return Answer(502, (), f"the server behind the front failed: {error!r}".encode())
        return self._relink(answer, message.request.headers.get("host", ""))

    def _answer(self, message: Message, backend: Backend) -> Answer:
        request = message.request
        is_json = request.path.startswith(_JSON_ROOTS)
        interface = self._json if is_json else self._xml
        if request.method in {"GET", "HEAD"} or "partNumber=" in request.query:
            return interface.respond(message, backend)
        with self._writing:
            return interface.respond(message, backend)

    def _relink(self, answer: Answer, host: str) -> Answer:
        kind = answer.header("content-type") or ""
        if not host or not kind.startswith("application/json"):
            return answer
        own = "http://{}:{}/".format(*self.upstream)
        body = answer.body.replace(own.encode(), f"http://{host}/".encode())
        return Answer(answer.status, answer.headers, body, answer.sent_bytes)
