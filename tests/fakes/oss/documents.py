"""XML in and out, without a namespace: the first SDK's parser finds nothing inside one."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias, Union
from urllib.parse import quote
from xml.sax.saxutils import escape

Content: TypeAlias = Union[str, int, "Iterable[tuple[str, Content]]"]

_FIRST_PRINTABLE = 0x20


def document(root: str, children: Iterable[tuple[str, Content]]) -> bytes:
    """An XML document of nested elements."""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n{_element(root, children)}'
    return text.encode("utf-8", "surrogatepass")


def _element(name: str, content: Content) -> str:
    if isinstance(content, bool):
        text = "true" if content else "false"
    elif isinstance(content, (str, int)):
        text = escape(str(content), {"\r": "&#13;"})
    else:
        text = "".join(_element(child, value) for child, value in content)
    return f"<{name}>{text}</{name}>"


def readable(text: str) -> str:
    """The text with what XML cannot hold replaced, so that an error can always be parsed."""
    return "".join(c if ord(c) >= _FIRST_PRINTABLE or c in "\t\n\r" else "?" for c in text)


def timestamp(moment: datetime) -> str:
    """A moment as listings show it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def encoder(encoding_type: str | None) -> "KeyEncoder":
    """How keys are written into a document for this value of `encoding-type`."""
    return KeyEncoder(encoded=encoding_type == "url")


class KeyEncoder:
    """Writes keys as they are, or percent-encoded when the client asked for that."""

    def __init__(self, *, encoded: bool) -> None:
        self._encoded = encoded

    def __call__(self, text: str) -> str:
        """The key as it stands in the document."""
        return quote(text, safe="") if self._encoded else text

    @property
    def declaration(self) -> list[tuple[str, Content]]:
        """The element that tells the client to decode."""
        return [("EncodingType", "url")] if self._encoded else []
