"""``CONNECTOR_TRACE=1``: every request of this process in the log, without its secrets.

For the nights on which nothing else tells what goes on. Lines go to the logger
``connector.trace`` at level INFO; where no logging is set up, to standard error. The variable
is read when the process starts and again after a fork.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from typing import Final

__all__ = ["enabled", "trace"]

_log = logging.getLogger("connector.trace")
_FORMAT = "%(asctime)s %(process)d %(name)s %(message)s"
_VARIABLE = "CONNECTOR_TRACE"

# Names of query parameters whose values give nothing away. Any other is hidden, since services
# keep inventing credentials: ``upload_id`` of GCS alone grants the upload.
_HARMLESS: Final = frozenset(
    (
        "acl", "alt", "append", "comp", "continuation-token", "delete", "delimiter",
        "encoding-type", "end-offset", "endoffset", "fields", "generation",
        "ifgenerationmatch", "ifmetagenerationmatch", "ifsourcegenerationmatch",
        "includefoldersasprefixes", "includetrailingdelimiter", "key-marker", "list-type",
        "location", "marker", "matchglob", "max-keys", "max-parts", "max-uploads", "maxresults",
        "metageneration", "name", "objectmeta", "pagetoken", "part-number-marker",
        "partnumber", "position", "prefix", "projection", "session", "start-after",
        "startoffset", "upload-id-marker", "uploadid", "uploads", "uploadtype", "versionid",
        "versions", "x-id",
    )
)  # fmt: skip
_HIDDEN: Final = "***"
_URL = re.compile(r"(?is)(https?://)(?:[^/?#]*@)?([^?#]*)\??([^#]*)(?:#.*)?")
# Errors should hold no secret; those of an SDK or a proxy may, in one of these forms.
_USER_IN_TEXT = re.compile(r"(://)[^/\s@]+@")
_PARAMETER_IN_TEXT = re.compile(r"(?<=[?&])([^\s=&?'\"<>]+)=[^\s&'\"<>)]+")
_HEADER_IN_TEXT = re.compile(
    r"\b(?:authorization['\"]?\s*[:=].*|(?:aws|oss)4-hmac-\w+\b.*|(?:aws|oss)\s+[^\s:]+:\S+"
    r"|(?:bearer|basic)\s+[^\s'\",]+)",
    re.IGNORECASE,
)
_PAIR_IN_TEXT = re.compile(
    r"([\w-]*(?:token|signature|secret|credential|password|access_?key_?id)[\w-]*"
    r"['\"]?\s*[:=>]\s*['\"]?)[^\s'\",&}<]+",
    re.IGNORECASE,
)


def _asked() -> bool:
    """Whether the environment asks for traces."""
    return os.environ.get(_VARIABLE, "").strip().lower() not in {"", "0", "false", "no", "off"}


enabled = _asked()
"""Whether to call ``trace`` at all; read it as an attribute of the module, at each request."""


def _ask_again() -> None:
    global enabled  # noqa: PLW0603 callers read it as the module's attribute
    enabled = _asked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ask_again)


def trace(
    method: str,
    url: str,
    *,
    status: int | None,
    seconds: float,
    body_bytes: int,
    attempt: int = 1,
    request_id: str | None = None,
    error: BaseException | str | None = None,
) -> None:
    """Log one finished attempt; call it only where ``enabled`` is true.

    Args:
        method: ``GET`` say, or the verb of a request that an SDK sends.
        url: as sent, or the object's URI; what could be a credential in it is hidden.
        status: of the answer; None: none came.
        seconds: from sending to the end of the attempt.
        body_bytes: received, or sent by an upload.
        attempt: 1 for the first.
        request_id: the service's name for the request.
        error: what the attempt failed with.
    """
    failure = ""
    if error is not None:
        kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
        failure = f", {kind}{_safe_text(str(error))}"
    _write(
        f"{method} {_safe_url(url)} -> {status or 'no answer'} in {seconds:.3f} s, "
        f"{body_bytes} bytes, attempt {attempt}, request id {request_id or '-'}{failure}"
    )


def _safe_url(url: str) -> str:
    """Return a URL without its user and without the values that could be credentials."""
    found = _URL.fullmatch(url)
    if not found:
        return url  # An object's URI: its key may hold anything, and is no secret.
    query = "&".join(map(_safe_parameter, found[3].split("&"))) if found[3] else ""
    return f"{found[1]}{found[2]}{'?' if query else ''}{query}"


def _safe_parameter(parameter: str) -> str:
    name, _, value = parameter.partition("=")
    if name.lower() in _HARMLESS:
        return parameter
    # Without a value the name may be the secret.
    return f"{name}={_HIDDEN}" if value.strip("=") else _HIDDEN


def _safe_text(text: str) -> str:
    """Return an error's text without what looks like a credential."""
    text = _USER_IN_TEXT.sub(r"\1", text)
    text = _HEADER_IN_TEXT.sub(_HIDDEN, text)
    text = _PAIR_IN_TEXT.sub(rf"\1{_HIDDEN}", text)
    return _PARAMETER_IN_TEXT.sub(lambda found: _safe_parameter(found[0]), text)


def _write(line: str) -> None:
    """Log a line whatever levels and handlers there are: it was asked for by name."""
    if not line.isprintable():
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)
    if _log.hasHandlers():
        _log.info("%s", line)
    else:
        _standard_error().handle(
            _log.makeRecord(_log.name, logging.INFO, __file__, 0, "%s", (line,), None)
        )


@functools.cache
def _standard_error() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    return handler
