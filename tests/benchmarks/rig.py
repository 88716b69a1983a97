"""The server of the benchmarks: nginx, cheap enough that the client is what is measured.

Object stores' answers are rewrites onto a few files in memory; listings and composes come from
lua. Every answer may be held up by a latency, and every figure of one run meets the same server.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import http.client
import os
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fastcrc
import google_crc32c

from tests.benchmarks.sizes import SIZES
from tests.fakes.plane_certificate import make_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HOST", "Rig", "running"]

HOST = "oss-local.test"
"""Host name of the OSS-shaped endpoint and of the TLS one; `named` gives it its address."""
_COMPOSED = 32
_LATENCY_SECONDS = 0.02
_LISTED = 40_000
_MODULES = Path("/usr/lib/nginx/modules")


@dataclass(frozen=True)
class Rig:
    """A running server.

    Attributes:
        ports: of the server without latency, of the one with 20 ms, of the one over TLS.
        certificate: PEM file with the authority to trust.
    """

    ports: dict[str, int]
    certificate: Path

    def endpoint(self, profile: str, host: str = "127.0.0.1") -> str:
        """Return the URL of ``zero``, ``slow`` or ``tls``."""
        return f"http{'s' if profile == 'tls' else ''}://{host}:{self.ports[profile]}"

    def requests(self) -> int:
        """Return how many requests the server has had."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["status"], timeout=10)
        connection.request("GET", "/")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return int(lines[2].split()[2])


@contextlib.contextmanager
def running() -> Iterator[Rig]:
    """Serve for the length of a ``with`` block."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None or not (_MODULES / "ngx_http_lua_module.so").exists():
        raise SystemExit("nginx with lua is missing: apt-get install nginx-extras")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        place = Path(name)
        place.chmod(0o755)
        headers = {kind: _make(place, kind, size) for kind, size in SIZES.items()}
        headers["composed"] = _make(place, "composed", SIZES["small"] * _COMPOSED, "small")
        certificate = make_certificate(place, HOST)
        ports = dict(zip(("zero", "slow", "tls", "status"), _free_ports(4), strict=True))
        config = place / "nginx.conf"
        config.write_text(_config(place, ports, certificate, headers))
        with subprocess.Popen([nginx, "-c", str(config), "-g", "daemon off;"]) as server:
            try:
                _await(ports["status"])
                yield Rig(ports, certificate)
            finally:
                server.terminate()


def _make(place: Path, kind: str, size: int, repeated: str | None = None) -> dict[str, str]:
    """Write the file of one kind of object, and return what stores tell of it."""
    unit = (place / repeated).read_bytes() if repeated else os.urandom(min(size, 1 << 20))
    (place / kind).write_bytes((unit * (size // len(unit) + 1))[:size])
    data = (place / kind).read_bytes()
    crc32c = google_crc32c.value(data).to_bytes(4, "big")
    return {
        "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
        "crc32c": base64.b64encode(crc32c).decode(),
        "crc64": str(fastcrc.crc64.xz(data)),
        "crc32": binascii.hexlify(crc32c).decode(),
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _await(port: int) -> None:
    for _ in range(1000):
        with socket.socket() as probe:
            probe.settimeout(0.01)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
    raise SystemExit("nginx did not start")


def _config(
    place: Path, ports: dict[str, int], certificate: Path, headers: dict[str, dict[str, str]]
) -> str:
    servers = "".join(
        _server(
            f"127.0.0.1:{ports[profile]}{' ssl' if profile == 'tls' else ''}",
            f"ssl_certificate {certificate}; ssl_certificate_key {certificate};"
            if profile == "tls"
            else "",
            f"access_by_lua_block {{ ngx.sleep({_LATENCY_SECONDS}) }}" if profile == "slow" else "",
            place,
            headers,
        )
        for profile in ("zero", "slow", "tls")
    )
    return f"""
worker_processes 1; worker_cpu_affinity 01; pid {place}/pid; error_log {place}/error.log;
user root;
load_module {_MODULES}/ndk_http_module.so;
load_module {_MODULES}/ngx_http_lua_module.so;
events {{ worker_connections 8192; }}
http {{
    access_log off; sendfile on; tcp_nodelay on; default_type application/octet-stream;
    keepalive_requests 1000000000; keepalive_timeout 600; client_max_body_size 0; etag off;
    ssl_session_cache shared:tls:10m; server_tokens off; lua_socket_log_errors off;
    {servers}
    server {{ listen 127.0.0.1:{ports["status"]}; location / {{ stub_status; }} }}
}}
"""


def _server(
    listen: str, tls: str, latency: str, place: Path, headers: dict[str, dict[str, str]]
) -> str:
    objects = "".join(
        _objects(kind, told, latency) for kind, told in headers.items() if kind != "composed"
    )
    composed = headers["composed"]
    return f"""
    server {{
        listen {listen} backlog=4096; {tls} root {place};
        {objects}
        location ^~ /download/storage/v1/b/gbench/o/dataflux-composed {{
            {latency} rewrite ^ /composed break; add_header X-Goog-Hash crc32c={composed["crc32c"]};
        }}
        location /storage/v1/b/gbench/o {{ {latency} content_by_lua_block {{ {_LUA} }} }}
    }}"""


def _objects(kind: str, told: dict[str, str], latency: str) -> str:
    """Return the locations of one kind of object, as each service has it."""
    amazon = f"add_header ETag '\"{told['md5']}\"'; add_header x-amz-request-id R;"
    google = (
        f"{amazon} add_header x-goog-generation 1; add_header x-goog-hash crc32c={told['crc32c']};"
    )
    alibaba = (
        f"{amazon} add_header x-oss-request-id R; add_header x-oss-hash-crc64ecma {told['crc64']};"
    )
    places = {
        f"^/bench/{kind}/": amazon,
        f"^/gbench/{kind}(/|%2F)": google,
        f"^/download/storage/v1/b/gbench/o/{kind}": google,
        f"^/(obench/)?{kind}/": alibaba,
    }
    return "".join(
        f"location ~ {pattern} {{ {latency} rewrite ^ /{kind} break; {lines} }}\n        "
        for pattern, lines in places.items()
    )


_LUA = """
    local method = ngx.req.get_method()
    if method == "DELETE" then return ngx.exit(204) end
    ngx.header["Content-Type"] = "application/json"
    if method == "POST" then
        ngx.req.read_body()
        ngx.say('{"kind": "storage#object", "name": "composed", "generation": "1"}')
        return
    end
    local query = ngx.req.get_uri_args()
    local first, stop = query.startOffset or "", query.endOffset or ""
    local from, most = tonumber(query.pageToken or "0"), tonumber(query.maxResults or "1000")
    local found, following = {}, nil
    for number = from, LISTED - 1 do
        local name = string.format("small/%06d", number)
        if name >= first and (stop == "" or name < stop) then
            if #found >= most then following = number break end
            found[#found + 1] = '{"name": "' .. name .. '", "size": "SIZE", "generation": "1", '
                .. '"storageClass": "STANDARD", "timeCreated": "2026-01-01T00:00:00Z"}'
        end
    end
    local token = following and ', "nextPageToken": "' .. following .. '"' or ""
    ngx.say('{"kind": "storage#objects", "items": [' .. table.concat(found, ",") .. ']'
        .. token .. '}')
""".replace("LISTED", str(_LISTED)).replace("SIZE", str(SIZES["small"]))
