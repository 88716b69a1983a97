"""Takes a request through addressing, authentication and the operation it asks for."""

import logging
import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tests.fakes.oss import buckets, listing, multipart, objects
from tests.fakes.oss.addressing import locate
from tests.fakes.oss.authentication import authenticate
from tests.fakes.oss.conditions import http_date
from tests.fakes.oss.credentials import CredentialTable
from tests.fakes.oss.errors import ServiceError
from tests.fakes.oss.messages import RawRequest, Request, RequestRecord, Response
from tests.fakes.oss.state import Store

_logger = logging.getLogger(__name__)

Operation = Callable[[Store, Request], Response]

_SERVED = """
    acl append bucketInfo delete location objectMeta partNumber position stat uploadId uploads
"""
_NOT_SERVED = """
    accessPoint asyncFetch cname comp cors encryption inventory lifecycle live logging metaQuery
    objectInfo policy qos referer replication requestPayment restore select status style symlink
    tagging transferAcceleration versionId versioning versions vod website worm x-oss-process
"""
_SUBRESOURCES = frozenset(f"{_SERVED}{_NOT_SERVED}".split())
# By method, level (service, bucket or object) and the queries that choose an operation.
_OPERATIONS: Mapping[tuple[str, str, str], Operation] = MappingProxyType(
    {
        ("GET", "service", ""): buckets.list_buckets,
        ("GET", "bucket", ""): listing.list_objects,
        ("GET", "bucket", "uploads"): listing.list_uploads,
        ("GET", "bucket", "acl"): buckets.get_bucket_acl,
        ("GET", "bucket", "bucketInfo"): buckets.get_bucket_info,
        ("GET", "bucket", "location"): buckets.get_bucket_location,
        ("GET", "bucket", "stat"): buckets.get_bucket_stat,
        ("PUT", "bucket", ""): buckets.put_bucket,
        ("DELETE", "bucket", ""): buckets.delete_bucket,
        ("POST", "bucket", "delete"): buckets.delete_objects,
        ("GET", "object", ""): objects.get_object,
        ("HEAD", "object", ""): objects.head_object,
        ("HEAD", "object", "objectMeta"): objects.get_object_meta,
        ("PUT", "object", ""): objects.put_object,
        ("DELETE", "object", ""): objects.delete_object,
        ("POST", "object", "append position"): objects.append_object,
        ("POST", "object", "uploads"): multipart.initiate,
        ("PUT", "object", "partNumber uploadId"): multipart.upload_part,
        ("POST", "object", "uploadId"): multipart.complete,
        ("DELETE", "object", "uploadId"): multipart.abort,
        ("GET", "object", "uploadId"): multipart.list_parts,
    }
)
_PUBLIC_READS = frozenset(
    {
        listing.list_objects,
        objects.get_object,
        objects.head_object,
        objects.get_object_meta,
    }
)
_FOREIGN_HEADERS = ("x-amz-trailer", "x-amz-sdk-checksum-algorithm", "x-amz-checksum-")


class Service:
    """The service behind the sockets.

    Args:
        store: What it holds.
        credentials: Whom it knows.
    """

    def __init__(self, store: Store, credentials: CredentialTable) -> None:
        self.store = store
        self.credentials = credentials
        self.cnames: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.requests: list[RequestRecord] = []

    def answer(self, raw: RawRequest) -> Response:
        """Answer a request and record it."""
        request_id = secrets.token_hex(12).upper()
        request = Request(raw.method, None, "", {}, raw.headers, raw.body)
        code = None
        try:
            request = locate(raw, self.cnames)
            response = self._perform(request)
        except Exception as error:  # noqa: BLE001 (a server answers whatever happens)
            refusal = _as_service_error(error)
            code = refusal.code
            host = raw.headers.get("host", "")
            response = refusal.response(method=raw.method, host=host, request_id=request_id)
        self._record(request, response, code)
        headers = {
            "Date": http_date(self.store.now()),
            "x-oss-request-id": request_id,
            "x-oss-server-time": "1",
            **response.headers,
        }
        return Response(response.status, headers, response.body)

    def _perform(self, request: Request) -> Response:
        _refuse_foreign_dialect(request)
        store = self.store
        operation = _operation(request)
        endpoint = self.elsewhere.get(request.bucket or "")
        if endpoint and endpoint not in request.headers.get("host", ""):
            raise ServiceError(
                "AccessDenied",
                "The bucket you are attempting to access must be addressed using the specified "
                "endpoint. Please send all future requests to this endpoint.",
                ec="0003-00001403",
                Bucket=request.bucket or "",
                Endpoint=endpoint,
            )
        if not authenticate(request, self.credentials, store.region, store.now()) and not (
            operation in _PUBLIC_READS and store.find(request.bucket).public
        ):
            raise ServiceError("AccessDenied", ec="0003-00000001")
        return operation(store, request)

    def _record(self, request: Request, response: Response, code: str | None) -> None:
        self.requests.append(
            RequestRecord(
                method=request.method,
                bucket=request.bucket,
                key=request.key,
                query=MappingProxyType(dict(request.query)),
                headers=MappingProxyType(dict(request.headers)),
                status=response.status,
                code=code,
                bytes_in=len(request.body),
                bytes_out=0 if request.method == "HEAD" else len(response.body),
            )
        )


def _as_service_error(error: Exception) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    _logger.error("The OSS server failed", exc_info=error)
    return ServiceError("InternalError", repr(error))


def _refuse_foreign_dialect(request: Request) -> None:
    """The service does not know the framing and trailers S3 SDKs send by default."""
    encodings = request.headers.get("content-encoding", "")
    if "aws-chunked" in encodings:
        raise ServiceError("InvalidArgument", "aws-chunked encoding is not supported.")
    for name in request.headers:
        if name.startswith(_FOREIGN_HEADERS):
            raise ServiceError("InvalidArgument", f"{name} is not supported.", ArgumentName=name)


def _operation(request: Request) -> Operation:
    level = "service" if request.bucket is None else "object" if request.key else "bucket"
    chosen = " ".join(sorted(name for name in request.query if name in _SUBRESOURCES))
    operation = _OPERATIONS.get((request.method, level, chosen))
    if operation is not None:
        return operation
    if chosen:
        raise ServiceError("NotImplemented", f"{request.method} of {chosen} is not served.")
    raise ServiceError("MethodNotAllowed", Method=request.method, ResourceType=level)
