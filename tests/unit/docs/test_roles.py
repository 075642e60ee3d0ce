"""The statements by which docs/stores.md makes roles are run, on the servers of the tests' own."""

from __future__ import annotations

import pytest

from tests.servers import mariadb, postgres
from tests.unit.docs.test_examples import blocks
from tests.unit.stores.server_places import store_at
from tests.unit.stores.server_suite import begun, opened
from turnlog.errors import StoreError
from turnlog.stores.phrases import parse
from turnlog.stores.postgres import open_postgres
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.searching import Search
from turnlog.stores.server.store import ServerStore
from turnlog.testing.conformance.samples import header

pytestmark = pytest.mark.anyio

WORD = "word"
OWNER, AGENTS, READERS = "turnlog_owner", "agents", "readers"
ROLES = (OWNER, AGENTS, READERS)
DATABASE = "turnlog"


def recipe(number: int) -> list[str]:
    """The statements of a block of the page, with a password that is one."""
    text = blocks("docs/stores.md", "sql")[number].text.replace("…", WORD)
    return [part.strip() for part in text.replace("\\connect turnlog\n", "").split(";\n") if part]


async def allowed(stores: dict[str, ServerStore]) -> None:
    """Each role may do what the page says it may, and nothing else."""
    for name in (AGENTS, READERS):
        with pytest.raises(StoreError, match="turnlog migrate"):
            await stores[name].migrate()
    made = await stores[OWNER].migrate()
    assert made.statements
    async with opened(stores[AGENTS]) as store, opened(stores[READERS]) as reader:
        claim = await begun(store)
        await store.release(claim)
        found = {one.name: one.state for one in await store.diagnose()}
        assert found["privileges"] == "ok"
        assert [info.id async for info in reader.sessions()] == ["a"]
        assert await reader.search(Search(parse("nowhere"))) == []
        with pytest.raises(StoreError, match="GRANT"):
            await reader.create(header("b"))


@pytest.mark.parametrize("schema", ["public", "agents"])
async def test_the_roles_of_postgresql(schema: str) -> None:
    """Made as the page has it, in the schema that is there or in one of their own."""
    server = postgres.server()
    statements = recipe(0)
    (made,) = [i for i, one in enumerate(statements) if one.startswith("CREATE DATABASE")]
    within = [one.replace("public", schema) for one in statements[made + 1 :]]
    if schema != "public":
        within.insert(0, f"CREATE SCHEMA {schema}")
    server.sql(*statements[: made + 1])
    try:
        administrator = await PostgresDriver(server.url(database=DATABASE), "").connect()
        for statement in within:
            await administrator.execute(statement)
        await administrator.close()
        urls = {name: server.tcp_url(schema, user=name, word=WORD) for name in ROLES}
        urls = {name: url.replace("/postgres?", f"/{DATABASE}?") for name, url in urls.items()}
        await allowed({name: open_postgres(url, "turn") for name, url in urls.items()})
    finally:
        server.sql(f"DROP DATABASE {DATABASE} WITH (FORCE)", f"DROP ROLE {', '.join(ROLES)}")


async def test_the_users_of_mariadb() -> None:
    """Made as the page has it, by an administrator."""
    server = mariadb.server()
    server.sql(*recipe(1))
    try:
        urls = {name: server.tcp_url(DATABASE, user=name, word=WORD) for name in ROLES}
        await allowed({name: store_at(url) for name, url in urls.items()})
    finally:
        server.sql(f"DROP DATABASE {DATABASE}", *(f"DROP USER {name}" for name in ROLES))
