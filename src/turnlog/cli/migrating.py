"""The command that brings a store's schema up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Flag, Options
from turnlog.cli.sessions import is_missing, path_of, run_async
from turnlog.errors import StoreError

if TYPE_CHECKING:
    from turnlog.stores.upkeep import Migration


def migrate(*, dry_run: Annotated[bool, Flag] = False, options: Options = DEFAULTS) -> None:
    """Bring the tables of a store to the newest version.

    Every command does so by itself where it may. On a database server that is often not so: run
    this as the tables' owner, then let processes use a role that may only read and change rows.

    Args:
        dry_run: Change nothing; print the statements that would do it.

    Examples:
        turnlog migrate --store postgresql://owner@db.example/sessions
        turnlog migrate --dry-run
    """
    from turnlog.stores import open_store
    from turnlog.stores.upkeep import Migratable

    backend = open_store(options.url).backend
    if is_missing(options):
        raise StoreError(f"no store at {path_of(options.url)}")
    if not isinstance(backend, Migratable):
        raise StoreError(f"{backend.url}: such a store has no tables to migrate")

    async def work() -> Migration:
        return await backend.migrate(dry_run=dry_run)

    done = run_async(work)
    if options.json:
        screen.say_json(
            {
                "store": backend.url,
                "before": done.before,
                "after": done.after,
                "statements": list(done.statements),
                "done": not dry_run,
            }
        )
        return
    if done.before == done.after:
        screen.say(f"{screen.printable_line(backend.url)}: version {done.after}, up to date")
        return
    said = screen.printable_line(backend.url)
    if not dry_run:
        screen.say(f"{said}: went from version {done.before} to {done.after}")
        return
    screen.say(f"-- {said}: would go from version {done.before} to {done.after}")
    for statement in done.statements:
        screen.say(f"{' '.join(statement.split())};")
