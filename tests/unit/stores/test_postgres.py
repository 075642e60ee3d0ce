"""PostgreSQL when its server, its line or its clock misbehaves, and what its roles may do."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from tests.servers.postgres import server
from tests.unit.stores.server_places import PostgresPlace
from tests.unit.stores.server_suite import PATIENCE, ServerTests, begun, opened
from turnlog.errors import StoreError
from turnlog.stores.phrases import parse
from turnlog.stores.postgres import driver
from turnlog.stores.postgres.dialect import PostgresDialect
from turnlog.stores.postgres.driver import PostgresDriver, numbered
from turnlog.stores.postgres.growing import values
from turnlog.stores.searching import Search
from turnlog.stores.server.schema import key_of
from turnlog.stores.server.store import ServerStore
from turnlog.stores.server.urls import shown
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, header, notes, prompt

pytestmark = pytest.mark.anyio


@pytest.fixture
def place() -> PostgresPlace:
    """An empty schema."""
    return PostgresPlace(server())


class TestPostgres(ServerTests):
    """What every server store does, on PostgreSQL."""


async def test_a_commit_rings_the_bell(place: PostgresPlace) -> None:
    """Other processes hear of a commit without looking, by the keys of what grew."""
    heard: list[bytes] = []
    rung = anyio.Event()

    def hear(keys: Sequence[bytes]) -> None:
        heard.extend(keys)
        if len(heard) >= 2:
            rung.set()

    bell = await place.driver().bell(hear)
    await bell.listen(on=True)
    try:
        async with opened(place.store()) as store:
            for name in "ab":
                await begun(store, name)
            with anyio.fail_after(PATIENCE):
                await rung.wait()
    finally:
        await bell.close()
    assert set(heard) == {key_of(b"a"), key_of(b"b")}


async def test_a_bell_rings_and_listens_at_the_same_time(place: PostgresPlace) -> None:
    """Who begins or ends to wait while a commit is told of does not hinder it, nor goes deaf."""
    rung = anyio.Event()

    def hear(keys: Sequence[bytes]) -> None:
        if key_of(b"last") in keys:
            rung.set()

    bell = await place.driver().bell(hear)
    try:
        for on in (True, False, True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bell.ring, [key_of(b"a")] * 1_000)
                tasks.start_soon(lambda on=on: bell.listen(on=on))
        await bell.ring([key_of(b"last")])
        with anyio.fail_after(PATIENCE):
            await rung.wait()
    finally:
        await bell.close()


async def test_least_privileges_are_enough(place: PostgresPlace) -> None:
    """A role that may only read and change rows can do everything but make the tables."""
    role = f"worker_{place.schema}"
    place.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'word'")
    place.sql(f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    url = server().tcp_url(place.schema, user=role, word="word")
    with pytest.raises(StoreError, match="turnlog migrate"):
        await ServerStore(PostgresDriver(url, shown(url))).open()
    async with opened(place.store()):
        pass
    place.sql(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place.schema} TO {role}"
    )
    async with opened(ServerStore(PostgresDriver(url, shown(url)))) as store:
        claim = await begun(store)
        await store.renew()
        await commit(store, claim, notes(2, 1))
        assert [info.id async for info in store.sessions()] == ["a"]
        await store.release(claim)


async def test_an_owner_that_was_stopped_holds_up_nobody(place: PostgresPlace) -> None:
    """The server itself ends a transaction in which nothing happens, within seconds."""
    db = await place.driver().connect()
    try:
        limits = {
            name: (await db.fetch(f"SHOW {name}"))[0][0]
            for name in ("idle_in_transaction_session_timeout", "lock_timeout", "timezone")
        }
    finally:
        await db.close()
    assert limits == {
        "idle_in_transaction_session_timeout": "5s",
        "lock_timeout": "10s",
        "timezone": "UTC",
    }


async def test_a_server_that_is_too_old_is_refused(
    place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose version is below the oldest that is let in, is told which one that is."""
    monkeypatch.setattr(driver, "OLDEST", 99)
    with pytest.raises(StoreError, match="too old: turnlog needs 99 or later"):
        await place.store().open()


@pytest.mark.parametrize("option", ["sslmode=require", "sslmode=verify-full&sslrootcert=/no.pem"])
async def test_options_of_tls_reach_the_driver(place: PostgresPlace, option: str) -> None:
    """Who asks for TLS does not get a connection without it; the tests' server has none."""
    url = f"{place.url()}&{option}"
    with pytest.raises(StoreError, match=r"SSL|certificate|no\.pem"):
        await ServerStore(PostgresDriver(url, shown(url)), patience=0.1).open()


def test_a_text_with_too_many_terms_may_hold_any() -> None:
    """What a tsvector cannot hold is said to hold every term, so that nothing is missed."""
    dialect = PostgresDialect()
    assert dialect.terms(["sb", "sa", "sb"]) == "'sb':1,3 'sa':2"
    assert dialect.terms([f"s{n}" for n in range(100_000)]) == "'*'"
    assert dialect.terms(["s" + "x" * 5_000]) == f"'s{'x' * 199}':1"


async def test_very_long_texts_are_found(place: PostgresPlace) -> None:
    """A message with more different words than an index takes is found by each of them."""
    words = " ".join(f"w{n}" for n in range(120_000))
    async with opened(place.store()) as store:
        await store.create(header("a"))
        claim = await store.claim("a", FIRST)
        await commit(store, claim, [prompt(0, f"first {words} last"), prompt(1, "w7 w8")])
        expected: dict[str, list[int]] = {
            "w7 w8": [0, 1],
            "w119999": [0],
            "last": [0],
            "w120000": [],
        }
        for text, seqs in expected.items():
            hits = await store.search(Search(parse(text)))
            assert sorted(hit.seq for hit in hits) == seqs, text


def test_rows_never_get_each_others_values() -> None:
    """A text that would become two in an array of lines is not sent."""
    rows = [
        (bytes(16), seq, name, 0, b"1", None, None, None, None, 0) for seq, name in enumerate("ab")
    ]
    assert "a\nb" in list(values([], 1, [], rows, []))
    rows[0] = (*rows[0][:2], "acme/a\nb", *rows[0][3:])
    with pytest.raises(AssertionError, match="line break"):
        list(values([], 1, [], rows, []))


def test_values_are_numbered() -> None:
    """Each question mark of a query becomes the number of its value."""
    assert numbered("a = ? AND b IN (?, ?)") == "a = $1 AND b IN ($2, $3)"
    assert numbered("SELECT 1") == "SELECT 1"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p%40@h:1/db?sslmode=require", "postgresql://u:***@h:1/db?sslmode=require"),
        ("postgres://u@h/db?password=p&x=1", "postgres://u@h/db?password=***&x=1"),
        ("mysql://u:p@h/db?ssl-key-password=p", "mysql://u:***@h/db?ssl-key-password=***"),
        ("postgresql://u:a@b:c@h/db", "postgresql://u:***@h/db"),
        ("postgresql:///db?host=/run", "postgresql:///db?host=/run"),
        ("sqlite:/a:b@c", "sqlite:/a:b@c"),
    ],
)
def test_urls_are_shown_without_passwords(url: str, expected: str) -> None:
    """A password in a URL, before the host or among the options, is not shown."""
    assert shown(url) == expected
