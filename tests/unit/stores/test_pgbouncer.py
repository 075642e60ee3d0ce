"""PostgreSQL behind a pooler: by session it serves, by transaction it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest

import turnlog
from tests.servers.pgbouncer import PgBouncer, pgbouncer
from tests.servers.postgres import server
from turnlog.errors import InvalidStoreUrl, StoreError
from turnlog.stores.postgres import open_postgres
from turnlog.stores.postgres.driver import SETTINGS, PostgresDriver
from turnlog.stores.postgres.urls import parts_of
from turnlog.stores.server.driver import Fault
from turnlog.stores.server.failures import failure
from turnlog.stores.server.schema import key_of
from turnlog.testing import Factory
from turnlog.testing.conformance.facade import FacadeTests

pytestmark = pytest.mark.anyio

# What an administrator writes down so that clients which send settings may connect at all: the
# pooler drops them.
DROPPING = f"ignore_startup_parameters = search_path, synchronous_commit, {', '.join(SETTINGS)}"
PATIENCE = 60


@pytest.fixture(scope="module")
def by_session() -> Iterator[PgBouncer]:
    """A pooler that gives a client the same session until it leaves."""
    with pgbouncer(server(), "session", DROPPING) as pooler:
        yield pooler


class TestBySession(FacadeTests):
    """What an application sees of a store, through a pooler that pools by session."""

    @pytest.fixture(autouse=True)
    def _pooler(self, by_session: PgBouncer) -> None:
        self._by_session = by_session

    def factory(self, folder: Path) -> Factory:
        """Handles on one schema."""
        del folder
        url = self._by_session.url(server().new_schema())
        return lambda: open_postgres(url, "turn")


async def test_settings_are_those_of_every_session(by_session: PgBouncer) -> None:
    """Though the pooler drops them: the schema that the URL names, too, and of each client anew."""
    for schema in (server().new_schema(), server().new_schema()):
        driver = PostgresDriver(by_session.url(schema), "shown", durable=False)
        connection = await driver.connect()
        found = {
            name: (await connection.fetch(f"SHOW {name}"))[0][0]
            for name in ("search_path", "synchronous_commit", "lock_timeout", "application_name")
        }
        await connection.close()
        assert found == {
            "search_path": schema,
            "synchronous_commit": "off",
            "lock_timeout": "10s",
            "application_name": "turnlog",
        }


async def test_notifications_come_through_a_pooler(by_session: PgBouncer) -> None:
    """Who listens hears of another client's commit without looking."""
    url = by_session.url(server().new_schema())
    heard: list[bytes] = []
    rung = anyio.Event()

    def hear(keys: Sequence[bytes]) -> None:
        heard.extend(keys)
        rung.set()

    bell = await PostgresDriver(url, "shown").bell(hear)
    await bell.listen(on=True)
    try:
        async with turnlog.open_store(url) as store, store.session("a") as session:
            session.add_user("hello")
            await session.flush()
            with anyio.fail_after(PATIENCE):
                await rung.wait()
    finally:
        await bell.close()
    assert set(heard) == {key_of(b"a")}


@pytest.mark.parametrize("more", ["", DROPPING], ids=["strict", "dropping"])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_of_transactions_is_refused(mode: str, more: str) -> None:
    """Whose sessions are not a client's own: the message says what to change, and where."""
    on = server()
    with pgbouncer(on, mode, more) as pooler:
        url = pooler.url(on.new_schema())
        first = PostgresDriver(url, "shown")
        await (await first.connect()).close()
        with pytest.raises(StoreError, match="pool_mode = session"):
            async with turnlog.open_store(url):
                pass


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_doctor_names_a_pooler_of_transactions(mode: str) -> None:
    """Though nobody else uses it: it looks with two connections."""
    on = server()
    with pgbouncer(on, mode) as pooler:
        store = open_postgres(pooler.url(on.new_schema()), "turn")
        await store.open()
        try:
            failed = [one for one in await store.diagnose() if one.state == "failed"]
        finally:
            await store.close()
    assert [one.name for one in failed] == (["connections"] if mode == "transaction" else [])
    assert all("pool_mode = session" in one.detail for one in failed)


@pytest.mark.parametrize("statement", ["EXECUTE lost", "PREPARE once AS SELECT 2"])
async def test_prepared_statements_that_others_have_say_the_same(statement: str) -> None:
    """A pooler that was changed meanwhile mixes them up; what happens then is told so, too."""
    connection = await PostgresDriver(server().tcp_url(), "shown").connect()
    try:
        await connection.execute("PREPARE once AS SELECT 1")
        with pytest.raises(Fault) as raised:
            await connection.execute(statement)
    finally:
        await connection.close()
    said = str(failure(raised.value, "shown"))
    assert "pool_mode = session" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("url", "place", "settings"),
    [
        ("postgresql://u@h/db", "postgresql://u@h/db", {}),
        ("postgresql://u@h/db?search_path=a", "postgresql://u@h/db", {"search_path": "a"}),
        (
            "postgresql://u@/db?host=/run/pg&port=1&sslmode=require&search_path=a%2Cb&acme.x=",
            "postgresql://u@/db?host=%2Frun%2Fpg&port=1&sslmode=require",
            {"search_path": "a,b", "acme.x": ""},
        ),
        ("postgresql://u@h/db?host=a&host=b", "postgresql://u@h/db?host=b", {}),
        (
            "postgresql://u@h/db?options=-c%20jit%3Doff",
            "postgresql://u@h/db?options=-c%20jit%3Doff",
            {},
        ),
    ],
)
def test_options_are_of_the_line_or_of_the_session(
    url: str, place: str, settings: dict[str, str]
) -> None:
    """Of the last of its name, as before; those of the line stay in the URL."""
    parts = parts_of(url)
    assert (parts.dsn, parts.settings) == (place, settings)


@pytest.mark.parametrize("query", ["search_path", "a=1&&b=2"])
def test_what_are_no_options_is_refused(query: str) -> None:
    """Without the password."""
    with pytest.raises(InvalidStoreUrl, match=r"u:\*\*\*@h/db.*: expected options as in") as raised:
        open_postgres(f"postgresql://u:secret@h/db?{query}", "turn")
    assert "secret" not in str(raised.value)


async def test_a_setting_that_there_is_not_is_named() -> None:
    """By the server."""
    url = f"{server().tcp_url()}&acme=1"
    with pytest.raises(StoreError, match='unrecognized configuration parameter "acme"'):
        async with turnlog.open_store(url):
            pass
