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

_HELD = """
import atexit, signal, threading
from connector.part_threads import PartThreads
from providers.uploads import MultipartUpload

going, held = threading.Event(), threading.Semaphore(0)
put_part, stop, main = MultipartUpload.put_part, PartThreads.stop, os.getpid()

def wait_and_put(upload, number, data):
    held.release()
    assert going.wait(90)
    put_part(upload, number, data)

def go_and_stop(threads):
    assert os.getpid() == main
    going.set()
    return stop(threads)

MultipartUpload.put_part = wait_and_put
PartThreads.stop = go_and_stop

def hold():
    # Of the two parts that are full each is in a thread of its own, and stays there.
    global file
    file.abort()
    file = ObjectWriter(provider, sys.argv[2])
    going.clear()
    file.write(bytes(int(sys.argv[3])))
    held.acquire(); held.acquire()

hold()
"""
"""From here on parts are under way, and stay so until the parent ends them or lets them go."""

_FORK = """
child = os.fork()
if child == 0:
    {action}
assert os.waitpid(child, 0)[1] == 0
{before_the_end}
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
    _run(store, _FORK.format(action=action, before_the_end=""))
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


_ENDS_AMID_PARTS = {
    "the end of the script": "",
    "sys.exit": "sys.exit()",
    "sys.exit in the block": "with file: sys.exit()",
    "a cycle at the end": "file.me = file",
    "SIGTERM": """
def leave(*_):
    sys.exit()
signal.signal(signal.SIGTERM, leave)
with file:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
""",
    "SIGTERM outside of a block": """
def leave(*_):
    sys.exit()
signal.signal(signal.SIGTERM, leave)
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait()
""",
    "KeyboardInterrupt while waiting for a part": """
def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
try:
    with file:
        threading.Thread(target=interrupt).start()
        file.close()
except KeyboardInterrupt:
    pass
""",
    "a thread's own sys.exit": """
def use():
    with file:
        sys.exit()
thread = threading.Thread(target=use)
thread.start()
thread.join()
""",
    "dropped": "del file; gc.collect()",
}


@pytest.mark.parametrize("end", _ENDS_AMID_PARTS.values(), ids=_ENDS_AMID_PARTS)
def test_a_process_that_ends_amid_parts(files: Store, end: str) -> None:
    """However a process ends in which Python still runs, it waits for parts, then drops them."""
    _check_ends(files, _HELD + end)


def test_a_process_that_ends_amid_parts_on_every_server(cloud_store: Store) -> None:
    """The same holds where a part that came after the abort would stay."""
    _check_ends(cloud_store, _HELD)


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


@pytest.mark.parametrize("action", _ACTIONS)
def test_a_fork_amid_parts(files: Store, action: str) -> None:
    """A child forked while threads send parts has none of them, waits for none and goes its way."""
    _check_forks_amid_parts(files, action)


def test_a_fork_amid_parts_on_every_server(cloud_store: Store) -> None:
    """The same holds where the threads hold connections and locks."""
    _check_forks_amid_parts(cloud_store, f"file.abort(); {_ACTIONS[2]}")


def _check_forks_amid_parts(store: Store, action: str) -> None:
    store.raw_put("k", OLD)
    _run(store, _HELD + _FORK.format(action=action, before_the_end="going.set()"))
    assert store.raw_get("k") == bytes(2 * store.part_bytes + 1) + b"end"
    assert store.unfinished("k") == []


def test_a_child_writes_while_its_parents_parts_travel(shared_store: Store) -> None:
    """A child forked amid parts can write an object of its own, in parts too."""
    shared_store.raw_put("k", OLD)
    action = """
    MultipartUpload.put_part, PartThreads.stop = put_part, stop
    with ObjectWriter(pickle.loads(base64.b64decode(sys.argv[1])), sys.argv[2] + "2") as own:
        own.write(bytes(int(sys.argv[3])))
    os._exit(0)
"""
    _run(shared_store, _HELD + _FORK.format(action=action.strip(), before_the_end="going.set()"))
    assert shared_store.raw_get("k2") == bytes(2 * shared_store.part_bytes + 1)
    assert shared_store.raw_get("k") == bytes(2 * shared_store.part_bytes + 1) + b"end"
    assert shared_store.unfinished("k") == []
