"""The server of the benchmarks: nginx from memory, shaped like each cloud, with latency."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import fastcrc
import google_crc32c

from tests.benchmarks.cases import KINDS, STATE
from tests.benchmarks.certificates import make_certificates

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUCKET", "Rig", "serve"]

BUCKET = "bkt"
HOSTS = {"s3": "s3-local.test", "gs": "gcs-local.test", "oss": "oss-local.test"}
_TEMPLATES = Path(__file__).with_name("rig")
_LATENCY_SECONDS = {"plain": 0.0, "slow": 0.02, "tls": 0.0, "capped": 0.02}
# Bytes a second of one connection, up and down; 0: as fast as it goes.
_RATES = {"capped": (25_000_000, 50_000_000)}
_COMPOSED = "100k"  # the one kind that is composed
_MAX_SOURCES = 32
# S3 and OSS tell entity tags as they like; nginx's own is MODIFIED and the size.
_MODIFIED = 1767323045
_HEADERS = {
    "s3": {
        "x-amz-request-id": "$request_id",
        "x-amz-id-2": "$request_id$request_id",
        "x-amz-checksum-crc32": "$told_crc32",
        "x-amz-checksum-type": "$told_type",
        "x-amz-server-side-encryption": "AES256",
    },
    "gs": {
        "x-guploader-uploadid": "$request_id$request_id",
        "x-goog-generation": "$generation",
        "x-goog-metageneration": "1",
        "x-goog-stored-content-encoding": "identity",
        "x-goog-stored-content-length": "$stored",
        "x-goog-hash": "$goog_hash",
        "x-goog-storage-class": "STANDARD",
    },
    "oss": {
        "x-oss-request-id": "$request_id",
        "x-oss-object-type": "Normal",
        "x-oss-hash-crc64ecma": "$crc64",
        "x-oss-storage-class": "Standard",
        "x-oss-server-time": "1",
    },
}


@dataclass(frozen=True)
class Rig:
    """A running server, as a client sees it.

    Attributes:
        directory: holds files of objects, of settings, the certificate authority (``ca.pem``).
        ports: by profile.
    """

    directory: str
    ports: dict[str, int]

    def endpoint(self, cloud: str, profile: str) -> str:
        """Return the URL that a client of that cloud is given."""
        scheme = "https" if profile == "tls" else "http"
        return f"{scheme}://{HOSTS[cloud]}:{self.ports[profile]}"

    @property
    def ca_file(self) -> str:
        """The certificate authority of the server's certificate."""
        return f"{self.directory}/ca.pem"

    def counters(self) -> dict[str, int]:
        """Return what the server counted so far: requests, bytes, connections; its pid."""
        with urlopen(f"http://127.0.0.1:{self.ports['plain']}/rig/counters") as answer:
            counters: dict[str, int] = json.load(answer)
        return counters

    def to_json(self) -> str:
        """Return what ``from_json`` takes, in another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Rig:
        """Return the rig of another process."""
        return cls(**json.loads(text))

    def inside(self, command: list[str]) -> list[str]:
        """Return a command that runs where the rig's host names and certificate are known.

        That is a mount namespace of its own, on the client's core: nothing outside changes.
        """
        bundle = os.path.realpath("/etc/ssl/certs/ca-certificates.crt")
        script = (
            'mount --bind "$0/hosts" /etc/hosts && '
            f'mount --bind "$0/bundle.pem" {bundle} && exec "$@"'
        )
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        return [
            *("unshare", "--mount", *as_root, "--", "sh", "-c", script, self.directory),
            *_pinned(1, command),
        ]


def _pinned(place: int, command: list[str]) -> list[str]:
    """Keep server and client apart, each on a core of its own, where there are two."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return command
    return ["taskset", "--cpu-list", str(cores[place]), *command]


@contextmanager
def serve(tensors: int = 0) -> Iterator[Rig]:
    """Run the server in memory while the context is open.

    Args:
        tensors: of the saved state that it has; 0: it has none.

    Raises:
        RuntimeError: it does not start; the message has its log.
    """
    directory = Path(tempfile.mkdtemp(prefix="benchmarks-", dir="/dev/shm"))
    ports = _free_ports(len(_LATENCY_SECONDS))
    rig = Rig(str(directory), dict(zip(_LATENCY_SECONDS, ports, strict=True)))
    try:
        directory.chmod(0o755)
        _write_hosts(directory)
        make_certificates(directory, [*HOSTS.values(), f"*.{HOSTS['oss']}"])
        files = _write_files(directory, tensors)
        (directory / "nginx.conf").write_text(_configuration(rig, files))
        nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if nginx is None:
            raise RuntimeError("nginx is not installed: apt-get install nginx-extras")
        command = [nginx, "-p", "/usr/share/nginx/", "-c", str(directory / "nginx.conf")]
        server = subprocess.Popen(_pinned(0, command))
        try:
            _wait(rig, server, directory)
            _check_names(rig)
            yield rig
        finally:
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(directory)


def _free_ports(count: int) -> list[int]:
    """Return ports that differ: each is held until all are found."""
    with ExitStack() as held:
        listeners = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def _wait(rig: Rig, server: subprocess.Popen[bytes], directory: Path) -> None:
    for _ in range(200):
        try:
            rig.counters()
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.05)
        else:
            return
    log = directory / "error.log"
    raise RuntimeError(f"nginx did not start: {log.read_text() if log.exists() else 'no log'}")


def _check_names(rig: Rig) -> None:
    done = subprocess.run(rig.inside(["true"]), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            "the host names of the rig need a mount namespace, which this machine does not "
            f"grant (run as root): {done.stderr.strip()}"
        )


def _write_hosts(directory: Path) -> None:
    names = [*HOSTS.values(), f"{BUCKET}.{HOSTS['oss']}", "localhost"]
    (directory / "hosts").write_text(f"127.0.0.1 {' '.join(names)}\n")


# ---- Objects -------------------------------------------------------------------------------


def _write_files(directory: Path, tensors: int) -> dict[str, dict[str, Any]]:
    """Write one file for each kind of object, and its composites; return their sums."""
    target = directory / "files"
    target.mkdir()
    # Incompressible, and the same in every run.
    block = random.Random(20260102).randbytes(1 << 20)  # noqa: S311 no secret
    contents = {
        kind: (block * -(-size // len(block)))[:size]  # rounded up
        for kind, size in KINDS.items()
        if kind != STATE
    }
    for count in range(1, _MAX_SOURCES + 1):
        contents[f"{_COMPOSED}-x{count}"] = contents[_COMPOSED] * count
    if tensors:
        contents[STATE] = _saved(tensors)
    files = {}
    for name, content in contents.items():
        path = target / f"{name}.bin"
        path.write_bytes(content)
        os.utime(path, (_MODIFIED, _MODIFIED))
        files[name] = _sums(content, composite="-x" in name)
    return files


def _saved(tensors: int) -> bytes:
    import torch

    from tests.benchmarks.states import make_state

    file = io.BytesIO()
    torch.save(make_state(tensors), file)
    return file.getvalue()


def _sums(content: bytes, *, composite: bool) -> dict[str, Any]:
    crc32c = _base64(google_crc32c.value(content), 4)
    # A composite object has no MD5 on GCS.
    md5 = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
    return {
        "size": len(content),
        "etag": f"{_MODIFIED:x}-{len(content):x}",
        "crc32": _base64(zlib.crc32(content), 4),
        "crc32c": crc32c,
        "crc64": str(fastcrc.crc64.xz(content)),
        "goog_hash": f"crc32c={crc32c}" + ("" if composite else f",md5={md5}"),
        "stored": str(len(content)),
    }


def _base64(value: int, length: int) -> str:
    return base64.b64encode(value.to_bytes(length, "big")).decode()


# ---- Configuration -------------------------------------------------------------------------


def _configuration(rig: Rig, files: dict[str, dict[str, Any]]) -> str:
    server = Template((_TEMPLATES / "server.conf").read_text())
    servers = [
        _server(server, rig, profile, cloud) for profile in _LATENCY_SECONDS for cloud in HOSTS
    ]
    known = "\n".join(
        f'answers.know("{name}", {sums["size"]}, "{sums["etag"]}", "{sums["crc32c"]}")'
        for name, sums in files.items()
        if name in KINDS
    )
    template = Template((_TEMPLATES / "nginx.conf").read_text())
    return template.safe_substitute(
        USER="user root;" if os.geteuid() == 0 else "",
        DIRECTORY=rig.directory,
        LUA=str(_TEMPLATES),
        KNOWN=known,
        KINDS="|".join(KINDS),
        SUMS="\n".join(
            _map(name, {path: sums[name] for path, sums in files.items()})
            for name in ("crc32", "crc64", "goog_hash", "stored")
        ),
        SERVERS="\n".join(servers),
    )


def _map(name: str, values: dict[str, str]) -> str:
    lines = [f'    "/files/{path}.bin" "{value}";' for path, value in values.items()]
    return "\n".join([f"map $uri ${name} {{", '    default "";', *lines, "}"])


def _server(template: Template, rig: Rig, profile: str, cloud: str) -> str:
    latency, host = _LATENCY_SECONDS[profile], HOSTS[cloud]
    up, down = _RATES.get(profile, (0, 0))
    headers = _HEADERS[cloud]
    return template.safe_substitute(
        PORT=rig.ports[profile],
        TLS=" ssl" if profile == "tls" else "",
        # A socket's option is said once, though three servers share it.
        BACKLOG=" backlog=4096" if cloud == "s3" else "",
        NAMES=f"{host} {BUCKET}.{host}",
        DIRECTORY=rig.directory,
        CLOUD=cloud,
        LATENCY=latency,
        UPLOAD_RATE=up,
        DOWNLOAD_RATE=down,
        SLEEP=f"access_by_lua_block {{ ngx.sleep({latency}) }}" if latency else "",
        HEADERS="\n".join(f'add_header {name} "{value}";' for name, value in headers.items()),
    )
