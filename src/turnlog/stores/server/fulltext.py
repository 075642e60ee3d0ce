"""The full-text index: filled by whoever searches, and when a session is given back.

The index holds no text, only which terms occur; it is derived from the log. A term is marked with
the part of the message that it stands in, so that one column holds all parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anyio import to_thread

from turnlog.errors import InvalidHeader, UnsupportedVersion
from turnlog.events import Replace
from turnlog.stores.searching import searched
from turnlog.stores.server.dialect import Term
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.schema import SHADOWS, UPTO, WORDS
from turnlog.stores.sql.heads import read_header
from turnlog.stores.sql.lineage import Part
from turnlog.upcasts import reread
from turnlog.words import terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import AnyEvent, SessionHeader
    from turnlog.stores.searching import Search
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader

STEP = 500
"""Messages that are indexed in one transaction."""
SAID, CONTEXT, TOOLS = "s", "c", "t"

_LACKING = """
    SELECT sessions.session, header, sum, root, boundary, next_seq
    FROM sessions LEFT JOIN search_upto ON search_upto.session = sessions.session
    WHERE next_seq > coalesce(search_upto.seq, boundary)
"""
_USED = "SELECT 1 FROM search_upto LIMIT 1"
_UPTO = "SELECT seq FROM search_upto WHERE session = ? FOR UPDATE"
_SET_UPTO = """
    UPDATE search_upto SET seq = ?, messages = messages + ?, time = greatest(time, ?)
    WHERE session = ?
"""


class _Lacking(NamedTuple):
    """A session of which something is not in the index."""

    key: bytes
    header: bytes
    sum: int
    root: bytes
    boundary: int
    next_seq: int


class Index:
    """The index, as one handle fills it.

    Args:
        pool: of connections that write.
        dialect: the database's.
        reader: of the same handle.
    """

    def __init__(self, pool: Pool, dialect: Dialect, reader: Reader) -> None:
        self._pool = pool
        self._dialect = dialect
        self._reader = reader

    async def was_used(self) -> bool:
        """Whether anyone ever searched the store, so that it is worth keeping up to date."""
        async with self._pool.connection() as db:
            return bool(await db.fetch(_USED))

    async def fill(self, keys: Sequence[bytes] | None = None) -> bool:
        """Index what lacks, of the sessions with these keys or of all.

        Returns:
            Whether all is in it now: some users may not write, nor does anyone to a standby.
        """
        condition, values = "", ()
        if keys is not None:
            condition, values = self._dialect.among("sessions.session", "key", keys)
            condition = f"AND {condition}"

        async def look() -> list[_Lacking]:
            async with self._pool.connection() as db:
                return [_Lacking(*row) for row in await db.fetch(_LACKING + condition, *values)]

        for one in await self._pool.patiently(look):
            try:
                while await self._pool.patiently(lambda one=one: self._step(one)):
                    pass
            except Fault as fault:
                if fault.trouble not in (Trouble.REFUSED, Trouble.READ_ONLY):
                    raise
                return False
        return True

    async def _step(self, one: _Lacking) -> bool:
        """Index some messages of a session; whether there are more. Others may do so, too."""
        try:
            header = read_header(one.header, one.sum)
        except (InvalidHeader, UnsupportedVersion):
            header = None  # who opens the session is told
        async with self._pool.transaction() as db:
            await db.execute(self._dialect.add(UPTO), one.key, one.boundary, 0, 0)
            ((start,),) = await db.fetch(_UPTO, one.key)
            if start >= one.next_seq:
                return False
            upto, words = one.next_seq, []
            if header is not None:
                part = Part(one.key, start, one.next_seq)
                events, upto = await self._reader.messages(db, one.root, part, STEP)
                events = [as_read(header, event) for event in events]
                words, shadows = await to_thread.run_sync(self._rows, one.key, events)
                await _insert(db, words, shadows)
            last = max((time for _, _, time, _, _ in words), default=0)
            await db.execute(_SET_UPTO, upto, len(words), last, one.key)
        return upto < one.next_seq

    def _rows(
        self, key: bytes, events: Sequence[AnyEvent]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        words: list[tuple[Any, ...]] = []
        shadows: list[tuple[Any, ...]] = []
        for event in events:
            op = event.surface_op
            if isinstance(op, Replace):
                shadows.append((key, event.seq, op.start, op.end))
            found = _terms(event)
            if found:
                said = self._dialect.terms(found)
                words.append((key, event.seq, event.time, len(found), said))
        return words, shadows


async def _insert(
    db: Connection, words: Sequence[tuple[Any, ...]], shadows: Sequence[tuple[Any, ...]]
) -> None:
    if words:
        await db.insert(WORDS, words)
    if shadows:
        await db.insert(SHADOWS, shadows)


def as_read(header: SessionHeader, event: AnyEvent) -> AnyEvent:
    """The event as its source's format asks for."""
    return reread(header, event) if event.seq < (header.source_length or 0) else event


def _terms(event: AnyEvent) -> list[str]:
    """The marked terms of a message."""
    found = searched(event)
    if found is None:
        return []
    parts = ((SAID, found.said), (CONTEXT, found.context), (TOOLS, found.tools))
    return [mark + term for mark, text in parts if text for term in terms(text)]


def groups_of(wanted: Search) -> list[list[Term]]:
    """What is searched for: each term, in one of the parts."""
    marks = [SAID]
    marks += [CONTEXT] if wanted.context else []
    marks += [TOOLS] if wanted.tools else []
    groups: dict[Term, None] = {}
    for phrase in wanted.phrases:
        last = len(phrase.terms) - 1
        for i, term in enumerate(phrase.terms):
            groups[Term(term, phrase.prefix and i == last)] = None
    return [[Term(mark + term.text, term.prefix) for mark in marks] for term in groups]
