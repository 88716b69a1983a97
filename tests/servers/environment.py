"""How to reach each server through the variables that the clouds' own tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.servers.oss import OSSServer
    from tests.servers.s3 import S3Server


def s3_environment(server: S3Server) -> dict[str, str]:
    """Return what boto3 reads."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": server.region,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }


def gcs_environment(endpoint: str) -> dict[str, str]:
    """Return what google-cloud-storage reads."""
    return {"STORAGE_EMULATOR_HOST": endpoint}


def oss_environment(server: OSSServer) -> dict[str, str]:
    """Return what OSS tools read."""
    return {
        "OSS_ENDPOINT": server.endpoint,
        "OSS_REGION": server.region,
        "OSS_ACCESS_KEY_ID": server.access_key,
        "OSS_ACCESS_KEY_SECRET": server.secret_key,
    }
