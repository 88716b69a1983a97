import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from providers import tracing
from providers.errors import NotFoundError, UnavailableError
from providers.retry import without_waiting
from providers.tracing import trace
from providers.transfer import Get, get_many
from tests.fakes.plane_provider import PlaneProvider
from tests.fakes.plane_server import PlaneServer, answer

SECRET = "c29tZS1zZWNyZXQ"


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Leave the logger's level as it was."""
    log = logging.getLogger("connector.trace")
    before = log.level
    yield
    log.setLevel(before)


def traced(caplog: pytest.LogCaptureFixture, url: str, error: object = None) -> str:
    """Return the line of one request."""
    caplog.clear()
    failure = error if isinstance(error, BaseException) or error is None else str(error)
    trace("GET", url, status=503, seconds=0.25, body_bytes=42, attempt=2, error=failure)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("connector.trace", "INFO")
    return record.getMessage()


def test_line_tells_what_happened(caplog: pytest.LogCaptureFixture) -> None:
    """Method, URL, status, time, bytes, attempt, request id and error stand on one line."""
    trace(
        "GET",
        "https://bucket.example/a%20key",
        status=503,
        seconds=0.25,
        body_bytes=42,
        attempt=2,
        request_id="R1",
        error=UnavailableError("slow down", uri="s3://bucket/a key", operation="get"),
    )
    assert caplog.text.endswith(
        "GET https://bucket.example/a%20key -> 503 in 0.250 s, 42 bytes, attempt 2, request id R1, "
        "UnavailableError: get s3://bucket/a key: slow down\n"
    )


def test_no_answer_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """An attempt without an answer says so, and has no request id."""
    trace("GET", "http://h/k", status=None, seconds=1, body_bytes=0)
    assert caplog.messages == [
        "GET http://h/k -> no answer in 1.000 s, 0 bytes, attempt 1, request id -"
    ]


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{SECRET}@host/key",
        f"HTTPS://{SECRET}@host/key",
        f"https://host/key?X-Amz-Signature={SECRET}&prefix=a",
        f"https://host/key?x-amz-security-token={SECRET}",
        f"https://host/key?X-Amz-Credential={SECRET}%2F20260101",
        f"https://host/key?OSSAccessKeyId={SECRET}&Signature={SECRET}&security-token={SECRET}",
        f"https://host/key?x-oss-signature={SECRET}&x-oss-security-token={SECRET}",
        f"https://host/key?X-Goog-Signature={SECRET}&X-Goog-Credential={SECRET}",
        f"https://host/upload?uploadType=resumable&upload_id={SECRET}",
        f"https://host/key?access_token={SECRET}&key={SECRET}",
        f"https://host/key?something-new={SECRET}",
        f"https://host/key?{SECRET}",
        f"https://host/key?{SECRET}=",
        f"https://host/key?{SECRET}==",
        f"https://host/key#{SECRET}",
        f"https://host/key?prefix=a#{SECRET}",
    ],
)
def test_no_secret_of_a_url_is_told(caplog: pytest.LogCaptureFixture, url: str) -> None:
    """What could be a credential in a URL is hidden, whatever its name."""
    line = traced(caplog, url)
    assert SECRET not in line
    assert "host/" in line


def test_harmless_parameters_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """What names the request, and no more than that, stays readable."""
    url = "https://host/b/k%3Fx?list-type=2&prefix=a%2F&partNumber=3&uploadId=U&uploads"
    assert f"GET {url} -> " in traced(caplog, url)


def test_key_of_a_uri_is_told_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """A verb of an SDK is told with the object's URI, whose key may hold any character."""
    assert "GET gs://bucket/a?b=c&d#e -> " in traced(caplog, "gs://bucket/a?b=c&d#e")


@pytest.mark.parametrize(
    "text",
    [
        f"sent Authorization: Bearer {SECRET}",
        f"sent authorization: OSS LTAI:{SECRET}",
        f"'Authorization': 'AWS4-HMAC-SHA256 Credential=a/b, Signature={SECRET}'",
        f"the header was OSS4-HMAC-SHA256 Credential=a,Signature={SECRET}",
        f"AWS AKIA:{SECRET}",
        f"Basic {SECRET}",
        f"{{'x-amz-security-token': '{SECRET}'}}",
        f'{{"access_token": "{SECRET}", "expires_in": 3599}}',
        f"aws_secret_access_key={SECRET} is wrong",
        f"<AWSAccessKeyId>{SECRET}</AWSAccessKeyId>",
        f"password={SECRET}",
        f"proxy http://me:{SECRET}@proxy:3128 refused",
        f"Max retries exceeded with url: /b/k?X-Amz-Signature={SECRET} (Caused by a reset)",
        f"https://host/key?sig={SECRET}&other={SECRET}",
    ],
)
def test_no_secret_of_an_error_is_told(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """An error's text is told without what looks like a credential."""
    assert SECRET not in traced(caplog, "https://host/key", ValueError(text))
    assert SECRET not in traced(caplog, "https://host/key", text)


def test_text_of_an_error_stays_readable(caplog: pytest.LogCaptureFixture) -> None:
    """An error that holds no secret is told word for word."""
    text = "get s3://b/k: the provided token has expired (status 400, code ExpiredToken)"
    assert traced(caplog, "https://host/k", ValueError(text)).endswith(f", ValueError: {text}")


def test_one_line_a_request(caplog: pytest.LogCaptureFixture) -> None:
    """No key and no error can write a second line, or colours, into the log."""
    line = traced(caplog, "memory://b/a\nb\x1b[31m", "first\r\nsecond")
    assert line.isprintable()
    assert r"a\nb\x1b[31m" in line


def test_levels_of_others_hide_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Traces that were asked for come although the root logger wants warnings only."""
    logging.getLogger("connector.trace").setLevel(logging.NOTSET)
    caplog.handler.setLevel(logging.NOTSET)
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.WARNING)
    try:
        assert traced(caplog, "https://host/key")
    finally:
        root.setLevel(before)


def run(program: str, value: str | None) -> subprocess.CompletedProcess[str]:
    """Run a program with ``CONNECTOR_TRACE`` set so."""
    environment = {k: v for k, v in os.environ.items() if k != "CONNECTOR_TRACE"}
    if value is not None:
        environment["CONNECTOR_TRACE"] = value
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, False), ("", False), ("0", False), ("off", False), ("1", True), ("true", True)],
)
def test_environment_decides(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool
) -> None:
    """Nothing is traced unless the variable asks for it."""
    if value is None:
        monkeypatch.delenv("CONNECTOR_TRACE", raising=False)
    else:
        monkeypatch.setenv("CONNECTOR_TRACE", value)
    assert tracing._asked() is expected


def test_a_script_without_logging_shows_traces() -> None:
    """Where no logging is set up, lines go to standard error."""
    program = (
        "from providers import tracing\n"
        "if tracing.enabled:\n"
        "    tracing.trace('GET', 'http://h/k', status=200, seconds=0, body_bytes=1)\n"
    )
    (line,) = run(program, "1").stderr.splitlines()
    assert "connector.trace GET http://h/k -> 200" in line
    assert not run(program, None).stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_reads_the_environment_again() -> None:
    """A child follows the variable as it stood when it was forked."""
    program = (
        "import os\n"
        "from providers import tracing\n"
        "os.environ['CONNECTOR_TRACE'] = '1'\n"
        "if os.fork() == 0:\n"
        "    os._exit(0 if tracing.enabled else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]) or tracing.enabled)\n"
    )
    run(program, None)


def test_reads_and_other_requests_are_traced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every attempt of a read over the data plane and of a verb is one line, failures included."""
    monkeypatch.setattr(tracing, "enabled", True)
    with (
        caplog.at_level(logging.INFO, "connector.trace"),
        PlaneServer({"a": b"12345"}) as server,
        without_waiting(),
    ):
        provider = PlaneProvider(server.endpoint)
        server.fault(answer(503, {"x-amz-request-id": "R7"}))
        assert [body for _, body in get_many([Get(provider, "a")], provider.transfer)] == [b"12345"]
        provider.put("b", b"x")
        with pytest.raises(NotFoundError):
            provider.head("missing")
    lines = [r.getMessage() for r in caplog.records if r.name == "connector.trace"]
    first, second, put, head = lines
    assert "/bucket/a -> 503 " in first
    assert "attempt 1, request id R7, UnavailableError" in first
    assert "/bucket/a -> 200 " in second
    assert "5 bytes, attempt 2" in second
    assert "token-1" not in caplog.text
    assert put.startswith("put plane://bucket/b -> 200 ")
    assert "head plane://bucket/missing -> no answer" in head
    assert "NotFoundError" in head
