"""What a process must be allowed to do with the rows of a store's tables, and may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.server.schema import META, STEPS
from turnlog.stores.upkeep import Diagnosed

if TYPE_CHECKING:
    from collections.abc import Iterable

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
TABLES = tuple(table for step in STEPS for table in step if table is not META)
"""All but the one of the version, which whoever opened the store could read."""


def judged(user: str, lacking: Iterable[tuple[str, str]], grant: str) -> Diagnosed:
    """What `doctor` says of a user's privileges.

    Args:
        user: for people.
        lacking: names of tables, each with a right that the user does not have there.
        grant: the statement that gives all of them.
    """
    rights: dict[str, list[str]] = {}
    for table, right in lacking:
        rights.setdefault(table, []).append(right)
    if not rights:
        return Diagnosed("privileges", "ok", "enough")
    tables: dict[str, list[str]] = {}
    for table in sorted(rights):
        alike = ", ".join(right for right in RIGHTS if right in rights[table])
        tables.setdefault(alike, []).append(table)
    said = "; ".join(
        f"{alike} in {'every table' if len(names) == len(TABLES) else ', '.join(names)}"
        for alike, names in tables.items()
    )
    reads = not any("SELECT" in alike for alike in tables)
    more = " (to read, what it may do is enough)" if reads else ""
    return Diagnosed("privileges", "failed", f"{user} may not {said}: {grant}{more}")
