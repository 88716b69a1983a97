"""`python -m tests.fakes.oss`: the server as a process of its own."""

import argparse
import contextlib
import signal

from tests.fakes.oss import OSSServer


def main() -> None:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.oss", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--access-key-id", required=True)
    parser.add_argument("--access-key-secret", required=True)
    parser.add_argument("--region", default="cn-test")
    parser.add_argument("--bucket", action="append", default=[], help="made at the start")
    parser.add_argument("--anonymous-read", action="store_true", help="anyone may read these")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    credentials = {arguments.access_key_id: arguments.access_key_secret}
    with (
        contextlib.suppress(KeyboardInterrupt),
        OSSServer(credentials, region=arguments.region, port=arguments.port) as server,
    ):
        for name in arguments.bucket:
            server.create_bucket(name, public=arguments.anonymous_read)
        print(f"OSS server ready at {server.endpoint}", flush=True)  # noqa: T201
        server.wait()


if __name__ == "__main__":
    main()
