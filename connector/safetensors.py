"""Files of safetensors, written straight to an object store."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from connector.checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from providers import ObjectInfo, Options, TransferOptions

__all__ = ["save_file"]

_DTYPES = {
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float32: "F32",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""In the order in which the format's own library lays tensors out."""

_ORDER = {dtype: place for place, dtype in enumerate(_DTYPES)}


def save_file(
    tensors: Mapping[str, Tensor],
    uri: str,
    metadata: Mapping[str, str] | None = None,
    *,
    options: Options | None = None,
    transfer: TransferOptions | None = None,
    if_absent: bool = False,
) -> ObjectInfo:
    """Write tensors as one safetensors file, whole or not at all.

    Tensors are made contiguous and moved to the CPU one at a time.

    Args:
        tensors: dense ones of any shape, by name; their memory may not overlap.
        uri: of the object.
        metadata: kept in the file's header.
        options: of the store.
        transfer: sizes of parts; default: the store's.
        if_absent: fail where there is an object already.

    Raises:
        ValueError: a tensor is of a kind that the format has not, or two share memory.
        PreconditionError: ``if_absent`` and there is an object.
    """
    for name, tensor in tensors.items():
        _check(name, tensor, uri)
    _check_apart(tensors, uri)
    names = sorted(tensors, key=lambda name: (_ORDER[tensors[name].dtype], name.encode()))
    header = _header({name: tensors[name] for name in names}, metadata)
    size = len(header) + sum(tensor.nbytes for tensor in tensors.values())
    prefix, _, name = uri.rpartition("/")
    place = Checkpoint(f"{prefix}/", options=options, transfer=transfer)
    with place.writer(name, if_absent=if_absent, size_hint=size) as file:
        file.write(header)
        for name in names:
            if tensors[name].numel():
                file.write(_bytes(tensors[name]))
    return file.info


def _check(name: str, tensor: Tensor, uri: str) -> None:
    if name == "__metadata__":
        raise ValueError(f"{uri}: no tensor may be named {name!r}: the format uses the name")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise ValueError(
            f"{uri}: tensor {name!r} is sparse, quantised or without data: save it dense"
        )
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"{uri}: tensor {name!r} is of {tensor.dtype}, which safetensors has not")


def _check_apart(tensors: Mapping[str, Tensor], uri: str) -> None:
    spans = sorted(
        (str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + _extent(tensor), name)
        for name, tensor in tensors.items()
        if tensor.numel()
    )
    for (device, _, stop, name), (other_device, start, _, other) in pairwise(spans):
        if device == other_device and start < stop:
            raise ValueError(
                f"{uri}: tensors {name!r} and {other!r} share memory: save one, or a clone()"
            )


def _extent(tensor: Tensor) -> int:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * step for size, step in steps)) * tensor.element_size()


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, tensor in tensors.items():
        stop = at + tensor.nbytes
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, stop],
        }
        at = stop
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: Tensor) -> memoryview:
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    values: Any = dense.reshape(-1).view(torch.uint8).numpy()  # its stubs tell no buffer
    return memoryview(values)
