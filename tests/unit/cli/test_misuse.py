"""What a newcomer types who does not know the command: one line says what was expected."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.e2e.command import turnlog, write
from tests.e2e.scripts import write_script
from turnlog.dialects import encoder
from turnlog.events import Header, ModelConfig, RequestHeader, RequestSent
from turnlog.session import Session


def talk(session: Session) -> None:
    """A question and its answer."""
    session.add_user("Why is the sky blue?")
    session.add_assistant("Rayleigh.")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with one session, `trip`."""
    url = f"jsonl:{tmp_path / 'store'}"
    write(url, "trip", talk)
    return url


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tail"], "expected ID; turnlog ls lists them (try turnlog tail --help)"),
        (["approve", "trip"], "expected CALL; turnlog approvals lists them"),
        (["unpin", "trip"], "expected PIN; turnlog pin ID lists them"),
        (["chat", "hello"], "unexpected: hello; a prompt is typed once it runs"),
        (["fork", "trip", "new"], "unexpected: new; --as ID names the new session"),
        (["cancel", "trip", "3"], "unexpected: 3; --turn N names a turn"),
        (["steer", "trip"], "expected TEXT (try turnlog steer --help)"),
        (["run", "hi", "--model"], "--model: expected a value (try turnlog run --help)"),
        (["tail", "trip", "--from", "x"], "--from: expected a whole number, got 'x'"),
        (["run", "hi", "--temperature", "hot"], "--temperature: expected a number, got 'hot'"),
        (
            ["run", "hi", "--tool-choice", "maybe"],
            "--tool-choice: expected auto, required or none, got 'maybe'",
        ),
        (["run", "hello", "world"], "unexpected: world; a text of several words needs quotes"),
        (["compact", "trip", "keep", "it"], "unexpected: keep it; a text of several words"),
        (["requests", "trip", "0"], "unexpected: 0; --show K rebuilds request K"),
        (["run", "hi", "--session", ""], "--session: expected an id, got ''"),
        (["chat", "--session", ""], "--session: expected an id, got ''"),
        (["search", "sky", "--limit", "0"], "--limit: expected 1 to 1000, got 0"),
        (["search", "sky", "--limit", "1001"], "--limit: expected 1 to 1000, got 1001"),
        (["worker", "--once", "--grace", "-1"], "--grace: expected 0 or more, got -1.0"),
        (["worker", "--once", "--grace", "nan"], "--grace: expected 0 or more, got nan"),
        (["worker", "--once", "--patience", "-1"], "--patience: expected 0 or more, got -1.0"),
        (["worker", "--once", "--attempts", "-1"], "--attempts: expected 0 or more, got -1"),
        (["sho", "trip"], 'Unknown command "sho". Did you mean "show"?'),
        (["trip"], 'Unknown command "trip".'),
        (["ls", "--limit", "5"], "Unknown option: --limit. (try turnlog ls --help)"),
    ],
)
def test_misuse_says_what_was_expected(words: list[str], line: str, url: str) -> None:
    """On one line, with the help to ask for; the status is 2, and nothing is done."""
    result = turnlog("--store", url, *words)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"turnlog: {line}")
    command = f"{words[0]} " if words[0] not in ("sho", "trip") else ""
    assert result.err.endswith(f"(try turnlog {command}--help)\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["events", "trip", "--type", "user"], "no event of type 'user': did you mean 'user/mes"),
        (["show", "tr"], "no session 'tr' in "),
        (["tail", "trip", "--from", "9", "--no-follow"], "session 'trip' has no event 9 yet"),
    ],
)
def test_what_is_not_there_is_said_to_be_missing(words: list[str], line: str, url: str) -> None:
    """With what may have been meant."""
    assert line in turnlog(*words, "--store", url).err


def test_a_failed_compaction_says_that_nothing_was_done(url: str, tmp_path: Path) -> None:
    """The reason comes behind it: a session of two messages has nothing to gain."""
    model = ["--model", write_script(tmp_path, "They spoke."), "--context-window", "4000"]
    result = turnlog("compact", "trip", *model, "--store", url)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("turnlog: session 'trip' was not compacted: ")


def test_a_request_on_a_terminal_ends_its_line(url: str) -> None:
    """The prompt of the shell does not follow on it; a pipe gets the bytes and nothing else."""

    def ask(session: Session) -> None:
        header = Header(ModelConfig("scripted", "m"))
        session.append("request/header", RequestHeader(header, "initial"))
        body = encoder("openai@1").encode(header, session.request_messages())
        digest = f"sha256:{sha256(body).hexdigest()}"
        session.append("request/sent", RequestSent("step", digest, "openai@1", "scripted:m"))

    write(url, "trip", ask)
    words = ["requests", "trip", "--show", "0", "--store", url]
    piped, seen = turnlog(*words), turnlog(*words, tty=True)
    assert (piped.status, piped.out[-1:]) == (0, "}")
    assert seen.out == f"{piped.out}\n"
