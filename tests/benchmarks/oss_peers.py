"""A contestant on OSS: osstorchconnector, which speaks virtual-hosted V4 only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.loading import epoch
from tests.benchmarks.rig import BUCKET

if TYPE_CHECKING:
    from tests.benchmarks.measure import Job, Read

__all__ = ["prepare"]


def prepare(job: Job) -> Read:
    """Return the client's read."""
    import osstorchconnector

    way, _, more = job.way.partition("-")
    # As shipped; or what was found to be best on a core, where a second thread only costs.
    concurrency, threads = (int(more), 1) if more else (24, 2)
    directory = Path(job.rig.directory)
    credentials, config = directory / "oss-credentials.json", directory / "oss-config.json"
    credentials.write_text(
        json.dumps({"AccessKeyId": "benchmark", "AccessKeySecret": "benchmark-secret"})
    )
    config.write_text(
        json.dumps(
            {
                "logLevel": 3,
                "logPath": str(directory / "oss-connector.log"),
                "auditPath": str(directory / "oss-audit.log"),
                "datasetConfig": {"prefetchConcurrency": concurrency, "prefetchWorker": threads},
            }
        )
    )
    kind = "OssMapDataset" if way == "map" else "OssIterableDataset"

    def make(prefix: str) -> Any:
        return getattr(osstorchconnector, kind).from_prefix(
            f"oss://{BUCKET}/{prefix}",
            job.endpoint,
            cred_path=str(credentials),
            config_path=str(config),
            transform=_read_all,
            region="cn-test",
        )

    return epoch(job, make, shuffle=way == "map")


def _read_all(item: Any) -> bytes:
    body: bytes = item.read()
    return body
