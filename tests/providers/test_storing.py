"""Storage classes and encryption: every request that begins an object carries the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from providers import GCSOptions, OSSOptions, S3Options, SettingsError, TransferOptions
from providers.oss import OSSProvider
from providers.s3 import S3Provider
from providers.testing.harness import narrowed, noise
from tests.fakes.front import Front
from tests.providers.gcs.access import provider as gcs_provider
from tests.providers.gcs.access import raw_bucket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers import Provider
    from tests.fakes.front import Record
    from tests.servers.fake_gcs import GCSServer
    from tests.servers.oss import OSSServer
    from tests.servers.s3 import S3Server

MIB = 1 << 20
S3_KEY = "arn:aws:kms:us-east-1:123456789012:key/0d2ac3e9-6b0a-4f41-a0ab-7c4b0f3e5a11"
GCS_KEY = "projects/p/locations/eu/keyRings/r/cryptoKeys/k"
ALWAYS_KEPT = {"x-amz-storage-class", "x-amz-server-side-encryption"}
IN_PARTS = {"whole", "joined", "copied in parts"}
WRITTEN = {"put", "whole", "copied", "copied in parts", "joined", "emptied"}


def write_in_every_way(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, part: int
) -> dict[str, bytes]:
    """Write an object by each verb that makes one, and return what each should hold."""
    body = noise(part + 1)
    provider.put("put", body, metadata={"colour": "blue"})
    with provider.start_multipart("whole") as upload:
        upload.put_part(1, body)
        upload.put_part(2, b"tail")
        upload.complete()
    provider.copy("put", "copied")
    provider.compose(["put", "whole"], "joined")
    provider.compose([provider.put("nothing", b"")], "emptied")
    provider.delete(["nothing"])
    with monkeypatch.context() as patch:
        if provider.limits.joins_server_side:
            narrowed(patch, provider, max_copy_bytes=part)
        provider.copy("put", "copied in parts")
    whole = body + b"tail"
    return {
        "put": body, "whole": whole, "copied": body, "copied in parts": body,
        "joined": body + whole, "emptied": b"",
    }  # fmt: skip


def beginnings(front: Front) -> list[Record]:
    """Return the requests that begin an object: puts, copies, starts of uploads."""
    return [
        record
        for record in front.requests
        if (record.method == "PUT" and "partNumber" not in record.query)
        or (record.method == "POST" and record.query.startswith("uploads"))
    ]


def signed(record: Record) -> set[str]:
    """Return the names of the headers that a signature of S3 covers."""
    return set(record.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";"))


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (
            {"storage_class": "STANDARD_IA", "sse": "AES256"},
            {"x-amz-storage-class": "STANDARD_IA", "x-amz-server-side-encryption": "AES256"},
        ),
        (
            {"sse": "aws:kms", "sse_kms_key_id": S3_KEY, "sse_bucket_key": True},
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": S3_KEY,
                "x-amz-server-side-encryption-bucket-key-enabled": "true",
            },
        ),
        (
            {"sse": "aws:kms:dsse", "sse_kms_key_id": S3_KEY},
            {
                "x-amz-server-side-encryption": "aws:kms:dsse",
                "x-amz-server-side-encryption-aws-kms-key-id": S3_KEY,
            },
        ),
    ],
)
@pytest.mark.parametrize("checksums", [False, True])
def test_s3_keeps_what_is_written_as_told(
    moto: S3Server,
    moto_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    sent: Mapping[str, str],
    checksums: bool,
) -> None:
    """Put, upload, copy and join: class and encryption are signed, sent, kept; bytes verified."""
    with Front(moto.endpoint) as front:
        provider = S3Provider(
            moto_bucket,
            S3Options(
                endpoint=front.endpoint,
                region=moto.region,
                access_key_id=moto.access_key,
                secret_access_key=moto.secret_key,
                equal_parts=False,
                checksums=checksums,
                **options,
            ),
            TransferOptions(verify="all"),
        )
        bodies = write_in_every_way(provider, monkeypatch, 5 * MIB)
        for record in beginnings(front):
            assert {name: record.headers.get(name) for name in sent} == sent, record
            assert set(sent) <= signed(record)
        assert {key: provider.get(key) for key in bodies} == bodies
    client = moto.client()
    for key in WRITTEN:
        told = client.head_object(Bucket=moto_bucket, Key=key)
        # Moto forgets keys of all but this algorithm, and of uploads in parts.
        all_kept = options["sse"] == "aws:kms" and key not in IN_PARTS
        asked = {name: sent[name] for name in sent if all_kept or name in ALWAYS_KEPT}
        kept = {name: told["ResponseMetadata"]["HTTPHeaders"].get(name) for name in asked}
        assert kept == asked, key
    assert client.head_object(Bucket=moto_bucket, Key="copied")["Metadata"]["colour"] == "blue"
    client.close()


def test_gcs_keeps_what_is_written_as_told(
    fake_gcs: GCSServer, fake_gcs_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put, upload, copy and compose: class and key are told and kept; metadata stays."""
    provider = gcs_provider(
        fake_gcs.endpoint, fake_gcs_bucket, storage_class="NEARLINE", kms_key_name=GCS_KEY
    )
    bodies = write_in_every_way(provider, monkeypatch, 5 * MIB)
    assert {key: provider.get(key) for key in bodies} == bodies
    with raw_bucket(fake_gcs, fake_gcs_bucket) as raw:
        for key in WRITTEN:
            blob = raw.bucket.get_blob(key)
            assert (blob.storage_class, blob.kms_key_name) == ("NEARLINE", GCS_KEY), key
        assert raw.bucket.get_blob("copied").metadata["colour"] == "blue"
        assert raw.bucket.get_blob("copied").content_type == "application/octet-stream"


@pytest.mark.parametrize("signature_version", ["v4", "v1"])
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (
            {"storage_class": "IA", "sse": "KMS", "sse_kms_key_id": "9468da86-3509"},
            {
                "x-oss-storage-class": "IA",
                "x-oss-server-side-encryption": "KMS",
                "x-oss-server-side-encryption-key-id": "9468da86-3509",
            },
        ),
        ({"sse": "SM4"}, {"x-oss-server-side-encryption": "SM4"}),
        ({"sse": "AES256"}, {"x-oss-server-side-encryption": "AES256"}),
    ],
)
def test_oss_keeps_what_is_written_as_told(
    oss_server: OSSServer,
    oss_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    sent: Mapping[str, str],
    signature_version: Any,
) -> None:
    """Put, upload, copy and join: the server checks the signature over all x-oss- headers."""
    with Front(oss_server.endpoint) as front:
        provider = OSSProvider(
            oss_bucket,
            OSSOptions(
                endpoint=front.endpoint,
                region=oss_server.region,
                access_key_id=oss_server.access_key,
                access_key_secret=oss_server.secret_key,
                signature_version=signature_version,
                equal_parts=False,
                **options,
            ),
        )
        bodies = write_in_every_way(provider, monkeypatch, 100 * 1024)
        for record in beginnings(front):
            assert {name: record.headers.get(name) for name in sent} == sent, record
        assert {key: provider.get(key) for key in bodies} == bodies
    raw = oss_server.bucket(oss_bucket)
    for key in WRITTEN:
        headers = raw.head_object(key).headers
        assert {name: headers.get(name) for name in sent} == sent, key
    assert raw.head_object("copied").headers["x-oss-meta-colour"] == "blue"


def test_nothing_is_told_without_options(
    moto: S3Server, moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the bucket's own settings decide: no header speaks of class or encryption."""
    with Front(moto.endpoint) as front:
        options = S3Options(
            endpoint=front.endpoint,
            region=moto.region,
            access_key_id=moto.access_key,
            secret_access_key=moto.secret_key,
            equal_parts=False,
        )
        write_in_every_way(S3Provider(moto_bucket, options), monkeypatch, 5 * MIB)
        told = {name for record in front.requests for name in record.headers}
    assert not [name for name in told if "encryption" in name or "storage-class" in name]


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        (S3Options, {"sse": "KMS"}, "'sse'"),
        (S3Options, {"sse_kms_key_id": "k"}, "sse_kms_key_id goes with sse='aws:kms'"),
        (S3Options, {"sse": "AES256", "sse_kms_key_id": "k"}, "sse_kms_key_id goes with"),
        (S3Options, {"sse": "aws:kms:dsse", "sse_bucket_key": True}, "sse_bucket_key goes with"),
        (S3Options, {"storage_class": "A\r\nb: c"}, "'storage_class'"),
        (GCSOptions, {"kms_key_name": "k"}, "'kms_key_name'"),
        (GCSOptions, {"storage_class": ""}, "'storage_class'"),
        (OSSOptions, {"sse": "aws:kms"}, "'sse'"),
        (OSSOptions, {"sse": "SM4", "sse_kms_key_id": "k"}, "sse_kms_key_id goes with sse='KMS'"),
    ],
)
def test_options_that_contradict_are_refused(
    model: Any, fields: dict[str, Any], message: str
) -> None:
    """What no request could carry is an error of the settings, in one line."""
    with pytest.raises(SettingsError, match=message) as caught:
        model(**fields)
    assert "\n" not in str(caught.value)
