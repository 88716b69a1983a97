"""One bucket of each cloud that is reached over HTTP, for tests of what all three must do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from providers import TransferOptions, open_provider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.http_provider import HttpProvider

__all__ = ["Cloud"]


@dataclass(frozen=True)
class Cloud:
    """A bucket on a loopback server.

    Attributes:
        scheme: of its URIs.
        endpoint: of the server.
        bucket: its name.
        options: that sign requests to it.
        secret: among these.
    """

    scheme: str
    endpoint: str
    bucket: str
    options: Mapping[str, Any]
    secret: str

    def open(
        self, endpoint: str | None = None, *, max_attempts: int = 10, **changes: Any
    ) -> HttpProvider:
        """Return a provider, by way of some endpoint, with some options changed."""
        fields = {"endpoint": endpoint or self.endpoint, **self.options, **changes}
        found: Any = open_provider(
            f"{self.scheme}://{self.bucket}",
            transfer=TransferOptions(max_attempts=max_attempts),
            **{name: value for name, value in fields.items() if value is not None},
        )
        return found  # type: ignore[no-any-return]
