"""From a URI's scheme to its provider; third parties join by an entry point."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from providers.errors import SettingsError
from providers.options import TransferOptions
from providers.values import ObjectURI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.base import Provider
    from providers.options import Options

__all__ = ["ENTRY_POINTS", "open_provider", "schemes"]

ENTRY_POINTS = "connector.providers"
"""Entry-point group; the name is the scheme, the value ``module:Class``."""

_BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "file": "providers.local:LocalProvider",
        "gs": "providers.gcs:GCSProvider",
        "memory": "providers.memory:MemoryProvider",
        "oss": "providers.oss:OSSProvider",
        "s3": "providers.s3:S3Provider",
    }
)


def schemes() -> tuple[str, ...]:
    """Return every scheme that can be opened here, in alphabetical order."""
    return tuple(sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))}))


def provider_type(scheme: str) -> type[Provider]:
    """Return the class behind a scheme.

    Raises:
        SettingsError: there is none; the message lists those there are.
    """
    if scheme in _BUILT_IN:
        module, _, name = _BUILT_IN[scheme].partition(":")
        found: type[Provider] = getattr(importlib.import_module(module), name)
        return found
    for point in entry_points(group=ENTRY_POINTS, name=scheme):
        return cast("type[Provider]", point.load())
    raise SettingsError(
        f"no provider for the scheme {scheme!r}; there are {', '.join(schemes())} "
        f"(a package adds one by the entry-point group {ENTRY_POINTS!r})"
    )


def open_provider(
    uri: str,
    *,
    options: Options | None = None,
    transfer: TransferOptions | None = None,
    **fields: Any,
) -> Provider:
    """Return the provider of a URI's bucket. Nothing is sent yet.

    Args:
        uri: ``scheme://bucket`` or any object in it; the key matters for ``file`` only,
            whose root is the directory part.
        options: the scheme's options.
        transfer: timeouts, sizes and the retry policy.
        **fields: fields of either model, instead of or on top of them.

    Raises:
        SettingsError: unknown scheme, no bucket, an unknown or bad option.
    """
    parsed = ObjectURI.parse(uri)
    kind = provider_type(parsed.scheme)
    if options is not None and not isinstance(options, kind.options_type):
        raise SettingsError(
            f"{uri}: options must be {kind.options_type.__name__}, not {type(options).__name__}"
        )
    of_transfer = {n: v for n, v in fields.items() if n in TransferOptions.model_fields}
    of_scheme = {n: v for n, v in fields.items() if n not in of_transfer}
    if of_transfer:
        transfer = _with(transfer or TransferOptions(), of_transfer)
    resolved = _with(options or kind.options_type(), of_scheme) if of_scheme else options
    return kind.open(parsed, resolved, transfer)


def _with(model: Any, changes: dict[str, Any]) -> Any:
    """Return a validated copy of a model with some fields changed."""
    kept = {name: getattr(model, name) for name in model.model_fields_set}
    return type(model)(**{**kept, **changes})
