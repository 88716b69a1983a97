"""The GCS front answers as Google Cloud Storage does where fake-gcs-server does not."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from google.cloud.storage import transfer_manager

from tests.fakes.front import Front
from tests.fakes.gcs_backend import crc32c, md5
from tests.servers.fake_gcs import GCSServer

PART = b"p" * (5 * 1024 * 1024)


@dataclass(frozen=True)
class Answered:
    """An answer, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        """The body as a document."""
        return json.loads(self.body)

    def between(self, name: str) -> str:
        """The text of the first XML element of that name."""
        return self.body.decode().partition(f"<{name}>")[2].partition(f"</{name}>")[0]


class Raw:
    """Requests to one bucket, word for word; `{}` in a target is the bucket."""

    def __init__(self, server: GCSServer, bucket: str) -> None:
        self.bucket = bucket
        self.connection = http.client.HTTPConnection(server.endpoint.removeprefix("http://"))

    def __call__(
        self, method: str, target: str, body: bytes | None = None, **headers: str
    ) -> Answered:
        """Ask; underscores in header names become dashes."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, target.format(self.bucket), body, fields)
        response = self.connection.getresponse()
        return Answered(response.status, response.headers, response.read())

    def put(self, key: str, data: bytes) -> str:
        """Put an object by JSON and give its generation."""
        answer = self("POST", f"/upload/storage/v1/b/{{}}/o?uploadType=media&name={key}", data)
        generation: str = answer.json["generation"]
        return generation

    def start(self, key: str, **headers: str) -> str:
        """Start a multipart upload."""
        return self("POST", f"/{{}}/{key}?uploads", None, **headers).between("UploadId")

    def part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Send a part and give its ETag."""
        target = f"/{{}}/{key}?partNumber={number}&uploadId={upload}"
        etag: str = self("PUT", target, data).headers["ETag"]
        return etag

    def complete(self, key: str, upload: str, *parts: tuple[int, str], **headers: str) -> Answered:
        """Complete a multipart upload."""
        entries = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            for number, etag in parts
        )
        document = f"<CompleteMultipartUpload>{entries}</CompleteMultipartUpload>".encode()
        return self("POST", f"/{{}}/{key}?uploadId={upload}", document, **headers)

    def compose(self, key: str, sources: list[dict[str, Any]], query: str = "") -> Answered:
        """Compose by JSON."""
        document = json.dumps({"sourceObjects": sources}).encode()
        target = f"/storage/v1/b/{{}}/o/{key}/compose{query}"
        return self("POST", target, document, Content_Type="application/json")


@pytest.fixture
def raw(fake_gcs: GCSServer, fake_gcs_bucket: str) -> Iterator[Raw]:
    """Requests to a fresh bucket."""
    raw = Raw(fake_gcs, fake_gcs_bucket)
    with contextlib.closing(raw.connection):
        yield raw


def test_sdk_uploads_in_parts(fake_gcs: GCSServer, fake_gcs_bucket: str, tmp_path: Path) -> None:
    """google-cloud-storage's own concurrent upload arrives whole."""
    source = tmp_path / "source"
    source.write_bytes(PART + b"tail")
    with contextlib.closing(fake_gcs.client()) as client:
        blob = client.bucket(fake_gcs_bucket).blob("a b/ü")
        transfer_manager.upload_chunks_concurrently(
            str(source), blob, chunk_size=len(PART), worker_type=transfer_manager.THREAD
        )
        assert blob.download_as_bytes() == PART + b"tail"
        blob.reload()
    assert blob.md5_hash is None


def test_parts_become_one_object(raw: Raw) -> None:
    """Parts sent in any order make one object with the metadata given at the start."""
    upload = raw.start("k%2F1", x_goog_meta_color="red", Content_Type="text/plain")
    second = raw.part("k%2F1", upload, 7, b"tail")
    first = raw.part("k%2F1", upload, 2, PART)
    answer = raw.complete("k%2F1", upload, (2, first), (7, second))
    assert (answer.status, answer.between("Key")) == (200, "k/1")
    got = raw("GET", "/{}/k/1")
    assert got.body == PART + b"tail"
    assert got.headers["x-goog-meta-color"] == "red"
    assert got.headers["Content-Type"] == "text/plain"
    assert got.headers["ETag"] == answer.between("ETag")
    assert got.headers["x-goog-hash"] == f"crc32c={crc32c(got.body)}"
    assert raw.complete("k%2F1", upload, (2, first)).between("Code") == "NoSuchUpload"


def test_completion_checks_the_part_list(raw: Raw) -> None:
    """A wrong ETag, order, size or document is refused, and the upload survives it."""
    upload = raw.start("k")
    small, last = raw.part("k", upload, 1, b"small"), raw.part("k", upload, 2, b"last")
    refusals = [
        raw.complete("k", upload, (1, '"0"'), (2, last)),
        raw.complete("k", upload, (1, small), (3, last)),
        raw.complete("k", upload, (2, last), (1, small)),
        raw.complete("k", upload, (1, small), (2, last)),
        raw("POST", f"/{{}}/k?uploadId={upload}", b"<Complete"),
    ]
    codes = ["InvalidPart", "InvalidPart", "InvalidPartOrder", "EntityTooSmall", "MalformedXML"]
    assert [answer.between("Code") for answer in refusals] == codes
    assert {answer.status for answer in refusals} == {400}
    assert raw.complete("k", upload, (1, small)).status == 200


def test_completion_only_if_absent(raw: Raw) -> None:
    """`x-goog-if-generation-match: 0` protects an object that is there already."""
    raw.put("k", b"old")
    upload = raw.start("k")
    etag = raw.part("k", upload, 1, b"new")
    refused = raw.complete("k", upload, (1, etag), x_goog_if_generation_match="0")
    assert (refused.status, refused.between("Code")) == (412, "PreconditionFailed")
    assert raw("GET", "/{}/k").body == b"old"
    assert raw.complete("k", upload, (1, etag)).status == 200
    assert raw("GET", "/{}/k").body == b"new"


def test_corrupted_part_is_refused(raw: Raw) -> None:
    """A part that does not fit its checksum is a bad digest; one that fits is taken."""
    upload = raw.start("k")
    target = f"/{{}}/k?partNumber=1&uploadId={upload}"
    wrong = [{"x_goog_hash": f"crc32c={crc32c(b'x')}"}, {"Content_MD5": md5(b"x")}]
    for headers in wrong:
        answer = raw("PUT", target, b"data", **headers)
        assert (answer.status, answer.between("Code")) == (400, "BadDigest")
    hashes = f"crc32c={crc32c(b'data')},md5={md5(b'data')}"
    answer = raw("PUT", target, b"data", x_goog_hash=hashes)
    assert (answer.status, answer.headers["x-goog-hash"]) == (200, hashes)


def test_unfinished_uploads_are_listed_until_aborted(raw: Raw) -> None:
    """Uploads and their parts can be listed, and an aborted one is gone."""
    upload = raw.start("dir/k")
    for number in (1, 2):
        raw.part("dir/k", upload, number, b"data")
    listed = raw("GET", "/{}?uploads&prefix=dir/")
    assert (listed.between("Key"), listed.between("UploadId")) == ("dir/k", upload)
    page = raw("GET", f"/{{}}/dir/k?uploadId={upload}&max-parts=1")
    assert (page.between("IsTruncated"), page.between("NextPartNumberMarker")) == ("true", "1")
    page = raw("GET", f"/{{}}/dir/k?uploadId={upload}&part-number-marker=1")
    assert (page.between("PartNumber"), page.between("Size")) == ("2", "4")
    assert raw("DELETE", f"/{{}}/dir/k?uploadId={upload}").status == 204
    assert raw("DELETE", f"/{{}}/dir/k?uploadId={upload}").between("Code") == "NoSuchUpload"
    assert b"<Upload>" not in raw("GET", "/{}/?uploads").body


def test_xml_put(raw: Raw) -> None:
    """An object can be put by XML, checked and only if absent."""
    put = raw("PUT", "/{}/a//b", b"hello", x_goog_if_generation_match="0")
    assert (put.status, put.headers["ETag"]) == (200, '"5d41402abc4b2a76b9719d911017c592"')
    got = raw("GET", "/{}/a//b")
    assert (got.body, got.headers["ETag"]) == (b"hello", put.headers["ETag"])
    assert got.headers["x-goog-generation"] == put.headers["x-goog-generation"]
    assert raw("PUT", "/{}/a//b", b"x", x_goog_if_generation_match="0").status == 412
    assert raw("PUT", "/{}/c", b"x", Content_MD5=md5(b"y")).between("Code") == "BadDigest"
    assert raw("DELETE", "/{}/a//b").status == 204


def test_reads_are_pinned_by_generation(raw: Raw) -> None:
    """Reads honour the generation they ask for, by XML and JSON."""
    old = raw.put("k", b"old")
    new = raw.put("k", b"new")
    media = "/storage/v1/b/{}/o/k?alt=media&ifGenerationMatch="
    assert raw("GET", "/{}/k", x_goog_if_generation_match=new).body == b"new"
    assert raw("GET", "/{}/k", x_goog_if_generation_match=old).between("Code").startswith("Precon")
    assert raw("HEAD", "/{}/k", x_goog_if_generation_match=old).status == 412
    assert raw("GET", media + new).body == b"new"
    assert raw("GET", media + old).status == 412
    assert raw("GET", "/storage/v1/b/{}/o/k?ifGenerationMatch=" + old).status == 412
    assert raw("GET", "/{}/gone", x_goog_if_generation_match=old).status == 404
    assert raw("GET", "/{}/k", If_Match='"other"').status == 412


@pytest.mark.parametrize("kind", ["media", "resumable"])
def test_uploads_only_if_absent(raw: Raw, kind: str) -> None:
    """`ifGenerationMatch=0` holds on every kind of upload."""
    target = f"/upload/storage/v1/b/{{}}/o?uploadType={kind}&name=k&ifGenerationMatch=0"
    body = b"{}" if kind == "resumable" else b"data"
    assert raw("POST", target, body).status == 200
    raw.put("k", b"old")
    answer = raw("POST", target, body)
    assert (answer.status, answer.json["error"]["errors"][0]["reason"]) == (412, "conditionNotMet")


def test_writes_race_for_one_place(fake_gcs: GCSServer, raw: Raw) -> None:
    """Of many writers that ask for an absent object, one wins."""
    statuses: list[int] = []

    def write() -> None:
        own = Raw(fake_gcs, raw.bucket)
        with contextlib.closing(own.connection):
            statuses.append(own("PUT", "/{}/k", b"x", x_goog_if_generation_match="0").status)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [412] * 7


def test_sdk_upload_is_resumable_and_conditional(fake_gcs: GCSServer, fake_gcs_bucket: str) -> None:
    """google-cloud-storage's resumable upload and its links go through the front."""
    with (
        Front(fake_gcs.endpoint) as front,
        contextlib.closing(replace(fake_gcs, endpoint=front.endpoint).client()) as client,
    ):
        blob = client.bucket(fake_gcs_bucket).blob("k")
        blob.chunk_size = 256 * 1024
        with blob.open("wb", if_generation_match=0) as stream:
            stream.write(b"z" * 600_000)
        blob.reload()
        assert blob.download_as_bytes(if_generation_match=blob.generation) == b"z" * 600_000
        assert blob.media_link.startswith(front.endpoint)
        assert any(record.query.startswith("alt=media") for record in front.requests)


def test_upload_is_compared_with_its_checksum(fake_gcs: GCSServer, fake_gcs_bucket: str) -> None:
    """A JSON upload that does not fit the checksum in its metadata is refused."""
    upload = f"/upload/storage/v1/b/{fake_gcs_bucket}/o?uploadType=multipart"
    body = (
        b'--b\r\nContent-Type: application/json\r\n\r\n{"name": "k", "crc32c": "AAAAAA=="}\r\n'
        b"--b\r\nContent-Type: text/plain\r\n\r\na\nb\r\n--b--\r\n"
    )
    raw = Raw(fake_gcs, fake_gcs_bucket)
    with contextlib.closing(raw.connection):
        kind = "multipart/related; boundary=b"
        assert raw("POST", upload, body, Content_Type=kind).status == 400
        body = body.replace(b"AAAAAA==", crc32c(b"a\nb").encode())
        assert raw("POST", upload, body, Content_Type=kind).status == 200


def test_compose_checks_its_sources(raw: Raw) -> None:
    """Sources that are missing or of another generation, too many or none, are refused."""
    generation = raw.put("a", b"a")
    pinned = {"name": "a", "objectPreconditions": {"ifGenerationMatch": "7"}}
    statuses = [
        raw.compose("c", [{"name": "missing"}]).status,
        raw.compose("c", [{"name": "a", "generation": "7"}]).status,
        raw.compose("c", [pinned]).status,
        raw.compose("c", []).status,
        raw.compose("c", [{"name": "a"}] * 33).status,
        raw("POST", "/storage/v1/b/none/o/c/compose", b'{"sourceObjects": [{"name": "a"}]}').status,
    ]
    assert statuses == [404, 404, 412, 400, 400, 404]
    assert raw.compose("c", [{"name": "a", "generation": generation}]).status == 200


def test_compose_replaces_its_destination(raw: Raw) -> None:
    """A composed object counts its components, has no MD5, and a generation of its own."""
    for key in "ab":
        raw.put(key, key.encode())
    first = raw.compose("c", [{"name": "a"}, {"name": "b"}], "?ifGenerationMatch=0").json
    second = raw.compose("c", [{"name": "c"}, {"name": "a"}]).json
    assert (first["componentCount"], second["componentCount"]) == (2, 3)
    assert first["generation"] != second["generation"]
    assert "md5Hash" not in second
    got = raw("GET", "/{}/c")
    assert (got.body, got.headers["x-goog-component-count"]) == (b"aba", "3")
    assert raw.compose("c", [{"name": "a"}], "?ifGenerationMatch=0").status == 412


def test_copies_and_deletes_are_conditional(raw: Raw) -> None:
    """Copies and deletes honour the generations they ask for."""
    generation = raw.put("a", b"a")
    copy = f"/storage/v1/b/{raw.bucket}/o/a/rewriteTo/b/{raw.bucket}/o/b?"
    assert raw("POST", copy + "ifSourceGenerationMatch=7", b"{}").status == 412
    assert raw("POST", copy + "ifSourceGenerationMatch=" + generation, b"{}").status == 200
    assert raw("POST", copy + "ifGenerationMatch=0", b"{}").status == 412
    assert raw("DELETE", "/storage/v1/b/{}/o/a?ifGenerationMatch=7").status == 412
    assert raw("DELETE", "/storage/v1/b/{}/o/a?ifGenerationMatch=" + generation).status == 204
    assert raw("DELETE", "/storage/v1/b/{}/o/a").status == 404


def test_errors_tell_object_from_bucket(raw: Raw) -> None:
    """A missing bucket and a missing object differ, in both interfaces, lists included."""
    assert raw("GET", "/{}/gone").between("Code") == "NoSuchKey"
    assert raw("GET", "/no-such-bucket/gone").between("Code") == "NoSuchBucket"
    assert raw("POST", "/no-such-bucket/k?uploads").between("Code") == "NoSuchBucket"
    missing = raw("GET", "/storage/v1/b/no-such-bucket/o").json["error"]
    assert (missing["code"], missing["errors"][0]["reason"]) == (404, "notFound")
    assert missing["message"] == "The specified bucket does not exist."
    gone = raw("GET", "/storage/v1/b/{}/o/gone").json["error"]
    assert gone["message"] == f"No such object: {raw.bucket}/gone"


@pytest.mark.parametrize("target", ["/{}/k", "/storage/v1/b/{}/o/k?alt=media"])
def test_ranges(raw: Raw, target: str) -> None:
    """Ranges are clipped to the object, and one past its end is refused."""
    raw.put("k", b"hello")
    part = raw("GET", target, Range="bytes=3-99")
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"lo", "bytes 3-4/5")
    assert raw("GET", target, Range="bytes=5-6").status == 416


def test_list_gives_the_fields_asked_for(raw: Raw) -> None:
    """`fields=` leaves only what it names."""
    for number in range(3):
        raw.put(f"k{number}", b"x")
    listing = "/storage/v1/b/{}/o?fields=nextPageToken,items(name,size)&maxResults=2&startOffset=k1"
    assert raw("GET", listing).json == {
        "items": [{"name": "k1", "size": "1"}, {"name": "k2", "size": "1"}]
    }


def test_faults_work_before_gcs_as_well(raw: Raw, fake_gcs: GCSServer) -> None:
    """The lost answer to a completion leaves the object in place."""
    with Front(fake_gcs.endpoint) as front:
        front.drop_answer(when=lambda request: "uploadId" in request.query)
        lossy = Raw(replace(fake_gcs, endpoint=front.endpoint), raw.bucket)
        upload = raw.start("k")
        etag = raw.part("k", upload, 1, b"data")
        with contextlib.closing(lossy.connection), pytest.raises(http.client.RemoteDisconnected):
            lossy.complete("k", upload, (1, etag))
    assert raw("GET", "/{}/k").body == b"data"
