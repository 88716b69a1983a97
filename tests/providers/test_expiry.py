"""Credentials that live for a second or two, in each cloud's own form, under several workers."""

from __future__ import annotations

import base64
import contextlib
import json
import multiprocessing
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from providers import open_provider
from tests.fakes.front import Answer, Exchange, Front
from tests.fakes.oss import OSSServer
from tests.providers import spawned
from tests.servers.environment import s3_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from providers.base import Provider
    from tests.fakes.front import Request
    from tests.servers.fake_gcs import GCSServer
    from tests.servers.s3 import S3Server

BODY = b"the body"
LIFE_SECONDS = 2
RENEWALS = 3
WORKERS = 2
PATIENCE_SECONDS = 120.0

PROCESS = """
import datetime, json, time
expires_at = time.time() + {life}
moment = datetime.datetime.fromtimestamp(expires_at, datetime.timezone.utc)
print(json.dumps({{
    "Version": 1, "AccessKeyId": "AKID", "SecretAccessKey": "SECRET",
    "SessionToken": f"token-{{expires_at}}", "Expiration": moment.isoformat(),
}}))
"""


def token_of(request: Request) -> str:
    """Return the temporary token of a request, in whichever cloud's form."""
    for name in ("x-amz-security-token", "x-oss-security-token", "authorization"):
        value = request.headers.get(name, "")
        if "token-" in value:
            return value.removeprefix("Bearer ")
    raise AssertionError(f"{request.method} {request.path} carries no token")


def has_expired(request: Request) -> bool:
    """Whether the service would refuse a request's token for its age."""
    return float(token_of(request).removeprefix("token-")) < time.time()


def work(provider: Provider, front: Front, refused: int, life_seconds: float = 0) -> None:
    """Have workers read while tokens expire again and again; nothing may fail."""
    context = multiprocessing.get_context("spawn")
    running = []
    for _ in range(WORKERS):
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(
            target=spawned.read_on, args=(sending, provider, "key", RENEWALS, life_seconds)
        )
        child.start()
        sending.close()
        running.append((child, receiving))
    for child, receiving in running:
        assert receiving.poll(PATIENCE_SECONDS)
        reads, bodies = receiving.recv()
        receiving.close()
        child.join(PATIENCE_SECONDS)
        assert (type(reads), bodies) == (int, {BODY}), reads
    records: Any = front.requests
    assert len({token_of(record) for record in records}) > RENEWALS
    statuses = [record.status for record in records]
    assert {200, refused} >= set(statuses)
    # Renewed early, they are hardly ever refused: when one expires on its way.
    if not life_seconds:
        assert statuses.count(refused) <= len(statuses) / 10


def test_s3_credentials_that_live_two_seconds(
    moto: S3Server, moto_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3's own refreshable credentials, of a program that the AWS config file names."""
    program = tmp_path / "credentials.py"
    program.write_text(PROCESS.format(life=LIFE_SECONDS))
    (tmp_path / "config").write_text(
        f"[default]\ncredential_process = {sys.executable} -I -S {program}\n"
    )
    with contextlib.closing(moto.client()) as client:
        client.put_object(Bucket=moto_bucket, Key="key", Body=BODY)
    for name in s3_environment(moto):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with Front(moto.endpoint) as front:
        expired = b"<Error><Code>ExpiredToken</Code><Message>It has expired.</Message></Error>"
        front.answer(400, body=expired, times=None, when=has_expired)
        provider = open_provider(f"s3://{moto_bucket}", endpoint=front.endpoint, region="us-east-1")
        assert provider.get("key") == BODY
        work(provider, front, refused=400)


def test_gs_tokens_that_live_two_seconds(
    fake_gcs: GCSServer, fake_gcs_bucket: str, tmp_path: Path
) -> None:
    """google-auth's own refresh, of a workload identity whose tokens come from a server."""
    with contextlib.closing(fake_gcs.client()) as client:
        client.bucket(fake_gcs_bucket).blob("key").upload_from_string(BODY)
    with Front("http://127.0.0.1:1") as tokens, Front(fake_gcs.endpoint) as front:
        tokens.apply(hand_out, None)
        (tmp_path / "subject").write_text("the subject's own token")
        account = {
            "type": "external_account",
            "audience": "//iam.googleapis.com/locations/global/workforcePools/p/providers/p",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{tokens.endpoint}/v1/token",
            "credential_source": {"file": str(tmp_path / "subject")},
        }
        (tmp_path / "account.json").write_text(json.dumps(account))
        front.answer(401, times=None, when=has_expired)
        provider = open_provider(
            f"gs://{fake_gcs_bucket}",
            endpoint=front.endpoint,
            credentials_file=str(tmp_path / "account.json"),
        )
        assert provider.get("key") == BODY
        work(provider, front, refused=401)


def hand_out(exchange: Exchange) -> Answer:
    """Answer as a server of tokens."""
    del exchange
    token = {
        "access_token": f"token-{time.time() + LIFE_SECONDS}",
        "expires_in": LIFE_SECONDS,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "token_type": "Bearer",
    }
    return Answer(200, (("Content-Type", "application/json"),), json.dumps(token).encode())


def test_oss_credentials_that_live_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that something in the process keeps fresh; only a refusal says that they aged."""
    with OSSServer({"AKID": "SECRET"}) as server, Front(server.endpoint) as front:
        server.create_bucket("the-bucket")
        front.apply(known_to(server), None)
        for name, value in {
            "OSS_ACCESS_KEY_ID": "STS.id",
            "OSS_ACCESS_KEY_SECRET": "sts-secret",
            "OSS_SESSION_TOKEN": "token-inf",
        }.items():
            monkeypatch.setenv(name, value)
        endpoint: dict[str, Any] = {"endpoint": front.endpoint, "region": server.region}
        open_provider("oss://the-bucket", **endpoint).put("key", BODY)
        spawned.put_token(LIFE_SECONDS)
        provider = open_provider("oss://the-bucket", **endpoint)
        assert provider.get("key") == BODY
        work(provider, front, refused=403, life_seconds=LIFE_SECONDS)


def known_to(server: OSSServer) -> Callable[[Exchange], Answer]:
    """Have each token be good until the moment that it names."""
    one_at_a_time = threading.Lock()

    def fault(exchange: Exchange) -> Answer:
        request = exchange.message.request
        if has_expired(request):
            body = b"<Error><Code>SecurityTokenExpired</Code><Message>Old.</Message></Error>"
            # Where a HEAD leaves no room for it the document is in a header.
            return Answer(403, (("x-oss-err", base64.b64encode(body).decode()),), body)
        with one_at_a_time:
            server.add_credentials("STS.id", "sts-secret", token_of(request))
            return exchange.forward()

    return fault
