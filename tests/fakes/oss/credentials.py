"""The access keys the server knows."""

import threading
from dataclasses import dataclass, field
from datetime import datetime

from tests.fakes.oss.errors import ServiceError


@dataclass(frozen=True, slots=True)
class Credential:
    """One access key.

    Args:
        access_key_id: Its name.
        secret: Signs requests.
        token: Requests must carry it; None for a long-lived key.
        expires: From then on the token is refused; None never.
    """

    access_key_id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expires: datetime | None = None


class CredentialTable:
    """Access keys by their id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Credential] = {}
        self._lock = threading.Lock()

    def add(self, credential: Credential) -> None:
        """Make a key valid, in place of an older one with the same id."""
        with self._lock:
            self._by_id[credential.access_key_id] = credential

    def remove(self, access_key_id: str) -> None:
        """Make a key unknown."""
        with self._lock:
            del self._by_id[access_key_id]

    def find(self, access_key_id: str) -> Credential:
        """The key of that id.

        Raises:
            ServiceError: There is none.
        """
        credential = self._by_id.get(access_key_id)
        if credential is None:
            raise ServiceError(
                "InvalidAccessKeyId", ec="0002-00000902", OSSAccessKeyId=access_key_id
            )
        return credential


def check_token(credential: Credential, token: str | None, now: datetime) -> None:
    """Refuse a token that is missing, not this key's, or too old."""
    if credential.token is None:
        if token:
            raise ServiceError("InvalidSecurityToken", ec="0002-00000111")
        return
    if not token:
        # The id of a temporary key means nothing without its token.
        raise ServiceError(
            "InvalidAccessKeyId", ec="0002-00000902", OSSAccessKeyId=credential.access_key_id
        )
    if token != credential.token:
        raise ServiceError("InvalidSecurityToken", ec="0002-00000111")
    if credential.expires is not None and now >= credential.expires:
        raise ServiceError("SecurityTokenExpired", ec="0002-00000113")
