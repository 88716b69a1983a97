"""The headers of an answer, as libcurl gives them."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["Headers"]

_LENGTH = re.compile(r"\d{1,19}", re.ASCII)


class Headers(dict[str, str]):
    """The headers of one answer; names match whatever their case.

    Attributes:
        status: of the answer; 0: none came.
    """

    status = 0

    @classmethod
    def parse(cls, lines: list[bytes]) -> Headers:
        """Read raw header lines; of several answers (100, then 200) the last counts."""
        headers = cls()
        for line in lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if colon:
                dict.__setitem__(headers, name.strip().lower(), value.strip())
            elif line.startswith(b"HTTP/"):
                headers.clear()
                status = line.split(None, 2)[1:2]
                headers.status = int(status[0]) if status and status[0].isdigit() else 0
        return headers

    @property
    def length(self) -> int | None:
        """The Content-Length; None: there is none, or it is no number."""
        length = self.get("content-length", "")
        return int(length) if _LENGTH.fullmatch(length) else None

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header, or the default."""
        return super().get(name.lower(), default)
