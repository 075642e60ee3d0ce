"""Whose turn it is, as one worker goes round the sessions that wait."""

from __future__ import annotations

import pytest

from turnlog.worker.rota import BROKEN, BUSY, STUCK, Delay, Rota


def rota() -> Rota:
    """One without jitter."""
    return Rota(lambda: 0.0)


def run(round_: Rota, now: float = 0.0) -> str | None:
    """Start whichever is due, and be done with it."""
    name = round_.due(now)
    if name is not None:
        round_.start(name)
        round_.done(name)
    return name


def test_a_session_goes_to_the_end_after_its_turn() -> None:
    """One with a hundred prompts, which the store lists first, holds up none with a single one."""
    round_ = rota()
    ran: list[str | None] = []
    waiting = {"many": 3, "b": 1, "c": 1}
    while waiting:
        round_.see(waiting)
        name = run(round_)
        assert name is not None
        waiting[name] -= 1
        if not waiting[name]:
            del waiting[name]
        ran.append(name)
    assert ran == ["many", "b", "c", "many", "many"]


def test_a_running_session_is_not_taken_twice() -> None:
    """However often the store lists it meanwhile."""
    round_ = rota()
    round_.see(["a", "b"])
    round_.start("a")
    round_.see(["a", "b"])
    assert run(round_) == "b"
    round_.see(["a"])
    assert run(round_) is None


def test_what_ran_while_the_store_was_asked_is_left_out() -> None:
    """The store may not have known yet that its inbox is empty."""
    round_ = rota()
    round_.see(["a"])
    round_.start("a")
    asked = set(round_.running)
    round_.done("a")
    round_.see(["a"], but=asked)
    assert run(round_) is None
    round_.see(["a"])
    assert run(round_) == "a"


def test_a_session_that_could_not_be_run_waits_longer_each_time() -> None:
    """Up to a most; the others run meanwhile; a turn makes it start anew."""
    round_ = rota()
    waits: list[float] = []
    now = 0.0
    for _ in range(4):
        round_.see(["bad", "good"])
        assert round_.due(now) == "bad"
        round_.start("bad")
        waits.append(round_.later("bad", now, Delay(1.0, 4.0)))
        assert run(round_, now) == "good"
        assert round_.due(now) is None
        assert round_.wakes_in(now) == waits[-1]
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 4.0]
    assert run(round_, now) == "bad"
    assert round_.later("bad", now, Delay(1.0, 4.0)) == 1.0


def test_a_session_of_another_process_keeps_its_place() -> None:
    """It waited longest: if that process dies, it is not behind all that came later."""
    round_ = rota()
    round_.see(["a", "b", "c"])
    round_.start("a")
    again = round_.later("a", 0.0, BUSY)
    assert run(round_, 0.0) == "b"
    assert run(round_, again) == "a"


def test_what_is_known_to_be_busy_is_not_tried() -> None:
    """It keeps its place, is not stuck, and is due as soon as it is seen to be free."""
    round_ = rota()
    round_.see(["a", "b"], busy={"a"})
    assert run(round_) == "b"
    assert run(round_) is None
    assert (round_.stuck, round_.is_over, round_.wakes_in(0.0)) == ((), False, None)
    round_.see(["a", "c"])
    assert run(round_) == "a"


def test_what_waits_no_longer_is_forgotten() -> None:
    """Another worker ran it."""
    round_ = rota()
    round_.see(["a"])
    round_.start("a")
    round_.later("a", 0.0, STUCK)
    assert (round_.stuck, round_.is_over) == (("a",), True)
    round_.see([])
    assert (round_.stuck, round_.is_over, round_.wakes_in(0.0)) == ((), True, None)


def test_it_is_over_when_only_what_is_stuck_waits() -> None:
    """What another process runs is not stuck; what runs here is not over."""
    round_ = rota()
    round_.see(["a", "b"])
    round_.start("a")
    round_.start("b")
    round_.later("a", 0.0, BROKEN)
    assert not round_.is_over
    round_.later("b", 0.0, BUSY)
    assert not round_.is_over
    round_.see(["a"])
    assert round_.is_over


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 8.0), (0.5, 6.0), (1.0, 4.0)])
def test_jitter_takes_up_to_half(jitter: float, seconds: float) -> None:
    """So that workers that failed together do not come back together."""
    assert Delay(1.0, 100.0).after(4, jitter) == seconds
    assert Delay(1.0, 100.0).after(10_000, jitter) == 100.0 * (1 - jitter / 2)
