"""What the README and the docs show does what they say, against real servers."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text()
_PAGES = ("datasets.md", "checkpoints.md", "providers.md")
_ONE_LINERS = re.findall(r"^python -c .*$", _README, re.MULTILINE)
_ANSWERS = (
    "b'one'",
    "b'two'",
    "['first', 'second']",
    "[b'one', b'two']",
    "['s3://my-bucket/train/1.txt']",
    "[('first', b'one'), ('second', b'two')]",
    "{'weight': tensor([1., 1.])}",
)


def test_every_constructor_has_a_one_liner() -> None:
    """Each constructor of each dataset, and `Checkpoint`, is shown."""
    text = "\n".join(_ONE_LINERS)
    for kind in ("MapDataset", "IterableDataset"):
        for constructor in ("from_prefix", "from_objects", "from_manifest_file"):
            assert f"{kind}.{constructor}(" in text
    assert "Checkpoint(" in text


@pytest.mark.parametrize(("line", "answer"), list(zip(_ONE_LINERS, _ANSWERS, strict=True)))
def test_one_liner(line: str, answer: str, environment: Mapping[str, str]) -> None:
    """The line runs as it stands and prints what it should."""
    words = shlex.split(line)
    assert _python(words[1:], environment).strip() == answer


@pytest.mark.parametrize("page", _PAGES)
def test_snippets_of_a_page(page: str, environment: Mapping[str, str]) -> None:
    """The Python blocks of a page run one after the other, as a reader would type them."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (_ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
    )
    assert blocks
    # Torch says of one process that it is one.
    warnings = ["-W", "error", "-W", "ignore:torch.distributed is disabled"]
    _python([*warnings, "-c", "\n".join(blocks)], environment)


def _python(arguments: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
