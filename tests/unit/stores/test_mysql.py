"""The MySQL store, on MariaDB, when its server, its line or its clock misbehaves."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from subprocess import PIPE, Popen

import anyio
import pytest

from tests.servers.mariadb import server
from tests.unit.stores.mysql_stores import connected, setting
from tests.unit.stores.server_places import MariaDbPlace, driver_of, store_at
from tests.unit.stores.server_suite import PATIENCE, ServerTests, opened
from turnlog.commands import Prompt
from turnlog.errors import StoreError, WriteFailed
from turnlog.events import AnyEvent
from turnlog.stores.mysql.diagnosis import diagnose
from turnlog.stores.mysql.dialect import MySqlDialect
from turnlog.stores.port import Batch, Claim
from turnlog.stores.server.pool import Pool
from turnlog.stores.server.schema import VERSION, key_of
from turnlog.stores.server.store import ServerStore
from turnlog.stores.server.tailing import Tailing
from turnlog.stores.store import Store
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import (
    FIRST,
    assert_same,
    event,
    header,
    notes,
    prompt,
)

pytestmark = pytest.mark.anyio

LOCK = "SELECT next_seq FROM sessions WHERE session = ? FOR UPDATE"
OTHERS = "SELECT id FROM information_schema.processlist WHERE user = 'turnlog'"
MANY_SESSIONS = """
    INSERT INTO sessions (session, id, header, sum, root, boundary, next_seq, token, lease_until,
    last_activity, bytes, stale)
    SELECT UNHEX(LEFT(SHA2(seq, 256), 32)), seq, '', 0, '', 0, 2, 0, 0, 0, 0, 0 FROM seq_1_to_10000
"""
OPENS = """
import sys, anyio
from turnlog.stores.mysql import open_mysql

async def main():
    store = open_mysql(sys.argv[1], "turn")
    print("ready", flush=True)
    sys.stdin.read()
    await store.open()
    print("open", flush=True)
    await store.close()

anyio.run(main)
"""


def selects() -> int:
    """How many queries the server has answered."""
    return int(server().sql("SHOW GLOBAL STATUS LIKE 'Com_select'")[0][1])


def note(seq: int, text: str) -> AnyEvent:
    """An event with a long text."""
    return event(seq, {"text": text})


def noise(size: int) -> str:
    """Text that zstd makes little smaller than three quarters."""
    return "".join(random.Random(size).choices("".join(map(chr, range(48, 112))), k=size))  # noqa: S311


async def begun(
    store: ServerStore, session_id: str = "a", *, events: Sequence[AnyEvent] | None = None
) -> Claim:
    """A new session that the store owns, with two notes or other events."""
    await store.create(header(session_id))
    claim = await store.claim(session_id, FIRST)
    await commit(store, claim, notes(0, 2) if events is None else events)
    return claim


def child_that_opens(url: str) -> Popen[str]:
    """A process that opens a store once it is told to."""
    return Popen([sys.executable, "-c", OPENS, url], stdin=PIPE, stdout=PIPE, text=True)


@pytest.fixture
def place() -> MariaDbPlace:
    """An empty database."""
    return MariaDbPlace(server())


class TestMariaDb(ServerTests):
    """What every server store does, on MariaDB."""


# -- text --------------------------------------------------------------------------------------


async def test_large_text_of_any_script_comes_back(place: MariaDbPlace) -> None:
    """1.2 MB of Han characters and emoji are kept, on a server that is not strict as well."""
    letters = random.Random(7)  # noqa: S311 - text that does not compress
    signs = [*map(chr, range(0x4E00, 0x9FFF)), *map(chr, range(0x1F300, 0x1F6FF)), "\U00020000"]
    text = "".join(letters.choices(signs, k=390_000))
    assert len(text.encode()) > 1_150_000
    events = [note(0, text), note(1, text[::-1])]
    with setting(sql_mode="''"):
        async with opened(place.store()) as store:
            claim = await begun(store, events=events)
            await commit(store, claim, notes(2, 1))
    async with opened(place.store()) as store:
        assert_same((await store.load("a")).events, [*events, *notes(2, 1)])


async def test_ids_and_types_differ_in_every_byte(place: MariaDbPlace) -> None:
    """Ids, command ids and types that differ in case, accents or trailing blanks are different."""
    names = ["name", "Name", "name ", "name  ", "name\0", "näme", "na\u0308me", "\ud800name"]
    logs = {
        name: [event(0, {"n": number}, type_name=f"acme/{name}")]
        for number, name in enumerate(names)
    }
    async with opened(place.store()) as store:
        for name, log in logs.items():
            claim = await begun(store, name, events=log)
            assert [await store.post(name, Prompt("p", id=other)) for other in names] == [True] * 8
            await store.release(claim)
        for name, log in logs.items():
            assert_same((await store.load(name)).events, log)
        assert {info.id async for info in store.sessions()} == set(names)


# -- sizes -------------------------------------------------------------------------------------


async def test_a_batch_is_split_to_what_the_server_takes(place: MariaDbPlace) -> None:
    """A batch of many times the size of a packet is stored as one."""
    with setting(max_allowed_packet=str(1 << 20)):
        events = [note(seq, noise(300_000)) for seq in range(12)]
        async with opened(place.store()) as store:
            await begun(store, events=events)
            assert_same((await store.load("a")).events, events)


async def test_a_payload_that_cannot_fit_is_refused(place: MariaDbPlace) -> None:
    """What is more than a packet is refused with the limit's name, alone, and may be left out."""
    with setting(max_allowed_packet=str(1 << 20)):
        async with opened(place.store()) as store:
            large, small = await begun(store, "a"), await begun(store, "b")
            batches = [Batch(large, [note(2, noise(4 << 20))]), Batch(small, notes(2, 1))]
            refused, fine = await store.commit(batches)
            assert fine is None
            assert isinstance(refused, WriteFailed)
            assert "max_allowed_packet is 1,048,576" in str(refused)
            await commit(store, large, notes(2, 1))
            assert_same((await store.load("a")).events, notes(0, 3))


# -- order -------------------------------------------------------------------------------------


async def test_tails_skip_nothing_when_commits_overtake_each_other(place: MariaDbPlace) -> None:
    """R114, R116: what commits late is seen by who has seen what began later and is done."""
    seen: dict[str, list[int]] = {"late": [], "early": []}
    caught_up = anyio.Event()
    async with (
        opened(place.store()) as first,
        opened(place.store()) as second,
        opened(place.store()) as reader,
        connected(place.url()) as slow,
    ):
        late, early = await begun(first, "late"), await begun(second, "early")

        async def follow(name: str) -> None:
            while len(seen[name]) < 4:
                after = len(seen[name]) - 1
                await reader.wait(name, after, PATIENCE)
                seen[name] += [e.seq for e in await reader.read(name, after + 1)]
            if name == "early":
                caught_up.set()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for name in seen:
                    tasks.start_soon(follow, name)
                await slow.begin()  # it holds up the one commit, and not the other
                await slow.fetch(LOCK, key_of(b"late"))
                tasks.start_soon(commit, first, late, notes(2, 2))
                await commit(second, early, notes(2, 2))
                await caught_up.wait()
                assert await reader.next_seq("late") == 2
                await slow.rollback()
        assert seen == {"late": [0, 1, 2, 3], "early": [0, 1, 2, 3]}


async def test_who_waits_is_not_forgotten_for_those_who_call(place: MariaDbPlace) -> None:
    """One who waits long hears of others' events, while another begins to wait again and again."""
    async with opened(place.store()) as store, opened(place.store()) as reader:
        claims = [await begun(store, name) for name in "ab"]
        heard = anyio.Event()

        async def hear() -> None:
            while await reader.wait("a", 1, PATIENCE) is not True:
                pass
            heard.set()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hear)
                await reader.wait("b", 1, 0.6)
                await commit(store, claims[0], notes(2, 1))
                while not heard.is_set():
                    await reader.wait("b", 1, 0.1)


async def test_ten_thousand_idle_tails_are_two_queries_a_second(place: MariaDbPlace) -> None:
    """However many wait for sessions of others, the server is asked twice a second at most."""
    async with opened(place.store()) as store:
        claim = await begun(store)
        place.sql(MANY_SESSIONS)
        driver = driver_of(place.url())
        pool = Pool(driver, 1)
        tails = Tailing(driver, pool)
        keys = [key_of(str(number).encode()) for number in range(1, 10_001)]
        try:
            before, started = selects(), anyio.current_time()
            async with anyio.create_task_group() as tasks:
                for key in keys:
                    tasks.start_soon(tails.wait, key, 1, 2.5)
            asked, seconds = selects() - before, anyio.current_time() - started
            assert 2 <= asked <= 2 * seconds + 2  # one is to get to know the connection
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    for key in keys:
                        tasks.start_soon(tails.wait, key, 1, PATIENCE)
                    tasks.start_soon(commit, store, claim, notes(2, 1))
                    assert await tails.wait(claim.handle.key, 1, PATIENCE)
                    tasks.cancel_scope.cancel()
        finally:
            await tails.close()
            await pool.close()


# -- migrations --------------------------------------------------------------------------------


async def test_eight_processes_make_the_tables_at_once(place: MariaDbPlace) -> None:
    """Of eight processes that open an empty database at the same moment none fails."""
    children = [child_that_opens(place.url()) for _ in range(8)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    for child in children:
        assert child.stdout is not None
        assert child.stdout.read() == "open\n"
        child.stdout.close()
        assert child.wait(60) == 0
    assert place.sql("SELECT version FROM turnlog_meta") == [str(VERSION)]


async def test_tables_that_were_made_in_part_are_completed(place: MariaDbPlace) -> None:
    """Where making the tables was cut off in the middle, the next one goes on."""
    async with opened(place.store()) as store:
        await begun(store)
    for table in ("posted", "inbox", "search_words"):
        place.sql(f"DROP TABLE {table}")
    place.sql("DELETE FROM turnlog_meta")
    async with opened(place.store()) as store:
        assert await store.post("a", Prompt("p", id="1"))
        assert_same((await store.load("a")).events, notes(0, 2))


async def test_who_comes_second_waits_for_the_tables(place: MariaDbPlace) -> None:
    """While another process makes the tables nobody else does, nor goes on without them."""
    async with connected(place.url(), tables=False) as busy, MySqlDialect().migrating(busy):
        with anyio.move_on_after(0.3) as waited:
            await place.store().open()
        assert waited.cancelled_caught
        assert place.tables() == set()
    async with opened(place.store()):
        assert "events" in place.tables()


# -- rights and limits -------------------------------------------------------------------------


async def test_least_privileges_are_enough(place: MariaDbPlace) -> None:
    """A user who may only read and change rows can do everything but make the tables."""
    user = f"worker_{place.database}"
    place.sql(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'word'")
    rights = f"ON {place.database}.* TO {user}@'127.0.0.1'"
    place.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE {rights}")
    url = server().tcp_url(place.database, user=user, word="word")
    with pytest.raises(StoreError, match="turnlog migrate"):
        await store_at(url).open()
    async with opened(place.store()):
        pass
    async with opened(store_at(url)) as store:
        claim = await begun(store)
        await store.renew()
        await commit(store, claim, notes(2, 1))
        assert [info.id async for info in store.sessions()] == ["a"]
        await store.release(claim)


async def test_a_read_only_server_is_named_so(place: MariaDbPlace) -> None:
    """A server that was set to be read only can be read, and says why it takes nothing."""
    user = f"reader_{place.database}"
    place.sql(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'word'")
    place.sql(f"GRANT ALL ON {place.database}.* TO {user}@'127.0.0.1'")
    async with opened(place.store()) as store:
        await begun(store)
    with setting(read_only="1"):
        async with opened(
            store_at(server().tcp_url(place.database, user=user, word="word"))
        ) as store:
            assert_same((await store.load("a")).events, notes(0, 2))
            with pytest.raises(StoreError, match="read-only"):
                await store.create(header("b"))
            failed = [one for one in await store.diagnose() if one.state == "failed"]
    assert [(one.name, "read-only" in one.detail) for one in failed] == [("MariaDB", True)]


@pytest.mark.parametrize("inside", [False, True])
async def test_killed_connections_cost_nothing(place: MariaDbPlace, inside: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """When the server ends connections, at rest or within a commit, the commit is done once."""
    async with opened(place.store()) as store, connected(place.url()) as slow:
        claim = await begun(store)
        if inside:
            await slow.begin()
            await slow.fetch(LOCK, key_of(b"a"))
        ((mine,),) = await slow.fetch("SELECT CONNECTION_ID()")
        asked = f"{OTHERS} AND db = '{place.database}' AND id <> {mine}"
        async with anyio.create_task_group() as tasks:
            if inside:
                tasks.start_soon(commit, store, claim, notes(2, 2))
                asked += " AND info LIKE '%UPDATE sessions%'"
                while not place.sql(asked):  # noqa: ASYNC110 - it is the server that knows
                    await anyio.sleep(0.01)
            numbers = place.sql(asked)
            assert numbers
            for number in numbers:
                place.sql(f"KILL {number}")
            await slow.rollback()
            if not inside:
                await commit(store, claim, notes(2, 2))
        assert_same((await store.load("a")).events, notes(0, 4))


async def test_an_owner_that_was_stopped_holds_up_nobody(place: MariaDbPlace) -> None:
    """The server itself ends a transaction in which nothing happens, within seconds."""
    async with connected(place.url()) as db:
        limits = await db.fetch(
            "SELECT @@idle_transaction_timeout, @@innodb_lock_wait_timeout, @@max_statement_time"
        )
    assert limits == ((5, 10, 60.0),)


# -- searching ---------------------------------------------------------------------------------


NOTHING: set[int] = set()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("to be or", {0}),  # InnoDB has "to", "be" and "or" in its list of words to leave out
        ("the", {1}),
        ("x", {1}),
        ("go", {1, 2}),
        ("日本", {3}),
        ("本", {3, 4}),
        ("\U00020000\U00020001", {4}),
        ("が", {3}),
        ("a" * 200, {5}),
        (f"{'a' * 100}*", {5}),
        ("wo*", {1}),
        ("every", {6}),
        ("qx", NOTHING),
        ('+the -x "go', {1}),
    ],
)
async def test_short_and_common_words_are_found(
    place: MariaDbPlace, asked: str, found: set[int]
) -> None:
    """Words of one or two letters, English ones that indexes leave out, and any script."""
    texts = [
        "To be, or not: that is",
        "The x of words; go +the -x go",
        "go",
        "日本語が話せます",
        "本\U00020000\U00020001",
        "a" * 200,
        "every one",
    ]
    async with opened(place.store()) as backend:
        claim = await begun(backend, events=[prompt(seq, text) for seq, text in enumerate(texts)])
        await backend.release(claim)
        async with Store(backend) as store:
            assert {hit.seq for hit in await store.search(asked)} == found


async def test_a_text_with_too_many_words_is_found_by_each(place: MariaDbPlace) -> None:
    """A message with more words than are put into an index is found by each, and by no other."""
    words = [f"w{number:x}q" for number in range(80_000)]
    async with opened(place.store()) as backend:
        claim = await begun(backend, events=[prompt(0, " ".join(words)), prompt(1, "w77q short")])
        await backend.release(claim)
        async with Store(backend) as store:
            for asked, found in (("w77q", {0, 1}), (words[-1], {0}), ("w77q short", {1})):
                assert {hit.seq for hit in await store.search(asked)} == found
            assert await store.search("wother") == []


async def test_a_text_with_too_many_words_comes_last(place: MariaDbPlace) -> None:
    """A message of which it is not known how well it fits comes after those of which it is."""
    words = " ".join(f"w{number:x}q" for number in range(80_000))
    async with opened(place.store()) as backend:
        claim = await begun(backend, events=[prompt(0, "w77q"), prompt(1, words), prompt(2, "no")])
        await backend.release(claim)
        async with Store(backend) as store:
            found = await store.search("w77q")
            assert [hit.seq for hit in found] == [0, 1]
            assert found[0].score > found[1].score == 0


# -- diagnosis ---------------------------------------------------------------------------------


async def test_a_server_that_is_not_safe_is_told_of(place: MariaDbPlace) -> None:
    """What a server's settings would lose, refuse or not find is said, with how to mend it."""
    hazards = server(
        innodb_ft_min_token_size="5",  # noqa: S106 - no password
        log_bin="log",
        binlog_format="STATEMENT",
        sync_binlog="0",
        max_allowed_packet="1M",
        read_only="1",
    )
    async with connected(hazards.url("mysql"), tables=False) as db:
        said = {one.detail.partition(":")[0]: one.state for one in await diagnose(db)}
    for setting_of_it, state in {
        "the server is read-only, a replica perhaps": "failed",
        "binlog_format is STATEMENT": "failed",
        "innodb_flush_log_at_trx_commit is 2": "warning",
        "sync_binlog is 0": "warning",
        "innodb_ft_min_token_size is 5": "warning",
        "max_allowed_packet is 1,048,576 bytes": "warning",
    }.items():
        assert said[setting_of_it] == state
    async with opened(place.store()) as store:
        assert [one for one in await store.diagnose() if one.state == "failed"] == []
