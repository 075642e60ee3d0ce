"""Commands about what the model no longer sees."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.e2e.command import done, read, turnlog, write
from tests.e2e.scripts import write_script
from turnlog import Session, open_store
from turnlog.commands import Compact
from turnlog.compaction.pins import pinned
from turnlog.content import ToolCall
from turnlog.testing.builders import Author

FACT = "The port of the database is 5433."


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of its own."""
    return f"jsonl:{tmp_path / 'store'}"


def talk(session: Session) -> None:
    """Two turns, a call with a long result that is pruned, and a compaction of the first turn."""
    author = Author(session)
    session.add_user(FACT)
    session.add_assistant([ToolCall("c", "cat", "{}")], model="m")
    session.add_tool_result("c", "long " * 40)
    author.prune(2, "lo…")
    session.add_assistant("I have read it", model="m")
    author.compact(0, 3, "They spoke of a database.")
    session.add_user("go on")


@pytest.fixture
def demo(url: str) -> str:
    """A store with one session, `demo`."""
    write(url, "demo", talk)
    return url


# -- compactions -------------------------------------------------------------------------------


def test_compactions(demo: str) -> None:
    """Range, tokens, cost, prefix cache and summary; --json gives an object a line."""
    (found,) = done("compactions", "demo", "--store", demo, "--json").values
    assert (found["number"], found["status"], found["estimated"]) == (0, "done", True)
    assert found["shadowed"] == [0, 1, 4, 5]
    assert found["gain"] == found["tokensBefore"] - found["tokensAfter"]
    assert found["summary"] == "They spoke of a database."
    assert found["requests"] == 1
    assert "output" not in found
    out = done("compactions", "demo", "--store", demo).out
    assert "#0 to #5, 4 messages; the model sees #8 instead" in out
    assert f"{found['tokensBefore']} to {found['tokensAfter']} (estimated)" in out
    assert "1 request: input unknown" in out
    assert "| They spoke of a database." in out


def test_no_compactions(url: str) -> None:
    """A session without any says so, and is no failure."""
    write(url, "plain", lambda session: session.add_user("hi"))
    result = turnlog("compactions", "plain", "--store", url)
    assert (result.status, result.out) == (0, "")
    assert "no compactions" in result.err
    assert done("compactions", "plain", "--store", url, "--json").out == ""


def test_a_summary_does_not_act_on_the_terminal(url: str) -> None:
    """What a summary or an error holds is shown as escapes."""

    def hostile(session: Session) -> None:
        session.add_user("hi")
        session.append("compaction/start", {"compactionId": "k", "reason": "\x1b]0;x\x07"})
        session.replace(0, 0, "\x1b[2J\u202e")
        session.append("compaction/end", {"compactionId": "k", "error": "\x9b2J"})

    write(url, "bad", hostile)
    out = done("compactions", "bad", "--store", url).out
    assert [c for c in out if c in "\x1b\x07\u202e\x9b"] == []


# -- undo --------------------------------------------------------------------------------------


def test_a_fork_before_a_compaction_sees_what_was_seen(demo: str) -> None:
    """Its messages are those of that moment; the numbers there are, are named."""
    then = done("messages", "demo", "--at", "5", "--store", demo, "--json").out
    done("fork", "demo", "--before-compaction", "0", "--as", "undone", "--store", demo)
    assert done("messages", "undone", "--store", demo, "--json").out == then
    result = turnlog("fork", "demo", "--before-compaction", "1", "--store", demo)
    assert (result.status, "the only one is 0" in result.err) == (1, True)


def test_show_what_was_shadowed(demo: str) -> None:
    """Each shadowed message names what the model sees of it now, however often it was replaced."""
    write(demo, "demo", lambda session: session.replace(8, 10, "And went on."))
    out = done("show", "demo", "--shadowed", "--tools", "--store", demo).out
    assert "user  #0  (the model sees #11 instead)" in out
    assert "tool result c  #2  (the model sees #11 instead)" in out
    assert "tool result c  #4  (stands for #2)  (the model sees #11 instead)" in out
    assert "compact-checkpoint  #8  (stands for #0 to #5)  (the model sees #11 instead)" in out
    assert "compaction  #11  (stands for #8 to #10)\n" in out
    assert "tool result" not in done("show", "demo", "--shadowed", "--store", demo).out
    values = done("show", "demo", "--shadowed", "--json", "--store", demo).values
    assert {v["seq"]: v.get("shadowedBy") for v in values} == {0: 8, 5: 8, 8: 11, 10: 11, 11: None}


def test_stats_say_what_replacements_cost(demo: str) -> None:
    """Each replacement with the tokens behind it that had been sent before."""
    (found,) = done("stats", "demo", "--store", demo, "--json").values
    prune, summary = found["prefixCache"]
    assert (prune["kind"], prune["seq"], prune["broke"], prune["resent"]) == ("prune", 4, 2, 0)
    assert (summary["kind"], summary["shadowed"], summary["broke"]) == ("summary", 4, 0)
    out = done("stats", "demo", "--store", demo).out
    assert f"summary #8  {summary['resent']} behind #0" in " ".join(out.split(" ")).replace(
        "   ", "  "
    )
    write(demo, "plain", lambda session: session.add_user("hi"))
    assert "no replacements" in done("stats", "plain", "--store", demo).out


# -- pins --------------------------------------------------------------------------------------


def test_pin_list_and_unpin(demo: str) -> None:
    """A message by its seq, a text as it is; the list names both."""
    first = done("pin", "demo", "10", "--store", demo).out.strip()
    (second,) = done("pin", "demo", "Never touch prod.", "--store", demo, "--json").values
    listed = done("pin", "demo", "--store", demo, "--json").values
    assert listed == [
        {"pin": first, "seq": 10, "text": "go on"},
        {"pin": second["pin"], "seq": second["seq"], "text": "Never touch prod."},
    ]
    assert f"{first}  #10  go on" in done("pin", "demo", "--store", demo).out
    assert done("unpin", "demo", first, "--store", demo).out == ""
    assert [each.pin_id for each in pinned(read(demo, "demo"))] == [second["pin"]]


@pytest.mark.parametrize(
    ("words", "status", "hint"),
    [
        (["pin", "demo", "99"], 1, "99"),
        (["pin", "demo", "6"], 1, "holds no message"),
        (["pin", "demo", " "], 2, "says something"),
        (["unpin", "demo", "x"], 1, "no such pin"),
        (["pin", "nobody", "1"], 1, "no session 'nobody'"),
        (["recall", "demo"], 2, "--seq"),
        (["recall", "demo", "a", "--seq", "1"], 2, "--seq"),
        (["recall", "demo", "a", "--limit", "0"], 2, "--limit"),
        (["recall", "demo", "…"], 2, "expected a word"),
        (["recall", "demo", "…", "--into-context"], 2, "expected a word"),
        (["compact", "demo", "--instruction", " "], 2, "--instruction: expected words"),
        (["recall", "demo", "--seq", "6"], 1, "holds no message"),
        (["recall", "demo", "unicorn"], 1, "nothing"),
        (["recall", "demo", "unicorn", "--into-context"], 1, "nothing"),
        (["compactions", "nobody"], 1, "no session 'nobody'"),
        (["compact", "nobody"], 1, "no session 'nobody'"),
        (["compact", "demo", "--model", "scripted:none"], 1, "none"),
    ],
)
def test_what_cannot_be_done(words: list[str], status: int, hint: str, demo: str) -> None:
    """One line says why, and nothing is appended."""
    before = len(read(demo, "demo"))
    result = turnlog(*words, "--store", demo)
    assert result.status == status
    assert hint in result.err
    assert len(result.err.splitlines()) == 1
    assert len(read(demo, "demo")) == before


# -- recall ------------------------------------------------------------------------------------


def test_recall(demo: str) -> None:
    """By words, with the place where they are; by seq, whole."""
    out = done("recall", "demo", "which port?", "--store", demo).out
    assert out == f"user  #0\n{FACT}\n\n"
    (found,) = done("recall", "demo", "port", "--store", demo, "--json").values
    assert (found["seq"], found["role"], found["text"]) == (0, "user", FACT)
    assert "long long" in done("recall", "demo", "--seq", "2", "--store", demo).out


def test_recall_into_the_context(demo: str) -> None:
    """What was found is what the model reads next, with its seq."""
    result = turnlog("recall", "demo", "port", "--into-context", "--store", demo)
    assert result.status == 0
    assert "entered the context as #11" in result.err
    event = read(demo, "demo").events[-1]
    assert (event.type, event.source_event_seqs) == ("context/message", (0,))
    (*_, last) = done("messages", "demo", "--store", demo, "--json").values
    assert last["content"][0]["text"] == f"Recalled from event 0 (user):\n{FACT}"


# -- compact -----------------------------------------------------------------------------------


def long_talk(session: Session) -> None:
    """Enough to be worth a summary."""
    for i in range(30):
        session.add_user(f"question {i}: " + "what about it? " * 30)
        session.add_assistant(f"answer {i}: " + "it is so. " * 30, model="m")


def script(folder: Path) -> str:
    """A model that summarises."""
    said = "They asked thirty questions about it, and each answer was that it is so. " * 3
    return write_script(folder, said)


def test_compact_by_hand(url: str, tmp_path: Path) -> None:
    """A summary by the model takes the place of what is older; the wish is logged."""
    write(url, "long", long_talk)
    words = ["compact", "long", "--instruction", "keep the schema", "--model", script(tmp_path)]
    (found,) = done(*words, "--store", url, "--json").values
    assert found["tokensAfter"] < found["tokensBefore"]
    (listed,) = done("compactions", "long", "--store", url, "--json").values
    assert (listed["instruction"], listed["reason"]) == ("keep the schema", "manual")
    assert listed["tokensAfter"] == found["tokensAfter"]
    assert "thirty questions" in listed["summary"]
    assert done("verify", "long", "--store", url).out.startswith("long: ok")


def test_a_session_in_use_gets_the_wish(url: str) -> None:
    """Another process has the session: the command waits in its inbox, once."""

    async def work() -> None:
        async with open_store(url) as store, store.session("busy") as session:
            session.add_user("hi")
            await session.flush()
            words = ["compact", "busy", "--instruction", "short", "--model", "scripted:none"]
            result = await anyio.to_thread.run_sync(lambda: turnlog(*words, "--store", url))
            assert result.status == 0, result
            assert "compaction posted" in result.out
            (queued,) = await session.commands()
            assert isinstance(queued.command, Compact)
            assert queued.command.instruction == "short"

    anyio.run(work)
