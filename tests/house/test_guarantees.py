"""Every guarantee is shown by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_every_guarantee_names_tests_that_exist() -> None:
    """The page of guarantees names no test that is not there."""
    named = set(re.findall(r"`(test_\w+)`", (_ROOT / "docs/guarantees.md").read_text()))
    sources = [*(_ROOT / "tests").rglob("*.py"), *(_ROOT / "providers/testing").rglob("*.py")]
    defined = {
        name for path in sources for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert named
    assert named <= defined, sorted(named - defined)
