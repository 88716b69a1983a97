"""Providers that are slow or fail on purpose."""

import pickle
import time
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from providers.errors import NotFoundError, ThrottledError, UnavailableError
from providers.memory import MemoryProvider
from providers.retry import without_waiting
from providers.testing import (
    Call,
    Fault,
    FaultyProvider,
    LatencyProvider,
)
from tests.providers.test_memory import TestMemory as Suite


class TestWrappers:
    @pytest.fixture
    def memory(self, bucket_name: str) -> MemoryProvider:
        """A bucket with one object."""
        provider = MemoryProvider(bucket_name)
        provider.put("a", b"x")
        return provider

    def test_faults_come_at_the_attempts_they_name(self, memory: MemoryProvider) -> None:
        """The chosen requests fail, the others reach the inner provider; all are recorded."""
        faulty = FaultyProvider(memory, [Fault("get", NotFoundError("gone"), attempts=[2])])
        assert faulty.get("a") == b"x"
        with pytest.raises(NotFoundError, match="gone"):
            faulty.get("a")
        assert faulty.get("a") == b"x"
        assert faulty.head("a").size == 1
        assert faulty.calls == [Call("get", "a")] * 3 + [Call("head", "a")]

    def test_faults_are_retried(self, memory: MemoryProvider) -> None:
        """A retryable fault is met by the policy, as a service's would be."""
        fault = Fault("get", ThrottledError("slow down"), attempts=[1, 2])
        faulty = FaultyProvider(memory, [fault])
        with without_waiting():
            assert faulty.get("a") == b"x"
        assert faulty.calls == [Call("get", "a")] * 3

    def test_faults_of_one_key_spare_the_others(self, memory: MemoryProvider) -> None:
        """A fault that names a key counts the requests of that key alone."""
        memory.put("b", b"y")
        fault = Fault("get", NotFoundError("gone"), attempts=None, key="b")
        faulty = FaultyProvider(memory, [fault])
        assert faulty.get("a") == b"x"
        for _ in range(2):
            with pytest.raises(NotFoundError, match="gone"):
                faulty.get("b")

    def test_faults_afterwards_lose_only_the_answer(self, memory: MemoryProvider) -> None:
        """A fault after the fact leaves the work done, for put, parts, complete and delete."""
        lost = UnavailableError("the answer got lost")
        plan = [
            Fault(name, lost, after=True)
            for name in ("put", "put_part", "complete", "delete", "copy", "list")
        ]
        faulty = FaultyProvider(memory, plan)
        with without_waiting():
            faulty.put("b", b"y")
            with faulty.start_multipart("c") as upload:
                upload.put_part(1, b"z")
                upload.complete()
            faulty.copy("b", "d")
            faulty.delete(["a"])
            assert [entry.key for entry in faulty.list_objects()] == ["b", "c", "d"]
        assert memory.get("c") == b"z"

    def test_faults_hit_the_parts_of_a_compose(self, memory: MemoryProvider) -> None:
        """A compose made of copied parts can be failed at each of them."""
        faulty = FaultyProvider(memory, [Fault("copy_part", NotFoundError("gone"), attempts=[2])])
        with pytest.raises(NotFoundError, match="gone"):
            faulty.compose(["a", "a", "a"], "b")
        operations = [call.operation for call in faulty.calls]
        assert operations[-4:] == ["start_multipart", "copy_part", "copy_part", "abort"]
        assert memory.unfinished_uploads() == []

    def test_wrappers_pickle_with_what_they_wrap(self, memory: MemoryProvider) -> None:
        """A copy in another process wraps a copy of the inner provider."""
        plan = [Fault("get", NotFoundError("gone"))]
        for wrapper in (LatencyProvider(memory, 0.0), FaultyProvider(memory, plan)):
            copied = pickle.loads(pickle.dumps(wrapper))  # noqa: S301 our own bytes
            assert type(copied) is type(wrapper)
            assert copied.uri("a") == memory.uri("a")

    def test_latency_comes_before_each_request(
        self, memory: MemoryProvider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every request waits for the time chosen."""
        waits: list[float] = []
        monkeypatch.setattr(time, "sleep", waits.append)
        slow = LatencyProvider(memory, 0.25)
        slow.get("a")
        slow.put("b", b"y")
        slow.delete(["a", "b"])
        assert waits == [0.25] * 3


class TestWrapped(Suite):
    """A wrapper keeps every promise of what it wraps."""

    @override
    def make_provider(self) -> Any:
        return FaultyProvider(MemoryProvider(self.bucket))

    @override
    def raw_put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        MemoryProvider(self.bucket).store(key, data, if_absent=False, metadata=metadata or {})

    @override
    def raw_get(self, key: str) -> bytes:
        return MemoryProvider(self.bucket)._bucket.objects[key][1]

    @override
    def raw_keys(self) -> set[str]:
        return set(MemoryProvider(self.bucket)._bucket.objects)

    @override
    def raw_unfinished_uploads(self) -> list[Any]:
        return MemoryProvider(self.bucket).unfinished_uploads()
