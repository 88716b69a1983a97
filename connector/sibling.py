"""Checks that ``providers`` is the package that came with this one."""

from __future__ import annotations

from pathlib import Path

import providers


def _check(found: str) -> None:
    """Raise if ``import providers`` gave another package.

    Args:
        found: the directory or file that it was read from.
    """
    wanted = Path(__file__).resolve().parent.parent / "providers"
    if Path(found).resolve() not in {wanted, wanted / "__init__.py"}:
        raise ImportError(
            f"connector needs the package 'providers' beside it, {wanted}, but 'import providers' "
            f"finds {found}, which shadows it: rename that, or take its directory off sys.path"
        )


_check(providers.__file__ or next(iter(providers.__path__)))
