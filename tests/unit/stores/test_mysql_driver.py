"""What a connection to MySQL is made to keep, how values reach it, and what its faults mean."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.mariadb import PASSWORD, server
from tests.unit.stores.mysql_stores import connected, setting
from turnlog.errors import InvalidStoreUrl
from turnlog.stores.mysql.dialect import MySqlDialect
from turnlog.stores.mysql.driver import MODE, MySqlDriver
from turnlog.stores.mysql.faults import trouble_of
from turnlog.stores.mysql.literals import joined
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.schema import BLOBS, EVENTS, POSTED, RECORDS, SESSIONS

pytestmark = pytest.mark.anyio

KEY, OTHER_KEY = b"k" * 16, b"o" * 16
NOISE = random.Random(5).randbytes  # noqa: S311 - bytes that do not compress
HOSTILE_MODE = "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'"
NOW = f"SELECT {MySqlDialect.now}"


@pytest.fixture
def url() -> str:
    """Of a new, empty database."""
    return server().url(server().new_database())


def row_of_event(seq: int, **columns: object) -> list[object]:
    """A row of `events` with some of its columns."""
    known: dict[str, object] = {
        "session": KEY, "seq": seq, "type": "acme/note", "time": 5, "data": b"{}", "sum": 0
    }  # fmt: skip
    return [(known | columns).get(column.name) for column in EVENTS.columns]


# -- the session -------------------------------------------------------------------------------


async def test_a_lenient_server_is_strict_to_us(url: str) -> None:
    """On a server that would cut values short and quote otherwise, nothing is cut or misread."""
    with setting(sql_mode=HOSTILE_MODE):
        async with connected(url) as db:
            assert await db.fetch("SELECT @@sql_mode") == ((MODE,),)
            for said in (b"'; DROP TABLE events; -- ", b"\\' OR 1 --", b'\\"\\\\\0\n\x1a\xff' * 20):
                assert await db.fetch("SELECT ?", said) == ((said,),)
            with pytest.raises(Fault, match="Data too long") as refused:
                await db.insert(POSTED, [(KEY + b"x", KEY)])
            assert refused.value.trouble is Trouble.TOO_LARGE
            with pytest.raises(Fault, match="Out of range"):
                await db.insert(EVENTS, [row_of_event(1 << 63)])
            assert await db.fetch("SELECT count(*) FROM posted") == ((0,),)


async def test_settings_of_the_server_do_not_reach_a_session(url: str) -> None:
    """Isolation, time zone, autocommit and limits are the session's own, whatever the server's."""
    hostile = {
        "tx_isolation": "'SERIALIZABLE'",
        "time_zone": "'+05:30'",
        "autocommit": "0",
        "innodb_lock_wait_timeout": "1000",
        "wait_timeout": "100000",
    }
    with setting(**hostile):
        async with connected(url) as db:
            names = ", ".join(f"@@{name}" for name in hostile)
            assert await db.fetch(f"SELECT {names}, @@collation_connection") == (
                ("READ-COMMITTED", "+00:00", 1, 10, 30, "utf8mb4_bin"),
            )


async def test_time_is_the_servers_as_it_passes(url: str) -> None:
    """Time goes on within a transaction and within a statement, and is the time of day in UTC."""
    with setting(time_zone="'-09:00'"):
        async with connected(url) as db:
            await db.begin()
            ((first, _, second, seconds),) = await db.fetch(
                f"{NOW}, SLEEP(0.02), {MySqlDialect.now}, UNIX_TIMESTAMP()"
            )
            ((third,),) = await db.fetch(NOW)
            await db.rollback()
    assert 20_000 <= second - first < third - first
    assert 0 <= first - seconds * 1_000_000 < 10_000_000


# -- values ------------------------------------------------------------------------------------


async def test_any_bytes_come_back(url: str) -> None:
    """Whatever bytes are inserted, put, updated or asked for come back, and are found by."""
    samples = [bytes(range(256)) * 2, NOISE(70_000), b"", b"\\", b"'", b"\\'" * 30, b"?" * 40]
    async with connected(url) as db:
        rows = [(KEY, bytes([i]) * 16, data) for i, data in enumerate(samples)]
        await db.insert(BLOBS, rows)
        assert list(await db.fetch("SELECT * FROM blobs ORDER BY hash")) == rows
        for _, name, data in rows:
            found = await db.fetch("SELECT hash FROM blobs WHERE data = ?", data)
            assert found == ((name,),)
        await db.many(
            MySqlDialect().put(RECORDS), [(KEY, i, data) for i, data in enumerate(samples)]
        )
        assert await db.fetch("SELECT data FROM records") == ((samples[-1],),)


async def test_a_row_is_added_once(url: str) -> None:
    """What is there already is told from what was added, and left as it is."""
    add = MySqlDialect().add(BLOBS)
    async with connected(url) as db:
        assert await db.execute(add, KEY, OTHER_KEY, b"first") == 1
        assert await db.execute(add, KEY, OTHER_KEY, b"second") == 0
        assert await db.fetch("SELECT data FROM blobs") == ((b"first",),)
        with pytest.raises(Fault) as taken:
            await db.insert(BLOBS, [(KEY, KEY, b""), (KEY, OTHER_KEY, b"")])
        assert taken.value.trouble is Trouble.TAKEN
        assert db.alive
        assert await db.fetch("SELECT count(*) FROM blobs") == ((1,),)


async def test_text_is_compared_byte_by_byte(url: str) -> None:
    """Types that differ in case, accents or trailing blanks are different types."""
    names = ["acme/a", "acme/A", "acme/a ", "acme/a  ", "acme/a\t", "acme/\\a'"]
    async with connected(url) as db:
        await db.insert(EVENTS, [row_of_event(seq, type=name) for seq, name in enumerate(names)])
        for seq, name in enumerate(names):
            found = await db.fetch("SELECT seq, type FROM events WHERE type = ?", name)
            assert found == ((seq, name),)
        condition, values = MySqlDialect().among("type", "text", names[1:3])
        query = f"SELECT seq FROM events WHERE {condition}"  # noqa: S608 - ours
        assert await db.fetch(query, *values) == ((1,), (2,))


@given(
    pieces=st.lists(st.binary(max_size=30), max_size=30),
    between=st.sampled_from([b",", b";", b" -- "]),
    room=st.integers(1, 100),
)
def test_pieces_are_joined_to_what_fits(pieces: list[bytes], between: bytes, room: int) -> None:
    """No piece is lost, moved or broken, and only one that is too large alone exceeds the room."""
    made = list(joined(pieces, between, room))
    assert between.join(made) == between.join(pieces)
    assert all(len(one) <= room or one in pieces for one in made)


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dynamic", "compact", "redundant"])
async def test_keys_fit_rows_of_every_format(url: str, form: str) -> None:
    """R112: the tables can be made, and filled with long values, in whichever row format."""
    with setting(innodb_default_row_format=form):
        async with connected(url) as db:
            formats = await db.fetch(
                "SELECT DISTINCT row_format FROM information_schema.tables "
                "WHERE table_schema = DATABASE()"
            )
            assert [str(row[0]).lower() for row in formats] == [form]
            long = b"z" * 5_000
            await db.insert(
                SESSIONS,
                [
                    [
                        long if column.kind == "bytes" else KEY if column.kind == "key" else 0
                        for column in SESSIONS.columns
                    ]
                ],
            )
            text = {
                "type": "t" * 5_000,
                "surface_op": "o" * 5_000,
                "source_event_seqs": "s" * 5_000,
            }
            await db.insert(EVENTS, [row_of_event(0, data=long, extra=long, **text)])
            assert await db.fetch("SELECT extra, type FROM events") == ((long, text["type"]),)


# -- the size of packets -----------------------------------------------------------------------


async def test_statements_are_split_to_what_the_server_takes(url: str) -> None:
    """Rows that are more together than one packet may be are inserted and changed all the same."""
    blobs = [(KEY, NOISE(16), NOISE(200_000)) for _ in range(12)]
    with setting(max_allowed_packet=str(1 << 20)):
        async with connected(url) as db:
            await db.insert(BLOBS, blobs)
            change = "UPDATE blobs SET data = ? WHERE session = ? AND hash = ?"
            await db.many(change, [(data[::-1], key, name) for key, name, data in blobs])
            expected = sorted((key, name, data[::-1]) for key, name, data in blobs)
            assert list(await db.fetch("SELECT * FROM blobs ORDER BY hash")) == expected


async def test_a_row_that_cannot_fit_is_refused_with_the_limit(url: str) -> None:
    """One row that is more than a packet may be is refused, and the connection lives on."""
    with setting(max_allowed_packet=str(1 << 20)):
        async with connected(url) as db:
            with pytest.raises(Fault, match=r"max_allowed_packet is 1,048,576") as refused:
                await db.insert(BLOBS, [(KEY, KEY, NOISE(1 << 20))])
            assert refused.value.trouble is Trouble.TOO_LARGE
            assert await db.fetch("SELECT count(*) FROM blobs") == ((0,),)
            assert db.alive


# -- faults ------------------------------------------------------------------------------------


async def test_a_killed_connection_is_lost(url: str) -> None:
    """Whose connection the server ended is told that it is lost, and so is whoever looks."""
    async with connected(url) as db:
        await db.begin()
        await db.insert(POSTED, [(KEY, KEY)])
        ((number,),) = await db.fetch("SELECT CONNECTION_ID()")
        server().sql(f"KILL {number}")
        with pytest.raises(Fault) as lost:
            await db.commit()
        assert lost.value.trouble is Trouble.LOST
        assert not db.alive
    async with connected(url) as db:
        assert await db.fetch("SELECT count(*) FROM posted") == ((0,),)


async def test_a_killed_statement_may_be_tried_again(url: str) -> None:
    """A statement that was ended, by whoever, is no loss of the connection."""
    async with connected(url) as db:
        ((number,),) = await db.fetch("SELECT CONNECTION_ID()")
        waiting = asyncio.create_task(db.fetch("SELECT SLEEP(50)"))
        asked = f"SELECT info LIKE '%SLEEP(50)%' FROM information_schema.processlist WHERE id = {number}"  # noqa: E501, S608 - ours
        while server().sql(asked) != [(1,)]:  # noqa: ASYNC110 - it is another process that knows
            await asyncio.sleep(0.01)
        server().sql(f"KILL QUERY {number}")
        with pytest.raises(Fault) as ended:
            await waiting
        assert ended.value.trouble is Trouble.BUSY
        assert await db.fetch("SELECT 1") == ((1,),)


async def test_a_deadlock_may_be_tried_again(url: str) -> None:
    """Of two that wait for each other one is told so, and the other goes on."""
    async with connected(url) as one, connected(url) as two:
        await one.insert(RECORDS, [(KEY, 0, b""), (OTHER_KEY, 0, b"")])
        lock = "SELECT seq FROM records WHERE session = ? FOR UPDATE"
        for db, key in ((one, KEY), (two, OTHER_KEY)):
            await db.begin()
            await db.fetch(lock, key)
        results = await asyncio.gather(
            one.fetch(lock, OTHER_KEY), two.fetch(lock, KEY), return_exceptions=True
        )
        faults = [result for result in results if isinstance(result, Fault)]
        assert [fault.trouble for fault in faults] == [Trouble.BUSY]
        for db in (one, two):
            await db.rollback()


async def test_a_cancelled_statement_gives_its_connection_up(url: str) -> None:
    """Nobody goes on with a connection whose answer is still to come."""
    async with connected(url) as db:
        waiting = asyncio.create_task(db.fetch("SELECT SLEEP(30)"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not db.alive


@pytest.mark.parametrize(
    ("user", "word", "database", "said"),
    [
        ("turnlog", "wrong", "mysql", "Access denied"),
        ("nobody", "", "mysql", "Access denied"),
        ("turnlog", PASSWORD, "missing", "Unknown database"),
    ],
)
async def test_a_refusal_says_why(user: str, word: str, database: str, said: str) -> None:
    """A wrong user, password or database is refused in the server's words, without the password."""
    url = server().tcp_url(database, user=user, word=word)
    with pytest.raises(Fault, match=said) as refused:
        await MySqlDriver(options_of(url, "shown"), "shown").connect()
    assert refused.value.trouble is Trouble.REFUSED
    assert ("MYSQL_PWD" in refused.value.hint) == ("denied" in said)
    assert not word or word not in str(refused.value)


async def test_a_server_that_is_not_there_is_lost(tmp_path: Path) -> None:
    """Nobody at a socket, and nobody at a port, is a lost connection."""
    for url in (f"mysql://a@localhost/b?unix_socket={tmp_path}/none", "mysql://a@127.0.0.1:9/b"):
        with pytest.raises(Fault) as lost:
            await MySqlDriver(options_of(url, "shown"), "shown").connect()
        assert lost.value.trouble is Trouble.LOST


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"\x01\x00\x00\x00\x0a",
        b"\x05\x00\x00\x000.0\x00\x00",
        b"\x0b\x00\x00\x00\x0a10.11\x00\x01\x00\x00\x00",
        b"\x03\x00\x00\x00\xff\x10\x04",
        b"\xff\xff\xff\x00" + b"\x00" * 64,
    ],
)
async def test_what_is_no_mysql_server_is_lost(said: bytes) -> None:
    """Whatever answers in another language, or ends in the middle, is a connection that failed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        url = f"mysql://a@127.0.0.1:{other.sockets[0].getsockname()[1]}/b"
        with pytest.raises(Fault) as lost:
            await MySqlDriver(options_of(url, "shown"), "shown").connect()
        assert lost.value.trouble is Trouble.LOST


async def test_a_password_of_any_letters_is_understood() -> None:
    """A password outside of Latin-1, and with a URL's own letters, connects."""
    word = "пароль 密码 @/:%?#"
    server().sql(
        f"CREATE OR REPLACE USER 'wide'@'127.0.0.1' IDENTIFIED BY '{word}'",
        "GRANT SELECT ON mysql.* TO 'wide'@'127.0.0.1'",
    )
    async with connected(server().tcp_url("mysql", user="wide", word=word), tables=False) as db:
        assert await db.fetch("SELECT CURRENT_USER()") == (("wide@127.0.0.1",),)


@pytest.mark.parametrize(
    ("number", "said", "expected"),
    [
        (1040, "Too many connections", Trouble.LOST),
        (1205, "Lock wait timeout exceeded", Trouble.BUSY),
        (1114, "The table is full", Trouble.FULL),
        (1030, 'Got error 28 "No space left on device" from storage engine', Trouble.FULL),
        (1030, 'Got error 126 "Index is corrupted" from storage engine', Trouble.OTHER),
        (1290, "The server is running with the --read-only option", Trouble.READ_ONLY),
        (1064, "You have an error in your SQL syntax", Trouble.OTHER),
        (None, "what the driver itself says", Trouble.OTHER),
    ],
)
def test_errors_are_known_by_their_numbers(number: int, said: str, expected: Trouble) -> None:
    """What a server says with a number is translated into our words."""
    assert trouble_of(number, said) is expected


# -- URLs --------------------------------------------------------------------------------------


def test_a_url_says_how_to_connect() -> None:
    """Names and passwords are decoded, and what is not said has its usual value."""
    assert options_of("mysql://a%40b:p%2Fw@[::1]:3307/d%20b", "") == {
        "host": "::1",
        "port": 3307,
        "unix_socket": None,
        "user": "a@b",
        "password": b"p/w",
        "database": "d b",
        "ssl": None,
    }
    assert options_of("mariadb:///db?unix_socket=/run/s", "")["unix_socket"] == "/run/s"
    assert options_of("mysql://host/db", "")["port"] == 3306


@pytest.mark.parametrize(
    ("query", "names_checked", "verified"),
    [
        ("ssl-mode=REQUIRED", False, ssl.CERT_NONE),
        ("ssl-mode=verify_ca&ssl-ca={ca}", False, ssl.CERT_REQUIRED),
        ("ssl-ca={ca}", True, ssl.CERT_REQUIRED),
        ("ssl-mode=VERIFY_IDENTITY", True, ssl.CERT_REQUIRED),
    ],
)
def test_tls_is_as_asked_for(query: str, names_checked: bool, verified: ssl.VerifyMode) -> None:  # noqa: FBT001 - a parameter of the test
    """TLS options have the names and meanings of MySQL's programs."""
    authorities = ssl.get_default_verify_paths().cafile or os.devnull
    context = options_of(f"mysql://h/d?{query.format(ca=authorities)}", "")["ssl"]
    assert (context.check_hostname, context.verify_mode) == (names_checked, verified)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://a:{word}@host", "names no database"),
        ("mysql://a:{word}@host:many/db", "expected mysql://"),
        ("mysql://a:{word}@host/db?ssl-mode=PREFERRED", "ssl-mode to be one of DISABLED"),
        ("mysql://a:{word}@host/db?ssl-ca=/none", "TLS options cannot be used"),
        ("mysql://a:{word}@host/db?charset=latin1", "unknown option 'charset'"),
    ],
)
def test_a_url_that_says_something_else_is_refused(url: str, said: str) -> None:
    """What cannot be meant is refused by name, and without the password."""
    with pytest.raises(InvalidStoreUrl, match=said) as refused:
        options_of(url.format(word="secret"), "mysql://a:***@host")
    assert "secret" not in str(refused.value)
