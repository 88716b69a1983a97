"""Names of the objects that a tree of composes makes on its way, and removes."""

from __future__ import annotations

import re

__all__ = ["composite_name", "is_composite_name"]

_NAME = re.compile(r".+\.composing-[0-9a-f]{8}-\d+", re.DOTALL)


def composite_name(destination: str, mark: str, number: int) -> str:
    """Return the key of one of them, beside what they are to become.

    Args:
        destination: key of the whole.
        mark: eight random hexadecimal digits, of one tree.
        number: which of the tree's.
    """
    return f"{destination}.composing-{mark}-{number}"


def is_composite_name(key: str) -> bool:
    """Whether a key is of this form; a user's own might be too."""
    return _NAME.fullmatch(key) is not None
