"""Which messages fit a search best: those of the newest ones that do, or else what the index says.

An index needs longest for what stands in most messages, where there is least to be found with it.
So the newest messages are looked at without it first; where enough of them fit, the best are among
these. What is rarer is asked of the index, and of all messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from turnlog import jsontext
from turnlog.stores.sql.lineage import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.stores.server.dialect import Dialect, Groups
    from turnlog.stores.server.driver import Connection

LOOKED_AT = 4_000
"""Messages that are looked at without the index."""
ENOUGH = 200
"""Messages that must fit for the index not to be asked, if no more are wanted."""
_SESSIONS = 400  # in which the newest messages are sought
_SAMPLE = 500  # messages, or more, that tell which words are common
_COMMON = 0.25  # of the sample
_COUNTED = 16  # groups, at most, whose messages are counted

_NEWEST = """
    SELECT session, messages FROM search_upto WHERE messages > 0
    ORDER BY time DESC, session LIMIT ?
"""
_NTH_LAST = """
    SELECT seq FROM search_words WHERE session = ? AND seq >= ? AND seq < ?
    ORDER BY seq DESC LIMIT 1 OFFSET ?
"""
_WITHIN = "session = ? AND seq >= ? AND seq < ?"

Condition: TypeAlias = tuple[str, tuple[Any, ...]]
"""What to say after WHERE, and what to bind in it."""


class Ranked(NamedTuple):
    """A message that may fit."""

    key: bytes
    seq: int
    score: float


class _Newest(NamedTuple):
    """Where the newest messages are, about `LOOKED_AT` of them.

    Attributes:
        where: conditions, each for some of them.
        sample: a condition for some of the newest.
        all: there are no other messages to search.
    """

    where: Sequence[Condition]
    sample: Condition | None
    all: bool


class Ranking:
    """One search.

    Args:
        dialect: the database's.
        groups: of each one term must occur, see `Dialect.ask`.
        parts: where to search; None for everywhere.
    """

    def __init__(
        self, dialect: Dialect, groups: Groups, parts: Sequence[Part[bytes]] | None
    ) -> None:
        self._dialect = dialect
        self._groups = groups
        self._parts = parts

    async def best(self, db: Connection, most: int) -> list[Ranked]:
        """So many messages, or all if there are fewer; the best first, of equals the later.

        However many are wanted, they come in one order: where enough of the newest fit, the others
        follow on these.
        """
        newest = await (self._newest(db) if self._parts is None else _newest_of(db, self._parts))
        wanted = max(ENOUGH, most)
        looks = [self._dialect.look(self._groups, *where, wanted) for where in newest.where]
        found = await _sorted(db, looks)
        if newest.all or len(found) >= wanted:
            return found[:most]
        first = found if len(found) >= ENOUGH else []
        rare, common = await self._split(db, newest.sample)
        within = [None] if self._parts is None else self._parts
        most += len(first)
        asked = await _sorted(db, [self._dialect.ask(rare, common, part, most) for part in within])
        known = {(one.key, one.seq) for one in first}
        rest = (one for one in asked if (one.key, one.seq) not in known)
        return [*first, *rest][: most - len(first)]

    async def _newest(self, db: Connection) -> _Newest:
        """Of all sessions."""
        whole: list[bytes] = []
        sample: Condition | None = None
        left = LOOKED_AT
        where: list[Condition] = []
        for key, messages in await db.fetch(_NEWEST, _SESSIONS):
            if messages > left:
                where.append((_WITHIN, await _last_of(db, Part(key, 0, jsontext.INT_MAX), left)))
                break
            whole.append(key)
            left -= messages
            if sample is None and left <= LOOKED_AT - _SAMPLE:
                sample = self._dialect.among("session", "key", whole)
        if whole:
            where.append(self._dialect.among("session", "key", whole))
        return _Newest(where, sample or (where[0] if where else None), all=False)

    async def _split(self, db: Connection, sample: Condition | None) -> tuple[Groups, Groups]:
        """The groups, the rarest first, without those that are common; and these."""
        if sample is None or not 1 < len(self._groups) <= _COUNTED:
            return self._groups, ()
        query = self._dialect.count(self._groups, *sample)
        if query is None:
            return self._groups, ()
        ((messages, *held),) = await db.fetch(query[0], *query[1])
        by_count = sorted(zip(held, self._groups, strict=True), key=lambda pair: pair[0])
        common = [group for count, group in by_count[1:] if count > _COMMON * messages]
        return [group for _, group in by_count if group not in common], common


async def _newest_of(db: Connection, parts: Sequence[Part[bytes]]) -> _Newest:
    """Of a session's parts."""
    where: list[Condition] = []
    for part in reversed(parts):
        last = await _last_of(db, part, LOOKED_AT)
        where.append((_WITHIN, last))
        if last != part:
            return _Newest(where, where[0], all=False)
    return _Newest(where, None, all=True)


async def _last_of(db: Connection, part: Part[bytes], most: int) -> Part[bytes]:
    """The part, or the end of it that has so many messages."""
    rows = await db.fetch(_NTH_LAST, *part, most)
    return part._replace(start=rows[0][0] + 1) if rows else part


async def _sorted(db: Connection, queries: Sequence[Condition]) -> list[Ranked]:
    """What queries find, together."""
    found = [
        Ranked(key, seq, float(score))
        for query, values in queries
        for key, seq, score in await db.fetch(query, *values)
    ]
    return sorted(found, key=lambda one: (-one.score, -one.seq, one.key))
