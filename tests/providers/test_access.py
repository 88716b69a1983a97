"""When credentials of reads are renewed, by whom, and who waits for it."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from providers import access
from providers.access import Access, AccessSlot, Clock, Sign
from providers.counters import snapshot
from providers.errors import AccessDeniedError, UnavailableError
from providers.values import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIFE_SECONDS = 1000.0
PATIENCE_SECONDS = 30.0


class Time:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_796_000_000.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The time by which credentials age."""
    clock = Time()
    frozen = SimpleNamespace(time=lambda: clock.now, monotonic=lambda: clock.now)
    monkeypatch.setattr(access, "time", frozen)
    return clock


@dataclass(frozen=True)
class Token(Access):
    """Credentials that sign with their name."""

    name: str
    expires_at: float | None = None

    @override
    def signer(self, now: Callable[[], float]) -> Sign:
        def sign(
            key: str,
            headers: Mapping[str, str],
            method: str = "GET",
            query: str = "",
            payload_hash: str | None = None,
        ) -> HttpRequest:
            del headers, query, payload_hash
            return HttpRequest(method, key, {"Authorization": self.name})

        return sign


class Source:
    """Hands out one token after another, or fails, or keeps its callers waiting."""

    def __init__(self, time: Time, life_seconds: float | None = LIFE_SECONDS) -> None:
        self.time = time
        self.life_seconds = life_seconds
        self.asked: list[bool] = []
        self.fails = False
        self.begun = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def find(self, renewing: bool) -> Token:
        """Return the next token."""
        self.asked.append(renewing)
        self.begun.set()
        if not self.open.wait(PATIENCE_SECONDS):
            raise TimeoutError
        if self.fails:
            raise UnavailableError("nobody there")
        life = self.life_seconds
        expires_at = None if life is None else self.time.now + life
        return Token(f"token {len(self.asked)}", expires_at)


def used(slot: AccessSlot[Token]) -> str:
    """Return what a read is signed with now."""
    sign = slot.get()
    if sign is None:
        raise RuntimeError("nothing to sign with")
    return sign("key", {}).headers["Authorization"]


@pytest.fixture
def source(time: Time) -> Source:
    """Where tokens come from."""
    return Source(time)


@pytest.fixture
def slot(source: Source) -> AccessSlot[Token]:
    """What is tested."""
    return AccessSlot(source.find, Clock())


# ---- When ----------------------------------------------------------------------------------


def test_renewed_between_80_and_90_percent_of_what_is_left(time: Time) -> None:
    """No process renews before, none after, and each has a moment of its own."""
    began, moments = time.now, []
    for _ in range(50):
        time.now = began
        source = Source(time)
        slot = AccessSlot(source.find, Clock())
        for percent in range(0, 100, 1):
            time.now = began + LIFE_SECONDS * percent / 100
            used(slot)
            if len(source.asked) == 2:
                moments.append(percent)
                break
    assert len(moments) == 50
    assert min(moments) >= 80
    assert max(moments) <= 90
    assert len(set(moments)) > 3


def test_share_is_of_the_life_left(time: Time) -> None:
    """Credentials that arrive old are renewed by what they have left, not by their whole life."""
    source = Source(time, life_seconds=10.0)
    slot = AccessSlot(source.find, Clock())
    began = time.now
    used(slot)
    time.now = began + 7.9
    assert used(slot) == "token 1"
    time.now = began + 9.1
    assert used(slot) == "token 2"


def test_first_ask_is_no_renewal(slot: AccessSlot[Token], source: Source, time: Time) -> None:
    """Only what replaces earlier credentials is told and counted as a renewal."""
    before = snapshot().refreshes
    used(slot)
    assert (source.asked, snapshot().refreshes) == ([False], before)
    time.now += 0.95 * LIFE_SECONDS
    used(slot)
    assert (source.asked, snapshot().refreshes) == ([False, True], before + 1)


@pytest.mark.parametrize("life_seconds", [None, LIFE_SECONDS])
def test_asked_once_while_good(time: Time, life_seconds: float | None) -> None:
    """Credentials that live on, or for ever, are asked for once."""
    source = Source(time, life_seconds)
    slot = AccessSlot(source.find, Clock())
    for _ in range(100):
        assert used(slot) == "token 1"
        time.now += 1.0 if life_seconds else 1e8
    assert source.asked == [False]


def test_what_cannot_be_signed_is_asked_once(time: Time) -> None:
    """A bucket whose reads somebody else must sign is not asked about for every read."""
    asked = []

    def find(renewing: bool) -> None:
        asked.append(renewing)

    slot: AccessSlot[Token] = AccessSlot(find, Clock())
    for _ in range(3):
        assert slot.get() is None
        time.now += 1e6
    assert asked == [False]


def test_adopted_credentials_are_renewed_like_any(
    slot: AccessSlot[Token], source: Source, time: Time
) -> None:
    """What travelled here is used without asking, until it has aged."""
    slot.adopt(Token("travelled", time.now + LIFE_SECONDS))
    assert used(slot) == "travelled"
    assert source.asked == []
    time.now += 0.91 * LIFE_SECONDS
    assert used(slot) == "token 1"
    assert source.asked == [True]


@pytest.mark.parametrize("life_seconds", [0.4, 0.0, -3600.0])
def test_credentials_that_hardly_live_are_used(time: Time, life_seconds: float) -> None:
    """Those that arrive all but expired serve, and are not asked for anew for each read."""
    source = Source(time, life_seconds)
    slot = AccessSlot(source.find, Clock())
    assert {used(slot) for _ in range(100)} == {"token 1"}
    time.now += 1.1
    assert {used(slot) for _ in range(100)} == {"token 2"}
    slot.drop()
    assert {used(slot) for _ in range(100)} == {"token 3"}
    assert source.asked == [False, True, True]


def test_renewal_that_fails_after_a_short_life(time: Time) -> None:
    """What has expired is not signed with while no other can be had."""
    source = Source(time, 0.4)
    slot = AccessSlot(source.find, Clock())
    used(slot)
    source.fails = True
    time.now += 1.1
    with pytest.raises(UnavailableError):
        used(slot)


@pytest.mark.parametrize("ahead_seconds", [7200.0, -7200.0])
def test_credentials_age_by_the_corrected_clock(time: Time, ahead_seconds: float) -> None:
    """Where this machine's clock is known to be off, their end is told by the service's."""
    clock = Clock()
    clock.note(time.now + ahead_seconds)
    clock.correct()
    source = Source(time)
    slot = AccessSlot(source.find, clock)
    ends = time.now + ahead_seconds + LIFE_SECONDS
    slot.adopt(Token("travelled", ends))
    time.now += 0.79 * LIFE_SECONDS
    assert used(slot) == "travelled"
    time.now += 0.12 * LIFE_SECONDS
    source.fails = True
    assert used(slot) == "travelled"
    time.now += 0.1 * LIFE_SECONDS
    with pytest.raises(UnavailableError):
        used(slot)


# ---- Failures ------------------------------------------------------------------------------


def test_failed_early_renewal_keeps_the_old(
    slot: AccessSlot[Token], source: Source, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """The old ones serve until they expire, with another try every 5 s; then it is an error."""
    began = time.now
    used(slot)
    source.fails = True
    time.now = began + 0.91 * LIFE_SECONDS
    assert [used(slot) for _ in range(10)] == ["token 1"] * 10
    assert len(source.asked) == 2
    assert "could not renew the credentials early" in caplog.text
    assert "nobody there" in caplog.text
    time.now += 5.1
    assert used(slot) == "token 1"
    assert len(source.asked) == 3
    time.now = began + LIFE_SECONDS - 0.1
    assert used(slot) == "token 1"
    time.now = began + LIFE_SECONDS + 5.0
    for _ in range(2):
        with pytest.raises(UnavailableError, match="nobody there"):
            slot.get()
    source.fails = False
    assert used(slot) == f"token {len(source.asked)}"


def test_expiry_during_the_pause_is_not_waited_out(
    slot: AccessSlot[Token], source: Source, time: Time
) -> None:
    """A failed early renewal close to the end never has reads signed with what has expired."""
    began = time.now
    used(slot)
    source.fails = True
    time.now = began + LIFE_SECONDS - 1.0
    assert used(slot) == "token 1"
    source.fails = False
    time.now = began + LIFE_SECONDS + 1.0
    assert used(slot) == "token 3"


def test_first_failure_raises(slot: AccessSlot[Token], source: Source) -> None:
    """Where there was nothing before there is nothing to go on with; it is looked for again."""
    source.fails = True
    with pytest.raises(UnavailableError):
        slot.get()
    source.fails = False
    assert used(slot) == "token 2"


def test_refused_credentials_do_not_serve_on(slot: AccessSlot[Token], source: Source) -> None:
    """However long they would have lived: where no others can be had, that is the error."""
    used(slot)
    slot.drop()
    source.fails = True
    with pytest.raises(UnavailableError):
        slot.get()
    source.fails = False
    assert used(slot) == "token 3"
    assert source.asked == [False, True, True]


def test_refused_while_others_were_fetched(slot: AccessSlot[Token], source: Source) -> None:
    """What was fetched before the refusal may be what was refused, so it is fetched again."""
    used(slot)
    slot.drop()
    find, refusals = source.find, iter([slot.drop])

    def refused_meanwhile(renewing: bool) -> Token:
        found = find(renewing)
        next(refusals, lambda: None)()
        return found

    slot._find = refused_meanwhile
    assert used(slot) == "token 3"
    assert len(source.asked) == 3
    assert used(slot) == "token 3"


def test_threads_refused_together_renew_once(
    slot: AccessSlot[Token], source: Source, time: Time
) -> None:
    """Within a second of a renewal others' refusals are of the credentials before it."""
    reopened: list[float] = []
    used(slot)
    for _ in range(8):
        slot.renew(lambda: reopened.append(time.now))
        used(slot)
    assert (len(reopened), len(source.asked)) == (1, 2)
    time.now += 1.1
    slot.renew(lambda: reopened.append(time.now))
    assert used(slot) == "token 3"
    assert len(reopened) == 2


# ---- Threads -------------------------------------------------------------------------------


class Watched:
    """A lock that tells who waits for it.

    Attributes:
        waiting: released once for each thread that is about to wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting = threading.Semaphore(0)

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock."""
        if blocking:
            self.waiting.release()
        return self._lock.acquire(blocking)

    def release(self) -> None:
        """Give it back."""
        self._lock.release()


def test_nobody_waits_for_an_early_renewal(
    slot: AccessSlot[Token], source: Source, time: Time
) -> None:
    """One thread asks; all others sign with the old ones meanwhile."""
    used(slot)
    time.now += 0.95 * LIFE_SECONDS
    source.begun.clear()
    source.open.clear()
    with ThreadPoolExecutor(17) as pool:
        renewing = pool.submit(used, slot)
        assert source.begun.wait(PATIENCE_SECONDS)
        others = [pool.submit(used, slot) for _ in range(16)]
        assert [one.result(PATIENCE_SECONDS) for one in others] == ["token 1"] * 16
        assert not renewing.done()
        source.open.set()
        assert renewing.result(PATIENCE_SECONDS) == "token 2"
    assert used(slot) == "token 2"
    assert len(source.asked) == 2


@pytest.mark.parametrize("why", ["first", "expired", "refused"])
def test_all_wait_where_there_is_nothing_good(
    slot: AccessSlot[Token], source: Source, time: Time, why: str
) -> None:
    """One thread asks; the others wait for it, and none asks again."""
    if why != "first":
        used(slot)
    if why == "expired":
        time.now += LIFE_SECONDS + 1.0
    if why == "refused":
        slot.drop()
    known = len(source.asked)
    lock = Watched()
    slot._lock = lock  # type: ignore[assignment]
    source.open.clear()
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(used, slot) for _ in range(8)]
        for _ in reads:
            assert lock.waiting.acquire(timeout=PATIENCE_SECONDS)
        assert not any(read.done() for read in reads)
        source.open.set()
        assert {read.result(PATIENCE_SECONDS) for read in reads} == {f"token {known + 1}"}
    assert len(source.asked) == known + 1


def test_a_failure_is_raised_in_every_thread_that_waited(
    slot: AccessSlot[Token], source: Source
) -> None:
    """Whoever has nothing to sign with says so."""
    source.fails = True
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(used, slot) for _ in range(4)]
        errors = [read.exception(PATIENCE_SECONDS) for read in reads]
    assert {type(error) for error in errors} == {UnavailableError}


# ---- Forks ---------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_while_another_thread_renews(
    slot: AccessSlot[Token], source: Source, time: Time
) -> None:
    """The child renews by itself; it never waits for a thread that it has not got."""
    used(slot)
    time.now += LIFE_SECONDS + 1.0
    source.begun.clear()
    source.open.clear()
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.SimpleQueue[str] = context.SimpleQueue()

    def read() -> None:
        source.open.set()
        answers.put(used(slot))

    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(used, slot)
        assert source.begun.wait(PATIENCE_SECONDS)
        child = context.Process(target=read)
        child.start()
        child.join(PATIENCE_SECONDS)
        source.open.set()
        assert child.exitcode == 0
        assert renewing.result(PATIENCE_SECONDS) == "token 2"
    # The list that the child has copied held the parent's question already.
    assert answers.get() == "token 3"
    answers.close()


# ---- The clock -----------------------------------------------------------------------------


def test_clock_goes_by_what_answers_tell(time: Time) -> None:
    """It is this machine's until an answer has told another time and that is asked for."""
    clock, before = Clock(), snapshot().refreshes
    assert clock() == time.now
    assert not clock.correct()
    clock.note(time.now + 3600.0)
    assert clock() == time.now
    assert clock.correct()
    assert clock() == time.now + 3600.0
    time.now += 5.0
    assert clock() == time.now + 3600.0
    assert snapshot().refreshes == before + 1


def test_clock_is_corrected_once_for_all(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    """Threads that are told the same time one after another all try again; one line is logged."""
    clock, before = Clock(), snapshot().refreshes
    for _ in range(4):
        clock.note(time.now - 3600.0)
    assert [clock.correct() for _ in range(4)] == [True] * 4
    assert clock() == time.now - 3600.0
    assert snapshot().refreshes == before + 1
    assert caplog.text.count("3600 s off") == 1
    clock.note(time.now)
    assert clock.correct()
    assert clock() == time.now


def test_signatures_go_by_the_corrected_clock(time: Time) -> None:
    """A signer made before the correction is no exception: it asks the clock for every request."""
    seen: list[float] = []

    class Stamped(Token):
        @override
        def signer(self, now: Callable[[], float]) -> Sign:
            inner = super().signer(now)

            def sign(key: str, headers: Mapping[str, str], *rest: str) -> HttpRequest:
                seen.append(now())
                return inner(key, headers, *rest)

            return sign  # type: ignore[return-value]

    clock = Clock()
    slot: AccessSlot[Token] = AccessSlot(lambda _: Stamped("token"), clock)
    used(slot)
    clock.note(time.now + 900.0)
    clock.correct()
    used(slot)
    assert seen == [time.now, time.now + 900.0]


def test_access_denied_is_raised_as_it_is(time: Time) -> None:
    """What the SDK's chain says about missing credentials is what the read raises."""

    def find(renewing: bool) -> Token:
        raise AccessDeniedError(f"there are no credentials ({renewing=})")

    slot = AccessSlot(find, Clock())
    with pytest.raises(AccessDeniedError, match="renewing=False"):
        slot.get()
    assert slot.access is None
    assert time.now
