"""The server as a test uses it: start it, look inside it, stop it."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import TracebackType

from typing_extensions import Self

from tests.fakes.oss.connection import Connection
from tests.fakes.oss.credentials import Credential, CredentialTable
from tests.fakes.oss.messages import RequestRecord
from tests.fakes.oss.service import Service
from tests.fakes.oss.state import ServiceLimits, Store

_CLOSE_SECONDS = 10.0


class Listener(socketserver.ThreadingTCPServer):
    """Accepts connections, a thread each, and can end them all."""

    request_queue_size = 1024
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", port), Connection)

    @contextlib.contextmanager
    def tracking(self, connection: socket.socket) -> Iterator[None]:
        """Know of a connection while it is served."""
        with self._changed:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    def end_connections(self) -> None:
        """Shut every connection down and wait until its thread has seen that."""
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._connections, _CLOSE_SECONDS)


class OSSServer:
    """A strict OSS on loopback, with its state in memory.

    Args:
        credentials: Secrets by access key id, for long-lived keys.
        region: The region signatures must be scoped to.
        port: Where to listen; 0 takes a free one.
        limits: Sizes it refuses; a test may lower them to stay small.
    """

    def __init__(
        self,
        credentials: Mapping[str, str] | None = None,
        *,
        region: str = "cn-test",
        port: int = 0,
        limits: ServiceLimits | None = None,
    ) -> None:
        self._store = Store(region, limits or ServiceLimits())
        self._table = CredentialTable()
        for access_key_id, secret in (credentials or {}).items():
            self.add_credentials(access_key_id, secret)
        self._service = Service(self._store, self._table)
        self._listener = Listener(self._service, port)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name="oss-server", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        self._listener.end_connections()

    def wait(self) -> None:
        """Serve until another thread closes the server."""
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.server_address[1])

    @property
    def endpoint(self) -> str:
        """By address, which clients take as path style."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def region(self) -> str:
        """The region signatures must be scoped to."""
        return self._store.region

    @property
    def clock_offset_seconds(self) -> float:
        """How far the server's clock is ahead."""
        return self._store.clock_offset_seconds

    @clock_offset_seconds.setter
    def clock_offset_seconds(self, seconds: float) -> None:
        self._store.clock_offset_seconds = seconds

    @property
    def requests(self) -> list[RequestRecord]:
        """What was answered so far, oldest first; `requests.clear()` forgets it."""
        return self._service.requests

    def add_credentials(
        self,
        access_key_id: str,
        secret: str,
        token: str | None = None,
        expires: datetime | None = None,
    ) -> None:
        """Make an access key valid, in place of an older one with the same id.

        Args:
            access_key_id: Its name.
            secret: Signs requests.
            token: Requests must carry it; None for a long-lived key.
            expires: From then on the token is refused; needs a time zone.
        """
        self._table.add(Credential(access_key_id, secret, token, expires))

    def remove_credentials(self, access_key_id: str) -> None:
        """Make an access key unknown."""
        self._table.remove(access_key_id)

    def add_cname(self, host: str, bucket: str) -> None:
        """Let a host name stand for a bucket."""
        self._service.cnames[host] = bucket

    def move_bucket(self, name: str, endpoint: str) -> None:
        """Let a bucket be reached at one region's endpoint only.

        Source: https://help.aliyun.com/zh/oss/support/http-status-code-403, read 2026-12-01.
        """
        self._service.elsewhere[name] = endpoint

    def create_bucket(self, name: str, *, public: bool = False) -> str:
        """Make a bucket.

        Args:
            name: Its name.
            public: Whether anyone may read and list it.

        Returns:
            The name.
        """
        return self._store.create(name, public=public).name

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Every object of a bucket, past all rules."""
        with self._store.lock:
            found = self._store.find(bucket)
            return {key: found.objects[key].data for key in found.keys}

    def unfinished_uploads(self, bucket: str) -> list[tuple[str, str]]:
        """Key and upload id of every multipart upload neither completed nor aborted."""
        with self._store.lock:
            uploads = self._store.find(bucket).uploads.values()
            return sorted((upload.key, upload.upload_id) for upload in uploads)
