"""How S3 is to keep what is written: its storage class and its encryption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from providers.options import S3Options

__all__ = ["storing_arguments", "storing_headers"]

# Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html,
# API_CreateMultipartUpload.html and API_CopyObject.html, read 2026-12-01.
_HEADERS = {
    "StorageClass": "x-amz-storage-class",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "BucketKeyEnabled": "x-amz-server-side-encryption-bucket-key-enabled",
}


def storing_arguments(options: S3Options) -> dict[str, Any]:
    """Return what boto3 is told with every request that begins an object."""
    told = {
        "StorageClass": options.storage_class,
        "ServerSideEncryption": options.sse,
        "SSEKMSKeyId": options.sse_kms_key_id,
        "BucketKeyEnabled": options.sse_bucket_key,
    }
    return {name: value for name, value in told.items() if value is not None}


def storing_headers(options: S3Options) -> dict[str, str]:
    """Return the headers of every request that begins an object, to be signed."""
    return {
        _HEADERS[name]: value if isinstance(value, str) else str(value).lower()
        for name, value in storing_arguments(options).items()
    }
