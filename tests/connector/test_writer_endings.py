"""However a save ends, it publishes the whole object or nothing, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from connector.writer import ObjectWriter
from providers import ProviderError, UnavailableError
from tests.connector.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD = b"the old object"
DATA = bytes(range(25))


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread for thread in threading.enumerate() if thread.name.startswith("connector")] == []


@pytest.fixture(params=[(5, 1), (5, 4), (100, 4)], ids=["in parts", "in parallel", "in one put"])
def provider(request: pytest.FixtureRequest) -> Recorder:
    """A bucket in which `k` is an old object, and `DATA` takes five parts or one put."""
    size, at_once = request.param
    provider = Recorder(
        part_size_bytes=size, multipart_threshold_bytes=size, max_parts_in_flight=at_once
    )
    provider.put("k", OLD)
    provider.steps.clear()
    return provider


def _nothing_happened(provider: Recorder) -> None:
    gc.collect()
    assert provider.held("k") == OLD
    assert provider.unfinished_uploads() == []


def _written(provider: Recorder) -> ObjectWriter:
    file = ObjectWriter(provider, "k")
    file.write(DATA)
    return file


class _StopError(Exception):
    """What a training script may raise."""


def _save(provider: Recorder, error: BaseException | None = None, *, closes: bool = False) -> None:
    """Write `DATA` in a block; close there too, and raise there, as asked."""
    with ObjectWriter(provider, "k") as file:
        for byte in DATA:
            file.write(bytes([byte]))
        if closes:
            file.close()
        if error is not None:
            raise error


# ---- Ends without an error of the store ------------------------------------------------


def test_closing_twice_is_quiet(provider: Recorder) -> None:
    """The first close publishes, the others do nothing."""
    file = _written(provider)
    file.close()
    made = list(provider.steps)
    file.close()
    file.abort()
    assert provider.steps == made
    assert provider.held("k") == DATA
    assert file.info.size == len(DATA)


def test_a_closed_file_in_its_own_block(provider: Recorder) -> None:
    """Closing inside the block publishes there; the block's end, raising or not, adds nothing."""
    _save(provider, closes=True)
    assert provider.held("k") == DATA
    provider.put("k", OLD)
    with pytest.raises(_StopError):
        _save(provider, _StopError(), closes=True)
    assert provider.held("k") == DATA


@pytest.mark.parametrize("error", [_StopError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_raises_publishes_nothing(
    provider: Recorder, error: type[BaseException]
) -> None:
    """Any exception in the block aborts, and comes out as it is."""
    raised = error()
    with pytest.raises(error) as caught:
        _save(provider, raised)
    assert caught.value is raised
    _nothing_happened(provider)


def test_aborting_publishes_nothing(provider: Recorder) -> None:
    """``abort`` may be called at any time, more than once; ``close`` after it is quiet."""
    with ObjectWriter(provider, "k") as file:
        file.write(DATA)
        file.abort()
        file.abort()
        assert file.closed
    with pytest.raises(ValueError, match="aborted"):
        _ = file.info
    _nothing_happened(provider)


def test_a_failing_abort_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """``abort`` raises what the store says; where another error is under way, it is logged."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)

    def refuse(step: str) -> None:
        if step == "abort":
            raise UnavailableError("down")

    provider.fault = refuse
    with pytest.raises(UnavailableError):
        _written(provider).abort()
    with pytest.raises(_StopError):
        _save(provider, _StopError())
    assert "could not abort the unfinished upload" in caplog.text
    assert provider.held("k") is None


# ---- Dropped ---------------------------------------------------------------------------


def _drop(file: ObjectWriter) -> None:
    del file


def _drop_in_a_cycle(file: ObjectWriter) -> None:
    cycle: list[Any] = [file]
    cycle.append(cycle)
    file.me = cycle  # type: ignore[attr-defined]


def _drop_a_text_wrapper(file: ObjectWriter) -> None:
    wrapper = io.TextIOWrapper(file, encoding="utf-8")
    wrapper.write("more")


def _drop_a_buffer(file: ObjectWriter) -> None:
    buffered = io.BufferedWriter(file)
    buffered.write(b"more")


def _drop_wrappers_in_a_cycle(file: ObjectWriter) -> None:
    wrapper = io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8")
    wrapper.write("more")
    file.me = wrapper  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "drop",
    [_drop, _drop_in_a_cycle, _drop_a_text_wrapper, _drop_a_buffer, _drop_wrappers_in_a_cycle],
)
def test_a_dropped_writer_publishes_nothing(
    provider: Recorder, drop: Callable[[ObjectWriter], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A writer that is collected without being closed aborts and says so in the log.

    Also where a wrapper of ``io`` is dropped, whose finaliser closes what it wraps.
    """
    drop(_written(provider))
    _nothing_happened(provider)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "dropped without close()" in caplog.text


def test_a_dropped_writer_does_not_wait_for_locks_of_its_thread() -> None:
    """A collection in the middle of a request cannot deadlock with that request's locks."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    lock = threading.Lock()

    def take_lock(_: str) -> None:
        with lock:
            pass

    file = _written(provider)
    provider.fault = take_lock
    with lock, pytest.MonkeyPatch.context() as patch:
        patch.setattr("connector.writer._FINALISER_WAIT_SECONDS", 0.01)
        del file
        (thread,) = [t for t in threading.enumerate() if t.name == "connector-abort"]
        assert len(provider.unfinished_uploads()) == 1
    thread.join()
    assert provider.unfinished_uploads() == []


@pytest.mark.parametrize("wrap", [io.BufferedWriter, io.TextIOWrapper])
def test_a_dropped_wrapper_is_no_quiet_loss(wrap: Callable[[ObjectWriter], object]) -> None:
    """A block whose wrapper was dropped, with all that it held, raises at its end."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)

    def save() -> None:
        with ObjectWriter(provider, "k") as file:
            wrapper: Any = wrap(file)
            wrapper.write("text" * 9 if wrap is io.TextIOWrapper else b"data" * 9)
            del wrapper

    with pytest.raises(ProviderError, match=f"a {wrap.__name__} around it was dropped"):
        save()
    assert provider.held("k") is None
    assert provider.unfinished_uploads() == []


# ---- Closed by somebody while an exception passes --------------------------------------


def test_finally_close_publishes_nothing(
    provider: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """``close`` in a ``finally`` that an exception passes aborts, and lets it pass."""
    raised = _StopError()

    def save() -> None:
        file = ObjectWriter(provider, "k")
        try:
            file.write(DATA)
            raise raised
        finally:
            file.close()

    with pytest.raises(_StopError) as caught:
        save()
    assert caught.value is raised
    assert "is not published" in caplog.text
    _nothing_happened(provider)


@pytest.mark.parametrize("error", [UnavailableError("down"), KeyboardInterrupt()], ids=repr)
def test_finally_close_does_not_hide_a_failed_write(error: BaseException) -> None:
    """``close`` in a ``finally`` that a failed write passes lets it pass, as it is."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    _failing(provider, 1, error)

    def save() -> None:
        file = ObjectWriter(provider, "k")
        try:
            file.write(DATA)
        finally:
            file.close()

    with pytest.raises(type(error)) as caught:
        save()
    assert caught.value is error
    assert provider.held("k") is None


@pytest.mark.parametrize("inside", [True, False])
def test_a_wrappers_block_that_raises_publishes_nothing(
    provider: Recorder, *, inside: bool
) -> None:
    """A ``with`` block of a wrapper, whose end closes the writer, is as good as the writer's."""

    def save() -> None:
        file = ObjectWriter(provider, "k")
        with io.TextIOWrapper(file, encoding="utf-8") as text:
            text.write("half")
            raise _StopError

    def save_inside() -> None:
        with ObjectWriter(provider, "k") as file, io.TextIOWrapper(file, encoding="utf-8") as text:
            text.write("half")
            raise _StopError

    with pytest.raises(_StopError):
        (save_inside if inside else save)()
    _nothing_happened(provider)


def test_a_wrappers_block_publishes(provider: Recorder) -> None:
    """The same blocks publish where nothing is raised."""
    with ObjectWriter(provider, "k") as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        text.write("whole")
    assert provider.held("k") == b"whole"
    with io.TextIOWrapper(ObjectWriter(provider, "k"), encoding="utf-8") as text:
        text.write("again")
    assert provider.held("k") == b"again"


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_saving_while_an_exception_is_handled(provider: Recorder) -> None:
    """A last checkpoint can be written in an ``except`` clause, by a block or by ``close``."""
    early = ObjectWriter(provider, "early")
    try:
        _interrupt()
    except KeyboardInterrupt:
        file = _written(provider)
        file.close()
        with early:
            early.write(DATA)
    assert provider.held("k") == provider.held("early") == DATA


def test_closing_after_the_handler_publishes(provider: Recorder) -> None:
    """An exception that was handled has no say in what is closed later."""
    file = _written(provider)
    with contextlib.suppress(KeyboardInterrupt):
        _interrupt()
    file.close()
    assert provider.held("k") == DATA


# ---- Errors of the store ---------------------------------------------------------------


def _failing(provider: Recorder, number: int, error: BaseException) -> None:
    """Let the step of that number fail, aborts not counted."""
    numbers = itertools.count()

    def fault(step: str) -> None:
        if step != "abort" and next(numbers) == number:
            raise error

    provider.fault = fault


def _steps(provider: Recorder) -> int:
    """Return how many steps a save of `DATA` takes."""
    with ObjectWriter(provider, "rehearsal") as file:
        file.write(DATA)
    return sum(step != "abort" for step, _ in provider.steps)


@pytest.mark.parametrize(
    "error", [UnavailableError("down"), KeyboardInterrupt(), MemoryError()], ids=repr
)
def test_a_failure_at_any_step_publishes_nothing(provider: Recorder, error: BaseException) -> None:
    """Whichever request fails, the error comes out once, as it is, and the old object stands."""
    for number in range(_steps(provider)):
        _failing(provider, number, error)
        with pytest.raises(type(error)) as caught:
            _save(provider, closes=number % 2 == 0)
        assert caught.value is error
        _nothing_happened(provider)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(UnavailableError("down"), UnavailableError), (KeyboardInterrupt(), ProviderError)],
    ids=repr,
)
def test_a_failed_writer_is_never_quiet(
    provider: Recorder, error: BaseException, kind: type[ProviderError]
) -> None:
    """After a failure every write, and every close, raises again and tells the cause."""
    for number in range(_steps(provider)):
        _failing(provider, number, error)
        file = ObjectWriter(provider, "k")
        with pytest.raises(type(error)):
            _finish(file)
        if not file.closed:
            with pytest.raises(kind, match="nothing was published"):
                file.write(b"more")
        for _ in range(2):
            with pytest.raises(kind, match="nothing was published") as told:
                file.close()
            assert repr(error) in str(told.value)
        assert file.closed
        _nothing_happened(provider)


def _finish(file: ObjectWriter) -> None:
    file.write(DATA)
    file.close()


def test_a_block_that_hides_a_failed_write_raises() -> None:
    """A write whose error the block swallows still fails the block's end."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    _failing(provider, 1, UnavailableError("down"))

    def save() -> None:
        with ObjectWriter(provider, "k") as file:
            with pytest.raises(UnavailableError, match=r"^down$"):
                file.write(DATA)
            file.flush()

    with pytest.raises(UnavailableError, match="an earlier error stands"):
        save()
    assert provider.held("k") is None
    assert provider.unfinished_uploads() == []


@pytest.mark.parametrize("error", [UnavailableError("down"), KeyboardInterrupt()], ids=repr)
def test_torch_does_not_hide_the_error(error: BaseException) -> None:
    """Out of a block around torch.save comes the failed write, not what torch makes of it."""
    for number in range(1, 4):
        provider = Recorder(part_size_bytes=2000, multipart_threshold_bytes=2000)
        _failing(provider, number, error)
        with pytest.raises(type(error)) as caught, ObjectWriter(provider, "k") as file:
            torch.save({"weights": torch.zeros(3000)}, file)
        assert caught.value is error
        assert provider.held("k") is None
        assert provider.unfinished_uploads() == []


def test_torch_hides_the_error_as_expected() -> None:
    """torch.save still replaces a failed write by the failure of its own clean-up."""
    provider = Recorder(part_size_bytes=2000, multipart_threshold_bytes=2000)
    _failing(provider, 1, UnavailableError("down"))
    file = ObjectWriter(provider, "k")
    with pytest.raises(RuntimeError, match=r"^\[enforce fail at inline_container"):
        torch.save({"weights": torch.zeros(3000)}, file)
    file.abort()


def test_an_error_of_the_users_own_comes_out() -> None:
    """What a block makes of a failed write is the block's affair."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    _failing(provider, 1, UnavailableError("down"))

    def save() -> None:
        with ObjectWriter(provider, "k") as file:
            try:
                file.write(DATA)
            except UnavailableError as error:
                raise _StopError from error

    with pytest.raises(_StopError):
        save()


def test_a_failed_writer_holds_on_to_nothing() -> None:
    """Once its block has ended, a failed writer keeps no traceback, and so no tensor, alive."""
    provider = Recorder(part_size_bytes=5, multipart_threshold_bytes=5)
    _failing(provider, 1, UnavailableError("down"))
    file = ObjectWriter(provider, "k")
    with pytest.raises(UnavailableError), file:
        file.write(DATA)
    assert not [value for value in vars(file).values() if isinstance(value, BaseException)]
