"""What ``start_multipart`` and its upload promise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from providers.errors import (
    LimitError,
    NotFoundError,
    PreconditionError,
    ProviderError,
    UnsupportedError,
)
from providers.testing.harness import Harness, narrowed, noise
from providers.values import ByteRange

if TYPE_CHECKING:
    from providers.base import Provider

__all__ = ["MultipartTests"]


class MultipartTests(Harness):
    """Uploads in parts: all or nothing."""

    @pytest.fixture
    def part(self, provider: Provider) -> int:
        """Bytes of a part that need not be the last."""
        return max(provider.limits.min_part_bytes, 1000)

    def test_multipart_joins_parts_by_number(self, provider: Provider, part: int) -> None:
        """Order of numbers is order of bytes, whatever order the parts were sent in."""
        bodies = {1: noise(part, 1), 2: noise(part, 2), 3: noise(17, 3)}
        with provider.start_multipart(self.key("whole")) as upload:
            for number in (3, 1, 2):
                upload.put_part(number, bodies[number])
            info = upload.complete()
        assert self.raw_get(self.key("whole")) == bodies[1] + bodies[2] + bodies[3]
        assert (info.key, info.size) == (self.key("whole"), 2 * part + 17)
        assert self.raw_unfinished_uploads() == []

    def test_multipart_takes_parts_from_threads(self, provider: Provider, part: int) -> None:
        """Parts may be sent from several threads at once."""
        count = max(2, min(8, 12_000_000 // part))
        bodies = [noise(part, number) for number in range(count)]
        with provider.start_multipart(self.key("whole")) as upload:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(upload.put_part, range(1, count + 1), bodies))
            upload.complete()
        assert self.raw_get(self.key("whole")) == b"".join(bodies)

    def test_multipart_of_one_small_part(self, provider: Provider) -> None:
        """The last part, here the only one, may be of any size."""
        with provider.start_multipart(self.key("whole")) as upload:
            upload.put_part(1, b"x")
            upload.complete()
        assert self.raw_get(self.key("whole")) == b"x"

    def test_multipart_replaces_a_part_sent_again(self, provider: Provider, part: int) -> None:
        """A part sent again under its number replaces the earlier one, a longer one too."""
        with provider.start_multipart(self.key("whole")) as upload:
            upload.put_part(1, noise(part, 1))
            upload.put_part(2, noise(99, 2))
            upload.put_part(1, noise(part, 3))
            upload.put_part(2, noise(7, 4))
            info = upload.complete()
        assert info.size == part + 7
        assert self.raw_get(self.key("whole")) == noise(part, 3) + noise(7, 4)

    def test_multipart_with_a_gap_is_refused(self, provider: Provider, part: int) -> None:
        """A missing part, or no part at all, is never published as a shorter object."""
        with provider.start_multipart(self.key("whole")) as upload:
            with pytest.raises(LimitError):
                upload.complete()
            upload.put_part(1, noise(part))
            upload.put_part(3, b"x")
            with pytest.raises(LimitError, match="must all be there"):
                upload.complete()
        assert self.stored() == set()
        assert self.raw_unfinished_uploads() == []

    def test_multipart_with_a_small_part_is_refused(self, provider: Provider) -> None:
        """A part under the service's smallest is refused, unless it is the last."""
        smallest = provider.limits.min_part_bytes
        with provider.start_multipart(self.key("whole")) as upload:
            if smallest == 1:
                with pytest.raises(LimitError):
                    upload.put_part(1, b"")
            else:
                upload.put_part(1, noise(smallest - 1))
            upload.put_part(2, b"x")
            with pytest.raises(LimitError):
                upload.complete()
        assert self.stored() == set()

    def test_multipart_with_unequal_parts(self, provider: Provider, part: int) -> None:
        """Parts of several sizes are joined, or refused where the limits want equal ones."""
        bodies = [noise(part + 1, 1), noise(part, 2), noise(3, 3)]
        with provider.start_multipart(self.key("whole")) as upload:
            for number, body in enumerate(bodies, 1):
                upload.put_part(number, body)
            if provider.limits.equal_parts:
                with pytest.raises(LimitError, match="equal parts"):
                    upload.complete()
            else:
                upload.complete()
        expected = set() if provider.limits.equal_parts else {"whole"}
        assert self.stored() == expected
        if expected:
            assert self.raw_get(self.key("whole")) == b"".join(bodies)

    @pytest.mark.parametrize("number", [0, -1, 4])
    def test_multipart_refuses_part_numbers_out_of_range(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """Numbers go from 1 to max_parts."""
        narrowed(monkeypatch, provider, max_parts=3)
        with provider.start_multipart(self.key("whole")) as upload:
            upload.put_part(3, b"x")
            with pytest.raises(LimitError, match="1 to 3"):
                upload.put_part(number, b"x")

    def test_multipart_aborted_leaves_nothing(self, provider: Provider, part: int) -> None:
        """After an abort there is neither object nor unfinished upload; twice is quiet."""
        upload = provider.start_multipart(self.key("whole"))
        upload.put_part(1, noise(part))
        upload.abort()
        upload.abort()
        assert self.stored() == set()
        assert self.raw_unfinished_uploads() == []
        with pytest.raises(ValueError, match="aborted"):
            upload.put_part(1, b"x")
        with pytest.raises(ValueError, match="aborted"):
            upload.complete()

    def test_multipart_aborts_when_its_block_raises(self, provider: Provider, part: int) -> None:
        """An exception in the block publishes nothing, and is the one that comes out."""

        def interrupted() -> None:
            with provider.start_multipart(self.key("whole")) as upload:
                upload.put_part(1, noise(part))
                raise ZeroDivisionError("in the block")

        with pytest.raises(ZeroDivisionError, match="in the block"):
            interrupted()
        assert self.stored() == set()
        assert self.raw_unfinished_uploads() == []

    def test_multipart_aborts_when_its_block_ends_early(
        self, provider: Provider, part: int
    ) -> None:
        """A block left without complete publishes nothing."""
        with provider.start_multipart(self.key("whole")) as upload:
            upload.put_part(1, noise(part))
        assert self.stored() == set()
        assert self.raw_unfinished_uploads() == []

    def test_multipart_completes_once(self, provider: Provider) -> None:
        """After complete the upload is closed: a second complete and more parts are errors."""
        with provider.start_multipart(self.key("whole")) as upload:
            upload.put_part(1, b"x")
            upload.complete()
            with pytest.raises(ValueError, match="completed"):
                upload.complete()
            with pytest.raises(ValueError, match="completed"):
                upload.put_part(2, b"x")
            upload.abort()
        assert self.raw_get(self.key("whole")) == b"x"

    def test_multipart_shows_the_old_object_until_complete(
        self, provider: Provider, part: int
    ) -> None:
        """Readers see the old object up to the moment of completion, listings too."""
        self.raw_put(self.key("whole"), b"old")
        with provider.start_multipart(self.key("whole")) as upload:
            upload.put_part(1, noise(part))
            assert provider.get(self.key("whole")) == b"old"
            assert self.listed(provider) == ["whole"]
            upload.complete()
        assert self.raw_get(self.key("whole")) == noise(part)

    def test_multipart_uploads_of_one_key_do_not_meet(self, provider: Provider, part: int) -> None:
        """Two uploads of one key keep their parts apart; the last completed one stands."""
        first = provider.start_multipart(self.key("whole"))
        second = provider.start_multipart(self.key("whole"))
        with first, second:
            first.put_part(1, noise(part, 1))
            second.put_part(1, noise(part, 2))
            second.put_part(2, b"second")
            first.put_part(2, b"first")
            second.complete()
            assert self.raw_get(self.key("whole")) == noise(part, 2) + b"second"
            first.complete()
        assert self.raw_get(self.key("whole")) == noise(part, 1) + b"first"

    def test_multipart_copies_parts(self, provider: Provider, part: int) -> None:
        """Parts are copied by the service where it can, pinned to their source."""
        self.raw_put(self.key("source"), noise(part + 1000))
        source = provider.head(self.key("source"))
        with provider.start_multipart(self.key("whole")) as upload:
            if not provider.limits.joins_server_side:
                with pytest.raises(UnsupportedError, match="joins_server_side"):
                    upload.copy_part(1, source, ByteRange(0, part))
                return
            upload.copy_part(1, source, ByteRange(1000, part + 1000))
            upload.put_part(2, b"tail")
            upload.complete()
        assert self.raw_get(self.key("whole")) == noise(part + 1000)[1000:] + b"tail"

    def test_multipart_copies_no_changed_source(self, provider: Provider, part: int) -> None:
        """A source that changed since it was described is not copied from."""
        if not provider.limits.joins_server_side:
            pytest.skip("copied parts are refused, as another test shows")
        self.raw_put(self.key("source"), noise(part + 1))
        source = provider.head(self.key("source"))
        self.raw_put(self.key("source"), noise(part + 2, seed=1))
        with provider.start_multipart(self.key("whole")) as upload:
            with pytest.raises(PreconditionError):
                upload.copy_part(1, source, ByteRange(0, part))
            provider.delete([self.key("source")])
            with pytest.raises((NotFoundError, PreconditionError)):
                upload.copy_part(1, source, ByteRange(0, part))
        assert self.stored() == set()

    def test_multipart_if_absent(self, provider: Provider) -> None:
        """if_absent is settled at completion where the limits allow it, refused elsewhere."""
        key = self.key("whole")
        if not provider.limits.conditional_put:
            with pytest.raises(UnsupportedError, match="conditional_put"):
                provider.start_multipart(key, if_absent=True)
            assert self.raw_unfinished_uploads() == []
            return

        def upload_if_absent(body: bytes) -> None:
            with provider.start_multipart(key, if_absent=True) as upload:
                upload.put_part(1, body)
                upload.complete()

        upload_if_absent(b"first")
        with provider.start_multipart(key) as unconditional:
            with pytest.raises(PreconditionError):
                upload_if_absent(b"second")
            assert self.raw_get(key) == b"first"
            unconditional.put_part(1, b"third")
            unconditional.complete()
        assert self.raw_get(key) == b"third"
        assert self.raw_unfinished_uploads() == []

    def test_multipart_keeps_metadata(self, provider: Provider) -> None:
        """Metadata given at the start is the object's, and no mark of ours shows in it."""
        key = self.key("whole")
        if not provider.limits.keeps_metadata:
            with pytest.raises(UnsupportedError, match="keeps_metadata"):
                provider.start_multipart(key, metadata={"colour": "blue"})
            assert self.raw_unfinished_uploads() == []
            return
        with provider.start_multipart(key, metadata={"colour": "blue"}) as upload:
            upload.put_part(1, b"x")
            info = upload.complete()
        assert info.metadata == {"colour": "blue"}
        assert provider.head(key).metadata == {"colour": "blue"}

    def test_multipart_of_a_missing_bucket_raises(self) -> None:
        """A missing bucket raises at the start, or with the first part."""
        missing = self.make_missing_bucket_provider()
        if missing is None:
            pytest.skip("every bucket of this store exists")
        with pytest.raises(ProviderError), missing.start_multipart(self.key("whole")) as upload:
            upload.put_part(1, b"x")
