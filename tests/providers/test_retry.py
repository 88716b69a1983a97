"""The one retry policy."""

import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from providers.errors import (
    AccessDeniedError,
    NotFoundError,
    ProviderError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.memory import MemoryProvider
from providers.retry import Attempt, RetryPolicy, on_retry, stopping_at, without_waiting


class Clock:
    """Time that passes only by being slept through, or by ``pass_seconds``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Sleep, at once."""
        self.slept.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        """Tell the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the policy goes by."""
    clock = Clock()
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


class Script:
    """A request that fails by a list, then succeeds."""

    def __init__(
        self, *errors: BaseException, clock: Clock | None = None, seconds: float = 0
    ) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.clock = clock
        self.seconds = seconds

    def __call__(self) -> str:
        """Send the request."""
        self.calls += 1
        if self.clock is not None:
            self.clock.now += self.seconds
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def run(
    policy: RetryPolicy,
    script: Script,
    recover: Callable[[ProviderError], bool] = lambda _: False,
) -> str:
    """Run a script under a policy; its errors are what they are."""

    def explain(error: Exception) -> ProviderError:
        if isinstance(error, ProviderError):
            return error
        raise error

    return policy.call(script, explain, recover)


def unavailable(count: int) -> list[Exception]:
    """So many failures that may pass."""
    return [UnavailableError("down", status=503) for _ in range(count)]


class TestAttempts:
    def test_success_needs_one_attempt(self, clock: Clock) -> None:
        """What succeeds is asked once, without a pause."""
        script = Script()
        assert run(RetryPolicy(), script) == "done"
        assert script.calls == 1
        assert clock.slept == []

    @pytest.mark.parametrize("kind", [UnavailableError, ThrottledError, TimedOutError])
    def test_what_may_pass_is_tried_again(self, clock: Clock, kind: type[ProviderError]) -> None:
        """Retryable errors are followed by further attempts until one succeeds."""
        script = Script(kind("a"), kind("b"))
        assert run(RetryPolicy(), script) == "done"
        assert script.calls == 3
        assert len(clock.slept) == 2

    @pytest.mark.parametrize("kind", [NotFoundError, AccessDeniedError, ProviderError])
    def test_what_is_final_is_not(self, clock: Clock, kind: type[ProviderError]) -> None:
        """Other errors come out at once, as they are."""
        error = kind("no")
        with pytest.raises(kind) as caught:
            run(RetryPolicy(), Script(error))
        assert caught.value is error
        assert clock.slept == []

    def test_attempts_are_limited(self, clock: Clock) -> None:
        """The last attempt's error comes out, with the history of all of them."""
        script = Script(TimedOutError("first"), *unavailable(9))
        with pytest.raises(UnavailableError) as caught:
            run(RetryPolicy(max_attempts=3), script)
        assert script.calls == 3
        assert len(clock.slept) == 2
        text = str(caught.value)
        assert "gave up after 3 attempts" in text
        assert "1: TimedOutError at 0.0 s" in text
        assert "3: UnavailableError 503 at" in text
        assert "\n" not in text

    def test_the_last_error_keeps_its_extras(self, clock: Clock) -> None:
        """The error that comes out can be matched and read like the last attempt's own."""
        extras: dict[str, Any] = {"uri": "s3://b/k", "operation": "get", "code": "SlowDown"}
        failures = [ThrottledError("slow", status=503, **extras) for _ in range(2)]
        with pytest.raises(ThrottledError) as caught:
            run(RetryPolicy(max_attempts=2), Script(*failures))
        assert caught.value.__cause__ is failures[1]
        assert caught.value.status == 503
        assert {name: getattr(caught.value, name) for name in extras} == extras
        assert str(caught.value).count("s3://b/k") == 1
        assert len(clock.slept) == 1

    def test_a_single_attempt_is_left_as_it_is(self, clock: Clock) -> None:
        """With one attempt allowed there is no history to tell."""
        (error,) = unavailable(1)
        with pytest.raises(UnavailableError) as caught:
            run(RetryPolicy(max_attempts=1), Script(error))
        assert caught.value is error
        assert clock.slept == []

    def test_what_is_no_answer_passes_through(self) -> None:
        """Mistakes in the program, and interrupts, are never tried again."""
        for error in (ZeroDivisionError("bug"), KeyboardInterrupt()):
            script = Script(error)
            with pytest.raises(type(error)):
                run(RetryPolicy(), script)
            assert script.calls == 1


class TestPauses:
    def test_pauses_are_drawn_from_a_doubling_range(self) -> None:
        """Full jitter: anything from nothing to a bound that doubles up to a bound of its own."""
        policy = RetryPolicy(base_seconds=1.0, max_pause_seconds=10.0)
        (error,) = unavailable(1)
        assert isinstance(error, ProviderError)
        for failures, bound in enumerate([1, 2, 4, 8, 10, 10]):
            drawn = [policy.pause_seconds(failures, error) for _ in range(300)]
            assert all(0 <= pause <= bound for pause in drawn)
            assert max(drawn) > bound * 0.7
            assert min(drawn) < bound * 0.3

    def test_the_service_may_ask_for_more(self, clock: Clock) -> None:
        """A pause is never shorter than Retry-After."""
        script = Script(ThrottledError("slow", retry_after_seconds=42.0))
        assert run(RetryPolicy(), script) == "done"
        assert clock.slept == [42.0]

    def test_it_gives_up_in_time(self, clock: Clock) -> None:
        """Attempts and pauses together stay within the time allowed."""
        script = Script(*unavailable(99), clock=clock, seconds=30)
        with pytest.raises(UnavailableError, match="gave up after 4 attempts"):
            run(RetryPolicy(99, give_up_after_seconds=100, max_pause_seconds=0.01), script)
        assert clock.now <= 1000 + 100 + 30

    def test_it_gives_up_rather_than_wait_too_long(self, clock: Clock) -> None:
        """A pause that would go beyond the time allowed is not begun."""
        script = Script(ThrottledError("slow", retry_after_seconds=1000.0))
        with pytest.raises(ThrottledError):
            run(RetryPolicy(give_up_after_seconds=300), script)
        assert clock.slept == []

    def test_tests_need_not_wait(self, clock: Clock) -> None:
        """The switch makes pauses nothing, in its block and no longer."""
        with without_waiting():
            assert run(RetryPolicy(), Script(*unavailable(5))) == "done"
        assert sum(clock.slept) == 0
        assert run(RetryPolicy(), Script(ThrottledError("x", retry_after_seconds=3))) == "done"
        assert clock.slept[-1] == 3


class TestRecovery:
    def test_a_mended_cause_is_tried_again_at_once(self, clock: Clock) -> None:
        """What recover mends is repeated without a pause and counts as no attempt."""
        script = Script(AccessDeniedError("expired"), *unavailable(1))
        assert run(RetryPolicy(max_attempts=2), script, lambda _: True) == "done"
        assert script.calls == 3
        assert len([pause for pause in clock.slept if pause]) == 1

    def test_a_cause_is_mended_once(self, clock: Clock) -> None:
        """The same failure after a recovery is final."""
        seen: list[ProviderError] = []

        def recover(error: ProviderError) -> bool:
            seen.append(error)
            return True

        failures = [AccessDeniedError("expired"), AccessDeniedError("expired still")]
        with pytest.raises(AccessDeniedError, match="still"):
            run(RetryPolicy(), Script(*failures), recover)
        assert seen == failures[:1]
        assert sum(clock.slept) == 0

    def test_what_cannot_be_mended_is_final(self, clock: Clock) -> None:
        """A recovery that knows no cure leaves the error as it is."""
        script = Script(AccessDeniedError("no"))
        with pytest.raises(AccessDeniedError):
            run(RetryPolicy(), script)
        assert script.calls == 1
        assert clock.slept == []


class TestHooks:
    def test_a_hook_sees_each_attempt_that_is_repeated(self, clock: Clock) -> None:
        """Hooks get number, error, pause and time; not the success, nor the final failure."""
        seen: list[Attempt] = []
        unsubscribe = on_retry(seen.append)
        try:
            run(RetryPolicy(), Script(*unavailable(2)))
            with pytest.raises(UnavailableError):
                run(RetryPolicy(max_attempts=2), Script(*unavailable(2)))
        finally:
            unsubscribe()
        assert [attempt.number for attempt in seen] == [1, 2, 1]
        assert [attempt.waited_seconds for attempt in seen] == clock.slept
        assert [attempt.elapsed_seconds for attempt in seen] == pytest.approx(
            [0.0, clock.slept[0], 0.0]
        )
        assert {type(attempt.error) for attempt in seen} == {UnavailableError}

    def test_an_unsubscribed_hook_is_silent(self, clock: Clock) -> None:
        """After unsubscribing nothing is called any more."""
        seen: list[Attempt] = []
        on_retry(seen.append)()
        run(RetryPolicy(), Script(*unavailable(1)))
        assert seen == []
        assert len(clock.slept) == 1


@pytest.mark.parametrize(
    "error", [NotFoundError("gone"), UnavailableError("down"), ZeroDivisionError("a mistake")]
)
def test_a_failure_frees_what_its_callers_held(error: Exception) -> None:
    """What a failed call's frames held goes with its error, not only when garbage is collected."""

    def fail() -> None:
        raise type(error)(*error.args)

    def read(tensor: set[int]) -> None:
        MemoryProvider("b").request("head", str(len(tensor)), fail)

    tensor = {1}
    kept = weakref.ref(tensor)
    gc.collect()
    gc.disable()
    try:
        with without_waiting(), contextlib.suppress(ProviderError, ZeroDivisionError):
            read(tensor)
        del tensor
        assert kept() is None
    finally:
        gc.enable()


def test_a_stop_ends_the_pause_and_the_attempts() -> None:
    """Once a thread's operations shall stop, none pauses nor is tried again; others are."""
    stop = threading.Event()
    busy = UnavailableError("busy", retry_after_seconds=250)
    script = Script(busy, busy)
    forget = on_retry(lambda _: stop.set())
    try:
        with stopping_at(stop), pytest.raises(ProviderError, match="stopped"):
            run(RetryPolicy(), script)
    finally:
        forget()
    assert script.calls == 1
    with without_waiting():
        assert run(RetryPolicy(), script) == "done"


def test_what_stops_may_still_succeed() -> None:
    """The attempt under way is not broken off: its success counts."""
    stop = threading.Event()
    stop.set()
    with stopping_at(stop):
        assert run(RetryPolicy(), Script()) == "done"
