"""Looking through all pages of the file, for damage that nobody has met yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnlog.stores.sqlite.driver import Connection

_LISTED: Final = 20  # findings, after which SQLite stops looking
_OFTEN: Final = 50_000  # steps of SQLite's machine between looks whether to go on


def inspect(db: Connection, check: Callable[[], None]) -> list[str]:
    """What SQLite finds wrong with the file, a line each.

    Args:
        db: a connection.
        check: called now and then; what it raises ends the search.
    """

    def on_progress() -> bool:
        check()
        return False

    db.set_progress_handler(on_progress, _OFTEN)
    try:
        said = [str(row[0]) for row in db.execute(f"PRAGMA quick_check({_LISTED})")]
    except apsw.CorruptError as error:  # so damaged that it cannot even be looked through
        return [str(error)]
    finally:
        db.set_progress_handler(None)
    lines = [line.strip() for text in said for line in text.splitlines()]
    return [line for line in lines if line not in ("", "ok") and not line.startswith("***")]
