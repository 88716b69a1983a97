"""What a signed request claims about itself, whatever the version of its signature."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """A signature to be checked.

    Args:
        access_key_id: Who claims to have signed.
        signature: As sent.
        token: The security token sent along, if any.
        string_to_sign: What the server believes was signed.
        sign: From a secret to the signature it would give.
        signed_at: The request's own time; None for a presigned URL.
        expires_at: When a presigned URL ends; None for a signed header.
    """

    access_key_id: str
    signature: str
    token: str | None = field(repr=False)
    string_to_sign: bytes
    sign: Callable[[str], str]
    signed_at: datetime | None = None
    expires_at: datetime | None = None
