"""Many reads in order, and joins beyond what one call takes."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from providers.errors import (
    AccessDeniedError,
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    RangeError,
)
from providers.memory import MemoryProvider
from providers.options import TransferOptions
from providers.testing import Fault, FaultyProvider
from providers.transfer import Composed, Get, compose_many, get_many
from providers.values import ByteRange, Limits, ObjectInfo

PATIENCE_SECONDS = 60.0


@pytest.fixture
def memory(bucket_name: str) -> MemoryProvider:
    """A bucket with a hundred objects, each holding its number."""
    provider = MemoryProvider(bucket_name)
    for number in range(100):
        provider.put(f"{number}", f"body {number}".encode())
    return provider


class Watched(MemoryProvider):
    """Counts the reads under way, and holds each up until so many are."""

    def __init__(self, bucket: str, together: int) -> None:
        super().__init__(bucket)
        self.lock = threading.Lock()
        self.together = threading.Barrier(together)
        self.under_way = 0
        self.most = 0

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.together.wait(PATIENCE_SECONDS)
        with self.lock:
            self.under_way -= 1
        return super()._get(key, byte_range, if_match)


class Gated(MemoryProvider):
    """Answers reads of two objects at once; the others wait for the gate to open."""

    def __init__(self, bucket: str) -> None:
        super().__init__(bucket)
        self.opened = threading.Event()
        self.started: list[str] = []

    @override
    def _get(self, key: str, byte_range: ByteRange | None, if_match: ObjectInfo | None) -> bytes:
        self.started.append(key)
        if key not in {"0", "1"}:
            self.opened.wait(PATIENCE_SECONDS)
        return super()._get(key, byte_range, if_match)


class TestGetMany:
    def test_bodies_come_in_order(self, memory: MemoryProvider) -> None:
        """Bodies are those of the reads, each in its place, whichever came first."""
        gets = [Get(memory, f"{number}") for number in range(100)]
        got = [body for _, body in get_many(gets, TransferOptions())]
        assert got == [f"body {number}".encode() for number in range(100)]

    def test_nothing_is_read_for_nothing(self) -> None:
        """No reads, no bodies."""
        assert list(get_many([], TransferOptions())) == []

    def test_ranges_and_pins_are_kept(self, memory: MemoryProvider) -> None:
        """Each read has its own range, its own pin and its own provider."""
        other = MemoryProvider(f"{memory.bucket}-other")
        other.put("1", b"elsewhere")
        stale = memory.head("2")
        memory.put("2", b"changed")
        gets = [
            Get(memory, "1", ByteRange(5, 6)),
            Get(other, "1"),
            Get(memory, "2", if_match=stale),
            Get(memory, "2", ByteRange(0, 3), if_match=memory.head("2")),
        ]
        first, second, third, fourth = (body for _, body in get_many(gets, TransferOptions()))
        assert (first, second, fourth) == (b"1", b"elsewhere", b"cha")
        assert isinstance(third, PreconditionError)

    def test_errors_come_in_their_places(self, memory: MemoryProvider) -> None:
        """A read that fails yields its error where its body would be; the others go on."""
        gets = [
            Get(memory, "1"),
            Get(memory, "missing"),
            Get(memory, "2", ByteRange(99)),
            Get(memory, "3"),
        ]
        kinds = [type(body) for _, body in get_many(gets, TransferOptions())]
        assert kinds == [bytes, NotFoundError, RangeError, bytes]

    def test_a_mistake_of_the_program_raises(self, memory: MemoryProvider) -> None:
        """What is no answer of a store is raised, not yielded."""
        bad: Any = "an etag"
        with pytest.raises(TypeError, match="ObjectInfo"):
            list(get_many([Get(memory, "1", if_match=bad)], TransferOptions()))

    def test_a_failing_source_of_reads_raises(self, memory: MemoryProvider) -> None:
        """An error of the iterable of reads comes out."""

        def gets() -> Iterator[Get]:
            yield Get(memory, "1")
            raise ZeroDivisionError("in the source")

        with pytest.raises(ZeroDivisionError, match="in the source"):
            list(get_many(gets(), TransferOptions()))

    def test_so_many_are_under_way_and_no_more(self, memory: MemoryProvider) -> None:
        """As many reads are under way as allowed: all of them, and never more."""
        watched = Watched(memory.bucket, together=4)
        gets = [Get(watched, f"{number}") for number in range(20)]
        assert len(list(get_many(gets, TransferOptions(max_in_flight=4)))) == 20
        assert watched.most == 4

    @pytest.mark.parametrize(
        ("changes", "size_bytes", "most"),
        [
            ({"prefetch_objects": 3}, 0, 3),
            ({"max_bytes_in_flight": 25}, 10, 2),
            ({"max_bytes_in_flight": 25}, 100, 1),
            ({"prefetch_objects": 3, "max_bytes_in_flight": 1000}, 10, 3),
        ],
    )
    def test_reads_are_begun_as_bodies_are_taken(
        self, memory: MemoryProvider, changes: dict[str, Any], size_bytes: int, most: int
    ) -> None:
        """No more objects or bytes wait than allowed; one too large for the budget goes alone."""
        asked: list[int] = []

        def gets() -> Iterator[Get]:
            for number in range(50):
                asked.append(number)
                yield Get(memory, f"{number}", size_bytes=size_bytes)

        bodies = get_many(gets(), TransferOptions(**changes))
        for taken in range(50):
            assert next(bodies)[1] == f"body {taken}".encode()
            # One more than wait has been asked for, to learn its size.
            assert len(asked) <= taken + most + 1
        assert list(bodies) == []

    def test_nothing_is_asked_for_before_the_first_body_is(self, memory: MemoryProvider) -> None:
        """A stream that nobody reads from sends nothing."""
        faulty = FaultyProvider(memory)
        get_many([Get(faulty, "1")], TransferOptions())
        assert faulty.calls == []

    def test_closing_early_drops_the_rest(self, memory: MemoryProvider) -> None:
        """After the generator is closed no further read begins, and none is waited for."""
        gated = Gated(memory.bucket)
        gets = [Get(gated, f"{number}") for number in range(10)]
        bodies = get_many(gets, TransferOptions(max_in_flight=2))
        assert next(bodies)[1] == b"body 0"
        bodies.close()
        gated.opened.set()
        for thread in threading.enumerate():
            if thread.name.startswith("connector-get"):
                thread.join(PATIENCE_SECONDS)
        assert set(gated.started) <= {"0", "1", "2", "3"}


SCALED = Limits(
    min_part_bytes=5,
    max_part_bytes=40,
    max_parts=100,
    max_sources=100,
    min_join_bytes=5,
    max_put_bytes=1000,
    max_copy_bytes=40,
    conditional_put=True,
    equal_parts=False,
    lists_in_order=True,
    joins_server_side=True,
)


class PartJoiner(MemoryProvider):
    """A store like S3, with limits a million times smaller, which it enforces."""

    scaled = SCALED

    @property
    @override
    def limits(self) -> Limits:
        return self.scaled


class EqualPartJoiner(PartJoiner):
    """A store like R2."""

    scaled = replace(SCALED, equal_parts=True)


class ObjectJoiner(MemoryProvider):
    """A store like Google's: it joins whole objects, a few at a time."""

    @property
    @override
    def limits(self) -> Limits:
        return replace(SCALED, min_join_bytes=1, max_sources=4, joins_server_side=False)

    @override
    def _compose(
        self,
        sources: list[ObjectInfo],
        destination: str,
        write_id: str,
        *,
        if_absent: bool,
        metadata: Mapping[str, str],
    ) -> ObjectInfo:
        body = b"".join(self.get(source.key, if_match=source) for source in sources)
        return self.request(
            "compose",
            destination,
            lambda: self.store(destination, body, if_absent=if_absent, metadata=metadata),
        )


JOINERS = [PartJoiner, EqualPartJoiner, ObjectJoiner]


def fill(provider: MemoryProvider, sizes: list[int]) -> tuple[list[str], bytes]:
    """Write sources; return their keys and their bytes joined."""
    bodies = [bytes((number + at) % 251 for at in range(size)) for number, size in enumerate(sizes)]
    for number, body in enumerate(bodies):
        provider.store(f"{number}", body, if_absent=False, metadata={})
    return [f"{number}" for number in range(len(sizes))], b"".join(bodies)


@pytest.mark.parametrize("joiner", JOINERS)
class TestComposeMany:
    @given(st.lists(st.one_of(st.integers(0, 9), st.integers(0, 150)), min_size=1, max_size=30))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_sources_are_joined_exactly(
        self, joiner: type[MemoryProvider], bucket_name: str, sizes: list[int]
    ) -> None:
        """Whatever their sizes and number, the bytes are exact and nothing is left over."""
        provider = joiner(bucket_name, transfer=TransferOptions(part_size_bytes=16))
        keys, whole = fill(provider, sizes)
        composed = compose_many(provider, keys, "whole")
        assert provider.get("whole") == whole
        assert composed.info.size == len(whole)
        assert 0 <= composed.client_bytes <= len(whole)
        assert {"server": composed.client_bytes == 0, "client": composed.calls == 0}.get(
            composed.way, composed.client_bytes > 0 < composed.calls
        )
        assert {entry.key for entry in provider.list_objects()} == {*keys, "whole"}
        assert provider.unfinished_uploads() == []
        provider.delete([*keys, "whole"])

    def test_the_destination_may_be_a_source(
        self, joiner: type[MemoryProvider], bucket_name: str
    ) -> None:
        """A source is replaced only when all of it has been joined."""
        provider = joiner(bucket_name)
        keys, whole = fill(provider, [7, 3, 60, 1, 9, 9])
        compose_many(provider, keys, keys[2])
        assert provider.get(keys[2]) == whole

    def test_metadata_and_if_absent_are_passed_on(
        self, joiner: type[MemoryProvider], bucket_name: str
    ) -> None:
        """The last step carries the metadata and the condition."""
        provider = joiner(bucket_name)
        keys, whole = fill(provider, [7, 3, 60, 1, 9, 9])
        arguments: dict[str, Any] = {"if_absent": True, "metadata": {"colour": "blue"}}
        assert compose_many(provider, keys, "whole", **arguments).info.size == len(whole)
        assert provider.head("whole").metadata == {"colour": "blue"}
        with pytest.raises(PreconditionError):
            compose_many(provider, keys[:-1], "whole", **arguments)
        assert provider.get("whole") == whole
        assert {entry.key for entry in provider.list_objects()} == {*keys, "whole"}

    def test_errors_of_a_compose_are_the_same(
        self, joiner: type[MemoryProvider], bucket_name: str
    ) -> None:
        """No source, a missing one and a changed one raise as they do from compose."""
        provider = joiner(bucket_name)
        keys, _ = fill(provider, [7, 3, 60, 1, 9, 9])
        with pytest.raises(ValueError, match="no source"):
            compose_many(provider, [], "whole")
        with pytest.raises(NotFoundError):
            compose_many(provider, [*keys, "missing"], "whole")
        stale = [provider.head(key) for key in keys]
        provider.put(keys[3], b"changed")
        with pytest.raises(PreconditionError):
            compose_many(provider, stale, "whole")
        assert {entry.key for entry in provider.list_objects()} == set(keys)
        assert provider.unfinished_uploads() == []

    @pytest.mark.parametrize("operation", ["compose", "copy_part", "put_part", "get", "complete"])
    @pytest.mark.parametrize("attempt", [1, 2, 3])
    def test_a_failure_on_the_way_leaves_nothing(
        self, joiner: type[MemoryProvider], bucket_name: str, operation: str, attempt: int
    ) -> None:
        """Whichever request fails, the error comes out and no temporary or upload is left."""
        inner = joiner(bucket_name)
        keys, whole = fill(inner, [7, 3, 60, 1, 9, 9, 70, 2, 2, 2, 40])
        fault = Fault(operation, AccessDeniedError("refused"), attempts=[attempt])
        provider = FaultyProvider(inner, [fault])
        outcome: Composed | ProviderError
        try:
            outcome = compose_many(provider, keys, "whole")
        except ProviderError as error:
            outcome = error
        met = [call.operation for call in provider.calls].count(operation) >= attempt
        assert isinstance(outcome, AccessDeniedError) == met
        left = {entry.key for entry in inner.list_objects()} - set(keys)
        assert left == (set() if met else {"whole"})
        assert met or inner.get("whole") == whole
        assert inner.unfinished_uploads() == []


class TestWays:
    """Which way a compose went, in numbers."""

    @pytest.mark.parametrize(
        ("joiner", "sizes", "way", "client_bytes", "calls"),
        [
            (PartJoiner, [20, 30, 3], "server", 0, 3),
            (PartJoiner, [2, 3, 1], "client", 6, 0),
            (PartJoiner, [3, 20], "mixed", 5, 1),
            (PartJoiner, [0, 3], "server", 0, 1),
            (EqualPartJoiner, [20, 20, 3], "server", 0, 3),
            (EqualPartJoiner, [3, 20], "client", 23, 0),
            (ObjectJoiner, [1, 2, 3, 4], "server", 0, 4),
            (ObjectJoiner, [1] * 16, "server", 0, 5),
            (ObjectJoiner, [1] * 17, "server", 0, 8),
        ],
    )
    def test_the_way_is_told(
        self,
        joiner: type[MemoryProvider],
        sizes: list[int],
        way: str,
        client_bytes: int,
        calls: int,
        bucket_name: str,
    ) -> None:
        """Joined by the service, through the client, or both; with bytes and calls."""
        provider = joiner(bucket_name, transfer=TransferOptions(part_size_bytes=30))
        keys, whole = fill(provider, sizes)
        composed = compose_many(provider, keys, "whole")
        assert provider.get("whole") == whole
        assert (composed.way, composed.client_bytes, composed.calls) == (way, client_bytes, calls)

    def test_more_sources_than_parts_are_joined(self, bucket_name: str) -> None:
        """More sources than one upload has parts go through the client in larger parts."""
        provider = PartJoiner(bucket_name)
        keys, whole = fill(provider, [6] * 150)
        with pytest.raises(LimitError, match="compose_many"):
            provider.compose(keys, "whole")
        compose_many(provider, keys, "whole")
        assert provider.get("whole") == whole

    def test_what_fits_no_upload_is_refused(self, bucket_name: str) -> None:
        """An object beyond all parts is refused before anything is sent."""
        provider = PartJoiner(bucket_name)
        keys, _ = fill(provider, [4001])
        with pytest.raises(LimitError, match="100 parts of 40 bytes"):
            compose_many(provider, [keys[0], keys[0]], "whole")
        assert provider.unfinished_uploads() == []

    def test_two_composers_do_not_share_temporaries(self, bucket_name: str) -> None:
        """Two joins of one destination at once keep their temporaries apart."""
        provider = ObjectJoiner(bucket_name)
        keys, whole = fill(provider, [1, 2, 3, 4, 5, 6, 7])
        threads = [
            threading.Thread(target=compose_many, args=(provider, keys, "whole")) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert provider.get("whole") == whole
        assert {entry.key for entry in provider.list_objects()} == {*keys, "whole"}
