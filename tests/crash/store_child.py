"""Forks a child for each line on stdin, which does something to a store until it is killed.

Lines `WHAT NAME URL` start a child: append, move, own, share, post, migrate. `wait` waits for all
children and answers `gone`. A child says `pid N` first and `ack …` for what a flush acknowledged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import apsw

from turnlog.commands import Prompt
from turnlog.errors import SessionExists, SessionInUse, StaleWriter
from turnlog.events import SessionHeader
from turnlog.stores import open_store
from turnlog.stores.sqlite import connection
from turnlog.stores.sqlite.driver import connect
from turnlog.stores.sqlite.schema import STEPS, migrate

#: As a later version may have it: much is written, in an order that would show a half of it.
LATER = (
    *STEPS,
    (
        "ALTER TABLE events ADD COLUMN mood TEXT",
        *["UPDATE events SET mood = id % 7 + ifnull(mood, 0)"] * 20,
        "CREATE TABLE moods AS SELECT id, mood FROM events",
        "CREATE INDEX by_mood ON moods (mood)",
    ),
)


def say(text: str) -> None:
    """One line to the parent, at once and whole."""
    os.write(1, f"{text}\n".encode())


async def append(name: str, url: str) -> None:
    """Append to session "a" and flush, for ever; each message says who wrote it and its seq."""
    try:
        async with open_store(url) as store, store.session("a") as session:
            while True:
                for _ in range(1 + session.next_seq % 3):
                    session.add_user(f"{name} {session.next_seq}")
                await session.flush()
                say(f"ack {name} {session.next_seq}")
    except StaleWriter as error:
        say(f"stale {error}")


async def own(name: str, url: str) -> None:
    """Make a session of one's own."""
    async with open_store(url) as store, store.session(f"own-{name}", create="only") as session:
        session.add_user(name)
    say(f"ack {name}")


async def share(name: str, url: str) -> None:
    """Make a session of one's own, and take one's turn in the one that all share."""
    await own(name, url)
    async with open_store(url) as store:
        try:
            await store.backend.create(SessionHeader("shared", 1))
        except SessionExists:
            say(f"second {name}")
        written = False
        while not written:
            try:
                async with store.session("shared", create=False) as session:
                    session.add_user(name)
                    written = True
            except SessionInUse:
                await anyio.lowlevel.checkpoint()
    say(f"shared {name}")


async def post(name: str, url: str) -> None:
    """Post 25 prompts to session "a"."""
    async with open_store(url) as store:
        for i in range(25):
            await store.inbox("a").post(Prompt(f"{name} {i}", id=f"{name}-{i}"))
            await store.inbox("a").post(Prompt("again", id=f"all-{i}"))
    say(f"ack {name}")


async def move(name: str, url: str) -> None:
    """Append, and move the WAL into the file after every other commit."""
    connection._CHECKPOINT = 8  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    await append(name, url)


async def later(name: str, url: str) -> None:
    """Bring a file to the version that a later turnlog may have."""
    db = connect(url.removeprefix("sqlite:"), apsw.SQLITE_OPEN_READWRITE)
    migrate(db, url, LATER)
    say(f"ack {name}")
    await anyio.sleep_forever()


WHAT: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "append": append,
    "move": move,
    "migrate": later,
    "own": own,
    "share": share,
    "post": post,
}


def main() -> None:
    """Serve the parent until it closes stdin."""
    for url in ("jsonl:x", "sqlite:x"):  # so that no child has to import anything
        open_store(url)
    anyio.run(anyio.lowlevel.checkpoint)
    children: list[int] = []
    for line in sys.stdin:
        what, name, url = [*line.split(), "", ""][:3]
        if what == "wait":
            for child in children:
                os.waitpid(child, 0)
            children.clear()
            say("gone")
            continue
        child = os.fork()
        if child == 0:
            os.close(0)
            say(f"pid {os.getpid()}")
            anyio.run(WHAT[what], name, url)
            os._exit(0)
        children.append(child)


if __name__ == "__main__":
    main()
