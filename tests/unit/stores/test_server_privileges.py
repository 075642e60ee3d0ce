"""What users of a database server may do, and what is said to whom a privilege is lacking."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers import mariadb, postgres
from tests.unit.stores.mysql_stores import connected
from tests.unit.stores.server_places import MariaDbPlace, PostgresPlace, store_at
from tests.unit.stores.server_suite import PATIENCE, begun, opened
from turnlog.errors import StoreError
from turnlog.stores.phrases import parse
from turnlog.stores.postgres import open_postgres
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.searching import Search
from turnlog.stores.server.store import ServerStore
from turnlog.stores.server.urls import shown
from turnlog.stores.store import Store
from turnlog.stores.upkeep import Diagnosed
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, header, prompt

pytestmark = pytest.mark.anyio

ROWS = "SELECT, INSERT, UPDATE, DELETE"
DOCUMENTED = f"GRANT {ROWS} ON "


class PostgresUser:
    """A role that may do nothing yet but see the schema."""

    def __init__(self) -> None:
        self.place = PostgresPlace(postgres.server())
        self.name = f"user_{self.place.schema}"
        self.place.sql(f"CREATE ROLE {self.name} LOGIN PASSWORD 'word'")
        self.place.sql(f"GRANT USAGE ON SCHEMA {self.place.schema} TO {self.name}")

    def grant(self, rights: str, table: str | None = None) -> None:
        """Let it do that with one table, or with all there are."""
        what = f"ALL TABLES IN SCHEMA {self.place.schema}" if table is None else table
        self.place.sql(f"GRANT {rights} ON {what} TO {self.name}")

    def store(self) -> ServerStore:
        """A handle of the role's."""
        url = postgres.server().tcp_url(self.place.schema, user=self.name, word="word")
        return ServerStore(PostgresDriver(url, shown(url)))


class MariaDbUser:
    """A user who may do nothing yet."""

    def __init__(self) -> None:
        self.place = MariaDbPlace(mariadb.server())
        self.name = f"user_{self.place.database}"
        self.place.sql(f"CREATE USER {self.name}@'127.0.0.1' IDENTIFIED BY 'word'")

    def grant(self, rights: str, table: str | None = None) -> None:
        """Let them do that with one table, or with all there are."""
        what = f"{self.place.database}.{table or '*'}"
        self.place.sql(f"GRANT {rights} ON {what} TO {self.name}@'127.0.0.1'")

    def store(self) -> ServerStore:
        """A handle of the user's."""
        url = mariadb.server().tcp_url(self.place.database, user=self.name, word="word")
        return store_at(url)


User = PostgresUser | MariaDbUser


@pytest.fixture(params=[PostgresUser, MariaDbUser], ids=["postgresql", "mariadb"])
def user(request: pytest.FixtureRequest) -> User:
    """A user of an empty place."""
    made: Callable[[], User] = request.param
    return made()


async def privileges(user: User) -> Diagnosed:
    """What `doctor` says of a user's privileges."""
    async with opened(user.store()) as store:
        (found,) = [one for one in await store.diagnose() if one.name == "privileges"]
        return found


async def said_once(store: ServerStore, session_id: str, text: str) -> None:
    """A session in which that was said, given back."""
    await store.create(header(session_id))
    claim = await store.claim(session_id, FIRST)
    await commit(store, claim, [prompt(0, text)])
    await store.release(claim)


# -- doctor ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rights", ["SELECT", "SELECT, INSERT", "SELECT, INSERT, UPDATE"])
async def test_doctor_names_the_privileges_that_are_lacking(user: User, rights: str) -> None:
    """Who may not do all that a process does with rows is told what to grant, and to whom."""
    async with opened(user.place.store()):
        pass
    user.grant(rights)
    found = await privileges(user)
    assert found.state == "failed"
    assert "may not" in found.detail
    assert DOCUMENTED in found.detail
    assert user.name in found.detail.partition(DOCUMENTED)[2]
    lacking = set(ROWS.split(", ")) - set(rights.split(", "))
    named = set(found.detail.partition(":")[0].replace(",", " ").split())
    assert named & set(ROWS.split(", ")) == lacking


async def test_doctor_names_the_one_table_that_a_privilege_lacks_on(user: User) -> None:
    """Privileges are looked at table by table; of the version's table reading is enough."""
    async with opened(user.place.store()):
        pass
    for table in user.place.tables():
        user.grant("SELECT" if table in ("turnlog_meta", "inbox") else ROWS, table)
    found = await privileges(user)
    assert found.state == "failed"
    assert "inbox" in found.detail
    assert "turnlog_meta" not in found.detail
    user.grant(ROWS, "inbox")
    assert await privileges(user) == Diagnosed("privileges", "ok", "enough")


async def test_to_look_at_privileges_changes_nothing(user: User) -> None:
    """What `doctor` asks leaves every row as it is."""
    async with opened(user.place.store()) as store:
        await said_once(store, "a", "hello")
        before = await store.load("a")
        await store.diagnose()
        assert await store.load("a") == before


# -- migrate -----------------------------------------------------------------------------------


async def test_the_statements_of_a_dry_run_are_all_of_it(user: User) -> None:
    """Applied by hand they make a store, which a user who may only change rows opens."""
    planned = await user.place.store().migrate(dry_run=True)
    assert planned.before == 0
    for statement in planned.statements:
        user.place.sql(statement)
    assert (await user.place.store().migrate(dry_run=True)).statements == []
    user.grant(ROWS)
    async with opened(user.store()) as store:
        await begun(store)
        assert [info.id async for info in store.sessions()] == ["a"]


async def test_statements_that_are_applied_twice_do_no_harm(user: User) -> None:
    """A script that was interrupted may be run again from its beginning."""
    planned = await user.place.store().migrate(dry_run=True)
    for statement in [*planned.statements, *planned.statements]:
        user.place.sql(statement)
    assert (await user.place.store().migrate(dry_run=True)).before == planned.after


async def test_a_user_without_grants_is_told_to_get_them(user: User) -> None:
    """Where the tables are there, what is said is not that they are missing."""
    async with opened(user.place.store()):
        pass
    for dry_run in (True, False):
        with pytest.raises(StoreError, match=DOCUMENTED.removesuffix("ON ")) as refused:
            await user.store().migrate(dry_run=dry_run)
        assert "missing or of an older turnlog" not in str(refused.value)


async def test_a_write_that_is_refused_says_what_to_grant(user: User) -> None:
    """Who may only read is told so by the first write."""
    async with opened(user.place.store()):
        pass
    user.grant("SELECT")
    async with opened(user.store()) as store:
        with pytest.raises(StoreError, match=DOCUMENTED.removesuffix("ON ")):
            await store.create(header("a"))


async def test_a_schema_that_may_not_be_used_is_told_of() -> None:
    """Who lacks USAGE is not told to make a schema that is there, and nothing else."""
    user = PostgresUser()
    async with opened(user.place.store()):
        pass
    user.grant(ROWS)
    user.place.sql(f"REVOKE USAGE ON SCHEMA {user.place.schema} FROM {user.name}")
    with pytest.raises(StoreError, match="GRANT USAGE ON SCHEMA"):
        await user.store().open()


# -- readers -----------------------------------------------------------------------------------


async def test_who_may_only_read_searches_too(user: User) -> None:
    """What is not in the index, where it may not be filled, is found by reading the sessions."""
    async with opened(user.place.store()) as store:
        await said_once(store, "a", "The parcel has not come.")
        user.grant("SELECT")
        async with opened(user.store()) as reader:
            for _ in range(2):
                hits = await reader.search(Search(parse("parcel")))
                assert [(hit.session, hit.seq) for hit in hits] == [("a", 0)]
            await store.search(Search(parse("parcel")))  # which makes the index
            await said_once(store, "b", "Another parcel.")
            claim = await store.claim("a", FIRST)
            await commit(store, claim, [prompt(1, "A parcel came.")])
            hits = await reader.search(Search(parse("parcel")))
            assert {(hit.session, hit.seq) for hit in hits} == {("a", 0), ("a", 1), ("b", 0)}
            assert await reader.wait("a", 0, PATIENCE)
            hits = await reader.search(Search(parse("parcel"), session="b"))
            assert [(hit.session, hit.seq) for hit in hits] == [("b", 0)]


async def test_a_url_that_only_reads_writes_nothing() -> None:
    """With a setting of PostgreSQL's that forbids it, the first write is refused, and named so."""
    place = PostgresPlace(postgres.server())
    async with opened(place.store()) as store:
        await said_once(store, "a", "hello")
    url = f"{place.url()}&default_transaction_read_only=on"
    async with Store(open_postgres(url, "turn")) as reader:
        assert [info.id async for info in reader.sessions()] == ["a"]
        assert [hit.seq for hit in await reader.search("hello")] == [0]
        with pytest.raises(StoreError, match="default_transaction_read_only"):
            async with reader.session("b") as session:
                session.add_user("hello")
        with pytest.raises(StoreError, match="default_transaction_read_only"):
            async with reader.session("a") as session:
                session.add_user("hello")
        assert isinstance(reader.backend, ServerStore)
        found = await reader.backend.diagnose()
    assert ("PostgreSQL", "failed") in {(one.name, one.state) for one in found}
    assert place.sql("SELECT count(*), max(next_seq), max(token) FROM sessions") == ["1|1|1"]


# -- databases ---------------------------------------------------------------------------------


async def test_a_database_that_cannot_hold_every_letter_is_refused() -> None:
    """PostgreSQL converts the terms of an index to the database's encoding, which has to fit."""
    server = postgres.server()
    server.sql(
        "DROP DATABASE IF EXISTS latin",
        "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    store = open_postgres(server.url(database="latin"), "turn")
    for asked in (store.open, store.migrate, lambda: store.migrate(dry_run=True)):
        with pytest.raises(StoreError, match=r"LATIN1.*ENCODING 'UTF8'"):
            await asked()


async def test_a_database_that_takes_any_bytes_is_let_in() -> None:
    """PostgreSQL's SQL_ASCII converts nothing, so that letters of any script are found."""
    server = postgres.server()
    server.sql(
        "DROP DATABASE IF EXISTS bytes",
        "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0",
    )
    async with opened(open_postgres(server.url(database="bytes"), "turn")) as store:
        await said_once(store, "a", "日本語 and Žluťoučký")
        for text in ("日本", "zlutoucky", "and"):
            hits = await store.search(Search(parse(text)))
            assert [hit.session for hit in hits] == ["a"], text
        assert [one.name for one in await store.diagnose() if one.state == "failed"] == []


async def test_doctor_says_that_letters_do_not_fit() -> None:
    """A store that was made in such a database by an older turnlog is told of."""
    server = postgres.server()
    server.sql(
        "DROP DATABASE IF EXISTS latin2",
        "CREATE DATABASE latin2 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    planned = await open_postgres(server.url(server.new_schema()), "turn").migrate(dry_run=True)
    url = server.url(database="latin2")
    db = await PostgresDriver(url, shown(url)).connect()
    try:
        for statement in planned.statements:
            await db.execute(statement)
    finally:
        await db.close()
    async with opened(open_postgres(url, "turn")) as store:
        failed = [one for one in await store.diagnose() if one.state == "failed"]
    assert ["LATIN1" in one.detail for one in failed] == [True]


async def test_doctor_says_which_of_the_two_a_server_is() -> None:
    """MariaDB is not called MySQL."""
    place = MariaDbPlace(mariadb.server())
    async with opened(place.store()) as store, connected(place.url()) as db:
        ((version,),) = await db.fetch("SELECT VERSION()")
        names = [one.name for one in await store.diagnose() if str(version) in one.detail]
    assert names == ["MariaDB"]
