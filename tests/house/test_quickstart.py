"""The quickstart's script trains, is killed and resumes; the whole of it is a README command."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from connector import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPT = Path(__file__).parents[2] / "docs/quickstart/train.py"
_MANY_EPOCHS = 1000


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A folder of 100 images that are as bright as their labels are large."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = []
    for number in range(100):
        buffer = io.BytesIO()
        Image.new("L", (8, 8), 20 * (number % 10)).save(buffer, "PNG")
        (folder / f"{number}.png").write_bytes(buffer.getvalue())
        rows.append(json.dumps({"key": f"{number}.png", "label": number % 10}))
    (folder / "manifest.jsonl").write_text("\n".join(rows))
    return f"file://{folder}/"


def _lines(data: str, checkpoints: str, epochs: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, str(_SCRIPT), "--data", data, "--checkpoints", checkpoints]
    with subprocess.Popen(
        [*command, "--epochs", str(epochs)], stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            yield process, line


def _losses(checkpoints: str) -> list[Any]:
    checkpoint = Checkpoint(checkpoints)
    history = checkpoint.load(checkpoint.names()[-1])["history"]
    return [epoch["loss"] for epoch in history]


def test_a_killed_run_goes_on_where_it_stopped(data: str, tmp_path: Path) -> None:
    """Killed in mid-run and started again, it ends as if it had never stopped."""
    whole, stopped = f"file://{tmp_path}/whole/", f"file://{tmp_path}/stopped/"
    for process, line in _lines(data, stopped, _MANY_EPOCHS):
        if line.startswith("epoch 2: "):
            process.kill()
    saved = len(_losses(stopped))
    assert 2 <= saved < _MANY_EPOCHS
    said = [line for _, line in _lines(data, stopped, saved + 2)]
    assert said[0] == f"resumed after epoch {saved} from epoch-{saved:03d}.pt\n"
    assert [line[:9] for line in said[1:]] == [f"epoch {saved + n}: "[:9] for n in (1, 2)]
    assert len([line for _, line in _lines(data, whole, saved + 2)]) == saved + 2
    assert _losses(stopped) == _losses(whole)
