"""A line to a database server that fails at any message of what is no turn: forks, posts, looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.servers.line import How, Line
from tests.store_urls import SERVERS
from tests.unit.stores.server_lines import TURN, each
from tests.unit.stores.server_places import MariaDbPlace, PostgresPlace, empty_place
from turnlog import Prompt
from turnlog.errors import SessionExists, StoreError
from turnlog.stores.server.driver import Connection
from turnlog.stores.server.schema import STEPS, key_of
from turnlog.stores.store import Store

LEAST = 100  # messages that it takes at least
CUT = 9  # the last event that the fork shares: its call has no result there
BASE, CHILD, NEW = 13, 14, 1  # events of the sessions, afterwards

pytestmark = pytest.mark.anyio


# -- what is done ------------------------------------------------------------------------------


async def create(store: Store) -> None:
    """A new session."""
    async with store.session("new", steal=True) as session:
        if not len(session):
            session.add_user("Something new, please.")


async def fork(store: Store) -> None:
    """A child, cut in the middle of a turn; repeated, it goes on where it was cut off."""
    try:
        await store.fork("base", at=CUT, new_id="child")
    except SessionExists:
        assert len(await store.read("child")) == CHILD


async def post(store: Store) -> None:
    """A command, which counts once however often it is posted."""
    await store.inbox("base").post(Prompt("Again.", id="p"))


async def take(store: Store) -> None:
    """A session of another owner, and out of its inbox what waits."""
    async with store.session("base", steal=True) as session:
        waiting = await session.commands()
        assert [queued.command.id for queued in waiting] in (["p"], [])
        await session.accept([queued.position for queued in waiting])


async def follow(store: Store) -> None:
    """All that is there of a session, as who waits for more gets it."""
    seqs: list[int] = []
    async for event in store.tail("base", after=-1):
        seqs.append(event.seq)
        if len(seqs) == BASE:
            break
    assert seqs == list(range(BASE))


async def search(store: Store) -> None:
    """An index that is made."""
    assert {hit.session for hit in await store.search("please")} == {"base", "new"}


async def look(store: Store) -> None:
    """A listing."""
    assert {info.id async for info in store.sessions()} == {"base", "new", "child"}


OPERATIONS = (create, fork, post, follow, search, take, look)
Operation = Callable[[Store], Awaitable[None]]


# -- where it is done --------------------------------------------------------------------------


class Ground:
    """A session "base" with a turn, and a line to it.

    Attributes:
        line: over which everything else is done.
    """

    def __init__(self, place: PostgresPlace | MariaDbPlace, line: Line, db: Connection) -> None:
        self._place = place
        self._db = db
        self.line = line

    async def make(self) -> None:
        """The session, of an owner that does not give it back."""
        async with Store(self._place.store()) as store, store.session("base") as session:
            for act in TURN:
                act(session)

    async def clear(self) -> None:
        """Let there be nothing but the session."""
        for table in (table for step in STEPS for table in step if table.name != "turnlog_meta"):
            kept = ["inbox", "posted", "search_words", "search_shadows", "search_upto"]
            values = () if table.name in kept else (key_of(b"base"),)
            where = " WHERE session <> ?" if values else ""
            await self._db.execute(f"DELETE FROM {table.name}{where}", *values)  # noqa: S608

    def store(self, **options: float) -> Store:
        """A store over the line."""
        return Store(self._place.store(port=self.line.port, **options))

    async def check(self) -> None:
        """Everything is there, once."""
        async with Store(self._place.store()) as store:
            await look(store)
            await search(store)
            for name, count in {"base": BASE, "child": CHILD, "new": NEW}.items():
                found = await store.read(name)
                assert found.damage == ()
                assert [event.seq for event in found.events] == list(range(count))
            assert await store.inbox("base").waiting() == []
            assert not await store.backend.post("base", Prompt("Again.", id="p"))


@pytest.fixture(params=SERVERS)
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[Ground]:
    """One on each server."""
    place = empty_place(request.param)
    async with Line.before(place.port, place.wire) as line:
        db = await place.driver().connect()
        made = Ground(place, line, db)
        await made.make()
        yield made
        await db.close()


steps = pytest.mark.parametrize("step", [149, pytest.param(7, marks=pytest.mark.long)])
hows = pytest.mark.parametrize("how", ["cut", "torn"])


@steps
@hows
async def test_a_line_that_ends_once_is_not_noticed(ground: Ground, how: How, step: int) -> None:
    """Wherever a connection ends, what was to be done is done once, over another."""
    async for _ in each(ground, how, 1, step):
        async with ground.store() as store:
            for operation in OPERATIONS:
                await operation(store)
        await ground.check()
        await ground.clear()
    assert ground.line.count > LEAST


@steps
@hows
async def test_a_line_that_ends_for_good_is_told_of(ground: Ground, how: How, step: int) -> None:
    """Wherever it ends, the call fails with an error of ours, and is done when it is repeated."""
    async for _ in each(ground, how, 2, step, for_good=True):
        try:
            async with ground.store(patience=0.0) as store:
                for operation in OPERATIONS:
                    await repeated(operation, store, ground.line)
        except StoreError:  # at opening
            assert ground.line.hits
            ground.line.mend()
            async with ground.store() as store:
                for operation in OPERATIONS:
                    await operation(store)
        ground.line.mend()
        await ground.check()
        await ground.clear()
    assert ground.line.count > LEAST


async def repeated(operation: Operation, store: Store, line: Line) -> None:
    """Do it, and once more where that failed."""
    try:
        await operation(store)
    except StoreError:
        assert line.hits
        line.mend()
        await operation(store)
