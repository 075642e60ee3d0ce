"""Whatever a command prints, no password of a store's URL is in it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.e2e.command import Result, turnlog
from tests.e2e.scripts import call, write_script, write_tools
from tests.servers import mariadb, postgres
from turnlog.cli.app import app

WORD = "canary"
COMMANDS = sorted(name for name in app if not name.startswith("-"))
BAD = [
    "postgresql://u:a/canary@h/db",
    "mysql://u:p#canary@h/db",
    "mysql://u:12?canary@h/db",
    "postgresql://h/db?password=a&canary",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with tools, and a store that is named by nobody."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tools", raising=False)
    monkeypatch.setenv("TURNLOG_STORE", f"sqlite:{tmp_path / 'store.db'}")
    monkeypatch.setenv("TURNLOG_MODEL", "scripted:none")
    write_tools(tmp_path)
    return tmp_path


def printed(*words: object) -> Result:
    """What a command says, after a look for the password."""
    result = turnlog(*words)
    assert WORD not in result.out + result.err, words
    assert "secret" not in result.out + result.err, words  # of the tests' servers
    return result


def place(name: str) -> str:
    """The URL of an empty store on a server, with a password in it."""
    if name == "mysql":
        return mariadb.server().tcp_url(mariadb.server().new_database())
    url = postgres.server().tcp_url(postgres.server().new_schema())
    if name == "option":
        user, _, rest = url.partition(":a%20secret@")
        url = f"{user}@{rest}&password=a%20secret"
    assert "secret" in url
    return url


@pytest.mark.parametrize("name", ["postgresql", "option", "mysql"])
def test_no_hint_has_a_password(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints name the store as it may be shown; every command is run on it."""
    url = place(name)
    model = write_script(folder, call("wipe", path="x"), "Done.", "And done.", "Bye.")
    agent = ["--model", model, "--tool", "tools:wipe"]
    on = ["--store", url]
    waiting = printed("run", "go", "--session", "s", *agent, *on)
    hints = [line for line in waiting.err.splitlines() if "--store" in line]
    assert len(hints) >= 3  # approve, deny, run
    assert all("***" in line for line in hints)
    assert "c1" in printed("approvals", *on).out
    assert printed("approve", "s", "c1", *on).status == 0
    assert "***" in printed("run", "--session", "s", *agent, *on).err
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/exit\n"))
    assert "***" in printed("chat", "--session", "s", *agent, *on).err
    for words in (
        ["post", "s", "more"],
        ["steer", "s", "left"],
        ["cancel", "s"],
        ["repair", "s"],
        ["ls"],
        ["show", "s"],
        ["show", "none"],
        ["search", "hello"],
        ["verify", "--all"],
        ["stats", "s"],
        ["stats", "s", "--json"],
        ["doctor"],
        ["migrate"],
        ["migrate", "--dry-run", "--json"],
        ["fork", "s", "--as", "t"],
        ["export", "s"],
        ["import", folder / "none.jsonl"],
    ):
        printed(*words, *on)
    assert printed("copy", url, f"sqlite:{folder / 'copy.db'}").status == 0
    assert printed("copy", f"sqlite:{folder / 'none.db'}", url).status == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_no_refusal_has_a_password(command: str, folder: Path) -> None:
    """Of a URL that cannot be read, or that stands where something else is expected."""
    for url in BAD:
        for words in ([], ["x"], ["x", "y"], [url], [url, url], [f"--stoer={url}"]):
            refused = printed(command, *words, "--store", url)
            assert refused.status in (1, 2)
    if command not in ("chat", "worker"):  # which would go on
        printed(command, "mysql://u:canary@h/db", "--store", f"sqlite:{folder / 'store.db'}")


@pytest.mark.parametrize(
    "url", ["postgresql://u:canary@127.0.0.1:9/db", "mysql://u:canary@127.0.0.1:9/db"]
)
@pytest.mark.parametrize("command", ["ls", "doctor"])
def test_what_is_said_of_a_server_that_is_away_has_no_password(url: str, command: str) -> None:
    """It names the server, and what to do."""
    refused = printed(command, "--store", url)
    assert refused.status == 1
    assert "***" in refused.out + refused.err
