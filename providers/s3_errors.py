"""What the exceptions of botocore, and of urllib3 beneath it, mean."""

from __future__ import annotations

import ssl
import traceback
from typing import TYPE_CHECKING, Any

from providers.errors import (
    AccessDeniedError,
    IntegrityError,
    ServiceError,
    SettingsError,
    TimedOutError,
    UnavailableError,
)
from providers.s3_answers import error_of_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from providers.errors import ProviderError

__all__ = ["NO_CREDENTIALS", "headers_of", "told_region", "translate"]

NO_CREDENTIALS = (
    "there are no credentials: boto3 found none in the options, the environment "
    "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), the AWS files (AWS_PROFILE) or the metadata "
    "services; set one of these, or anonymous=True for a public bucket"
)

_Meaning = tuple[type["ProviderError"], str]


def translate(error: BaseException, uri: str, operation: str) -> ProviderError | None:
    """Return what an exception of the client means; None if it is none of the client's."""
    import urllib3.exceptions
    from botocore.exceptions import BotoCoreError, ClientError, UndefinedModelAttributeError
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        return _of_answer(error, uri, operation)
    beneath = urllib3.exceptions.HTTPError
    if isinstance(error, BotoCoreError | UndefinedModelAttributeError | beneath | OSError):
        causes = list(_causes(error))
        kind, what = _meaning(causes)
        root = str(causes[-1]) or type(causes[-1]).__name__
        told = str(error) if root in str(error) else f"{error} ({root})"
        return kind(f"{what}: {told}", uri=uri, operation=operation)
    if _is_of_expired_credentials(error):
        what = f"boto3 could not get credentials: {error} Is this machine's clock right?"
        return AccessDeniedError(what, uri=uri, operation=operation)
    if isinstance(error, ResponseParserError | ValueError):
        return ServiceError(f"the answer is not one of S3's: {error}", uri=uri, operation=operation)
    return None


def _is_of_expired_credentials(error: BaseException) -> bool:
    """Whether botocore was given ones that had expired, for which it has no class."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    origin = frames[-1].f_globals.get("__name__") if frames else ""
    return isinstance(error, RuntimeError) and origin == "botocore.credentials"


def _of_answer(error: Any, uri: str, operation: str) -> ProviderError:
    answer = error.response.get("ResponseMetadata", {})
    fields = {name: str(value) for name, value in error.response.get("Error", {}).items()}
    if "RequestId" in answer:
        fields["RequestId"] = answer["RequestId"]
    return error_of_answer(
        uri, operation, answer.get("HTTPStatusCode", 0), answer.get("HTTPHeaders", {}), fields
    )


def headers_of(error: BaseException | None) -> Mapping[str, str]:
    """Return the headers of the answer that an exception of the client stands for, if any."""
    response = getattr(error, "response", {})
    headers: Mapping[str, str] = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers


def told_region(error: BaseException | None) -> str | None:
    """Return the region of the bucket, if an answer tells it: Amazon in a header, MinIO not."""
    region: str | None = getattr(error, "response", {}).get("Error", {}).get("Region")
    return headers_of(error).get("x-amz-bucket-region") or region


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it wraps; botocore and urllib3 nest each in its own way."""
    cause: Any = error
    for _ in range(8):
        yield cause
        wrapped = (
            getattr(cause, "kwargs", {}).get("error"),
            getattr(cause, "reason", None),
            cause.__cause__,
            cause.__context__,
            *cause.args,
        )
        cause = next((inner for inner in wrapped if isinstance(inner, BaseException)), None)
        if cause is None:
            return


def _meaning(causes: list[BaseException]) -> _Meaning:
    """Return the class of a failure that is no answer of the service, and its name."""
    import urllib3.exceptions as below
    from botocore import exceptions as sdk

    table: tuple[tuple[tuple[type[BaseException], ...], type[ProviderError], str], ...] = (
        ((ssl.SSLEOFError, ssl.SSLZeroReturnError), UnavailableError, "the connection broke"),
        (
            (sdk.SSLError, below.SSLError, ssl.SSLError),
            SettingsError,
            "TLS failed; for a private authority set AWS_CA_BUNDLE",
        ),
        (
            (sdk.ChecksumError, sdk.FlexibleChecksumError),
            IntegrityError,
            "the body does not match its checksum",
        ),
        # Some are connection errors too; first of all there are no credentials.
        (_of_credentials(sdk), AccessDeniedError, "boto3 could not get credentials"),
        (
            (sdk.EndpointConnectionError, below.NewConnectionError),
            UnavailableError,
            "the endpoint cannot be reached",
        ),
        (
            (sdk.ConnectTimeoutError, sdk.ReadTimeoutError, below.TimeoutError, TimeoutError),
            TimedOutError,
            "no answer in time",
        ),
        (
            (
                sdk.ConnectionError,
                sdk.IncompleteReadError,
                sdk.ResponseStreamingError,
                below.HTTPError,
                ConnectionError,
            ),
            UnavailableError,
            "the connection broke",
        ),
        ((OSError,), SettingsError, "the request could not be prepared"),
        ((sdk.HTTPClientError,), UnavailableError, "the request failed"),
    )
    for kinds, kind, what in table:
        if any(isinstance(cause, kinds) for cause in causes):
            return kind, what
    # Whatever else botocore raises is about what it was given.
    return SettingsError, "boto3 refuses it"


def _of_credentials(sdk: Any) -> tuple[type[BaseException], ...]:
    names = (
        "CredentialRetrievalError",
        "MetadataRetrievalError",
        "NoAuthTokenError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "PendingAuthorizationExpiredError",
        "RefreshWithMFAUnsupportedError",
        "SSOError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "LoginError",
    )
    # Which of them there are depends on the version of botocore.
    return tuple(getattr(sdk, name) for name in names if hasattr(sdk, name))
