"""What the tests of local files share: a look at the disk that bypasses the provider."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from providers.local import LocalProvider

TEMPORARY = ".connector-temporary-"


def files_below(root: Path) -> dict[str, Path]:
    """Every file below a directory by its key, temporaries included."""
    paths = (Path(at) / name for at, _, names in os.walk(root) for name in names)
    return {str(path)[1:]: path for path in paths}


def key(path: Path) -> str:
    """The key of a path."""
    return str(path)[1:]


def names(provider: LocalProvider, root: Path, **arguments: Any) -> list[str]:
    """What a listing of the root shows, relative to it."""
    start = f"{key(root)}/"
    return [entry.key[len(start) :] for entry in provider.list_objects(start, **arguments)]


def writes(provider: LocalProvider, target: str, source: str) -> dict[str, Callable[[], object]]:
    """Every verb that writes or deletes a key."""

    def multipart() -> None:
        with provider.start_multipart(target) as upload:
            upload.put_part(1, b"x")
            upload.complete()

    return {
        "put": lambda: provider.put(target, b"x"),
        "put if absent": lambda: provider.put(target, b"x", if_absent=True),
        "multipart": multipart,
        "copy": lambda: provider.copy(source, target),
        "compose": lambda: provider.compose([source, source], target),
        "delete": lambda: provider.delete([target]),
    }
