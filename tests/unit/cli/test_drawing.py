"""`turnlog tail`: on a terminal as a person reads it, elsewhere a line or an object an event."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.command import Terminal, done, read, turnlog, write
from tests.e2e.scripts import call, write_script, write_tools
from turnlog.cli.drawing import Drawing
from turnlog.session import Session


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with one session, `s`: a turn with a call, and one that fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tools", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    write_tools(tmp_path)
    url = f"jsonl:{tmp_path / 'store'}"
    words = ["--session", "s", "--tool", "tools:add", "--store", url]
    script = [["I add.", call("add", a=2, b=3)], "It is five."]
    assert (
        turnlog("run", "2 and 3?", "--model", write_script(tmp_path, *script), *words).status == 0
    )
    assert turnlog("run", "And 4?", "--model", write_script(tmp_path), *words).status == 1
    return url


def drawn(events: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """What `Drawing` shows of events that come one by one."""
    drawing = Drawing()
    for event in events:
        drawing.show(event)  # pyright: ignore[reportArgumentType]
    drawing.close()
    return capsys.readouterr().out


def test_a_terminal_shows_a_conversation(url: str) -> None:
    """Messages under headings with their seqs; calls, results and how turns ended on dim lines."""
    result = turnlog("tail", "s", "--no-follow", "--from", "0", "--store", url, tty=True)
    assert result.status == 0
    session = read(url, "s")
    (first, calling, _, answer, second) = session.surface.seqs
    told = session.event_at(answer).message
    assert told is not None
    model = told.source.model
    assert result.out == (
        f"user  #{first}\n2 and 3?\n\n"
        f"assistant ({model})  #{calling}\nI add.\n\n"
        f"assistant ({model})  #{answer}\nIt is five.\n\n"
        f"user  #{second}\nAnd 4?\n\n"
    )
    lines = result.err.splitlines()
    assert lines[:3] == ['[call c1] add {"a":2,"b":3}', "[result c1] 5", "[turn 1 completed]"]
    assert lines[-1] == "[turn 2 error]"


def test_elsewhere_it_is_a_line_an_event(url: str) -> None:
    """As it was before there was a drawing; a terminal has that with --events."""
    words = ["tail", "s", "--no-follow", "--from", "0", "--store", url]
    lines = done(*words).out.splitlines()
    assert len(lines) == len(read(url, "s").events)
    assert any(line.endswith("user/message  2 and 3?") for line in lines)
    assert len(turnlog(*words, "--events", tty=True).out.splitlines()) == len(lines)


def test_json_is_json_on_a_terminal_too(url: str) -> None:
    """An event a line, as `events` prints it."""
    words = ["--store", url, "--from", "0"]
    result = turnlog("tail", "s", "--no-follow", "--json", *words, tty=True)
    assert result.values == done("events", "s", *words).values


def test_an_answer_streams_and_stands_there_once(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Live, its chunks come first; the message that they became adds its seq."""
    events = list(read(url, "s").events)
    out = drawn([*events], capsys)
    assert out.count("I add.") == out.count("It is five.") == 1
    answer = [event for event in events if event.type == "assistant/message"][-1]
    chunks = [event for event in events if event.type == "assistant/chunk"]
    assert chunks
    assert f"assistant\nIt is five.\n#{answer.seq}\n\n" in out


def test_what_streams_now_is_drawn_and_what_ended_is_not_repeated(url: str) -> None:
    """Of a session that is looked at in the middle of an answer, that answer's chunks are shown."""

    def stream(session: Session) -> None:
        session.append("turn/start", {"turn": 3})
        session.append("step/start", {"turn": 3, "step": 1})
        for piece in ("It is ", "ni"):
            chunk = {"type": "text-delta", "index": 0, "text": piece}
            session.append("assistant/chunk", {"turn": 3, "step": 1, "attempt": 1, "chunk": chunk})

    write(url, "s", stream)
    result = turnlog("tail", "s", "--no-follow", "--from", "0", "--store", url, tty=True)
    assert result.out.endswith("\n\nassistant\nIt is ni\n")
    assert result.out.count("It is five.") == 1


def test_what_is_no_message_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Pins, decisions, summaries that stand for others; and types that nobody here knows."""
    session = Session.create("s")
    session.add_user("Clean up.")
    session.add_user("Now.")
    session.pin(0)
    session.append("approval/asked", {"id": "a", "toolName": "wipe", "callId": "c", "turn": 1})
    session.append("approval/decided", {"id": "a", "outcome": "denied", "reason": "Not there."})
    session.replace(0, 1, "They want it clean.")
    drawing = Drawing()
    for event in session.events:
        drawing.show(event)
    shown = capsys.readouterr()
    assert "compaction  #5  (stands for #0 to #1)\nThey want it clean.\n" in shown.out
    assert "[context/pin] " in shown.err
    assert "[waits c] wipe" in shown.err
    assert "[denied] Not there." in shown.err


def test_nothing_drawn_acts_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a log holds is shown as escapes."""
    session = Session.create("s")
    session.add_user("\x1b]0;owned\x07")
    session.append("session/title", {"title": "\x1b[2J"})
    out, err = Terminal(tty=True), Terminal(tty=True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    drawing = Drawing()
    drawing.past(session.events)
    assert b"\x1b" not in out.bytes.getvalue() + err.bytes.getvalue()
    assert b"owned" in out.bytes.getvalue()
