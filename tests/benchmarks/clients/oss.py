"""Peers that read Alibaba OSS: osstorchconnector."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measuring import batches
from tests.benchmarks.sizes import SIZES

if TYPE_CHECKING:
    from tests.benchmarks.measuring import Figures

__all__ = ["CLIENTS"]


def _read(item: Any) -> bytes:
    return bytes(item.read())


def _dataset(spec: dict[str, Any]) -> Figures:
    from osstorchconnector import OssIterableDataset, OssMapDataset
    from torch.utils.data import DataLoader

    with tempfile.TemporaryDirectory() as name:
        credentials, config = Path(name) / "credentials.json", Path(name) / "config.json"
        credentials.write_text(json.dumps({"AccessKeyId": "key", "AccessKeySecret": "secret"}))
        config.write_text(json.dumps({"logLevel": 3, "logPath": f"{name}/log"}))
        kind = OssMapDataset if spec["style"] == "map" else OssIterableDataset
        dataset = kind.from_objects(
            [f"oss://obench/{spec['kind']}/{number:06}" for number in range(spec["objects"])],
            endpoint=spec["endpoint"],
            cred_path=str(credentials),
            config_path=str(config),
            transform=_read,
            region="us-east-1",
        )
        loader = DataLoader(
            dataset,
            batch_size=spec["batch"],
            shuffle=spec["style"] == "map",
            num_workers=spec["workers"],
            collate_fn=list,
        )
        return batches(loader, SIZES[spec["kind"]])


CLIENTS = {"osstorchconnector": _dataset}
