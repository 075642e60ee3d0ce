"""The full-text index: FTS5 tables that can be made on any connection, filled, and asked.

The index holds no text, only which terms stand where. It is derived from the log: whoever drops
its tables loses nothing but the time to fill them again. Their names carry a version, which is to
grow whenever what is indexed changes; tables of another version are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from turnlog.events import Replace
from turnlog.stores.searching import Shadows, searched
from turnlog.stores.sqlite.schema import SEQ_BITS, SEQ_MASK
from turnlog.words import terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnlog.events import AnyEvent
    from turnlog.stores.searching import Search
    from turnlog.stores.sql.lineage import Part
    from turnlog.stores.sqlite.driver import Connection

VERSION = 1
RANKED = 10_000
"""Of more messages that hold the words only the last ones, of the newest sessions, are ranked: who
asks for what is everywhere is not kept waiting."""
_PREFIX = "search_"
_WORDS, _SHADOWS, _UPTO = (f"{_PREFIX}{name}_{VERSION}" for name in ("words", "shadows", "upto"))

# Terms come joined by blanks and hold no other ASCII but letters and digits: the tokenizer `ascii`
# gives each back as it is. Ids are those of the events.
_TABLES = (
    f"""
    CREATE VIRTUAL TABLE {_WORDS} USING fts5(
        said, context, tools, content='', contentless_delete=1, tokenize='ascii'
    )
    """,
    # Replacements, which take the nodes from start to stop from the model's view.
    f"""
    CREATE TABLE {_SHADOWS} (
        id INTEGER PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL
    )
    """,
    # The seq before which everything of a session is in the index.
    f"CREATE TABLE {_UPTO} (session INTEGER PRIMARY KEY, seq INTEGER NOT NULL)",
)
_UPTO_OF = f"SELECT session, seq FROM {_UPTO}"  # noqa: S608 - the names are ours
_SET_UPTO = f"INSERT OR REPLACE INTO {_UPTO} VALUES (?, ?)"  # noqa: S608
_ADD_WORDS = f"INSERT INTO {_WORDS} (rowid, said, context, tools) VALUES (?, ?, ?, ?)"  # noqa: S608
_ADD_SHADOW = f"INSERT INTO {_SHADOWS} VALUES (?, ?, ?)"  # noqa: S608
_SHADOWS_IN = f"""
    SELECT id & {SEQ_MASK}, start, stop FROM {_SHADOWS} WHERE id BETWEEN ? AND ? ORDER BY id
"""  # noqa: S608
_FIRST_RANKED = f"""
    SELECT rowid FROM {_WORDS} WHERE {_WORDS} MATCH ? AND rowid BETWEEN ? AND ?
    ORDER BY rowid DESC LIMIT 1 OFFSET ?
"""  # noqa: S608
_ASK = f"""
    SELECT rowid, -rank FROM {_WORDS} WHERE {_WORDS} MATCH ? AND rowid BETWEEN ? AND ?
    ORDER BY rank, rowid DESC LIMIT ?
"""  # noqa: S608
_ALL = (0, (1 << 63) - 1)


def ids_of(part: Part[int]) -> tuple[int, int]:
    """The first and the last id of a part."""
    base = part.key << SEQ_BITS
    return base + part.start, base + part.stop - 1


def exists(db: Connection) -> bool:
    """Whether there is an index of this version."""
    query = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
    return bool(db.execute(query, (_UPTO,)).fetchone()[0])


def make(db: Connection) -> None:
    """Make an empty index; to be called in a transaction."""
    drop(db)
    for statement in _TABLES:
        db.execute(statement)


def drop(db: Connection) -> None:
    """Drop the indexes of all versions; to be called in a transaction."""
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ? ORDER BY rowid"
    names = [name for (name,) in db.execute(query, (f"{_PREFIX}*_[0-9]",)).fetchall()]
    for name in names:
        db.execute(f"DROP TABLE IF EXISTS {name}")


def upto(db: Connection) -> dict[int, int]:
    """How far each session is indexed, by number: the first seq that is not."""
    return dict(db.execute(_UPTO_OF).fetchall())


class Prepared(NamedTuple):
    """Events of one session that follow on what is indexed, as the index takes them.

    Attributes:
        no: the session's number.
        before: the seq before which all was indexed; 0 where nothing was.
        upto: the seq before which all is indexed once these are added.
        words: ids and terms.
        shadows: ids of replacements and what they replace.
    """

    no: int
    before: int
    upto: int
    words: list[tuple[int, str, str, str]]
    shadows: list[tuple[int, int, int]]


def prepare(no: int, events: Iterable[AnyEvent], before: int, seq: int) -> Prepared:
    """Take the terms out of events, which takes time; needs no transaction.

    Args:
        no: the session's number.
        events: read as their source's format asks for.
        before: see `Prepared`.
        seq: before which all is indexed from then on.
    """
    base = no << SEQ_BITS
    made = Prepared(no, before, seq, [], [])
    for event in events:
        op = event.surface_op
        if isinstance(op, Replace):
            made.shadows.append((base | event.seq, op.start, op.end))
        found = searched(event)
        if found is not None:
            row = (_joined(found.said), _joined(found.context), _joined(found.tools))
            if any(row):
                made.words.append((base | event.seq, *row))
    return made


def add(db: Connection, prepared: Iterable[Prepared]) -> None:
    """Index what was prepared, but for what another has indexed since; in a transaction."""
    known = upto(db)
    for one in prepared:
        if known.get(one.no, 0) == one.before:
            db.executemany(_ADD_WORDS, one.words)
            db.executemany(_ADD_SHADOW, one.shadows)
            db.execute(_SET_UPTO, (one.no, one.upto))


def _joined(text: str) -> str:
    return " ".join(terms(text)) if text else ""


def ask(
    db: Connection, wanted: Search, parts: Sequence[Part[int]] | None, most: int
) -> list[tuple[int, float]]:
    """The ids of the best messages with their scores, best first, later ones before their equals.

    Args:
        db: where the index is.
        wanted: what is searched for; its `session` is what `parts` says.
        parts: which sessions' events to search; None for all.
        most: how many ids to give.
    """
    query = expression(wanted)
    found: list[tuple[int, float]] = []
    for first, last in [_ALL] if parts is None else [ids_of(part) for part in parts]:
        many = db.execute(_FIRST_RANKED, (query, first, last, max(RANKED, most) - 1)).fetchone()
        start = first if many is None else many[0]
        found += db.execute(_ASK, (query, start, last, most)).fetchall()
    return sorted(found, key=lambda hit: (-hit[1], -(hit[0] & SEQ_MASK)))[:most]


def expression(wanted: Search) -> str:
    """What is searched for, as FTS5 says it: terms in quotes, which need no escaping."""
    columns = ["said"]
    columns += ["context"] if wanted.context else []
    columns += ["tools"] if wanted.tools else []
    phrases = (f'"{" ".join(terms)}"{" *" if prefix else ""}' for terms, prefix in wanted.phrases)
    return f"{{{' '.join(columns)}}} : ({' AND '.join(phrases)})"


def shadows_in(indexes: Sequence[Connection], parts: Sequence[Part[int]]) -> Shadows:
    """What replacements in these parts of sessions took from the model's view."""
    shadows = Shadows()
    for part in parts:
        rows = [row for db in indexes for row in db.execute(_SHADOWS_IN, ids_of(part)).fetchall()]
        for row in sorted(rows):
            shadows.add(*row)
    return shadows
