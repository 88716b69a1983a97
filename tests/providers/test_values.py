"""URIs, ranges and the other small values."""

import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import SettingsError
from providers.values import ByteRange, HttpRequest, ObjectInfo, ObjectURI


class TestObjectURI:
    @pytest.mark.parametrize(
        ("uri", "scheme", "bucket", "key"),
        [
            ("s3://bucket/key", "s3", "bucket", "key"),
            ("s3://bucket", "s3", "bucket", ""),
            ("s3://bucket/", "s3", "bucket", ""),
            ("s3://bucket//key", "s3", "bucket", "/key"),
            ("s3://bucket/a//b/./../c/", "s3", "bucket", "a//b/./../c/"),
            ("gs://b/a?b=c#d%20e+f g", "gs", "b", "a?b=c#d%20e+f g"),
            ("oss://b/\u6a21\u578b/e\u0301", "oss", "b", "\u6a21\u578b/e\u0301"),
            ("s3://b/s3://c/d", "s3", "b", "s3://c/d"),
            ("s3://user@b:80/k", "s3", "user@b:80", "k"),
            ("S3://Bucket/Key", "s3", "Bucket", "Key"),
            ("gcs://b/k", "gs", "b", "k"),
            ("s3a://b/k", "s3", "b", "k"),
            ("S3A://b/k", "s3", "b", "k"),
            ("file:///a/b", "file", "", "a/b"),
            ("file:////a", "file", "", "/a"),
            ("file:///", "file", "", ""),
            ("memory://b/k", "memory", "b", "k"),
            ("third-party://b/k", "third-party", "b", "k"),
        ],
    )
    def test_uri_is_split_by_hand(self, uri: str, scheme: str, bucket: str, key: str) -> None:
        """Two slashes, one slash, and nothing in the key decoded, cut or folded."""
        assert ObjectURI.parse(uri) == ObjectURI(scheme, bucket, key)

    @given(st.sampled_from(["s3", "gs", "oss", "memory"]), st.text())
    def test_uri_is_written_as_it_was_read(self, scheme: str, key: str) -> None:
        """Any text is a key, and a URI written out and parsed again is the same."""
        uri = ObjectURI(scheme, "bucket", key)
        assert str(uri) == f"{scheme}://bucket/{key}"
        assert ObjectURI.parse(str(uri)) == uri

    @pytest.mark.parametrize(
        ("uri", "advice"),
        [
            ("/data/train", "'file:///data/train'"),
            ("data/train", "file:///absolute/path/to/data/train"),
            ("C:\\data", "no scheme"),
            ("", "no scheme"),
            ("://bucket/key", "no scheme"),
            ("s3:/bucket/key", "no scheme"),
            ("s3://", "no bucket"),
            ("s3:///key", "no bucket"),
            ("file://host/path", "'file:///host/path'"),
            ("file://relative", "'file:///relative'"),
            ("s3://arn:aws:s3:eu-west-1:1:accesspoint/name/key", "alias"),
        ],
    )
    def test_a_uri_that_is_none_is_refused(self, uri: str, advice: str) -> None:
        """What cannot be split is an error that repeats it and says what to write."""
        with pytest.raises(SettingsError) as caught:
            ObjectURI.parse(uri)
        assert repr(uri) in str(caught.value)
        assert advice in str(caught.value)


class TestByteRange:
    @pytest.mark.parametrize(("start", "stop"), [(0, 0), (5, 5), (5, 4), (0, -1)])
    def test_an_empty_range_is_refused(self, start: int, stop: int) -> None:
        """A range has at least one byte."""
        with pytest.raises(ValueError, match="empty"):
            ByteRange(start, stop)

    def test_a_negative_start_is_refused(self) -> None:
        """There are no suffix ranges."""
        with pytest.raises(ValueError, match="-1"):
            ByteRange(-1)

    def test_the_header_counts_the_last_byte(self) -> None:
        """HTTP's ranges are inclusive, ours are not."""
        assert ByteRange(0, 1).header == "bytes=0-0"
        assert ByteRange(5, 10).header == "bytes=5-9"
        assert ByteRange(5).header == "bytes=5-"

    @given(st.integers(0, 50), st.none() | st.integers(1, 50), st.integers(0, 60))
    def test_the_length_is_that_of_the_slice(
        self, start: int, length: int | None, size: int
    ) -> None:
        """A range covers of an object what a slice covers of its bytes."""
        stop = None if length is None else start + length
        assert ByteRange(start, stop).length_in(size) == len(bytes(size)[start:stop])


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            ObjectURI("s3", "b", "k"),
            ByteRange(1, 2),
            ObjectInfo("k", 3, etag="e", metadata={"a": "b"}),
            HttpRequest("GET", "http://127.0.0.1/", {"Authorization": "secret"}),
        ],
    )
    def test_values_are_frozen_hashable_and_pickle(self, value: Any) -> None:
        """Values cross processes, serve as keys, and never change."""
        copied = pickle.loads(pickle.dumps(value))  # noqa: S301 our own bytes
        assert copied == value
        assert hash(copied) == hash(value)
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, None)

    def test_a_signed_request_hides_its_headers(self) -> None:
        """A request in a log line shows no signature."""
        assert "secret" not in repr(HttpRequest("GET", "http://h/", {"Authorization": "secret"}))
