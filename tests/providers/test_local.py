"""Files against the suite, and what only files have: links, temporaries, names, crashes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from providers.local import LocalProvider
from providers.options import LocalOptions
from providers.testing import ProviderSuite
from tests.providers.files import TEMPORARY, files_below


class TestLocal(ProviderSuite):
    """Files below a directory of the test's own."""

    many_objects = 2003
    uploads_have_keys = False
    unsupported_odd_keys = frozenset(
        {
            "double slash",
            "dot",
            "dot dot",
            "trailing slash",
            "long name",
            "object below object",
        }
    )

    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.root = tmp_path / "root"
        self.prefix = f"{str(self.root)[1:]}/"

    @override
    def make_provider(self) -> LocalProvider:
        return LocalProvider(options=LocalOptions(root=str(self.root)))

    @override
    def make_missing_bucket_provider(self) -> None:
        return None

    @override
    def make_denied_provider(self) -> None:
        return None

    @override
    def raw_put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        path = Path(f"/{key}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    @override
    def raw_get(self, key: str) -> bytes:
        return Path(f"/{key}").read_bytes()

    @override
    def raw_keys(self) -> set[str]:
        return {key for key in files_below(self.root) if TEMPORARY not in key}

    @override
    def raw_unfinished_uploads(self) -> list[Any]:
        return [key for key in files_below(self.root) if TEMPORARY in key]
