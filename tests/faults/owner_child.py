"""A process that owns session "s" and does what it is told: `owner_child.py STORE`.

Each line on stdin is `own`, or `append N TEXT`: N messages, flushed 25 at a time. It answers each
with one line: `owner`, `in use: …`, `ack SEQ` or `stale: …`.
"""

from __future__ import annotations

import os
import sys

import anyio
from anyio import to_thread

from turnlog import open_store
from turnlog.errors import SessionInUse, StaleWriter
from turnlog.stores.live import StoredSession

AT_ONCE = 25


def say(text: str) -> None:
    """One line to the parent, at once and whole."""
    os.write(1, f"{text}\n".encode())


async def append(session: StoredSession, count: int, text: str) -> None:
    """Append so many messages, durably."""
    for number in range(count):
        session.add_user(f"{text} {number}")
        if number % AT_ONCE == AT_ONCE - 1:
            await session.flush()
    await session.flush()


async def main(url: str) -> None:
    """Serve the parent until it closes stdin, or the session is lost."""
    async with open_store(url) as store:
        say("ready")
        while await to_thread.run_sync(sys.stdin.readline):  # own
            try:
                async with store.session("s") as session:
                    say("owner")
                    while line := await to_thread.run_sync(sys.stdin.readline):
                        _, count, text = line.split()
                        await append(session, int(count), text)
                        say(f"ack {session.durable_seq}")
                    return
            except SessionInUse as error:
                say(f"in use: {error}")
            except StaleWriter as error:
                say(f"stale: {error}")
                return


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
