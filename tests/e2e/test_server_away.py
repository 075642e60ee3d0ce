"""`chat` and `tail` on a database server that is away for longer than a store waits by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.children import child, on_terminal
from tests.e2e.command import done
from tests.e2e.scripts import write_script
from tests.store_urls import SERVERS
from tests.unit.stores.server_places import MariaDbPlace, PostgresPlace, empty_place

pytest.importorskip("termios", reason="terminals as POSIX has them")


@pytest.fixture(params=SERVERS)
def place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresPlace | MariaDbPlace]:
    """A store on each server, which is started again if a test left it stopped."""
    found = empty_place(request.param)
    monkeypatch.setenv("TURNLOG_STORE", found.url())
    yield found
    found.stop()
    found.start()


@pytest.mark.long
def test_both_outlive_their_server(place: PostgresPlace | MariaDbPlace, tmp_path: Path) -> None:
    """A prompt waits until Ctrl-C gives it up, which says so; the next one is answered."""
    model = write_script(tmp_path, ["One."], ["Two."], ["Three."])
    with on_terminal("chat", "--model", model, "--session", "s") as (chat, terminal):
        chat.until("> ")
        os.write(terminal, b"first\n")
        chat.until("One.", "> ")
        with child("tail", "s", "--from", "0") as tail:
            tail.until("One.", "turn/end", "\n")
            place.stop()
            os.write(terminal, b"lost\n")
            chat.until("it is tried again; Ctrl-C gives up")
            os.write(terminal, b"\x03")
            chat.until("not said: lost", "> ")
            os.write(terminal, b"second\n")
            chat.until("it is tried again; Ctrl-C gives up")
            place.start()
            chat.until("Two.", "> ")
            os.write(terminal, b"\x04")
            chat.until("turnlog chat --session s")
            assert chat.status() == 0
            tail.until("second", "Two.", "turn/end", "\n")
            tail.signal(signal.SIGINT)
            assert tail.status() == 0
            assert tail.errors().count("it is tried again until Ctrl-C") == 1
    lines = [line for line in tail.text.splitlines() if line]
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))
    said = done("messages", "s", "--json").values
    texts = ["".join(block.get("text", "") for block in value["content"]) for value in said]
    assert texts == ["first", "One.", "second", "Two."]


@pytest.mark.long
def test_a_chat_that_is_left_while_its_server_is_away_says_how_to_go_on(
    place: PostgresPlace | MariaDbPlace, tmp_path: Path
) -> None:
    """And ends, though it cannot give the session back."""
    model = write_script(tmp_path, ["One."])
    with on_terminal("chat", "--model", model, "--session", "s") as (chat, terminal):
        chat.until("> ")
        os.write(terminal, b"first\n")
        chat.until("One.", "> ")
        place.stop()
        os.write(terminal, b"\x04")
        chat.until("turnlog chat --session s --model")
        assert "cannot be reached" in chat.rest()
        assert chat.status() == 1
    assert "Traceback" not in chat.text
