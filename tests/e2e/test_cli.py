"""The command line as a person or a script uses it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.command import done, read, turnlog, write
from tests.unit.stores.sqlite_files import FILE, connected
from turnlog.cli.app import app
from turnlog.cli.options import data_folder
from turnlog.content import Reasoning, ToolCall
from turnlog.dialects import encoder
from turnlog.events import Header, ModelConfig
from turnlog.session import Session
from turnlog.stores.live import StoredSession

COMMANDS = sorted(name for name in app if not name.startswith("-"))
HOSTILE = "\x1b]0;owned\x07\x9b2J\u202egnp.exe \ud800 \r\x00"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of its own."""
    return f"jsonl:{tmp_path / 'store'}"


def talk(session: Session) -> None:
    """A question, a call, its result, an answer, and a summary of the first three."""
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.add_user("what is the weather?")
    session.add_assistant(ToolCall("c1", "weather", '{"in":"Oslo"}'), model="m", turn=1, step=1)
    session.append(
        "tool/call", {"callId": "c1", "name": "weather", "arguments": "{}", "turn": 1, "step": 1}
    )
    session.add_tool_result("c1", "rain", turn=1, step=1)
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("step/start", {"turn": 1, "step": 2})
    session.add_assistant("it rains", model="m", turn=1, step=2)
    session.append("step/end", {"turn": 1, "step": 2})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    session.append("compaction/start", {"compactionId": "k"})
    summary = {"id": "sum", "role": "user", "source": {"kind": "compact-checkpoint"}}
    session.append(
        "user/message",
        {**summary, "content": [{"type": "text", "text": "rain was asked for"}]},
        surface_op={"op": "replace", "start": 2, "end": 5},
        source_event_seqs=[2, 3, 5],
    )
    session.append("compaction/end", {"compactionId": "k"})


@pytest.fixture
def demo(url: str) -> str:
    """A store with one session, `demo`."""
    write(url, "demo", talk)
    return url


# -- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command's help says what it does, has examples that name it, and fits 40 columns."""
    monkeypatch.setenv("COLUMNS", "40")
    text = done(command, "--help").out
    assert f"Usage: turnlog {command}" in text
    _, _, examples = text.partition("Examples:")
    assert f"turnlog {command}" in examples
    assert max(map(len, text.splitlines())) <= 40


def test_help_lists_every_command() -> None:
    """`turnlog --help`, and `turnlog` alone, list the commands."""
    text = done("--help").out
    assert [name for name in COMMANDS if f" {name} " not in text] == []
    assert done().out == text


def test_help_loads_nothing_that_commands_need() -> None:
    """Asking for help loads no store, no reader, no event loop."""
    probe = (
        "import sys; sys.argv = ['turnlog', '--help']\n"
        "from turnlog.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    output = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True
    ).stderr.split()
    heavy = {"anyio", "asyncio", "zstandard", "turnlog.stores", "turnlog.interop", "sqlite3"}
    assert heavy & set(output) == set()


def test_every_command_takes_store_and_json() -> None:
    """--store and --json are in the help of each command."""
    for command in COMMANDS:
        text = done(command, "--help").out
        assert "--store" in text
        assert "--json" in text


# -- misuse and failure ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["sho"],
        ["show"],
        ["show", "a", "b"],
        ["show", "demo", "--at", "x"],
        ["show", "demo", "--at", "-1"],
        ["messages", "demo", "--at", "-1"],
        ["messages", "demo", "--model", "m"],
        ["events", "demo", "--from", "-1"],
        ["events", "demo", "--to", "-1"],
        ["events", "demo", "--from", "5", "--to", "4"],
        ["tail", "demo", "--from", "-1"],
        ["fork", "demo", "--at", "-1"],
        ["help"],
        ["ls", "--bogus"],
        ["messages", "demo", "--dialect", "klingon"],
        ["ls", "--store", "gopher:x"],
        ["ls", "--store", "nothing"],
        ["ls", "--store", "jsonl:"],
        ["verify"],
        ["verify", "demo", "--all"],
        ["fork", "demo", "--at", "1", "--before-compaction", "0"],
        ["import"],
    ],
)
def test_misuse(words: list[str], demo: str) -> None:
    """Words that make no command are one line on standard error and status 2."""
    words = words if "--store" in words else ["--store", demo, *words]
    result = turnlog(*words)
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("turnlog: ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["show", "demi"], "did you mean 'demo'?"),
        (["tail", "zzz"], "there is 'demo'"),
        (["repair", "demi"], "did you mean 'demo'?"),
        (["fork", "demi"], "did you mean 'demo'?"),
        (["verify", "demi"], "no session 'demi'"),
        (["verify", "nope", "--json"], "turnlog: no session 'nope'"),
        (["events", "demo", "--type", "tool/cal"], "did you mean 'tool/call'"),
        (["show", "demo", "--at", "99"], "from 0 to 13"),
        (["messages", "demo", "--at", "99"], "from 0 to 13"),
        (["requests", "demo", "--show", "7"], "has no requests"),
        (["fork", "demo", "--at", "99"], "from 0 to 13"),
        (["fork", "demo", "--as", "demo"], "exists already"),
        (["fork", "demo", "--before-compaction", "3"], "the only one is 0"),
        (["export", "demo", "-o", "/nonexistent/x"], "cannot write"),
    ],
)
def test_failure(words: list[str], hint: str, demo: str) -> None:
    """What does not exist is one line that says what does, and status 1."""
    result = turnlog(*words, "--store", demo)
    assert result.status == 1
    lines = (result.err + result.out).splitlines()
    assert len(lines) == 1
    assert hint in lines[0]


def test_a_known_type_that_does_not_occur(demo: str) -> None:
    """A type of the vocabulary that a session does not have is no error."""
    assert done("events", "demo", "--type", "llm/retry", "--store", demo).out == ""


def test_a_bug_is_one_line(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is one line that says how to see more; TURNLOG_DEBUG shows it."""
    monkeypatch.setattr("turnlog.cli.reading._say_info", None)
    result = turnlog("ls", "--store", demo)
    assert (result.status, result.out) == (1, "")
    assert len(result.err.splitlines()) == 1
    assert "TURNLOG_DEBUG=1" in result.err
    monkeypatch.setenv("TURNLOG_DEBUG", "1")
    with pytest.raises(TypeError):
        turnlog("ls", "--store", demo)


def test_a_store_that_cannot_be_looked_for() -> None:
    """Where the system does not say whether there is a file, what it says is one line."""
    found = turnlog("ls", "--store", f"sqlite:{'x' * 5000}/a.db")
    assert found.status == 1
    assert found.err.count("\n") == 1
    assert "unexpected" not in found.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file that is always full")
def test_output_that_cannot_be_written(demo: str) -> None:
    """Output to a full disk is one line on standard error, and status 1."""
    with Path("/dev/full").open("w") as full:
        left = subprocess.run(
            [sys.executable, "-m", "turnlog", "ls", "--store", demo],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert left.returncode == 1
    assert left.stderr.count(b"\n") == 1


def test_an_interrupt_while_a_command_is_being_loaded() -> None:
    """Ctrl-C before a command has begun says nothing, and the status is that of an interrupt."""
    script = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "turnlog.cli.run":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from turnlog.cli import main
main(["ls"])
"""
    left = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=60
    )
    assert (left.returncode, left.stderr) == (130, b"")


def test_options_before_the_command(demo: str) -> None:
    """--store and --json mean the same before the command."""
    after = done("ls", "--store", demo, "--json").out
    assert done("--json", "--store", demo, "ls").out == after
    assert done(f"--store={demo}", "ls", "--json").out == after


# -- which store -------------------------------------------------------------------------------


def test_the_environment_names_the_store(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TURNLOG_STORE is the store where --store is not given."""
    monkeypatch.setenv("TURNLOG_STORE", demo)
    assert "demo" in done("ls").out
    assert turnlog("ls", "--store", "memory:").out == ""


def test_the_default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name the store is a private file in the user's data folder."""
    monkeypatch.delenv("TURNLOG_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "turnlog"
    file = tmp_path / "turnlog" / "sessions.db"
    for words, status in ((["ls"], 0), (["search", "x"], 1), (["stats"], 1), (["show", "x"], 1)):
        result = turnlog(*words)
        assert (result.status, result.out) == (status, "")
        assert str(file) in result.err
        assert not file.exists()
    done("doctor")
    (tmp_path / "list.json").write_text('[{"role":"user","content":"hi"}]')
    done("import", tmp_path / "list.json")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_from_before_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions kept in a folder are listed and go on there until they are copied to the file."""
    monkeypatch.delenv("TURNLOG_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder, file = tmp_path / "turnlog" / "sessions", tmp_path / "turnlog" / "sessions.db"
    (tmp_path / "list.json").write_text('[{"role":"user","content":"hi"}]')
    done("import", tmp_path / "list.json", "--store", f"jsonl:{folder}")
    assert "list" in done("ls").out
    assert f"turnlog copy jsonl:{folder} sqlite:{file}" in " ".join(done("doctor").out.split())
    assert not file.exists()
    done("copy", f"jsonl:{folder}", f"sqlite:{file}")
    assert "list" in done("ls").out
    done("import", tmp_path / "list.json", "--on-conflict", "rename")
    assert "brings what is only in it" in " ".join(done("doctor").out.split())


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["show", "x"],
        ["verify", "--all"],
        ["stats"],
        ["doctor"],
        ["tail", "x"],
        ["repair", "x"],
        ["fork", "x"],
        ["export", "x"],
        ["approvals"],
    ],
)
def test_reading_makes_no_store(words: list[str], tmp_path: Path) -> None:
    """A store that is not there is one line and status 1, and it is not made."""
    folder = tmp_path / "nowhere"
    result = turnlog(*words, "--store", f"jsonl:{folder}")
    assert result.status == 1
    (line,) = [line for line in (result.out + result.err).splitlines() if "no store at" in line]
    assert str(folder) in line
    assert not folder.exists()


def test_a_file_is_no_store(tmp_path: Path) -> None:
    """A file named as the store is said to be one."""
    (tmp_path / "file").touch()
    result = turnlog("ls", "--store", f"jsonl:{tmp_path / 'file'}")
    assert (result.status, "expected a folder" in result.err) == (1, True)


# -- reading -----------------------------------------------------------------------------------


def test_ls(demo: str) -> None:
    """`ls` says id, counts and title; --json gives an object a line."""
    out = done("ls", "--store", demo).out
    assert "demo" in out
    assert "what is the weather?" in out
    (info,) = done("ls", "--store", demo, "--json").values
    assert (info["id"], info["events"], info["messages"]) == ("demo", 14, 2)


def test_show(demo: str) -> None:
    """`show` is the conversation as it happened; tools, and what is shadowed, on demand."""
    out = done("show", "demo", "--store", demo).out
    assert out == "user  #2\nwhat is the weather?\n\nassistant (m)  #8\nit rains\n\n"
    out = done("show", "demo", "--tools", "--store", demo).out
    assert '[call c1] weather {"in":"Oslo"}' in out
    assert "tool result c1  #5\nrain" in out
    out = done("show", "demo", "--shadowed", "--store", demo).out
    assert "user  #2  (the model sees #12 instead)" in out
    assert "compact-checkpoint  #12  (stands for #2 to #5)\nrain was asked for" in out
    assert out.index("#12  (stands for") < out.index("#8")
    out = done("show", "demo", "--at", "5", "--store", demo).out
    assert out == "user  #2\nwhat is the weather?\n\n"


def test_show_marks_what_was_cut_off(url: str) -> None:
    """An answer that was interrupted is marked as such, for a person and in JSON."""

    def cut_off(session: Session) -> None:
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        chunk = {"type": "text-delta", "index": 0, "text": "It is"}
        session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})
        session.repair()
        session.add_assistant("It is late.")

    write(url, "cut", cut_off)
    out = done("show", "cut", "--store", url).out
    assert out == "assistant (interrupted)  #3\nIt is\n\nassistant  #6\nIt is late.\n\n"
    values = done("show", "cut", "--json", "--store", url).values
    assert [value.get("interrupted") for value in values] == [True, None]


def test_show_of_an_answer_that_only_reasoned(url: str) -> None:
    """It is a message, which `ls` counts; that nothing was said is said, and what shows more."""

    def reasoned(session: Session) -> None:
        session.add_assistant([Reasoning("Rain?"), ToolCall("c1", "weather", "{}")])

    write(url, "quiet", reasoned)
    out = done("show", "quiet", "--store", url).out
    assert out == "assistant  #0\n(nothing was said; --tools shows the rest)\n\n"
    out = done("show", "quiet", "--tools", "--store", url).out
    assert out == "assistant  #0\n[reasoning] Rain?\n[call c1] weather {}\n\n"
    (info,) = done("ls", "--store", url, "--json").values
    assert info["messages"] == 1


def test_show_of_nothing_that_can_be_read(tmp_path: Path) -> None:
    """A session of which every event is lost is not shown like an empty one."""
    url = f"sqlite:{tmp_path / FILE}"
    write(url, "lost", lambda session: session.add_user("hello"))
    with connected(tmp_path) as db:
        db.execute("DELETE FROM events")
    found = turnlog("show", "lost", "--store", url)
    assert (found.status, found.out) == (0, "")
    assert "cannot be read" in found.err


def test_show_json(demo: str) -> None:
    """Each message of `show --json` has its seq, and what shadows it."""
    values = done("show", "demo", "--shadowed", "--json", "--store", demo).values
    assert [(v["seq"], v.get("shadowedBy"), v.get("replaces")) for v in values] == [
        (2, 12, None),
        (12, None, [2, 3, 5]),
        (8, None, None),
    ]
    assert values[0]["message"]["content"] == [{"type": "text", "text": "what is the weather?"}]


def test_context_on_demand(url: str) -> None:
    """What no person typed is shown with --context only."""
    write(url, "demo", lambda s: (s.add_context("workspace"), s.add_user("hi")))
    assert "workspace" not in done("show", "demo", "--store", url).out
    assert "workspace" in done("show", "demo", "--context", "--store", url).out


def test_messages(demo: str) -> None:
    """`messages` is what the model sees, now and after an event."""
    now = done("messages", "demo", "--json", "--store", demo).values
    assert (now[0]["id"], len(now)) == ("sum", 2)
    then = done("messages", "demo", "--json", "--at", "5", "--store", demo).values
    assert [message["role"] for message in then] == ["user", "assistant", "tool"]
    out = done("messages", "demo", "--store", demo).out
    assert out.startswith("compact-checkpoint  #12\nrain was asked for\n\nassistant (m)  #8\n")
    out = done("messages", "demo", "--at", "5", "--store", demo).out
    assert [line for line in out.splitlines() if "#" in line] == [
        "user  #2",
        "assistant (m)  #3",
        "tool result c1  #5",
    ]


def test_messages_in_a_dialect(demo: str) -> None:
    """With a dialect it is the request's body, under the header that was in force."""
    config = {"provider": "openai", "model": "gpt-5-mini"}
    header = {"config": config, "system": "be brief"}
    write(
        demo, "demo", lambda s: s.append("request/header", {"header": header, "reason": "initial"})
    )
    (body,) = done("messages", "demo", "--dialect", "openai", "--store", demo).values
    assert body["model"] == "gpt-5-mini"
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant"]
    words = ["messages", "demo", "--dialect", "openai", "--store", demo]
    result = turnlog(*words, "--at", "5")
    assert "no request/header is logged" in result.err
    (body,) = result.values
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "tool"]
    assert "model" not in body
    (body,) = turnlog(*words, "--at", "5", "--model", "x").values
    assert body["model"] == "x"
    (body,) = done("messages", "demo", "--dialect", "anthropic", "--store", demo).values
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"]


def test_events(demo: str) -> None:
    """`events` prints the wire form, by type and range."""
    values = done("events", "demo", "--store", demo).values
    assert [value["seq"] for value in values] == list(range(14))
    assert values[12]["surfaceOp"] == {"op": "replace", "start": 2, "end": 5}
    values = done("events", "demo", "--from", "3", "--to", "5", "--store", demo).values
    assert [value["seq"] for value in values] == [3, 4]
    words = ["--type", "tool/call", "--type", "tool/result"]
    values = done("events", "demo", *words, "--store", demo).values
    assert [value["type"] for value in values] == ["tool/call", "tool/result"]


def test_tail(demo: str) -> None:
    """`tail --no-follow` prints the last events, or those from a seq, and ends."""
    lines = done("tail", "demo", "--no-follow", "--store", demo).out.splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("13  compaction/end")
    words = ["tail", "demo", "--no-follow", "--from", "12", "--json"]
    assert [value["seq"] for value in done(*words, "--store", demo).values] == [12, 13]


def test_tail_follows_another_process(demo: str) -> None:
    """`tail` prints what is appended elsewhere, and Ctrl-C ends it quietly with status 0."""
    command = [sys.executable, "-m", "turnlog", "tail", "demo", "--from", "13", "--json"]
    with subprocess.Popen(
        [*command, "--store", demo], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["seq"] == 13
        write(demo, "demo", lambda s: s.add_user("more"))
        assert json.loads(process.stdout.readline())["seq"] == 14
        process.send_signal(2)
        assert (process.wait(30), process.stderr.read()) == (0, "")


# -- changing ----------------------------------------------------------------------------------


def test_fork(demo: str) -> None:
    """`fork` prints the child's id; the child shares the log, the parent stays as it is."""
    before = done("events", "demo", "--store", demo).out
    assert done("fork", "demo", "--at", "5", "--as", "child", "--store", demo).out == "child\n"
    values = done("events", "child", "--store", demo).values
    assert "".join(json.dumps(v) for v in values[:6]) == "".join(
        json.dumps(json.loads(line)) for line in before.splitlines()[:6]
    )
    kinds = ["session/end-seed", "step/end", "turn/end"]
    assert [value["type"] for value in values[6:]] == kinds
    assert done("events", "demo", "--store", demo).out == before
    assert done("verify", "--all", "--store", demo).status == 0


def test_fork_before_a_compaction(demo: str) -> None:
    """`fork --before-compaction` shares what came before it."""
    words = ["fork", "demo", "--before-compaction", "0", "--as", "child", "--json"]
    (value,) = done(*words, "--store", demo).values
    assert value == {"id": "child", "parent": "demo", "shared": 11}


def test_repair(url: str) -> None:
    """`repair` says what it appended; a second time there is nothing to do."""

    def crash(session: StoredSession) -> None:
        session.append("turn/start", {"turn": 1})
        session.add_user("hi")

    write(url, "demo", crash)
    out = done("repair", "demo", "--store", url).out
    assert out == "appended 2 turn/end (interrupted)\n"
    result = turnlog("repair", "demo", "--store", url)
    assert (result.status, result.out, result.err) == (0, "", "nothing to repair\n")


# -- exporting ---------------------------------------------------------------------------------


def test_export(demo: str, tmp_path: Path) -> None:
    """`export` writes to standard output, or to a file that is the user's alone."""
    out = done("export", "demo", "--store", demo).out
    header, *rows = map(json.loads, out.splitlines())
    assert (header["format"], header["id"], len(rows)) == ("turnlog", "demo", 14)
    file = tmp_path / "out.jsonl"
    result = turnlog("export", "demo", "-o", file, "--store", demo)
    assert (result.status, result.out) == (0, "")
    assert result.err.startswith(f"wrote {file} (")
    assert file.read_text() == out
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("mine")
    result = turnlog("export", "demo", "-o", file, "--store", demo)
    assert (result.status, "--force" in result.err, file.read_text()) == (1, True, "mine")
    assert turnlog("export", "demo", "-o", file, "--force", "--store", demo).status == 0
    assert file.read_text() == out
    assert "## user" in done("export", "demo", "--to", "markdown", "--store", demo).out


def test_export_messages(demo: str) -> None:
    """For a provider it is the list of messages that it takes."""
    (found,) = done("export", "demo", "--to", "openai", "--store", demo).values
    assert [message["role"] for message in found] == ["user", "assistant"]
    (found,) = done("export", "demo", "--to", "anthropic", "--store", demo).values
    assert [message["role"] for message in found["messages"]] == ["user", "assistant"]


# -- judging -----------------------------------------------------------------------------------


def test_verify(demo: str) -> None:
    """A sound session is one line and status 0; --all takes every session."""
    assert done("verify", "demo", "--store", demo).out.startswith("demo: ok")
    write(demo, "other", lambda s: s.add_user("x"))
    assert len(done("verify", "--all", "--store", demo).out.splitlines()) >= 2


def test_stats(demo: str) -> None:
    """`stats` counts; tokens that nobody reported are unknown, not zero."""
    (found,) = done("stats", "demo", "--json", "--store", demo).values
    assert (found["events"], found["turns"], found["toolCalls"]) == (14, 1, 1)
    (tokens,) = found["tokensByModel"]
    assert (tokens["model"], tokens["answers"]) == ("m", 2)
    assert tokens["input"] == {"tokens": None, "unknown": 2}
    assert [key for key in [*found, *tokens] if " " in key] == []
    (found,) = done("stats", "--json", "--store", demo).values
    assert (found["sessions"], found["events"]) == (1, 14)
    assert "unknown" in done("stats", "demo", "--store", demo).out


def test_stats_count_a_family_once(url: str) -> None:
    """What forks share is counted once over the store."""
    usage = {"inputTokens": 5, "outputTokens": 7}
    message = {"id": "a", "role": "assistant", "content": [{"type": "text", "text": "x"}]}
    data = {"message": {**message, "source": {"kind": "model", "model": "m"}}, "usage": usage}
    write(url, "demo", lambda s: s.append("assistant/message", data, surface_op="append"))
    done("fork", "demo", "--store", url)
    (found,) = done("stats", "--json", "--store", url).values
    (tokens,) = found["tokensByModel"]
    sums = [tokens[bucket]["tokens"] for bucket in ("input", "output", "cacheRead")]
    assert (found["sessions"], sums) == (2, [5, 7, None])


def test_doctor(demo: str, tmp_path: Path) -> None:
    """`doctor` says what is installed and how safe the store is; one that fails is status 1."""
    values = {v["check"]: v for v in done("doctor", "--json", "--store", demo).values}
    assert [values[name]["state"] for name in ("python", "packages", "store", "permissions")] == [
        "ok"
    ] * 4
    folder = Path(demo.removeprefix("jsonl:"))
    folder.chmod(0o755)
    values = {v["check"]: v for v in done("doctor", "--json", "--store", demo).values}
    assert values["permissions"]["state"] == "warning"
    values = {v["check"]: v for v in done("doctor", "--json", "--store", "memory:").values}
    assert values["durability"]["state"] == "warning"
    Path(demo.removeprefix("jsonl:"), "demo", "1.jsonl").write_text("no header\n")
    (found,) = [v for v in done("doctor", "--json", "--store", demo).values if "'demo'" in str(v)]
    assert (found["check"], found["state"]) == ("sessions", "warning")
    (tmp_path / "file").touch()
    result = turnlog("doctor", "--store", f"jsonl:{tmp_path / 'file'}")
    assert (result.status, result.err) == (1, "")


# -- terminals ---------------------------------------------------------------------------------


@pytest.fixture
def hostile(url: str) -> str:
    """A store whose one session has a hostile id, hostile text and a hostile type."""

    def act(session: StoredSession) -> None:
        session.append("session/title", {"title": HOSTILE, "messageSeqs": []})
        session.add_user(HOSTILE)
        session.add_assistant(ToolCall(HOSTILE, HOSTILE, HOSTILE), model=HOSTILE)
        session.add_tool_result(HOSTILE, HOSTILE)

    write(url, "id\x1b[2J\n", act)
    return url


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["ls", "--json"],
        ["show", "ID", "--tools"],
        ["show", "ID", "--tools", "--json"],
        ["messages", "ID"],
        ["messages", "ID", "--dialect", "openai"],
        ["events", "ID"],
        ["tail", "ID", "--no-follow"],
        ["verify", "ID"],
        ["stats", "ID"],
        ["show", "nope"],
    ],
)
def test_nothing_hijacks_the_terminal(
    hostile: str, words: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch, *, tty: bool
) -> None:
    """Whatever stands in a log, no control character, mark or surrogate reaches the terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    id_ = "id\x1b[2J\n"
    words = [id_ if word == "ID" else word for word in words]
    result = turnlog(*words, "--store", hostile, encoding=encoding, tty=tty)
    assert result.status in (0, 1)
    shown = result.out + result.err
    assert [c for c in shown if c in "\x1b\x07\x9b\r\x00\u202e" or "\ud800" <= c <= "\udfff"] == []
    if words[0] == "events":
        assert result.values == [event.to_dict() for event in read(hostile, id_).events]


@pytest.mark.parametrize("to", ["jsonl", "markdown", "openai", "anthropic"])
def test_exports_do_not_hijack_the_terminal(hostile: str, to: str) -> None:
    """What is exported to a terminal is shown with escapes; in a pipe it is verbatim."""
    id_ = "id\x1b[2J\n"
    shown = turnlog("export", id_, "--to", to, "--store", hostile, tty=True).out
    assert [c for c in shown if c in "\x1b\x07\x9b\r\x00\u202e"] == []
    if to == "jsonl":
        piped = done("export", id_, "--store", hostile)
        assert "\x9b" in piped.out
        assert [json.loads(line) for line in shown.splitlines()] == piped.values


def test_colours_on_a_terminal_only(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets colours, unless NO_COLOR is set; a file never does."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in turnlog("show", "demo", "--store", demo, tty=True).out
    assert "\x1b[" not in turnlog("show", "demo", "--store", demo).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in turnlog("show", "demo", "--store", demo, tty=True).out


def test_a_narrow_terminal(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists fit a terminal of 40 columns."""
    monkeypatch.setenv("COLUMNS", "40")
    for words in (["ls"], ["tail", "demo", "--no-follow"], ["stats", "demo"]):
        lines = done(*words, "--store", demo).out.splitlines()
        assert max(map(len, lines)) <= 40


def test_a_closed_pipe_is_silent(demo: str) -> None:
    """A reader that goes away ends the command without a word."""
    write(demo, "demo", lambda s: s.add_user("x" * 1_000_000))
    command = [sys.executable, "-m", "turnlog", "events", "demo", "--store", demo]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert (process.stderr.read(), process.wait(30)) == (b"", 0)


def test_the_console_script(demo: str) -> None:
    """The installed script runs the same commands."""
    script = Path(sys.executable).with_name("turnlog" + (".exe" if os.name == "nt" else ""))
    output = subprocess.run(
        [script, "ls", "--store", demo], check=True, capture_output=True, text=True
    ).stdout
    assert "demo" in output


# -- requests ----------------------------------------------------------------------------------


def ask(session: Session) -> None:
    """A request whose bytes are logged by their digest, and its answer."""
    config = {"provider": "openai", "model": "m"}
    session.append("request/header", {"header": {"config": config}, "reason": "initial"})
    session.add_user("hi")
    header = Header(ModelConfig("openai", "m"))
    body = encoder("openai@1").encode(header, session.request_messages())
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    sent = {"purpose": "step", "digest": digest, "encoder": "openai@1", "model": "m"}
    session.append("request/sent", sent)
    session.add_assistant("hello", model="m")


def test_requests(url: str) -> None:
    """`requests` lists what was sent; --show gives the very bytes whose digest was logged."""
    write(url, "demo", ask)
    assert done("requests", "demo", "--store", url).out.startswith("0  step  m  answered")
    (listed,) = done("requests", "demo", "--json", "--store", url).values
    body = done("requests", "demo", "--show", "0", "--store", url).out
    assert listed["digest"] == f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
    assert done("verify", "demo", "--store", url).out == "demo: ok\n"


def test_requests_that_cannot_be_had(url: str) -> None:
    """A digest that the log does not give is a fault; an inferred request is said to be one."""
    write(url, "demo", ask)
    sent = {"purpose": "step", "digest": "sha256:0", "encoder": "openai@1", "model": "m"}
    write(url, "demo", lambda s: s.append("request/sent", sent))
    assert turnlog("verify", "demo", "--store", url).status == 1
    result = turnlog("requests", "demo", "--show", "1", "--store", url)
    assert (result.status, "not the bytes that were sent" in result.err) == (1, True)
    write(url, "empty", lambda s: s.add_user("x"))
    result = turnlog("requests", "empty", "--store", url)
    assert (result.status, result.err) == (0, "session 'empty' has no requests\n")


def test_inferred_requests(corpus: Path, url: str) -> None:
    """Of another tool's session, requests are inferred from what came back, and said to be."""
    done("import", corpus / "dsh" / "v4" / "chat", "--store", url)
    (session_id,) = [value["id"] for value in done("ls", "--json", "--store", url).values]
    assert "inferred" in done("requests", session_id, "--store", url).out
    result = turnlog("requests", session_id, "--show", "1", "--store", url)
    assert "does not say which bytes were sent" in result.err
    (body,) = result.values
    assert [m["role"] for m in body["messages"]][-1] == "user"


# -- what cannot be read -----------------------------------------------------------------------


def test_a_bad_header_in_every_command(demo: str) -> None:
    """A header that cannot be read names the session and its file, whatever the command."""
    Path(demo.removeprefix("jsonl:"), "demo", "1.jsonl").write_bytes(b"\xff garbled\n")
    for command in ("show", "messages", "events", "requests", "tail", "fork", "repair", "export"):
        result = turnlog(command, "demo", "--store", demo)
        assert (result.status, len(result.err.splitlines())) == (1, 1)
        assert "session 'demo': its header in demo/1.jsonl cannot be read" in result.err
        assert "codec" not in result.err
    assert "[readable]" in turnlog("verify", "--all", "--store", demo).out
    out = done("ls", "--store", demo).out
    assert out.startswith("demo  (unreadable: session 'demo': its header")
    (info,) = done("ls", "--json", "--store", demo).values
    assert set(info) == {"id", "health", "problem"}


def test_a_log_that_is_gone_in_every_command(demo: str) -> None:
    """A session of which only locks are left is unreadable, and no command takes it for none."""
    Path(demo.removeprefix("jsonl:"), "demo", "1.jsonl").unlink()
    assert "unreadable: session 'demo': its log is gone" in done("ls", "--store", demo).out
    result = turnlog("verify", "--all", "--store", demo)
    assert (result.status, "its log is gone" in result.out) == (1, True)
    assert "unreadable" in done("doctor", "--store", demo).out
    assert "its log is gone" in turnlog("show", "demo", "--store", demo).err


def test_version_and_help() -> None:
    """-V is --version; what is no command hints at --help; a word too many is named."""
    assert done("-V").out == done("--version").out
    assert "--help" in turnlog("help").err
    assert turnlog("ls", "extra").err == "turnlog: unexpected: extra (try turnlog ls --help)\n"


def test_doctor_lists_no_extra_that_has_no_use_yet() -> None:
    """An extra whose module is not there is not asked for."""
    checks = {value["check"] for value in done("doctor", "--json", "--store", "memory:").values}
    assert "extra openai" in checks
    assert ("extra server" in checks) == (find_spec("turnlog.server") is not None)
