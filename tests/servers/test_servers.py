"""The servers the suite stands on start, answer their vendor's SDK, and are gone afterwards."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.servers.fake_gcs import GCSServer, fake_gcs
from tests.servers.juicefs import juicefs
from tests.servers.moto import moto
from tests.servers.oss import OSSServer, oss
from tests.servers.process import ServerCommand, ServerError, ServerProcess, running
from tests.servers.rclone import rclone
from tests.servers.s3 import S3Server

AnyServer = S3Server | GCSServer | OSSServer


@pytest.mark.parametrize("name", ["juicefs", "moto", "rclone"])
def test_s3_servers_answer_boto3(name: str, request: pytest.FixtureRequest) -> None:
    """An object that boto3 puts is listed and comes back."""
    server: S3Server = request.getfixturevalue(name)
    bucket: str = request.getfixturevalue(f"{name}_bucket")
    with contextlib.closing(server.client()) as client:
        client.put_object(Bucket=bucket, Key="a/b", Body=b"hello")
        answer = client.get_object(Bucket=bucket, Key="a/b")
        with answer["Body"] as body:
            assert body.read() == b"hello"
        listed = client.list_objects_v2(Bucket=bucket)["Contents"]
    assert [entry["Key"] for entry in listed] == ["a/b"]


def test_gcs_server_answers_google_cloud_storage(fake_gcs: GCSServer, fake_gcs_bucket: str) -> None:
    """An object that google-cloud-storage puts is listed and comes back."""
    with contextlib.closing(fake_gcs.client()) as client:
        bucket = client.bucket(fake_gcs_bucket)
        bucket.blob("a/b").upload_from_string(b"hello")
        assert bucket.get_blob("a/b").download_as_bytes() == b"hello"
        assert [blob.name for blob in client.list_blobs(fake_gcs_bucket)] == ["a/b"]


def test_oss_server_answers_oss2(oss_server: OSSServer, oss_bucket: str) -> None:
    """An object that oss2 puts is listed and comes back."""
    bucket = oss_server.bucket(oss_bucket)
    bucket.put_object("a/b", b"hello")
    with contextlib.closing(bucket.get_object("a/b")) as answer:
        assert answer.read() == b"hello"
    assert [entry.key for entry in bucket.list_objects_v2().object_list] == ["a/b"]


@pytest.mark.parametrize("start", [juicefs, moto, rclone, fake_gcs, oss])
def test_servers_are_gone_afterwards(
    start: Callable[[], AbstractContextManager[AnyServer]],
) -> None:
    """Neither the process nor its files outlive the block."""
    with start() as server:
        process = server.process
        assert process.log.exists()
    assert not _is_running(process)
    assert not process.log.parent.exists()


def test_failing_server_quotes_its_log() -> None:
    """A server that ends instead of starting is an error that shows why."""
    program = "import sys; sys.exit('no such volume')"
    command = ServerCommand("broken", lambda _: [sys.executable, "-c", program])
    with pytest.raises(ServerError, match=r"broken ended with 1(?s:.*)no such volume"):
        running(command).__enter__()


def test_silent_server_is_an_error() -> None:
    """A server that runs but does not answer in time is an error."""
    command = ServerCommand(
        "silent",
        lambda _: [sys.executable, "-c", "import signal; signal.pause()"],
        start_seconds=0.2,
    )
    with pytest.raises(ServerError, match=r"silent gave no answer in 0\.2 s"):
        running(command).__enter__()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
def test_killed_run_leaves_no_server(tmp_path: Path) -> None:
    """A server dies with a run that is killed outright."""
    program = (
        "import signal; from tests.servers.fake_gcs import fake_gcs\n"
        "with fake_gcs() as server:\n"
        "    print(server.process.pid, flush=True); signal.pause()"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=root,
        # A run that is killed cannot remove its files: let pytest do it.
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        descriptor = os.pidfd_open(pid)
        run.send_signal(signal.SIGKILL)
    try:
        assert select.select([descriptor], [], [], 10)[0], f"{pid} is still running"
    finally:
        os.close(descriptor)


def _is_running(process: ServerProcess) -> bool:
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
