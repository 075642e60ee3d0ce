"""A conversation far past the window of a real model, at a terminal."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from tests.e2e import children
from tests.e2e.children import on_terminal
from tests.e2e.command import done
from tests.e2e.local import require_local_model
from turnlog import Session, open_store
from turnlog.compaction.history import compactions
from turnlog.compaction.window import Window
from turnlog.events import CompactionSummary, RequestSent
from turnlog.views.requests import COMPACTION

pytest.importorskip("termios", reason="terminals as POSIX has them")

TURNS, WINDOW = 50, 1024  # a smaller window than its own, so that it overflows often
NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Frank", "Greta", "Henry", "Ida", "Jack")
TRADES = ("teacher", "baker", "doctor", "sailor", "painter", "farmer", "pilot", "singer")
PLACES = ("Oslo", "Lisbon", "Cairo", "Lima", "Tokyo", "Rome", "Paris", "Dublin", "Delhi")


def said(turn: int) -> str:
    """What the person says in a turn: each something else, and short enough for one line."""
    name, trade, place = (of[turn * 7 % len(of)] for of in (NAMES, TRADES, PLACES))
    return f"{name} is a {trade} in {place}, aged {20 + turn}. What could we do?"


@pytest.mark.long
def test_a_chat_goes_on_past_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty turns without an error: the model itself makes summaries, and nothing is lost."""
    require_local_model()
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    monkeypatch.setenv("TURNLOG_STORE", url)
    monkeypatch.setattr(children, "PATIENCE", 1200.0)
    words = ["chat", "--session", "s", "--model", "local:smollm2", "--context-window", WINDOW]
    words += ["--max-output-tokens", 48, "--system", "Answer in one short sentence."]
    with on_terminal(*words) as (chat, terminal):
        chat.until("> ")
        for turn in range(TURNS):
            os.write(terminal, f"{said(turn)}\n".encode())
            chat.until(said(turn), "\n> ")
        os.write(terminal, b"/exit\n")
        chat.until("turnlog chat --session s --model local:smollm2 --context-window 1024")
        assert chat.status() == 0
    assert "turnlog: " not in chat.text  # how an error begins
    assert chat.text.count("[compacted] to about") >= 3

    assert "fault" not in done("verify", "s").out
    check_log(anyio.run(whole, url))


async def whole(url: str) -> Session:
    """The session, all of it."""
    async with open_store(url) as store:
        return await store.read("s", load="all")


def check_log(session: Session) -> None:
    """Each prompt was answered, and each compaction made room, by what the model said."""
    ends = [event.data.reason.kind for event in session.events if event.type == "turn/end"]
    assert len(ends) == TURNS
    assert set(ends) <= {"completed", "max-tokens"}
    prompts = [
        message.text for message in session.extract_chat_messages() if message.role == "user"
    ]
    assert prompts == [said(turn) for turn in range(TURNS)]

    found = compactions(session)
    assert sum(each.status == "done" and each.policy == "model" for each in found) >= 3
    limit = Window(WINDOW, output=48).limit
    for each in found:
        assert each.status == "done"
        assert each.tokens_after is not None
        assert each.tokens_after < limit < each.tokens_before
    for one, next_one in pairwise(found):
        assert one.seq in next_one.shadowed  # the older summary is merged, not kept beside it
    hits = [each for each in session.derive_messages() if each.source.kind == "compaction"]
    assert len(hits) == 1

    for sent, told in pairwise(session.events):
        if isinstance(sent.data, RequestSent) and sent.data.purpose == COMPACTION:
            assert isinstance(told.data, CompactionSummary)
            usage = told.data.usage
            if usage is not None and usage.cache_read_tokens is not None:
                prompt = usage.cache_read_tokens + (usage.input_tokens or 0)
                assert usage.cache_read_tokens * 2 >= prompt
