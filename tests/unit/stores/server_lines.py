"""A turn over a line that fails at a message of one's choice, and what must be there afterwards."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol, TypeVar

from tests.servers.line import How, Line
from tests.unit.stores.server_places import MariaDbPlace, PostgresPlace, empty_place
from turnlog import Session
from turnlog.content import ToolCall
from turnlog.errors import StoreError, WriteFailed
from turnlog.invariants import verify
from turnlog.stores.live import StoredSession
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import assert_same

T = TypeVar("T")


def ask(session: Session) -> None:
    """A turn begins, and a request streams."""
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.add_user("Go on, please. " * 20)
    for i in range(5):
        piece = {"type": "text-delta", "index": 0, "text": f"word {i} "}
        session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": piece})


def call(session: Session) -> None:
    """A tool is about to run."""
    cited = [event.seq for event in session.events if event.type == "assistant/chunk"]
    calls = ToolCall("c1", "ls", "{}")
    session.add_assistant(calls, turn=1, step=1, source_event_seqs=cited)
    told = {"callId": "c1", "name": "ls", "arguments": "{}", "turn": 1, "step": 1}
    session.append("tool/call", told)


def end(session: Session) -> None:
    """It has run: a large result, which is stored as a blob, and the turn ends."""
    session.add_tool_result("c1", "README.md 漢\n" * 9_000, turn=1, step=1)
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})


TURN = (ask, call, end)


class Scene:
    """One place, a line to it, and a handle that needs no line, to look from.

    Attributes:
        line: over which the turns go.
        session: of the last turn, where it came so far.
    """

    def __init__(self, place: PostgresPlace | MariaDbPlace, line: Line, beside: Store) -> None:
        self._place = place
        self.line = line
        self._beside = beside
        self.session: StoredSession | None = None

    @classmethod
    @asynccontextmanager
    async def on(cls, server: str) -> AsyncGenerator[Scene]:
        """A scene on an empty place of a server's, with its tables made."""
        place = empty_place(server)
        async with Line.before(place.port, place.wire) as line, Store(place.store()) as beside:
            yield cls(place, line, beside)

    def store(self) -> Store:
        """Another store on the same place, which needs no line."""
        return Store(self._place.store())

    async def turn(self, name: str) -> None:
        """A session and its turn, over the line, by one who is patient."""
        self.session = None
        async with (
            Store(self._place.store(port=self.line.port)) as store,
            store.session(name) as self.session,
        ):
            for act in TURN:
                act(self.session)
                await self.session.flush()

    async def turn_in_spite(self, name: str) -> bool:
        """The same by one who has no patience, and tries again; whether all was to be had so.

        Each call that fails does so with an error of ours, and loses nothing. Where giving the
        session back failed, the lease is left to run out.
        """
        self.session = None
        try:
            async with AsyncExitStack() as stack:
                backend = self._place.store(port=self.line.port, patience=0.0)
                store = await self._again(lambda: stack.enter_async_context(Store(backend)))
                self.session = await self._again(
                    lambda: stack.enter_async_context(store.session(name))
                )
                for act in TURN:
                    act(self.session)
                    await self._flushed(self.session)
        except StoreError:
            assert self.line.hits
            assert self.session is not None
            assert self.session.durable_seq == self.session.next_seq
            return False
        else:
            return True
        finally:
            self.line.mend()

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StoreError:
            assert self.line.hits
            self.line.mend()
            return await call()

    async def _flushed(self, session: StoredSession) -> None:
        acknowledged = session.durable_seq
        try:
            await session.flush()
        except WriteFailed:
            assert self.line.hits
            self.line.mend()
            await self.look(acknowledged)
            await session.flush()
        assert session.durable_seq == session.next_seq

    async def look(self, least: int) -> int:
        """What is stored begins what was appended, each event once; how much that is."""
        assert self.session is not None
        found = (await self._beside.backend.load(self.session.id)).events
        assert least <= len(found)
        assert_same(found, self.session.events[: len(found)])
        return len(found)

    async def check(self, name: str, *, steal: bool = False) -> None:
        """All that was appended is there, lawful, and another handle writes on.

        Args:
            name: the session's.
            steal: where it was not given back.
        """
        assert self.session is not None
        assert await self.look(self.session.next_seq) == self.session.next_seq
        async with self._beside.session(name, steal=steal) as again:
            assert list(again.events)[: self.session.next_seq] == list(self.session.events)
            again.add_user("more")
        found = await self._beside.read(name, load="all")
        assert [fault for fault in verify(found) if fault.level == "fault"] == []


class Lined(Protocol):
    """Where something is done over a line."""

    line: Line


async def each(
    scene: Lined, how: How, start: int, step: int, *, for_good: bool = False
) -> AsyncGenerator[str]:
    """Fail at each `step`th message of what is done with the name, until there are no more."""
    number, hits = start, 1
    while hits:
        scene.line.fail(how, number, for_good=for_good)
        yield f"{how}{number}"
        hits = scene.line.hits
        scene.line.mend()
        number += step
