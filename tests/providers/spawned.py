"""What spawned workers of tests do; imports nothing that a worker would not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from providers.base import Provider

SDKS = ("boto3", "botocore", "google", "oss2", "requests", "urllib3")


def read(answers: Connection, provider: Provider, key: str) -> None:
    """Read an object, and send its bytes and the names of the SDKs that were loaded for it."""
    try:
        body = provider.get(key)
    except Exception as error:  # noqa: BLE001 the parent tells it
        answers.send((repr(error), []))
        return
    answers.send((body, [name for name in SDKS if name in sys.modules]))
