"""Object stores behind one contract: S3, Google Cloud Storage, Alibaba OSS, files, memory.

Importing this package loads no cloud SDK and no torch; a provider imports its SDK on first use.
"""

from providers.base import Provider
from providers.errors import (
    AccessDeniedError,
    ArchivedError,
    IntegrityError,
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    RangeError,
    ServiceError,
    SettingsError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
)
from providers.options import (
    GCSOptions,
    LocalOptions,
    Options,
    OSSOptions,
    S3Options,
    TransferOptions,
)
from providers.registry import open_provider, schemes
from providers.uploads import MultipartUpload
from providers.values import ByteRange, Limits, ObjectInfo, ObjectURI, UploadInfo

__all__ = [
    "AccessDeniedError",
    "ArchivedError",
    "ByteRange",
    "GCSOptions",
    "IntegrityError",
    "LimitError",
    "Limits",
    "LocalOptions",
    "MultipartUpload",
    "NotFoundError",
    "OSSOptions",
    "ObjectInfo",
    "ObjectURI",
    "Options",
    "PreconditionError",
    "Provider",
    "ProviderError",
    "RangeError",
    "S3Options",
    "ServiceError",
    "SettingsError",
    "ThrottledError",
    "TimedOutError",
    "TransferOptions",
    "UnavailableError",
    "UnsupportedError",
    "UploadInfo",
    "open_provider",
    "schemes",
]
