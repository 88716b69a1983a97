"""Where a distributed checkpoint lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from providers import NotFoundError, ObjectURI, SettingsError, open_provider

if TYPE_CHECKING:
    from providers import Options, Provider, TransferOptions

__all__ = ["Place", "is_checkpoint_id"]


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of one distributed checkpoint.

    Attributes:
        provider: of its bucket.
        prefix: of its objects' keys, with a slash at its end.
        uri: as the script wrote it, without a slash at its end.
    """

    provider: Provider
    prefix: str
    uri: str

    @classmethod
    def at(
        cls,
        checkpoint_id: str | os.PathLike[str],
        options: Options | None,
        transfer: TransferOptions | None,
    ) -> Place:
        """Open a URI. Nothing is sent yet.

        Raises:
            SettingsError: it is no URI, or names a bucket alone.
        """
        uri = os.fspath(checkpoint_id).rstrip("/")
        key = ObjectURI.parse(uri).key
        if not key:
            raise SettingsError(f"{uri!r} names a bucket; a checkpoint needs a key below it")
        return cls(open_provider(uri, options=options, transfer=transfer), f"{key}/", uri)

    def key(self, name: str) -> str:
        """Return the key of an object of the checkpoint."""
        return self.prefix + name

    def holds(self, name: str) -> bool:
        """Whether an object of the checkpoint is there."""
        try:
            self.provider.head(self.key(name))
        except NotFoundError:
            return False
        return True

    def uri_of(self, name: str) -> str:
        """Return the URI of an object of the checkpoint."""
        return f"{self.uri}/{name}"


def is_checkpoint_id(checkpoint_id: str | os.PathLike[str]) -> bool:
    """Whether a distributed checkpoint can lie there: below the bucket of a known scheme."""
    try:
        return bool(ObjectURI.parse(os.fspath(checkpoint_id).rstrip("/")).key)
    except SettingsError:
        return False
