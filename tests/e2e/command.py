"""The command line, run in this process as a user would run it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from typing import Any, NamedTuple

import anyio

from turnlog.cli.run import run
from turnlog.session import Session
from turnlog.stores import open_store
from turnlog.stores.live import StoredSession


class Result(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def values(self) -> list[Any]:
        """Its output as JSON, one value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal(TextIOWrapper):
    """A stream that says whether someone looks at it."""

    def __init__(self, *, encoding: str = "utf-8", tty: bool = False) -> None:
        self.bytes = BytesIO()
        self._tty = tty
        super().__init__(self.bytes, encoding=encoding, newline="\n", write_through=True)

    def isatty(self) -> bool:
        """As it was made."""
        return self._tty


def turnlog(*words: object, encoding: str = "utf-8", tty: bool = False) -> Result:
    """Run a command; nothing it raises comes out but what a user's shell would see."""
    kept = sys.stdout, sys.stderr
    out, err = Terminal(encoding=encoding, tty=tty), Terminal(encoding=encoding, tty=tty)
    sys.stdout, sys.stderr = out, err
    try:
        status = run([str(word) for word in words])
    finally:
        sys.stdout, sys.stderr = kept
    return Result(
        status, out.bytes.getvalue().decode(encoding), err.bytes.getvalue().decode(encoding)
    )


def done(*words: object) -> Result:
    """Run a command that must succeed without a word on standard error."""
    result = turnlog(*words)
    assert (result.status, result.err) == (0, ""), result
    return result


def read(url: str, session_id: str) -> Session:
    """A session as it is stored."""

    async def work() -> Session:
        async with open_store(url) as store:
            return await store.read(session_id)

    return anyio.run(work)


def write(url: str, session_id: str, act: Callable[[StoredSession], object]) -> None:
    """Make or open a session for writing, and act on it."""

    async def work() -> None:
        async with open_store(url) as store, store.session(session_id) as session:
            act(session)

    anyio.run(work)
