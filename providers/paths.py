"""Keys of files and the paths they stand for."""

from __future__ import annotations

import os
from pathlib import PurePath

from providers.errors import SettingsError

__all__ = ["PLAIN_NAMES", "is_plain", "path_of", "root_names"]

PLAIN_NAMES = "between the slashes of a file's key stands no empty name, '.', '..' or NUL"
"""What ``is_plain`` asks for, in words."""


def is_plain(name: str) -> bool:
    """Whether a path gives a name no meaning of its own."""
    return name not in {"", ".", ".."} and "\0" not in name


def root_names(path: str) -> list[str]:
    """Split a root into names.

    Raises:
        SettingsError: it is not an absolute path of plain names.
    """
    bare = path.removesuffix("/").removeprefix("/")
    names = bare.split("/") if bare else []
    absolute = path.startswith("/") or PurePath(path).is_absolute()
    if not absolute or not all(map(is_plain, names)):
        raise SettingsError(
            f"option 'root': {path!r} must be an absolute path without empty names, '.' and '..'"
        )
    return names


def path_of(key: str) -> bytes:
    """Return the path of a key, in bytes: whatever encoding this system prefers."""
    # On Windows a key begins with its drive.
    return (key if os.name == "nt" else f"/{key}").encode()
