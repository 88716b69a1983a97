"""A state's size is told before it is saved, near enough to choose the parts."""

from __future__ import annotations

import io
from collections import OrderedDict
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
import torch

from connector.checkpoint import Checkpoint
from connector.state_size import tensor_bytes
from providers import LimitError, TransferOptions
from providers.memory import MemoryProvider

_LARGE = torch.zeros(1000)


def _cyclic() -> list[Any]:
    state: list[Any] = [torch.zeros(10)]
    state.append(state)
    return state


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (torch.zeros(10), 40),
        ({"a": torch.zeros(10), "b": [torch.zeros(3, dtype=torch.bfloat16)]}, 46),
        (OrderedDict(a=(torch.zeros(10), {"b": MappingProxyType({"c": torch.zeros(1)})})), 44),
        ([_LARGE, _LARGE.view(10, 100), _LARGE[5:7]], 4000),
        (_LARGE[5:7], 4000),
        (torch.nn.Parameter(torch.zeros(10)), 40),
        (_cyclic(), 40),
        ({"epoch": 3, "name": "x" * 1000, "none": None}, 0),
        (torch.zeros(10, device="meta"), 0),
        (torch.eye(3).to_sparse(), 0),
        (torch.zeros(0), 0),
    ],
)
def test_bytes_of_tensors(state: Any, expected: int) -> None:
    """Every storage counts once and whole; what has none does not."""
    assert tensor_bytes(state) == expected


def test_a_state_is_little_larger_than_its_tensors() -> None:
    """What torch.save writes for a model and its optimiser exceeds this by a few per cent."""
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 300))
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 300)).sum().backward()
    optimiser.step()
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "epoch": 3}
    written = io.BytesIO()
    torch.save(state, written)
    assert tensor_bytes(state) < len(written.getvalue()) < 1.05 * tensor_bytes(state)


@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """Checkpoints on a store of ten equal parts, which 100 bytes each would be too few for."""
    limits = replace(MemoryProvider("any").limits, max_parts=10, equal_parts=True)
    monkeypatch.setattr(MemoryProvider, "limits", limits)
    transfer = TransferOptions(part_size_bytes=100, multipart_threshold_bytes=100)
    return Checkpoint("memory://few-parts/", transfer=transfer)


def test_a_save_chooses_parts_by_the_states_size(few_parts: Checkpoint) -> None:
    """A state that would not fit parts of the usual size is saved in larger ones from the start."""
    state = {"weights": torch.arange(10_000)}
    few_parts.save(state, "step-1.pt")
    assert torch.equal(few_parts.load("step-1.pt")["weights"], state["weights"])


def test_a_writer_chooses_parts_by_the_hint(few_parts: Checkpoint) -> None:
    """The same holds for a writer that is told how much will come; untold, it names the option."""
    with few_parts.writer("step-2.pt", size_hint=5000) as file:
        file.write(bytes(5000))
    assert file.info.size == 5000
    with pytest.raises(LimitError, match="part_size_bytes"), few_parts.writer("3.pt") as file:
        file.write(bytes(5000))
    assert "3.pt" not in few_parts.names()
