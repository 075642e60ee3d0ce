"""`turnlog run` as a person or a script uses it: one turn, and what it leaves in the session."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.children import command
from tests.e2e.command import done, read, turnlog, write
from tests.e2e.scripts import call, write_script, write_tools
from tests.servers.chat_server import Reply, chat_server, delta, words
from turnlog.commands import Prompt
from turnlog.stores import open_store

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202egnp.exe"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module of tools, and a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tools", raising=False)
    monkeypatch.setenv("TURNLOG_STORE", f"jsonl:{tmp_path / 'store'}")
    monkeypatch.delenv("TURNLOG_MODEL", raising=False)
    write_tools(tmp_path)
    return tmp_path


def types(session_id: str) -> list[str]:
    """The types of a stored session's events, runs of chunks as one."""
    found: list[str] = []
    for event in done("events", session_id).values:
        if event["type"] != "assistant/chunk" or found[-1] != "assistant/chunk":
            found.append(event["type"])
    return found


def end(session_id: str) -> dict[str, Any]:
    """Why a stored session's last turn ended."""
    (*_, last) = done("events", session_id, "--type", "turn/end").values
    return last["data"]["reason"]


def assert_sound(session_id: str) -> None:
    """Every law of the log holds, and each request can be proved."""
    assert done("verify", session_id).out == f"{session_id}: ok\n"


# -- the answer --------------------------------------------------------------------------------


def test_the_answer_alone_is_standard_output(folder: Path) -> None:
    """The text is what a pipe gets; reasoning, calls, results and the session's id go elsewhere."""
    model = write_script(folder, [{"reasoning": "A sum."}, call("add", a=1, b=2)], ["It is", " 3."])
    result = turnlog("run", "1 + 2?", "--model", model, "--tool", "tools:add", "--session", "s")
    assert (result.status, result.out) == (0, "It is 3.\n")
    *shown, last = result.err.splitlines()
    assert shown == ["A sum.", '[call c1] add {"a":1,"b":2}', "[result c1] 3"]
    assert f"turnlog run --session s --model {model} --tool tools:add" in last
    assert_sound("s")


def test_a_session_goes_on(folder: Path) -> None:
    """A second run with the session's id continues it; the model sees what was said before."""
    model = write_script(folder, ["Blue."])
    for prompt in ("which colour?", "and at night?"):
        assert turnlog("run", prompt, "--model", model, "--session", "s").out == "Blue.\n"
    (body,) = done("requests", "s", "--show", "1").values
    assert [message["content"] for message in body["messages"]] == [
        "which colour?",
        "Blue.",
        "and at night?",
    ]
    assert types("s").count("request/header") == 1
    assert_sound("s")


def test_without_a_session_there_is_a_new_one(folder: Path) -> None:
    """Each run without --session makes a session, whose id it says."""
    model = write_script(folder, "x")
    said = [turnlog("run", "hi", "--model", model).err for _ in range(2)]
    ids = [info["id"] for info in done("ls", "--json").values]
    assert len(set(ids)) == 2
    assert [any(f"--session {one} " in text for text in said) for one in ids] == [True, True]


def test_the_prompt_from_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads the prompt, whatever it begins with, up to its last line's end."""
    model = write_script(folder, "x")
    text = io.TextIOWrapper(io.BytesIO("--no option\nzwei ü\n".encode()))
    monkeypatch.setattr(sys, "stdin", text)
    turnlog("run", "-", "--model", model, "--session", "s")
    assert read(f"jsonl:{folder / 'store'}", "s").derive_messages()[0].text == "--no option\nzwei ü"


def test_nothing_that_is_said_acts_on_the_terminal(folder: Path) -> None:
    """Control characters of answers, reasoning, calls and results are escapes; pairs are joined."""
    answer = [{"reasoning": HOSTILE}, HOSTILE, call("add", a=HOSTILE, b=1)]
    last = ["\ud83d", "\ude00 ", "\ud83d", "\r", "\nnext\r"]
    model = write_script(folder, answer, last)
    result = turnlog("run", "go", "--model", model, "--tool", "tools:add", tty=True)
    assert result.status == 0
    bad = set("\x1b\x07\x9b\u202e\r")
    plain = (result.out + result.err).replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert bad & set(plain) == set()
    assert result.out.endswith("😀 \\ud83d\nnext\\r\n")


def test_the_system_text_stays(folder: Path) -> None:
    """A session keeps its system text until another one is given; '' takes it away."""
    model = write_script(folder, "x")
    run = ["run", "hi", "--model", model, "--session", "s"]
    for words_ in (["--system", "be brief"], [], ["--system", ""], []):
        turnlog(*run, *words_)
    bodies = [json.loads(done("requests", "s", "--show", k).out) for k in range(4)]
    roles = [body["messages"][0]["role"] for body in bodies]
    assert roles == ["system", "system", "user", "user"]
    assert_sound("s")


def test_the_environment_names_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$TURNLOG_MODEL is the model where --model is not given."""
    monkeypatch.setenv("TURNLOG_MODEL", write_script(folder, "from the environment"))
    assert turnlog("run", "hi").out == "from the environment\n"


def test_a_recorded_model(folder: Path) -> None:
    """`recorded:` answers with what a session of the same store was answered."""
    turnlog("run", "hi", "--model", write_script(folder, ["Hel", "lo."]), "--session", "first")
    assert turnlog("run", "hi", "--model", "recorded:first").out == "Hello.\n"
    assert "no session 'nope'" in turnlog("run", "hi", "--model", "recorded:nope").err


# -- json --------------------------------------------------------------------------------------


def test_json_is_the_log(folder: Path) -> None:
    """With --json each event of the turn is a line in wire form, the last the turn's end."""
    model = write_script(folder, [call("add", a=1, b=2)], ["It is", " 3."])
    run = ["run", "go", "--model", model, "--tool", "tools:add", "--session", "s", "--json"]
    first, second = turnlog(*run).values, turnlog(*run).values
    assert first + second == done("events", "s").values
    assert [first[0]["type"], first[-1]["type"]] == ["turn/start", "turn/end"]
    assert second[-1]["data"]["reason"]["kind"] == "completed"


# -- how it ends -------------------------------------------------------------------------------


def test_a_failure_is_one_line_and_status_1(folder: Path) -> None:
    """What the provider refused is said on one line; what had arrived is in the log."""
    model = write_script(folder, ["half", {"fail": "refused", "message": "no\x1bsuch\nmodel"}])
    result = turnlog("run", "hi", "--model", model, "--session", "s")
    assert (result.status, result.out) == (1, "half\n")
    assert [line for line in result.err.splitlines() if line.startswith("turnlog: ")] == [
        "turnlog: turn 1 failed: no\\x1bsuch model (refused)"
    ]
    assert_sound("s")


def test_a_limit_is_status_1(folder: Path) -> None:
    """A turn that reached its limit says which."""
    model = write_script(folder, [call("add", a=1, b=2)], repeat=True)
    tool = ["--tool", "tools:add", "--max-steps", "2"]
    result = turnlog("run", "hi", "--model", model, *tool, "--session", "s")
    assert result.status == 1
    assert "turnlog: turn 1 ended early: limit: steps" in result.err
    assert types("s").count("request/sent") == 2


def test_an_answer_that_is_cut_off_says_so(folder: Path) -> None:
    """An answer that took all the tokens it may is an answer, with a note."""
    model = write_script(folder, ["to be or", {"finish": "max-tokens"}])
    result = turnlog("run", "hi", "--model", model, "--max-output-tokens", "3", "--session", "s")
    assert (result.status, result.out) == (0, "to be or\n")
    assert "cut off" in result.err
    (body,) = done("requests", "s", "--show", "0").values
    assert 3 in body.values()


def test_a_failed_attempt_does_not_count(folder: Path) -> None:
    """A retry is said, and that the text before it does not count."""
    fail = {"fail": "rate-limit", "retryAfterMs": 1}
    model = write_script(folder, ["half", fail], ["whole"])
    result = turnlog("run", "hi", "--model", model, "--session", "s")
    assert (result.status, result.out) == (0, "half\nwhole\n")
    assert "does not count" in result.err
    assert "[retry 1] in 0.0 s" in result.err
    assert_sound("s")


# -- misuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words_", "hint"),
    [
        (["hi", "--tool", "tools"], "expected MODULE:NAME"),
        (["hi", "--tool", "tools.py:add"], "without .py"),
        (["hi", "--tool", "nowhere:add"], "no module 'nowhere'"),
        (["hi", "--tool", "broken:add"], "SyntaxError"),
        (["hi", "--tool", "needs:add"], "no_such_package"),
        (["hi", "--tool", "tools:subtract"], "tools has no 'subtract'"),
        (["hi", "--tool", "tools:limit"], "expected a function, got int"),
        (["hi", "--tool", "tools:add", "--tool", "tools:add"], "two tools are called 'add'"),
        (["hi", "--tool-choice", "required"], "needs a --tool"),
        (["hi", "--tool-choice", "maybe"], "maybe"),
        (["hi", "--max-steps", "0"], "expected 1 or more, got 0"),
        (["hi", "--context-window", "0"], "--context-window: expected 1 or more, got 0"),
        (["hi", "--max-output-tokens", "-1"], "expected 1 or more, got -1"),
        ([" "], "the prompt is empty"),
        ([], "expected a PROMPT"),
        (["hi", "--bogus"], "--bogus"),
    ],
)
def test_misuse(words_: list[str], hint: str, folder: Path) -> None:
    """Words that make no command are one line and status 2; no session is made."""
    (folder / "broken.py").write_text("def add(:\n")
    (folder / "needs.py").write_text("import no_such_package\n")
    result = turnlog("run", *words_, "--model", write_script(folder, "x"))
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert hint in result.err
    assert turnlog("ls").out == ""


@pytest.mark.parametrize(
    ("words_", "hint"),
    [
        (["hi", "--model", "klingon"], "no model is called 'klingon'"),
        (["hi", "--model", "scripted:nowhere.json"], "nowhere.json"),
        (["hi", "--model", "openai:gpt-5-mini"], "OPENAI_API_KEY"),
        (["--session", "nope", "--model", "SCRIPT"], "no session 'nope'"),
    ],
)
def test_failure(words_: list[str], hint: str, folder: Path) -> None:
    """What does not exist is one line and status 1; no session is made."""
    script = write_script(folder, "x")
    result = turnlog("run", *(script if word == "SCRIPT" else word for word in words_))
    assert (result.status, result.out) == (1, "")
    assert len(result.err.splitlines()) == 1
    assert hint in result.err
    assert turnlog("ls").out == ""


def test_nothing_to_go_on_with(folder: Path) -> None:
    """Without a prompt, a session in which nothing waits is status 1 and stays as it is."""
    run = ["run", "--model", write_script(folder, "x"), "--session", "s"]
    turnlog(*run, "hi")
    before = done("events", "s").out
    result = turnlog(*run)
    assert (result.status, result.out) == (1, "")
    assert "nothing waits to be run" in result.err
    assert done("events", "s").out == before


def test_prompts_that_wait_are_run(folder: Path) -> None:
    """Without a prompt, what waits in the inbox has its turns; each prompt is shown."""
    store = f"jsonl:{folder / 'store'}"
    write(store, "s", lambda _: None)

    async def post() -> None:
        async with open_store(store) as opened:
            for text in ("first", "second"):
                await opened.inbox("s").post(Prompt(text))

    anyio.run(post)
    result = turnlog("run", "--session", "s", "--model", write_script(folder, "one", "two"))
    assert (result.status, result.out) == (0, "one\ntwo\n")
    assert result.err.splitlines()[:2] == ["[prompt] first", "[prompt] second"]
    assert_sound("s")


# -- a long conversation -----------------------------------------------------------------------


def test_what_does_not_fit_is_compacted_and_recalled(folder: Path) -> None:
    """It says so in a line; with --recall the model finds what it no longer sees."""
    run = ["run", "--session", "s", "--context-window", "2000", "--recall"]
    long = "plain words that say nothing much " * 90
    for prompt in ("The key is under the mat.", "two", "three"):
        turnlog(*run, prompt, "--model", write_script(folder, long))
    summary = "## Goals\n- talk"
    model = write_script(folder, summary, [call("recall", query="key")], "Under the mat.")
    result = turnlog(*run, "Where is it?", "--model", model)
    assert (result.status, result.out) == (0, "Under the mat.\n")
    lines = [line for line in result.err.splitlines() if line.startswith("[")]
    assert lines[0].startswith("[compacting] the next request has about ")
    assert lines[0].endswith(" of 2000 tokens")
    assert lines[1].startswith("[compacted] to about ")
    assert lines[2] == '[call c1] recall {"query":"key"}'
    assert lines[3].startswith(
        "[result c1] Recalled from event 2 (user):\\nThe key is under the mat."
    )
    assert "--context-window 2000 --recall PROMPT" in result.err
    assert_sound("s")


# -- approvals ---------------------------------------------------------------------------------


def suspend(folder: Path, session_id: str = "s") -> list[str]:
    """Run a turn that waits for an approval; returns the command that goes on with it."""
    model = write_script(folder, ["I wipe.", call("wipe", path="/x")])
    run = ["run", "--session", session_id, "--tool", "tools:wipe"]
    result = turnlog(*run, "clean up", "--model", model)
    assert (result.status, result.out) == (1, "I wipe.\n")
    assert "turnlog: the turn waits for approval of c1" in result.err
    assert f"turnlog approve {session_id} c1" in result.err
    assert f"turnlog run --session {session_id} --model {model} --tool tools:wipe" in result.err
    return [*run, "--model", write_script(folder, "All done.")]


def test_a_turn_waits_for_an_approval(folder: Path) -> None:
    """A call that must be approved waits in the log; once it is, `run` goes on with it."""
    go_on = suspend(folder)
    assert done("approvals").out == 's  c1  wipe {"path":"/x"}\n'
    (waiting,) = done("approvals", "s", "--json").values
    assert waiting["call"] == "c1"
    assert (waiting["tool"], waiting["arguments"]) == ("wipe", '{"path":"/x"}')
    result = turnlog("approve", "s", "c1")
    assert (result.status, result.out) == (0, "approval posted; nobody runs the session now\n")
    hint = "a worker goes on with it, or turnlog run --session s, with its --model and --tool"
    assert hint in result.err
    result = turnlog("approvals")
    assert (result.out, result.err) == ("", "s  c1  approval posted, and nobody has taken it yet\n")
    assert done("approvals", "--json").values == []
    result = turnlog("approve", "s", "c1")
    assert (result.status, result.out) == (1, "")
    assert "a decision about call 'c1' was posted already: approval; whoever runs" in result.err
    assert not (folder / "wiped").exists()
    result = turnlog(*go_on)
    assert (result.status, result.out) == (0, "All done.\n")
    assert '[call c1] wipe {"path":"/x"}\n[result c1] wiped /x\n' in result.err
    assert (folder / "wiped").read_text() == "/x"
    assert turnlog("approvals").out == ""
    assert_sound("s")


def test_a_denial_is_read_by_the_model(folder: Path) -> None:
    """A call that was denied does not run; the model reads why, and the turn goes on."""
    go_on = suspend(folder)
    (posted,) = done("deny", "s", "c1", "--reason", "not that folder", "--json").values
    assert (posted["session"], posted["owner"]) == ("s", None)
    result = turnlog(*go_on)
    assert (result.status, result.out) == (0, "All done.\n")
    assert "[error c1] This call was denied: not that folder" in result.err
    assert not (folder / "wiped").exists()
    assert_sound("s")


def test_a_turn_that_waits_still_waits(folder: Path) -> None:
    """Going on without a decision changes nothing; without the tool it is refused."""
    go_on = suspend(folder)
    assert turnlog(*go_on).status == 1
    result = turnlog("run", "--session", "s", *go_on[-2:])
    assert (result.status, "waits with a call of wipe" in result.err) == (2, True)
    assert [value["call"] for value in done("approvals", "--json").values] == ["c1"]


def test_a_new_prompt_takes_the_place_of_a_turn_that_waits(folder: Path) -> None:
    """A prompt closes the turn that waits: its call is denied, and its own turn follows."""
    go_on = suspend(folder)
    assert turnlog(*go_on, "never mind").out == "All done.\n"
    assert turnlog("approve", "s", "c1").status == 1
    assert not (folder / "wiped").exists()
    assert_sound("s")


def test_yes_approves_everything(folder: Path) -> None:
    """With --yes nobody is asked."""
    model = write_script(folder, [call("wipe", path="/x")], "Done.")
    result = turnlog("run", "go", "--model", model, "--tool", "tools:wipe", "--yes")
    assert (result.status, result.out) == (0, "Done.\n")
    assert (folder / "wiped").exists()


@pytest.mark.parametrize(
    ("words_", "hint"),
    [
        (["approve", "s", "c9"], "no call 'c9' waits for an approval: there is 'c1'"),
        (["deny", "s", "c9"], "there is 'c1'"),
        (["approve", "nope", "c1"], "no session 'nope'"),
        (["approvals", "nope"], "no session 'nope'"),
        (["cancel", "nope"], "no session 'nope'"),
        (["cancel", "quiet"], "no turn is running"),
        (["steer", "quiet", "x"], "no turn is running"),
        (["cancel", "s", "--turn", "7"], "turn 1 is running, not 7"),
    ],
)
def test_commands_for_what_is_not_there(words_: list[str], hint: str, folder: Path) -> None:
    """A command that nothing waits for is one line that says what there is; nothing is posted."""
    suspend(folder)
    turnlog("run", "hi", "--model", write_script(folder, "x"), "--session", "quiet")
    result = turnlog(*words_)
    assert (result.status, result.out) == (1, "")
    assert len(result.err.splitlines()) == 1
    assert hint in result.err
    assert list((folder / "store").rglob("inbox.jsonl")) == []


def test_cancelling_a_turn_that_waits(folder: Path) -> None:
    """A cancel for a turn that waits is carried out by whoever goes on with it."""
    go_on = suspend(folder)
    assert turnlog("cancel", "s").out == "cancel posted; nobody runs the session now\n"
    result = turnlog(*go_on)
    assert (result.status, "was cancelled (user)" in result.err) == (1, True)
    assert end("s")["kind"] == "aborted"
    assert_sound("s")


# -- on the wire -------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
async def test_requests_are_what_went_over_the_wire() -> None:
    """Each rebuilt request equals the bytes a server saw; the messages of then, those of now."""
    asks = delta(
        tool_calls=[
            {"index": 0, "id": "c1", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
        ]
    )
    replies = [
        Reply.events(asks, delta("tool_calls"), "[DONE]"),
        Reply.events(*words("It is", " 3 ü\u2028."), "[DONE]"),
        Reply.events(*words("Still 3."), "[DONE]"),
    ]
    async with chat_server(*replies) as server:
        model = f"openai-compatible:tiny@{server.url}"
        for prompt, said in (("1 + 2? \x1b", "It is 3 ü\\u2028.\n"), ("sure?", "Still 3.\n")):
            run = command("run", prompt, "--model", model, "--session", "s", "--tool", "tools:add")
            finished = await anyio.run_process(run, stdin=None)
            assert finished.stdout.decode() == said
    assert len(server.requests) == 3
    for number, request in enumerate(server.requests):
        show = command("requests", "s", "--show", number)
        assert (await anyio.run_process(show)).stdout == request.body

    def compare() -> None:
        sent = [event["seq"] for event in done("events", "s", "--type", "request/sent").values]
        for seq, request in zip(sent, server.requests, strict=True):
            (body,) = done("messages", "s", "--at", seq, "--dialect", "openai").values
            assert body["messages"] == json.loads(request.body)["messages"]
        assert_sound("s")

    await anyio.to_thread.run_sync(compare)
