"""Commands to a turn that does not run say so."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.e2e.command import Result, turnlog, write
from turnlog.session import Session
from turnlog.stores import open_store
from turnlog.stores.port import Owner

COMMANDS = [["steer", "s", "Only the first."], ["cancel", "s"]]


def open_turn(session: Session) -> None:
    """A turn that nobody closed."""
    session.append("turn/start", {"turn": 1})
    session.add_user("Look.")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with one session, `s`, whose turn is open."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    write(url, "s", open_turn)
    return url


def owned_by(url: str, owner: Owner, *words: str) -> tuple[Result, int]:
    """A command while that owner has the session; and how many commands wait then."""

    async def work() -> tuple[Result, int]:
        async with open_store(url) as store:
            claim = await store.backend.claim("s", owner)
            result = await anyio.to_thread.run_sync(lambda: turnlog(*words, "--store", url))
            waiting = len(await store.backend.inbox("s"))
            await store.backend.release(claim)
            return result, waiting

    return anyio.run(work)


@pytest.fixture(scope="module")
def gone() -> int:
    """The number of a process that was there."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("words", COMMANDS)
def test_a_turn_that_a_crash_cut_off_takes_nothing(words: list[str], url: str) -> None:
    """Nobody has the session: the command is refused, with what closes the turn."""
    result = turnlog(*words, "--store", url)
    assert (result.status, result.out) == (1, "")
    assert "session 's': its turn was interrupted; turnlog repair s" in result.err


@pytest.mark.parametrize("words", COMMANDS)
def test_an_owner_that_is_gone_is_told_of(words: list[str], url: str, gone: int) -> None:
    """A lease outlives its process: what is posted meanwhile may come to nothing."""
    owner = Owner(gone, socket.gethostname(), 0)
    result, waiting = owned_by(url, owner, *words)
    assert (result.status, waiting) == (0, 1)
    assert result.out.endswith(f" posted; {owner} has it, but is gone\n")
    assert "nothing comes of this: turnlog repair s" in result.err
    result, _ = owned_by(url, owner, *words, "--json")
    assert (result.values[0]["ownerIsGone"], result.err) == (True, "")


@pytest.mark.parametrize("host", [socket.gethostname(), "another-machine.example"])
def test_an_owner_that_may_be_there_takes_it(host: str, url: str, gone: int) -> None:
    """A process of this machine that is there, or any of another machine."""
    pid = os.getpid() if host == socket.gethostname() else gone
    owner = Owner(pid, host, 0)
    result, waiting = owned_by(url, owner, "steer", "s", "Only the first.")
    assert (result.status, waiting, result.err) == (0, 1, "")
    assert result.out == f"message posted; {owner} takes it\n"


def test_without_a_turn_there_is_nothing_to_steer(url: str) -> None:
    """The turn is over: one line says so."""
    write(url, "s", lambda session: session.repair())
    result = turnlog("steer", "s", "Only the first.", "--store", url)
    assert (result.status, result.out) == (1, "")
    assert "no turn is running" in result.err
