"""`turnlog run` and `chat` beside other processes: streaming, signals, kills, the inbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.children import child, on_terminal
from tests.e2e.command import done, turnlog
from tests.e2e.scripts import HANG, call, write_script, write_tools

termios = pytest.importorskip("termios", reason="signals and terminals as POSIX has them")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module of tools, and a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tools", raising=False)
    monkeypatch.setenv("TURNLOG_STORE", f"jsonl:{tmp_path / 'store'}")
    write_tools(tmp_path)
    return tmp_path


def texts(session_id: str) -> list[str]:
    """What the model sees of a stored session, as text."""
    values = done("messages", session_id, "--json").values
    return ["".join(b.get("text", "") for b in value["content"]) for value in values]


def end(session_id: str) -> dict[str, Any]:
    """Why a stored session's last turn ended."""
    (*_, last) = done("events", session_id, "--type", "turn/end").values
    return last["data"]["reason"]


def assert_sound(session_id: str) -> None:
    """Every law of the log holds, and each request can be proved."""
    result = turnlog("verify", session_id)
    assert (result.status, "fault" in result.out) == (0, False), result.out


# -- signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_keeps_what_had_arrived(number: int, folder: Path) -> None:
    """What streams is seen at once; Ctrl-C or SIGTERM closes the turn with it, and says so."""
    model = write_script(folder, ["Once upon", " a time", HANG])
    with child("run", "tell", "--model", model, "--session", "s") as running:
        running.until("Once upon a time")
        running.signal(number)
        assert running.rest() == "\n"
        assert running.status() == 1
        assert "turnlog: turn 1 was cancelled (user); what had arrived is kept" in running.errors()
    assert texts("s") == ["tell", "Once upon a time"]
    assert end("s") == {"kind": "aborted", "reason": {"kind": "user"}}
    assert_sound("s")
    turnlog("run", "go on", "--model", write_script(folder, "Well."), "--session", "s")
    assert texts("s") == ["tell", "Once upon a time", "go on", "Well."]
    assert_sound("s")


def test_a_second_signal_leaves_at_once(folder: Path) -> None:
    """A turn that a tool will not let end is left; the next run closes what it left open."""
    model = write_script(folder, [call("stubborn")])
    run = ["run", "go", "--model", model, "--tool", "tools:stubborn", "--session", "s", "--json"]
    with child(*run) as running:
        running.until('"type":"tool/call"', "\n")
        running.signal(signal.SIGTERM)
        running.signal(signal.SIGINT)
        assert running.status() == 130
        assert "left at once" in running.errors()
    again = turnlog("run", "so?", "--model", write_script(folder, "Hm."), "--session", "s")
    assert (again.status, again.out) == (0, "Hm.\n")
    assert "what was interrupted is closed" in again.err
    (result,) = done("events", "s", "--type", "tool/result").values
    assert result["data"]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert_sound("s")


def test_a_tool_in_a_thread_does_not_hold_the_process(folder: Path) -> None:
    """One Ctrl-C is enough though a plain function would run for ever."""
    model = write_script(folder, [call("gate", path="never")])
    run = ["run", "go", "--model", model, "--tool", "tools:gate", "--session", "s", "--json"]
    with child(*run) as running:
        running.until('"type":"tool/call"', "\n")
        running.signal()
        running.until('"type":"turn/end"')
        running.rest()
        assert running.status() == 1
    assert_sound("s")


def test_a_reader_that_leaves_cancels(folder: Path) -> None:
    """When nobody reads the answer any more, the turn is cancelled and what came is kept."""
    model = write_script(folder, ["Once upon", " a time, ", call("gate", path="go")], repeat=True)
    run = ["run", "tell", "--model", model, "--tool", "tools:gate", "--session", "s"]
    with child(*run) as running:
        running.until("a time, ")
        assert running.process.stdout is not None
        running.process.stdout.close()
        (folder / "go").touch()
        running.process.stdout = None
        assert running.status() == 0
    assert end("s")["kind"] == "aborted"
    assert_sound("s")


# -- kill -9 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("killed_after", ["request/sent", "assistant/chunk", "tool/call"])
def test_nothing_that_was_printed_is_lost(killed_after: str, folder: Path) -> None:
    """A kill -9 loses no event that `--json` had printed; the session is repaired and goes on."""
    wait = call("gate", path="never")
    answer = {"request/sent": [HANG], "assistant/chunk": ["Once", " upon", HANG]}
    model = write_script(folder, answer.get(killed_after, ["Let me look.", wait]))
    tool = ["--tool", "tools:gate", "--session", "s"]
    printed: list[Any] = []
    with child("run", "tell", "--model", model, *tool, "--json") as running:
        while not printed or printed[-1]["type"] != killed_after:
            printed.append(running.event())
        running.process.kill()
        printed += [json.loads(line) for line in running.rest().splitlines() if line[-1:] == "}"]
        assert running.status() == -signal.SIGKILL
    assert done("events", "s", "--to", len(printed)).values == printed
    again = turnlog("run", "go on", "--model", write_script(folder, "Well."), *tool)
    assert (again.status, again.out) == (0, "Well.\n")
    assert done("events", "s", "--to", len(printed)).values == printed
    (*_, last) = done("requests", "s", "--json").values
    (body,) = done("requests", "s", "--show", last["index"]).values
    assert body["messages"][0]["content"] == "tell"
    assert body["messages"][-1]["content"] == "go on"
    assert_sound("s")


# -- other processes ---------------------------------------------------------------------------


def test_cancel_from_another_process(folder: Path) -> None:
    """`cancel` stops the turn of another process, which keeps the partial text and says so."""
    model = write_script(folder, ["Once upon a time", HANG])
    with child("run", "tell", "--model", model, "--session", "s") as running:
        running.until("a time")
        said = done("cancel", "s").out
        assert said.startswith(f"cancel posted; process {running.process.pid} on ")
        assert running.status() == 1
        assert "[cancel]" in running.errors()
    assert texts("s") == ["tell", "Once upon a time"]
    assert_sound("s")


def test_a_cancel_for_another_turn_is_refused(folder: Path) -> None:
    """`cancel --turn` names the turn it is for."""
    model = write_script(folder, ["Once upon a time", HANG])
    with child("run", "tell", "--model", model, "--session", "s") as running:
        running.until("a time")
        result = turnlog("cancel", "s", "--turn", "2")
        assert (result.status, "turn 1 is running, not 2" in result.err) == (1, True)
        done("cancel", "s", "--turn", "1")
        assert running.status() == 1


def test_steer_from_another_process(folder: Path) -> None:
    """`steer` is read by the model with the next step of the turn that runs."""
    model = write_script(folder, [call("gate", path="go")], "As you say.")
    run = ["run", "look", "--model", model, "--tool", "tools:gate", "--session", "s"]
    with child(*run, "--json") as running:
        running.until('"type":"tool/call"', "\n")
        (posted,) = done("steer", "s", "Only the first.", "--json").values
        assert posted["owner"].startswith(f"process {running.process.pid} ")
        (folder / "go").touch()
        *_, last = running.rest().splitlines()
        assert json.loads(last)["data"]["reason"]["kind"] == "completed"
    assert texts("s") == ["look", "", "open", "Only the first.", "As you say."]
    assert_sound("s")


def test_a_session_in_use(folder: Path) -> None:
    """A session that another process runs is refused on one line that names the owner."""
    model = write_script(folder, ["Once upon a time", HANG])
    with child("run", "tell", "--model", model, "--session", "s") as running:
        running.until("a time")
        for command in (["run", "hi"], ["chat"]):
            result = turnlog(*command, "--model", model, "--session", "s")
            assert (result.status, result.out) == (1, "")
            (line,) = result.err.splitlines()
            assert f"in use by process {running.process.pid} on " in line


def test_tail_follows_a_running_turn(folder: Path) -> None:
    """`tail` shows what another process streams while the answer is still coming."""
    model = write_script(folder, ["One,", call("gate", path="go")], ["two,", " three", HANG])
    run = ["run", "count", "--model", model, "--tool", "tools:gate", "--session", "s"]
    with child(*run) as running:
        running.until("One,")
        with child("tail", "s", "--from", "0", "--json") as tail:
            tail.until('"type":"tool/call"', "\n")
            (folder / "go").touch()
            event: dict[str, Any] = {}
            while event.get("data", {}).get("chunk", {}).get("text") != " three":
                event = tail.event()
            assert running.process.poll() is None
            running.signal()
            tail.until('"type":"turn/end"', "\n")
            tail.signal()
            assert tail.status() == 0
        assert running.status() == 1


# -- chat --------------------------------------------------------------------------------------


def typed(terminal: int, text: str) -> None:
    """Type at a terminal."""
    os.write(terminal, text.encode())


def test_chat(folder: Path) -> None:
    """Each line is a turn; Ctrl-C cancels one and comes back to the prompt; Ctrl-D leaves."""
    model = write_script(folder, ["Hello."], ["Once upon", " a time", HANG], ["The end."])
    with on_terminal("chat", "--model", model, "--session", "s") as (chat, terminal):
        chat.until("> ")
        typed(terminal, "hi\n")
        chat.until("Hello.", "> ")
        typed(terminal, "tell\n")
        chat.until("a time")
        typed(terminal, "\x03")
        chat.until("was cancelled (user)", "> ")
        typed(terminal, "/nothing\n")
        chat.until("no command /nothing", "/exit", "> ")
        typed(terminal, "\n")
        chat.until("> ")
        typed(terminal, "and?\n")
        chat.until("The end.", "> ")
        typed(terminal, "\x04")
        chat.until("turnlog chat --session s")
        assert chat.status() == 0
    assert texts("s") == ["hi", "Hello.", "tell", "Once upon a time", "and?", "The end."]
    assert_sound("s")


def test_compacting_in_chat(folder: Path) -> None:
    """/compact does it at once, with a wish; from elsewhere it is done too; Ctrl-C cancels it."""
    long = "plain words that say nothing much and take their room " * 40
    summary = "## Goals\n- ship it"
    model = write_script(folder, long, long, summary, long, summary, long, [HANG])
    words = ["chat", "--model", model, "--session", "s", "--context-window", "4000", "--recall"]
    with on_terminal(*words) as (chat, terminal):
        chat.until("> ")
        for prompt in ("one", "two"):
            typed(terminal, f"{prompt}\n")
            chat.until("take their room", "\n> ")
        typed(terminal, "/compact keep the schema\n")
        chat.until("[compacting] the next request has about", "of 4000 tokens")
        chat.until("[compacted] to about", "> ")
        typed(terminal, "three\n")
        chat.until("take their room", "\n> ")
        done("compact", "s")
        chat.until("[compact]", "[compacted] to about", "> ")
        typed(terminal, "four\n")
        chat.until("take their room", "\n> ")
        typed(terminal, "/compact\n")
        chat.until("[compacting]")
        typed(terminal, "\x03")
        chat.until("[not compacted] it was cancelled", "> ")
        typed(terminal, "\x04")
        chat.until("turnlog chat --session s", "--context-window 4000 --recall")
        assert chat.status() == 0
    found = done("compactions", "s", "--json").values
    assert [each["status"] for each in found] == ["done", "done", "failed"]
    assert found[0]["instruction"] == "keep the schema"
    assert_sound("s")


@pytest.mark.parametrize("leaving", ["\x03", "/exit\n", "half a line\x03"])
def test_leaving_chat(leaving: str, folder: Path) -> None:
    """Ctrl-C at the prompt leaves, and so does /exit; the terminal is as it was before."""
    model = write_script(folder, ["Hello."])
    with on_terminal("chat", "--model", model, "--session", "s") as (chat, terminal):
        before = termios.tcgetattr(terminal)
        chat.until("> ")
        typed(terminal, leaving)
        chat.until("turnlog chat --session s")
        assert chat.status() == 0
        assert termios.tcgetattr(terminal) == before


def test_approving_on_the_terminal(folder: Path) -> None:
    """A call that must be approved is asked about; what was typed before does not answer."""
    model = write_script(
        folder,
        [call("gate", "c0", path="go")],
        [call("wipe", path="/x")],
        [call("wipe", "c2", path="/y")],
        "Done.",
    )
    tools = ["--tool", "tools:wipe", "--tool", "tools:gate"]
    with on_terminal("run", "go", "--model", model, *tools, "--session", "s") as (run, terminal):
        run.until("[call c0]")
        typed(terminal, "y\n")
        (folder / "go").touch()
        run.until("Run wipe", "[y/N] ")
        assert not (folder / "wiped").exists()
        typed(terminal, "y\n")
        run.until("[result c1] wiped /x", "Run wipe", "[y/N] ")
        typed(terminal, "\n")
        run.until("[error c2] This call was denied", "Done.")
        assert run.status() == 0
    assert_sound("s")


def test_approving_from_another_process_while_the_terminal_asks(folder: Path) -> None:
    """An approval from elsewhere answers the question on the terminal, and chat goes on."""
    model = write_script(folder, [call("wipe", path="/x")], "Done.", "Bye.")
    words = ["chat", "--model", model, "--tool", "tools:wipe", "--session", "s"]
    with on_terminal(*words) as (chat, terminal):
        chat.until("> ")
        typed(terminal, "go\n")
        chat.until("[y/N] ")
        done("approve", "s", "c1")
        chat.until("[result c1] wiped /x", "Done.", "> ")
        typed(terminal, "thanks\n")
        chat.until("Bye.", "> ")
        typed(terminal, "\x04")
        assert chat.status() == 0
    assert texts("s") == ["go", "", "wiped /x", "Done.", "thanks", "Bye."]
    assert_sound("s")


def test_cancelling_while_the_terminal_asks(folder: Path) -> None:
    """Ctrl-C at the question cancels the turn; the next line typed is the next prompt."""
    model = write_script(folder, [call("wipe", path="/x")], "Well.")
    words = ["chat", "--model", model, "--tool", "tools:wipe", "--session", "s"]
    with on_terminal(*words) as (chat, terminal):
        chat.until("> ")
        typed(terminal, "go\n")
        chat.until("[y/N] ")
        typed(terminal, "\x03")
        chat.until("was cancelled", "> ")
        typed(terminal, "y\n")
        chat.until("Well.", "> ")
        typed(terminal, "\x04")
        assert chat.status() == 0
    assert not (folder / "wiped").exists()
    assert [*texts("s")[-2:]] == ["y", "Well."]
    assert_sound("s")


def test_chat_without_a_terminal(folder: Path) -> None:
    """A chat on a pipe asks nobody: a call waits, and goes on when another process approves it."""
    model = write_script(folder, ["I wipe.", call("wipe", path="/x")], "Done.", "Bye.")
    words = ["chat", "--model", model, "--tool", "tools:wipe", "--session", "s"]
    with child(*words, stdin=subprocess.PIPE) as chat:
        assert chat.process.stdin is not None
        chat.process.stdin.write(b"go\n")
        chat.process.stdin.flush()
        chat.until("I wipe.")
        with child("tail", "s", "--from", "0", "--json") as tail:
            tail.until('"type":"approval/asked"')
        done("approve", "s", "c1")
        chat.until("Done.")
        chat.process.stdin.write(b"thanks\n/exit\n")
        chat.process.stdin.flush()
        assert chat.rest().strip() == "Bye."
        assert chat.status() == 0
    assert_sound("s")


def test_chat_says_json(folder: Path) -> None:
    """With --json a chat prints the events of each turn as they become durable."""
    model = write_script(folder, "One.", "Two.")
    words = ["chat", "--model", model, "--session", "s", "--json"]
    with child(*words, stdin=subprocess.PIPE) as chat:
        assert chat.process.stdin is not None
        chat.process.stdin.write(b"1\n2\n")
        chat.process.stdin.close()
        chat.process.stdin = None
        printed = [json.loads(line) for line in chat.rest().splitlines()]
        assert chat.status() == 0
    assert printed == done("events", "s").values
    assert texts("s") == ["1", "One.", "2", "Two."]
