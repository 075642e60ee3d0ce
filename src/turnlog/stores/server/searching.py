"""Searching: `ranking` names messages that may fit, and a look into them says which do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from turnlog.errors import TurnlogError
from turnlog.stores.searching import Shadows
from turnlog.stores.server.fulltext import Index, as_read, groups_of
from turnlog.stores.server.ranking import Ranked, Ranking
from turnlog.stores.sql.heads import line_of, read_header, read_id
from turnlog.stores.sql.hits import Judge, answered
from turnlog.stores.sql.steps import run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from turnlog.events import AnyEvent, SessionHeader
    from turnlog.stores.searching import Hit, Search
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader
    from turnlog.stores.sql.lineage import Part

_HEADS = """
    SELECT session, id, header, sum, root, last_activity, bytes, stale, info FROM sessions WHERE
"""
_SHADOWS = "SELECT session, seq, start, stop FROM search_shadows WHERE "


class _Session(NamedTuple):
    """A session with hits; `title` is None where its line has to be made again."""

    id: str
    header: SessionHeader
    root: bytes
    title: str | None


class Searching:
    """What one handle searches.

    Args:
        pool: of connections that read.
        dialect: the database's.
        reader: of the same handle.
        index: of the same handle.
        title_of: gives the title of a session, by its id.
    """

    def __init__(
        self,
        pool: Pool,
        dialect: Dialect,
        reader: Reader,
        index: Index,
        title_of: Callable[[str], Awaitable[str]],
    ) -> None:
        self._pool = pool
        self._dialect = dialect
        self._reader = reader
        self._index = index
        self._title_of = title_of

    async def search(self, wanted: Search) -> list[Hit] | None:
        """The hits, best first, once all there is is in the index.

        None where something is not, and this user may not put it there.

        Raises:
            NoSuchSession: the one to search in does not exist.
        """
        parts: list[Part[bytes]] | None = None
        if wanted.session is not None:
            parts = await self._pool.patiently(lambda: self._lineage(wanted.session or ""))
        keys = None if parts is None else [part.key for part in parts]
        if not await self._index.fill(keys):
            return None
        return await self._pool.patiently(lambda: self._hits(wanted, parts))

    async def _lineage(self, session_id: str) -> list[Part[bytes]]:
        async with self._pool.connection() as db:
            head = await self._reader.head(db, session_id)
            return await self._reader.parts(db, head.key, 0, head.next_seq) or []

    async def _hits(self, wanted: Search, parts: list[Part[bytes]] | None) -> list[Hit]:
        answer = _Answer(self._dialect, self._reader, self._title_of, wanted, parts)
        ranking = Ranking(self._dialect, groups_of(wanted), parts)

        async def look(most: int) -> tuple[list[Ranked], list[Hit]]:
            async with self._pool.connection() as db:
                ranked = await ranking.best(db, most)
                return ranked, await answer.hits(db, ranked)

        return await run_async(answered(wanted), look)


class _Answer:
    """One search in an index that is up to date; remembers what it read."""

    def __init__(
        self,
        dialect: Dialect,
        reader: Reader,
        title_of: Callable[[str], Awaitable[str]],
        wanted: Search,
        parts: list[Part[bytes]] | None,
    ) -> None:
        self._dialect = dialect
        self._reader = reader
        self._title_of = title_of
        self._wanted = wanted
        self._parts = parts
        self._judge = Judge(wanted)
        self._sessions: dict[bytes, _Session | None] = {}
        self._shadows: dict[bytes, Shadows] = {}
        self._titles: dict[str, str] = {}
        self._known: dict[tuple[bytes, int], Hit | None] = {}

    async def hits(self, db: Connection, ranked: Sequence[Ranked]) -> list[Hit]:
        """Those of the messages that are wanted, in their order."""
        fresh = [hit for hit in ranked if hit[:2] not in self._known]
        if fresh:
            await self._read_sessions(db, sorted({key for key, _, _ in fresh}))
        seqs: dict[bytes, tuple[bytes, list[int]]] = {}
        for key, seq, _ in sorted(fresh):
            session = self._sessions[key]
            if session is not None:
                seqs.setdefault(key, (session.root, []))[1].append(seq)
        read = await self._reader.scattered(db, seqs)
        events = {(key, event.seq): event for key, found in read.items() for event in found}
        for key, seq, score in fresh:
            self._known[key, seq] = await self._hit(key, events.get((key, seq)), score)
        return [hit for key, seq, _ in ranked if (hit := self._known[key, seq]) is not None]

    async def _read_sessions(self, db: Connection, keys: Sequence[bytes]) -> None:
        condition, values = self._dialect.among("session", "key", keys)
        for row in await db.fetch(_HEADS + condition, *values):
            key, stored, raw, total, root, last, size, stale, info = row
            try:
                header = read_header(raw, total)
            except TurnlogError:
                self._sessions[key] = None
                continue
            title = None if stale else line_of(stored, (raw, total), last, size, info).title
            self._sessions[key] = _Session(read_id(stored), header, root, title)
        within = list(keys) if self._parts is None else [part.key for part in self._parts]
        condition, values = self._dialect.among("session", "key", within)
        rows = await db.fetch(f"{_SHADOWS}{condition} ORDER BY session, seq", *values)
        if self._parts is None:
            shadows = {key: Shadows() for key in keys}
            for key, *replaced in rows:
                shadows[key].add(*replaced)
        else:
            stops = {part.key: part.stop for part in self._parts}
            together = Shadows()
            for _, seq, start, stop in sorted(
                (row for row in rows if row[1] < stops[row[0]]), key=lambda row: row[1]
            ):
                together.add(seq, start, stop)
            shadows = dict.fromkeys(keys, together)
        self._shadows |= shadows

    async def _hit(self, key: bytes, event: AnyEvent | None, score: float) -> Hit | None:
        """The hit; None where it is not wanted, or does not say what the index has of it."""
        session = self._sessions[key]
        if session is None or event is None:
            return None
        fit = self._judge.fit(as_read(session.header, event), self._shadows[key])
        if fit is None:
            return None
        where = self._wanted.session or session.id
        if where not in self._titles:
            known = session.title if where == session.id else None
            self._titles[where] = await self._title_of(where) if known is None else known
        return self._judge.hit((where, self._titles[where]), fit, score)
