"""What is saved is the file that the format's own library writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save

from connector.checkpoint import Checkpoint
from connector.safetensors import save_file

if TYPE_CHECKING:
    from tests.connector.store import Store

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
]


def test_equals_the_librarys_file(store: Store) -> None:
    """Every dtype, empty, 0-d and transposed tensors: byte for byte, on every store."""
    tensors = {f"é {name}": torch.arange(1, 4).to(getattr(torch, name)) for name in DTYPES}
    tensors |= {"empty": torch.empty(0, 3), "scalar": torch.tensor(2.5)}
    turned = torch.arange(6.0).reshape(2, 3).T
    save_file(
        tensors | {"turned": turned},
        f"{store.uri}m.safetensors",
        {"by": "ü"},
        options=store.options,
    )
    with Checkpoint(store.uri, options=store.options).reader("m.safetensors") as file:
        assert file.read() == save(tensors | {"turned": turned.contiguous()}, {"by": "ü"})


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"a": torch.eye(2).to_sparse()}, "'a' is sparse"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "complex128"),
        ({"__metadata__": torch.zeros(2)}, "__metadata__"),
        (dict.fromkeys(("a", "b"), torch.zeros(2)), "'a' and 'b' share memory"),
    ],
)
def test_refuses_by_name(tensors: dict[str, torch.Tensor], said: str) -> None:
    """What the format cannot hold is refused before anything is sent, with URI and name."""
    with pytest.raises(ValueError, match=f"memory://refusals/m: .*{said}"):
        save_file(tensors, "memory://refusals/m")
