"""How much a conversation may fill."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from turnlog.compaction.meter import Gauge
from turnlog.compaction.window import DEFAULT_WINDOW, Window, window_of
from turnlog.events import Header, RequestContext, RequestHeader
from turnlog.testing.builders import CONFIG, Author, new_session

GAUGE = Gauge(8000, 100_000, 3, 2000, None, None, 10)


def test_a_share_and_a_number_of_tokens_are_told_apart() -> None:
    """A threshold up to one is a part of the window, above that it is tokens."""
    assert Window(10_000).limit == 8000
    assert Window(10_000, threshold=1).limit == 10_000
    assert Window(10_000, threshold=6000).limit == 6000
    assert Window(10_000, threshold=60_000).limit == 10_000


def test_the_answer_must_have_room() -> None:
    """What the answer may take is kept free, where that is more than the threshold leaves."""
    assert Window(10_000, output=4000).limit == 6000
    assert Window(10_000, output=100).limit == 8000
    assert Window(10_000, output=20_000).limit == 0


def test_tokens_bytes_and_media_are_told_apart() -> None:
    """A request is too large in the respects in which it is, and in no other."""
    assert Window(10_000).over(GAUGE) == ()
    assert Window(10_000).over(replace(GAUGE, tokens=8001)) == ("tokens",)
    assert Window(10_000, bytes=99_999).over(GAUGE) == ("bytes",)
    assert Window(10_000, media=2).over(GAUGE) == ("media",)
    assert Window(9000, bytes=1, media=1).over(GAUGE) == ("tokens", "bytes", "media")


def test_what_cannot_shrink_is_subtracted_first() -> None:
    """Messages have the room that the fixed part leaves, and keep a quarter of that."""
    assert Window(10_000).room(GAUGE) == 6000
    assert Window(10_000).retained(GAUGE) == 1500
    assert Window(10_000, retain=2000).retained(GAUGE) == 2000
    assert Window(10_000, retain=9000).retained(GAUGE) == 6000


def test_a_window_full_of_schemas_has_no_room() -> None:
    """Where the fixed part alone is too much, nothing is left to keep: it can be said at once."""
    window = Window(2000)
    assert window.room(GAUGE) < 0
    assert window.retained(GAUGE) == 0


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"threshold": 0.0}, {"retain": -0.1}])
def test_impossible_windows_are_refused(wrong: dict[str, float]) -> None:
    """A window of nothing, and one that is always too small, cannot be made."""
    with pytest.raises(ValueError, match="expected"):
        Window(**{"tokens": 1000, **wrong})  # pyright: ignore[reportArgumentType]


def test_what_the_model_says_counts_first() -> None:
    """A model's own word counts before what was logged."""
    author = Author()
    author.record("request/header", RequestHeader(Header(CONFIG), "initial"))
    author.record("request/context", RequestContext(CONFIG.provider, CONFIG.model, 9000))
    assert window_of(author.session, 4000) == (4000, False)
    assert window_of(author.session, None) == (9000, False)
    assert window_of(author.session, 0) == (9000, False)


def test_an_unknown_window_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without a window the stated default is taken, and each session says so once."""
    sessions = new_session("one"), new_session("two")
    with caplog.at_level(logging.WARNING, "turnlog"):
        for session in (*sessions, *sessions):
            assert window_of(session) == (DEFAULT_WINDOW, True)
    assert [record.getMessage() for record in caplog.records] == [
        "session 'one': the model's window is not known, 32768 tokens are assumed",
        "session 'two': the model's window is not known, 32768 tokens are assumed",
    ]
