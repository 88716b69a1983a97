"""Train a small network on handwritten digits that lie in any object store.

    python train.py --data s3://bucket/digits/ --checkpoints s3://bucket/runs/1/

The two URIs choose the stores; nothing else in this script depends on them. Run it again
after it was stopped, and it goes on from the last epoch it saved.
"""

from __future__ import annotations

import argparse
import io
import time
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Subset

from connector import Checkpoint, MapDataset, metrics

if TYPE_CHECKING:
    from connector.reader import ObjectReader

Sample = tuple[torch.Tensor, int]


def decode(sample: ObjectReader) -> Sample:
    """Return an image of shape (1, 8, 8), float32 in 0 to 1, and its digit."""
    image = Image.open(io.BytesIO(sample.read()))
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(1, 8, 8).float() / 255, int(sample.label)


def network() -> nn.Module:
    """Return two convolutions and a classifier, some 24,000 weights."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.2), nn.Linear(512, 36), nn.ReLU(), nn.Linear(36, 10)),
    )


def split(data: str) -> tuple[Subset[Sample], Subset[Sample]]:
    """Return four fifths of the digits to train on, and the rest."""
    dataset = MapDataset.from_manifest_file(f"{data}manifest.jsonl", transform=decode)
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0)).tolist()
    fifth = len(order) // 5
    return Subset(dataset, order[fifth:]), Subset(dataset, order[:fifth])


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Any) -> float:
    """Make one pass and return the mean loss."""
    model.train()
    losses = []
    for images, digits in batches:
        loss = nn.functional.cross_entropy(model(images), digits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, batches: Any) -> float:
    """Return the share of digits read right."""
    model.eval()
    right = [(model(images).argmax(1) == digits).float() for images, digits in batches]
    return torch.cat(right).mean().item()


def main() -> None:
    """Train, saving after every epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="URI of the folder of digits")
    parser.add_argument("--checkpoints", required=True, help="URI of a folder for checkpoints")
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model, history = network(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checkpoints = Checkpoint(arguments.checkpoints)
    if latest := checkpoints.latest():
        state = checkpoints.load(latest)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        history = state["history"]
        print(f"resumed after epoch {len(history)} from {latest}", flush=True)

    train, held_out = split(arguments.data)
    for epoch in range(len(history), arguments.epochs):
        torch.manual_seed(epoch)
        started, before = time.perf_counter(), metrics.snapshot().requests
        loss = train_epoch(model, optimizer, DataLoader(train, batch_size=32, shuffle=True))
        share = accuracy(model, DataLoader(held_out, batch_size=256))
        result = {"loss": loss, "accuracy": share, "seconds": time.perf_counter() - started}
        result["requests"] = metrics.snapshot().requests - before
        history.append(result)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        checkpoints.save({**state, "history": history}, f"epoch-{epoch + 1:03d}.pt")
        print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {share:.1%}", flush=True)


if __name__ == "__main__":
    main()
