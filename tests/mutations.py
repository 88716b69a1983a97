"""Breaks one line of each backend at a time and shows which test notices.

    python -m tests.mutations [words of the names to run]

Works on a copy of the tree. Prints a line a mutation; the exit status is 1 if one survives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_LIMIT_SECONDS = 300
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".venv*")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One broken line.

    Attributes:
        backend: whose tests must notice.
        what: what is broken.
        path: the file.
        old: the text before; every occurrence is replaced.
        new: the text after.
        tests: words that select tests by name, so that the answer comes soon.
    """

    backend: str
    what: str
    path: str
    old: str
    new: str
    tests: str


def _cloud(backend: str, path: str, abort_path: str, abort: str) -> list[Mutation]:
    """Return what is broken alike on the three clouds."""
    longer = "ByteRange(byte_range.start, (byte_range.stop or 1 << 60) + 1).header"
    return [
        Mutation(backend, "range end", path, "byte_range.header", longer, "get"),
        Mutation(backend, "abort", abort_path, abort, "pass", "multipart"),
        Mutation(
            backend,
            "pages of uploads",
            "providers/listings.py",
            "            token = following\n",
            "            return\n",
            "list_uploads",
        ),
        Mutation(
            backend,
            "listing order",
            "providers/listings.py",
            "yield from sorted(page, key=_by_key)",
            "yield from sorted(page, key=_by_key, reverse=True)",
            "list",
        ),
        Mutation(
            backend,
            "missing key",
            "providers/answers.py",
            ": NotFoundError,",
            ": ServiceError,",
            "missing",
        ),
    ]


_PARTS_ORDER = ("enumerate(plan, 1)", "enumerate(plan[::-1], 1)", "compose")

MUTATIONS = (
    Mutation(
        "memory",
        "range end",
        "providers/memory.py",
        "data[byte_range.start : byte_range.stop]",
        "data[byte_range.start : (byte_range.stop or len(data)) + 1]",
        "get",
    ),
    Mutation(
        "memory",
        "abort",
        "providers/memory.py",
        "self._uploads.pop(self._id, None)",
        "pass",
        "multipart",
    ),
    Mutation(
        "memory",
        "abort of an upload",
        "providers/memory.py",
        "self._bucket.uploads.pop(upload.upload_id, None)",
        "pass",
        "upload",
    ),
    Mutation("memory", "order of compose", "providers/base.py", *_PARTS_ORDER),
    Mutation(
        "memory",
        "listing order",
        "providers/memory.py",
        "sorted(entries)[",
        "sorted(entries, reverse=True)[",
        "list",
    ),
    Mutation(
        "memory",
        "missing key",
        "providers/memory.py",
        "raise NotFoundError(",
        "raise ProviderError(",
        "missing",
    ),
    Mutation(
        "local",
        "range end",
        "providers/local.py",
        "_read(file, wanted.start, wanted.length_in(size))",
        "_read(file, wanted.start, wanted.length_in(size) + 1)",
        "get",
    ),
    Mutation("local", "abort", "providers/local_uploads.py", "place.remove()", "pass", "multipart"),
    Mutation(
        "local",
        "order of compose",
        "providers/local.py",
        "for source in sources:",
        "for source in reversed(sources):",
        "compose",
    ),
    Mutation(
        "local",
        "listing order",
        "providers/walking.py",
        "return sorted(found, key=_by_key)",
        "return sorted(found, key=_by_key, reverse=True)",
        "list",
    ),
    Mutation(
        "local",
        "missing key",
        "providers/file_errors.py",
        "errno.ENOENT: (NotFoundError",
        "errno.ENOENT: (ProviderError",
        "missing",
    ),
    *_cloud(
        "s3",
        "providers/s3.py",
        "providers/s3_uploads.py",
        "self._s3.clients.usual.abort_multipart_upload(**self._names)",
    ),
    Mutation("s3", "order of compose", "providers/base.py", *_PARTS_ORDER),
    *_cloud(
        "gcs",
        "providers/gcs.py",
        "providers/gcs_multipart.py",
        'self._gcs.send_xml("DELETE", self.key, self._query)',
    ),
    Mutation(
        "gcs",
        "order of compose",
        "providers/gcs.py",
        "for s in pinned\n",
        "for s in reversed(pinned)\n",
        "compose",
    ),
    *_cloud(
        "oss",
        "providers/oss.py",
        "providers/oss_uploads.py",
        "self._client.bucket.abort_multipart_upload(self.key, self._upload_id).resp.read()",
    ),
    Mutation("oss", "order of compose", "providers/base.py", *_PARTS_ORDER),
)


def _copy_of_tree(directory: str) -> Path:
    tree = Path(directory) / "tree"
    for name in ("connector", "providers", "tests", "pyproject.toml", "README.md"):
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=_LEFT_OUT)
        else:
            shutil.copy(source, tree / name)
    return tree


def _first_failure(tree: Path, mutation: Mutation) -> str | None:
    """Run the backend's tests and return the first that fails; None if all pass."""
    tests = f"tests/providers/test_{mutation.backend}.py"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k"]
    done = subprocess.run(
        [*command, mutation.tests, tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    found = re.search(r"^(?:FAILED|ERROR) \S+?::(?:\w+::)?(\S+)", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return None
    if found is None:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return found[1]


def _noticed_by(mutation: Mutation) -> str | None:
    with tempfile.TemporaryDirectory() as directory:
        tree = _copy_of_tree(directory)
        path = tree / mutation.path
        text = path.read_text()
        if mutation.old not in text:
            raise RuntimeError(f"{mutation.path} no longer holds {mutation.old!r}")
        path.write_text(text.replace(mutation.old, mutation.new))
        return _first_failure(tree, mutation)


def main(words: list[str]) -> int:
    """Run the mutations whose names hold all words; return the exit status."""
    survivors = 0
    for mutation in MUTATIONS:
        name = f"{mutation.backend}: {mutation.what}"
        if all(word in name for word in words):
            test = _noticed_by(mutation)
            survivors += test is None
            sys.stdout.write(f"{name:26} {test or 'SURVIVES'}\n")
            sys.stdout.flush()
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
