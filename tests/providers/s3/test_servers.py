"""What each S3 server does otherwise than Amazon, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.errors import (
    ArchivedError,
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    ServiceError,
    UnavailableError,
    UnsupportedError,
)
from providers.testing.harness import noise
from providers.transfer import compose_many
from providers.values import ByteRange
from tests.providers.s3.stores import PART_BYTES, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fakes.front import Front
    from tests.servers.s3 import S3Server


# ---- JuiceFS -------------------------------------------------------------------------------


def test_juicefs_folds_keys(store: Store) -> None:
    """A key that the server folds is listed under another name, never under one's own."""
    provider = store.opened()
    provider.put("a//b", b"body")
    assert [entry.key for entry in provider.list_objects()] == ["a/b"]
    with pytest.raises(ProviderError):
        provider.put("a/./b", b"body")
    assert store.keys() == ["a/b"]


def test_juicefs_ignores_conditions(store: Store) -> None:
    """Not honoured, so not offered; who overrides the limit learns it from the data."""
    store.put("key", b"first")
    with pytest.raises(UnsupportedError, match="conditional_put"):
        store.opened().put("key", b"second", if_absent=True)
    assert store.get("key") == b"first"
    store.opened(conditional_put=True).put("key", b"second", if_absent=True)
    assert store.get("key") == b"second"


def test_juicefs_takes_small_parts(store: Store) -> None:
    """The server would join small parts; Amazon's limit holds for it all the same."""
    names = {"Bucket": store.bucket, "Key": "key"}
    upload = store.client.create_multipart_upload(**names)["UploadId"]
    parts = [
        {
            "PartNumber": number,
            "ETag": store.client.upload_part(
                **names, UploadId=upload, PartNumber=number, Body=b"small"
            )["ETag"],
        }
        for number in (1, 2)
    ]
    store.client.complete_multipart_upload(
        **names, UploadId=upload, MultipartUpload={"Parts": parts}
    )
    assert store.get("key") == b"smallsmall"
    with store.opened().start_multipart("key") as ours:
        ours.put_part(1, b"small")
        ours.put_part(2, b"small")
        with pytest.raises(LimitError, match="fewer than the 5242880"):
            ours.complete()


def test_equal_parts_by_default(store: Store) -> None:
    """A store of unknown habits gets equal parts, and compose_many cuts its sources so."""
    provider = store.opened(equal_parts=None, part_size_bytes=PART_BYTES)
    sizes = [PART_BYTES + 1, 7, PART_BYTES]
    for number, size in enumerate(sizes):
        store.put(f"{number}", noise(size, number))
    composed = compose_many(provider, ["0", "1", "2"], "whole")
    assert store.get("whole") == b"".join(noise(size, n) for n, size in enumerate(sizes))
    assert composed.way == "mixed"
    assert store.client.head_object(Bucket=store.bucket, Key="whole")["ETag"].endswith('-3"')


def test_juicefs_keeps_empty_folders(store: Store) -> None:
    """A folder outlives the objects in it and is listed, as the empty object that it is."""
    provider = store.opened()
    provider.put("folder/key", b"body")
    provider.delete(["folder/key"])
    (left,) = provider.list_objects()
    assert (left.key, left.size) == ("folder/", 0)


# ---- moto ----------------------------------------------------------------------------------


def test_strict_server_refuses_small_parts(strict: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where our own check is out of the way, the service's refusal is told and nothing is left."""
    provider = strict.opened()
    monkeypatch.setattr("providers.uploads.MultipartUpload._check_complete", lambda _: None)

    def in_small_parts() -> None:
        with provider.start_multipart("key") as upload:
            upload.put_part(1, b"small")
            upload.put_part(2, b"small")
            upload.complete()

    with pytest.raises(ServiceError, match="EntityTooSmall"):
        in_small_parts()
    assert strict.keys() == []
    assert strict.unfinished() == []


def test_versions_are_told(strict: Store) -> None:
    """Where the bucket keeps versions, writes and reads name theirs."""
    strict.client.put_bucket_versioning(
        Bucket=strict.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    provider = strict.opened()
    first, second = provider.put("key", b"first"), provider.put("key", b"second")
    assert first.version
    assert provider.head("key").version == second.version != first.version


def test_archived_object_raises(strict: Store, strict_front: Front) -> None:
    """An object in an archive class is a listing's business, and an error to read, at once."""
    strict.client.put_object(
        Bucket=strict.bucket, Key="key", Body=b"cold", StorageClass="DEEP_ARCHIVE"
    )
    provider = strict.opened(strict_front.endpoint)
    assert [entry.storage_class for entry in provider.list_objects()] == ["DEEP_ARCHIVE"]
    assert provider.head("key").storage_class == "DEEP_ARCHIVE"
    with pytest.raises(ArchivedError, match=r"get s3://.*/key: .*DEEP_ARCHIVE; restore it"):
        provider.get("key")
    assert [record.status for record in strict_front.requests] == [200, 200, 403]


@pytest.mark.parametrize("verb", ["get", "put", "list", "delete"])
def test_missing_bucket_is_named(strict: Store, verb: str) -> None:
    """The code tells a missing bucket from a missing object; for a delete it matters."""
    elsewhere = Store(strict.server, f"no-{strict.bucket}", strict.client).opened()
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: elsewhere.get("key"),
        "put": lambda: elsewhere.put("key", b""),
        "list": lambda: list(elsewhere.list_objects()),
        "delete": lambda: elsewhere.delete(["key"]),
    }
    with pytest.raises(NotFoundError, match="check the bucket's name") as caught:
        calls[verb]()
    assert caught.value.code == "NoSuchBucket"


# ---- rclone --------------------------------------------------------------------------------


@pytest.fixture
def other(rclone: S3Server, rclone_bucket: str) -> Iterator[Store]:
    """A bucket of a third server."""
    with Store.on(rclone, rclone_bucket) as bucket:
        yield bucket


def test_rclone_serves(other: Store) -> None:
    """The verbs of a training run work: put, get, ranges, pins, lists, parts, copies, deletes."""
    provider = other.opened()
    info = provider.put("a/b c", noise(1000), metadata={"colour": "blue"})
    assert provider.get("a/b c", if_match=provider.head("a/b c")) == noise(1000)
    assert provider.get("a/b c", ByteRange(10, 20)) == noise(1000)[10:20]
    assert provider.head("a/b c").metadata == {"colour": "blue"}
    with provider.start_multipart("whole") as upload:
        upload.put_part(1, noise(PART_BYTES))
        upload.put_part(2, b"end")
        assert upload.complete().size == PART_BYTES + 3
    assert other.get("whole") == noise(PART_BYTES) + b"end"
    assert [entry.key for entry in provider.list_objects()] == ["a/b c", "whole"]
    assert [entry.key for entry in provider.list_objects(delimiter="/")] == ["a/", "whole"]
    assert provider.copy("a/b c", "d").size == info.size
    provider.delete(["a/b c", "whole", "d", "missing"])
    assert other.keys() == []


def test_rclone_joins_nothing_quietly(other: Store) -> None:
    """Its answer to a copied part says nothing of the part; that is no success, nor a half one."""
    provider = other.opened()
    for name in ("a", "b"):
        provider.put(name, noise(PART_BYTES))
    with pytest.raises(UnavailableError, match=r"copy_part s3://.*no whole"):
        provider.compose(["a", "b"], "whole")
    assert other.keys() == ["a", "b"]


def test_rclone_ignores_pins(other: Store) -> None:
    """A pin that the server ignores is kept by comparing the answer with it."""
    provider = other.opened()
    info = provider.put("key", b"first")
    other.put("key", b"second, longer")
    pinned = other.client.get_object(Bucket=other.bucket, Key="key", IfMatch=f'"{info.etag}"')
    assert pinned["Body"].read() == b"second, longer"
    for byte_range in (None, ByteRange(2, 4)):
        with pytest.raises(PreconditionError, match="the object changed"):
            provider.get("key", byte_range, if_match=info)
