"""Start four object stores, put the digits into each, train one script on all of them.

One of the runs is killed in the middle and started again. Prints a table and draws the loss
curves into ``docs/quickstart/run/``.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from PIL import Image
from sklearn.datasets import load_digits
from stores import Store, running_stores

from connector import Checkpoint
from providers import open_provider

HERE = Path(__file__).parent
OUTPUT = HERE / "run"
EPOCHS = 5
STOPPED = "gs://"
STOP_AFTER_EPOCH = 2


@dataclass(frozen=True, slots=True)
class Run:
    """One finished training run, as its last checkpoint tells it."""

    store: Store
    history: list[dict[str, float]]
    seconds: float
    objects: int


def digits() -> tuple[dict[str, bytes], bytes]:
    """Return 1,797 PNG files by name, and the manifest that gives each its label."""
    bunch: Any = load_digits()
    files, rows = {}, []
    for index, (pixels, label) in enumerate(zip(bunch.images, bunch.target, strict=True)):
        buffer = io.BytesIO()
        Image.fromarray((pixels * 15.9375).astype("uint8")).save(buffer, "PNG")
        files[f"{index:04d}.png"] = buffer.getvalue()
        rows.append(json.dumps({"key": f"{index:04d}.png", "label": int(label)}))
    return files, "\n".join(rows).encode()


def upload(store: Store, files: dict[str, bytes], manifest: bytes) -> None:
    """Put the digits below ``data/`` of the store."""
    uri = f"{store.base}data/"
    prefix = uri.split("/", 3)[3]
    provider = open_provider(uri)

    def put(item: tuple[str, bytes]) -> None:
        provider.put(prefix + item[0], item[1])

    with ThreadPoolExecutor(8) as pool:
        for done, _ in enumerate(pool.map(put, files.items()), 1):
            if done % 599 == 0:
                say(f"{store.scheme} {done:,} of {len(files):,} digits uploaded")
    provider.put(f"{prefix}manifest.jsonl", manifest)


def train(store: Store, *, kill_after: int | None = None) -> None:
    """Run the training script; kill it without mercy in the epoch after ``kill_after``."""
    command = [
        *[sys.executable, str(HERE / "train.py"), "--data", f"{store.base}data/"],
        *["--checkpoints", f"{store.base}checkpoints/", "--epochs", str(EPOCHS)],
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            say(f"{store.scheme} {line.rstrip()}")
            if kill_after is not None and line.startswith(f"epoch {kill_after}:"):
                process.kill()
                say(f"{store.scheme} killed in epoch {kill_after + 1}")
    if kill_after is None and process.returncode != 0:
        sys.exit(f"training on {store.base} ended with {process.returncode}")


def finish(store: Store, count: int, seconds: float) -> Run:
    """Read the run's history off its last checkpoint."""
    checkpoints = Checkpoint(f"{store.base}checkpoints/")
    history = checkpoints.load(checkpoints.names()[-1])["history"]
    return Run(store, history, seconds, count * len(history))


def table(runs: list[Run]) -> str:
    """Return one line a store."""
    lines = [f"{'store':8}{'objects read':>14}{'accuracy':>10}{'seconds':>9}{'requests':>10}"]
    for run in runs:
        requests = sum(int(epoch["requests"]) for epoch in run.history)
        lines.append(
            f"{run.store.scheme:8}{run.objects:>14,}{run.history[-1]['accuracy']:>10.1%}"
            f"{run.seconds:>9.1f}{requests:>10,}"
        )
    return "\n".join(lines)


def draw(runs: list[Run], path: Path) -> None:
    """Draw the loss curves; the resumed run's is marked where it was stopped."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 the backend is chosen first

    figure, axes = plt.subplots(figsize=(7, 4))
    for place, run in enumerate(runs):
        losses = [epoch["loss"] for epoch in run.history]
        epochs = range(1, len(losses) + 1)
        axes.plot(epochs, losses, linewidth=9 - 2 * place, alpha=0.6, label=run.store.scheme)
    axes.axvline(STOP_AFTER_EPOCH + 0.5, linestyle=":", color="black")
    axes.annotate(f" {STOPPED} killed here, then resumed", (STOP_AFTER_EPOCH + 0.5, 0.5))
    axes.set(xlabel="epoch", ylabel="mean training loss", title="One script, four stores")
    axes.set_xticks(range(1, EPOCHS + 1))
    axes.legend()
    figure.savefig(path, dpi=120)


def say(line: str) -> None:
    """Print a line with the time since the start."""
    print(f"[{time.perf_counter() - STARTED:5.1f} s] {line}", flush=True)


def run_on(store: Store, files: dict[str, bytes], manifest: bytes) -> Run:
    """Upload, train, and where the store is the one to be stopped, resume."""
    os.environ.update(store.environment)
    upload(store, files, manifest)
    started = time.perf_counter()
    if store.scheme == STOPPED:
        train(store, kill_after=STOP_AFTER_EPOCH)
    train(store)
    return finish(store, len(files), time.perf_counter() - started)


def main() -> int:
    """Run everything; the exit status says whether every store passed."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    files, manifest = digits()
    say(f"{len(files):,} digits; starting the servers")
    with running_stores(OUTPUT / "files") as stores:
        runs = [run_on(store, files, manifest) for store in stores]
    draw(runs, OUTPUT / "losses.png")
    print(f"\n{table(runs)}\n\nLoss curves: {(OUTPUT / 'losses.png').relative_to(Path.cwd())}")
    losses = [[epoch["loss"] for epoch in run.history] for run in runs]
    same = all(curve == losses[0] for curve in losses)
    print(f"Resumed run continued where it stopped: {'yes' if same else 'NO'} "
          "(every store's losses are equal to the last digit)")  # fmt: skip
    return 0 if same and all(run.history[-1]["accuracy"] > 0.95 for run in runs) else 1


STARTED = time.perf_counter()

if __name__ == "__main__":
    sys.exit(main())
