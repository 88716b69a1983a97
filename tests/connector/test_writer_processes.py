"""A writer belongs to the process that opened it, and dies with it."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pickle import dumps
from typing import TYPE_CHECKING

import pytest

from tests.connector.store import FileStore, Store

if TYPE_CHECKING:
    from pathlib import Path

OLD = b"the old object"

_PRELUDE = """
import base64, gc, os, pickle, sys
provider = pickle.loads(base64.b64decode(sys.argv[1]))
from connector.writer import ObjectWriter
file = ObjectWriter(provider, sys.argv[2])
file.write(bytes(int(sys.argv[3])))
"""

_FORK = """
child = os.fork()
if child == 0:
    {action}
assert os.waitpid(child, 0)[1] == 0
file.write(b"end")
file.close()
"""


def _run(store: Store, code: str) -> None:
    provider = store.provider()
    provider.options = provider.options.model_copy(update={"pickle_secrets": True})
    arguments = [b64encode(dumps(provider)).decode(), store.key("k"), str(2 * store.part_bytes + 1)]
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def _check_ends(store: Store, end: str) -> None:
    store.raw_put("k", OLD)
    _run(store, end)
    assert store.raw_get("k") == OLD
    assert store.unfinished("k") == []


def _check_forks(store: Store, action: str) -> None:
    store.raw_put("k", OLD)
    _run(store, _FORK.format(action=action))
    assert store.raw_get("k") == bytes(2 * store.part_bytes + 1) + b"end"
    assert store.unfinished("k") == []


@pytest.fixture
def files(tmp_path: Path) -> Store:
    """An empty directory."""
    return FileStore(f"file://{tmp_path}/")


@pytest.mark.parametrize("end", ["", "sys.exit()", "with file: sys.exit()", "file.me = file"])
def test_a_process_that_ends_publishes_nothing(files: Store, end: str) -> None:
    """A writer left open when the interpreter exits aborts; the old object stands."""
    _check_ends(files, end)


def test_a_process_that_ends_on_every_server(cloud_store: Store) -> None:
    """The same holds where dropping what was sent takes a request."""
    _check_ends(cloud_store, "file.me = file")


_ACTIONS = [
    "del file; gc.collect(); os._exit(0)",
    "sys.exit()",
    "import io; io.TextIOWrapper(file); gc.collect(); sys.exit()",
    "file.abort(); file.__exit__(KeyError, KeyError(), None); os._exit(0)",
]


@pytest.mark.parametrize("action", _ACTIONS)
def test_a_forked_child_neither_publishes_nor_aborts(files: Store, action: str) -> None:
    """What a child inherits, drops or aborts is its parent's: the parent's save goes on."""
    _check_forks(files, action)


def test_a_forked_child_on_every_server(cloud_store: Store) -> None:
    """The same holds where the writer has connections."""
    _check_forks(cloud_store, f"file.abort(); {_ACTIONS[2]}")


@pytest.mark.parametrize(
    "use", ["file.write(b'x')", "file.close()", "file.__exit__(None, None, None)"]
)
def test_a_forked_child_is_told(files: Store, use: str) -> None:
    """A child that writes to or closes its parent's writer gets an error that says so."""
    action = f"""
    try:
        {use}
    except RuntimeError as error:
        os._exit("belongs to process" not in str(error))
    os._exit(7)
"""
    _check_forks(files, action.strip())
