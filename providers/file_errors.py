"""What an operating system's error means for an object, by its number."""

from __future__ import annotations

import errno
from types import MappingProxyType
from typing import TYPE_CHECKING

from providers.errors import (
    AccessDeniedError,
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    ServiceError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["file_error"]

_READING: Mapping[int, tuple[type[ProviderError], str]] = MappingProxyType(
    {
        errno.ENOENT: (NotFoundError, "there is no such file"),
        errno.ENOTDIR: (NotFoundError, "there is no such file"),
        errno.EISDIR: (NotFoundError, "it is a directory, which is no object"),
        errno.ENXIO: (NotFoundError, "it is no regular file"),
        errno.ELOOP: (NotFoundError, "its links lead nowhere"),
    }
)
_WRITING: Mapping[int, tuple[type[ProviderError], str]] = MappingProxyType(
    {
        errno.ENOENT: (NotFoundError, "there is no such file"),
        errno.ENOTDIR: (LimitError, "a file stands where the key needs a directory"),
        errno.EISDIR: (LimitError, "a directory stands where the key needs a file"),
        errno.ELOOP: (
            LimitError,
            "a link stands where the key needs a directory; writes follow none, name its target",
        ),
    }
)
_ALWAYS: Mapping[int, tuple[type[ProviderError], str]] = MappingProxyType(
    {
        errno.EEXIST: (PreconditionError, "there is a file already"),
        errno.EACCES: (AccessDeniedError, "this user may not"),
        errno.EPERM: (AccessDeniedError, "this user may not"),
        errno.EROFS: (AccessDeniedError, "the file system is mounted read-only"),
        errno.ENOSPC: (ServiceError, "the file system is full"),
        errno.EDQUOT: (ServiceError, "this user's quota is used up"),
        errno.EFBIG: (LimitError, "the file system takes no file as large"),
        errno.ENAMETOOLONG: (LimitError, "a name, or the path, is too long for the file system"),
        errno.EIO: (UnavailableError, "the device failed"),
        errno.ESTALE: (UnavailableError, "the file server forgot the file"),
        errno.EAGAIN: (UnavailableError, "the file system is busy"),
        errno.ETIMEDOUT: (UnavailableError, "the file server does not answer"),
        errno.EMFILE: (UnavailableError, "this process has too many open files (ulimit -n)"),
        errno.ENFILE: (UnavailableError, "this machine has too many open files"),
    }
)
_READS = frozenset({"get", "head", "list"})


def file_error(error: OSError, operation: str, uri: str) -> ProviderError:
    """Return the provider error that an error of the operating system amounts to.

    Args:
        error: raised by the operating system.
        operation: the verb that met it.
        uri: the object.
    """
    number = error.errno or 0
    kinds = {**_ALWAYS, **(_READING if operation in _READS else _WRITING)}
    kind, message = kinds.get(number, (ServiceError, error.strerror or str(error)))
    return kind(message, uri=uri, operation=operation, code=errno.errorcode.get(number))
