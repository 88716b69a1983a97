"""One request and one answer, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as it stood on the wire.

    Args:
        method: Upper case.
        target: The request target, percent-encoding and all.
        headers: By lower-case name; bytes are kept by decoding them as Latin-1.
        body: Whole, with any chunked framing taken off.
    """

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose bucket and key are known.

    Args:
        method: Upper case.
        bucket: None for a request to the service itself.
        key: Decoded; empty for a request to the bucket.
        query: Decoded; a name without a value has an empty one.
        headers: By lower-case name.
        body: Whole.
    """

    method: str
    bucket: str | None
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; for HEAD the body is counted and left out when it is sent."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What a test can look up about a request that was answered.

    Args:
        method: Upper case.
        bucket: None if the request was to the service itself or made no sense.
        key: Empty for a request to the bucket.
        query: Decoded.
        headers: Of the request, by lower-case name.
        status: Of the answer.
        code: The error's code; None if the request succeeded.
        bytes_in: Body of the request.
        bytes_out: Body of the answer.
    """

    method: str
    bucket: str | None
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    status: int
    code: str | None
    bytes_in: int
    bytes_out: int
