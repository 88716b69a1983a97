"""What importing loads, and what it must not."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SDKS = (
    "alibabacloud_oss_v2",
    "boto3",
    "botocore",
    "google.cloud",
    "lightning",
    "oss2",
    "pyarrow",
    "pytest",
    "ray",
    "requests",
    "safetensors",
)


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["connector", "providers"])
def test_importing_loads_no_sdk(package: str) -> None:
    """Neither package loads an SDK or another optional dependency."""
    assert _loaded_by(f"import {package}").isdisjoint(_SDKS)


def test_importing_providers_loads_no_torch() -> None:
    """The object stores can be used without torch."""
    loaded = _loaded_by("import providers; providers.open_provider('memory://b')")
    assert "torch" not in loaded
    assert "connector" not in loaded


def test_opening_a_provider_loads_no_other_sdk() -> None:
    """Opening one cloud's provider loads neither its SDK nor another's."""
    loaded = _loaded_by("import providers; providers.open_provider('s3://b')")
    assert loaded.isdisjoint(_SDKS)


def test_all_names_exist() -> None:
    """Every name in ``__all__`` can be imported."""
    _loaded_by("from providers import *\nfrom connector import *")
