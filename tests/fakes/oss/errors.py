"""What the server refuses, and how it says so."""

import base64
from collections.abc import Mapping
from types import MappingProxyType

from tests.fakes.oss.documents import document, readable
from tests.fakes.oss.messages import Response

# Source: https://help.aliyun.com/zh/oss/support/ (error responses), read 2026-11-30.
_KNOWN: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "NotModified": (304, "The object has not changed."),
        "BadDigest": (400, "The Content-MD5 you specified did not match what we received."),
        "EntityTooLarge": (400, "Your proposed upload exceeds the maximum allowed size."),
        "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed size."),
        "InvalidArgument": (400, "Invalid argument."),
        "InvalidBucketName": (400, "The specified bucket is not valid."),
        "InvalidDigest": (400, "The Content-MD5 you specified was invalid."),
        "InvalidObjectName": (400, "The specified object is not valid."),
        "InvalidPart": (400, "One or more of the specified parts could not be found."),
        "InvalidPartOrder": (400, "The list of parts was not in ascending order."),
        "InvalidRequest": (400, "The request is not valid."),
        "MalformedXML": (400, "The XML you provided was not well-formed."),
        "MissingArgument": (400, "A required argument is missing."),
        "OperationNotSupported": (400, "The operation is not supported for this object."),
        "AccessDenied": (403, "You have no right to access this object because of bucket acl."),
        "InvalidAccessKeyId": (
            403,
            "The OSS Access Key Id you provided does not exist in our records.",
        ),
        "InvalidObjectState": (403, "The operation is not valid for the object's state"),
        "InvalidSecurityToken": (403, "The security token you provided is invalid."),
        "RequestTimeTooSkewed": (
            403,
            "The difference between the request time and the current time is too large.",
        ),
        "SecondLevelDomainForbidden": (
            403,
            "The bucket must be addressed using OSS third level domain.",
        ),
        "SecurityTokenExpired": (403, "The security token you provided has expired."),
        "SignatureDoesNotMatch": (
            403,
            "The request signature we calculated does not match the signature you provided.",
        ),
        "NoSuchBucket": (404, "The specified bucket does not exist."),
        "NoSuchKey": (404, "The specified key does not exist."),
        "NoSuchUpload": (404, "The specified upload does not exist."),
        "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
        "BucketNotEmpty": (409, "The bucket you tried to delete is not empty."),
        "FileAlreadyExists": (409, "The object you specified already exists."),
        "ObjectNotAppendable": (409, "The object is not appendable"),
        "PositionNotEqualToLength": (409, "Position is not equal to file length"),
        "MissingContentLength": (411, "You must provide the Content-Length HTTP header."),
        "PreconditionFailed": (412, "At least one of the pre-conditions did not hold."),
        "InvalidRange": (416, "The requested range cannot be satisfied"),
        "InternalError": (500, "The server met an error of its own."),
        "NotImplemented": (501, "A header or query you provided implies something not served."),
    }
)


class ServiceError(Exception):
    """A request is refused.

    Args:
        code: One of the service's codes; it settles the status.
        message: Shown to people; the code's own text when left out.
        ec: The finer error code of the service, a link into its help pages.
        headers: Extra headers of the answer.
        details: Extra elements of the XML body.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        ec: str = "0000-00000000",
        headers: Mapping[str, str] | None = None,
        **details: str | int,
    ) -> None:
        self.status, default_message = _KNOWN[code]
        self.code = code
        self.message = message or default_message
        self.ec = ec
        self.headers = dict(headers or {})
        self.details = details
        super().__init__(f"{self.status} {code}: {self.message}")

    def response(self, *, method: str, host: str, request_id: str) -> Response:
        """The answer: XML, or for HEAD the same XML inside a header."""
        if self.status == 304:
            return Response(self.status, self.headers)
        body = document(
            "Error",
            [
                ("Code", self.code),
                ("Message", self.message),
                ("RequestId", request_id),
                ("HostId", host),
                *((name, readable(str(value))) for name, value in self.details.items()),
                ("EC", self.ec),
                ("RecommendDoc", f"https://api.alibabacloud.com/troubleshoot?q={self.ec}"),
            ],
        )
        headers = {**self.headers, "x-oss-ec": self.ec}
        if method == "HEAD":
            headers["x-oss-err"] = base64.b64encode(body).decode("ascii")
            return Response(self.status, headers)
        return Response(self.status, {**headers, "Content-Type": "application/xml"}, body)
