"""Forks an owner of a session for each line on stdin, and says what becomes of it.

A line is `TAG WHAT URL SESSION EFFECTS SEED`. The child runs the agent of `agent_child` on the
session: with `own` turn after turn, until it is killed or robbed; with `wait` it waits until the
session is free, with `steal` it does not, and then it runs one turn and gives the session back.
EFFECTS is the file to which bodies append their tokens.

Each line on stdout begins with the TAG of the child that it is about:

    pid N           it was forked
    busy WHY        it waits; said once
    owner SEQ       it owns the session, and has repaired it: that is durable before SEQ
    ack SEQ HASH    see `agent_child`
    done            it has given the session back
    stale WHY       it was robbed
    stopped         it got SIGSTOP, and no longer runs
    gone STATUS     it has ended, and whatever it said is above; a signal is negative

At the end of stdin all children are killed.
"""

from __future__ import annotations

import os
import select
import signal
import traceback
from pathlib import Path

import anyio

from tests.crash.agent_child import Acknowledger, make_agent
from turnlog import open_store
from turnlog.errors import SessionInUse, StaleWriter
from turnlog.stores.live import StoredSession
from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.server.driver import Driver
from turnlog.stores.server.store import ServerStore
from turnlog.stores.store import Store

LEASE = 0.6  # seconds
PAUSE = 0.02  # seconds between two tries to own what another process has


def say(tag: str, text: str) -> None:
    """One line, at once and whole."""
    os.write(1, f"{tag} {text}\n".encode())


def leased(url: str) -> Store:
    """A store on a server whose leases are short."""
    driver: Driver
    if url.startswith("mysql:"):
        driver = MySqlDriver(options_of(url, url), url)
    else:
        driver = PostgresDriver(url, url)
    return Store(ServerStore(driver, lease=LEASE))


class Owner:
    """What one child does."""

    def __init__(self, tag: str, what: str, name: str, effects: Path, seed: int) -> None:
        self._tag = tag
        self._what = what
        self._name = name
        self._agent = make_agent(effects, seed)

    async def run(self, store: Store) -> None:
        """Own the session, and work.

        Raises:
            SessionInUse: it has another owner, and this one was not told to wait.
        """
        waits = False
        async with store:
            while True:
                try:
                    steal = self._what == "steal"
                    async with store.session(self._name, steal=steal) as session:
                        await self._work(session)
                except SessionInUse as error:
                    if self._what != "wait":
                        raise
                    if not waits:
                        say(self._tag, f"busy {error}")
                    waits = True
                    await anyio.sleep(PAUSE)
                else:
                    say(self._tag, "done")
                    return

    async def _work(self, session: StoredSession) -> None:
        say(self._tag, f"owner {session.durable_seq}")
        before = await session.read_events(0, session.first_held)
        acknowledger = Acknowledger(session, before, f"{self._tag} ")
        goes_on = True
        while goes_on:
            async with self._agent.stream(session, f"turn after {session.next_seq}") as turn:
                async for _ in turn:
                    acknowledger.say()
            acknowledger.say()
            goes_on = self._what == "own"


def be(tag: str, what: str, url: str, name: str, effects: str, seed: str) -> int:
    """Be a child; its exit status."""
    try:
        anyio.run(Owner(tag, what, name, Path(effects), int(seed)).run, leased(url))
    except BaseException as error:  # noqa: BLE001 - nothing of the parent's is to be run
        if not isinstance(error, StaleWriter):
            traceback.print_exc()
            return 1
        say(tag, f"stale {error}")
    return 0


def _rung(number: int, frame: object) -> None:
    """A child has changed: the pipe says so."""
    del number, frame


class Parent:
    """The process that forks."""

    def __init__(self) -> None:
        self._tags: dict[int, str] = {}
        self._heard, rung = os.pipe()  # a signal that a child has changed
        self._pipe = (self._heard, rung)
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, _rung)
        signal.set_wakeup_fd(rung)

    def serve(self) -> None:
        """Fork children until stdin ends; then end them."""
        unread = b""
        while True:
            ready, _, _ = select.select([0, self._heard], [], [])
            if self._heard in ready:
                os.read(self._heard, 4096)
                self._tell()
            if 0 in ready:
                read = os.read(0, 1 << 16)
                if not read:
                    break
                *lines, unread = (unread + read).split(b"\n")
                for line in lines:
                    self._fork(line.decode().split())
        for pid in self._tags:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _fork(self, words: list[str]) -> None:
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (0, *self._pipe):
                os.close(descriptor)
            status = 1
            try:
                status = be(*words)
            finally:
                os._exit(status)
        self._tags[pid] = words[0]
        say(words[0], f"pid {pid}")

    def _tell(self) -> None:
        """Say what has become of children."""
        while self._tags:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                say(self._tags[pid], "stopped")
            else:
                say(self._tags.pop(pid), f"gone {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    for scheme in ("postgresql", "mysql"):  # so that no child has to import anything
        open_store(f"{scheme}://user@localhost/database")
    Parent().serve()
