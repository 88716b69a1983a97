"""One provider for each bucket of a dataset, made once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from providers import LocalOptions, ObjectURI, Options, SettingsError, open_provider

if TYPE_CHECKING:
    from connector.table import ObjectTable
    from providers import Provider, TransferOptions

__all__ = ["OptionsByStore", "Stores"]

OptionsByStore = Options | Mapping[str, Options]
"""Options of one scheme, or of several: by scheme (``s3``) and by bucket (``s3://bucket``).

A bucket's win over its scheme's, field by field.
"""


class Stores:
    """Opens buckets with the options and the transfer options of one dataset.

    Args:
        options: of the scheme, or by scheme and bucket; None: each scheme's defaults.
        transfer: for all of them; None: the defaults.

    Raises:
        SettingsError: a name or a value of the mapping is neither.
    """

    def __init__(
        self, options: OptionsByStore | None = None, transfer: TransferOptions | None = None
    ) -> None:
        self._options = _by_name(options) if isinstance(options, Mapping) else options
        self._transfer = transfer
        self._opened: dict[str, Provider] = {}

    def open(self, uri: ObjectURI, *, alone: bool = False) -> Provider:
        """Return the provider of a URI's bucket. Nothing is sent.

        Args:
            uri: for ``file``, the root is its directory part.
            alone: for this object only; the other files of the dataset may lie elsewhere.
        """
        root = root_of(uri)
        if root in self._opened:
            return self._opened[root]
        provider = open_provider(str(uri), options=self._chosen(uri), transfer=self._transfer)
        if not (alone and uri.scheme == "file"):
            self._opened[root] = provider
        return provider

    def open_all(self, table: ObjectTable) -> dict[str, Provider]:
        """Return a provider for each root of the table; files get one for all of them."""
        opened = {root: self.open(_common(table, root)) for root in table.roots}
        given = self._options
        fits = not isinstance(given, Options) or any(
            isinstance(provider.options, type(given)) for provider in opened.values()
        )
        if opened and not fits:
            raise SettingsError(
                f"options={type(given).__name__} belong to none of {', '.join(opened)}"
            )
        return opened

    def _chosen(self, uri: ObjectURI) -> Options | None:
        if not isinstance(self._options, Mapping):
            # A manifest in a file may name objects of the scheme that the options are for.
            spared = uri.scheme == "file" and not isinstance(self._options, LocalOptions)
            return None if spared else self._options
        of_scheme = self._options.get(uri.scheme)
        of_bucket = self._options.get(f"{uri.scheme}://{uri.bucket}")
        if of_scheme is None or of_bucket is None:
            return of_scheme or of_bucket
        return type(of_bucket)(**{**_set_fields(of_scheme), **_set_fields(of_bucket)})


def root_of(uri: ObjectURI) -> str:
    """Return ``scheme://bucket/``."""
    return f"{uri.scheme}://{uri.bucket}/"


def _common(table: ObjectTable, root: str) -> ObjectURI:
    """Return a URI in the directory that holds all files of a table, or in a bucket."""
    uri = ObjectURI.parse(root)
    if uri.scheme != "file":
        return uri
    first, last = min(table.keys_in(root)), max(table.keys_in(root))
    # What the first and the last in order share, all between them share.
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    directory, slash, _ = "".join(letter for letter, _ in shared).rpartition("/")
    return ObjectURI(uri.scheme, uri.bucket, directory + slash)


def _by_name(options: Mapping[str, Options]) -> dict[str, Options]:
    """Check the mapping and resolve aliases in its names."""
    for name, value in options.items():
        if not isinstance(value, Options):
            raise SettingsError(
                f"options[{name!r}] is a {type(value).__name__}; a mapping goes from a scheme "
                "('s3') or a bucket ('s3://bucket') to an options model (S3Options, say)"
            )
    return {_canonical(name): value for name, value in options.items()}


def _canonical(name: str) -> str:
    if "://" not in name:
        return name if name == "file" else ObjectURI.parse(f"{name}://any").scheme
    uri = ObjectURI.parse(name)
    if uri.key:
        raise SettingsError(f"options[{name!r}]: options belong to a bucket, not to a key in it")
    return f"{uri.scheme}://{uri.bucket}"


def _set_fields(options: Options) -> dict[str, object]:
    return {name: getattr(options, name) for name in options.model_fields_set}
