"""URLs of database servers: what they say, and what is never said of them."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path

import anyio
import pytest

from tests.servers import postgres
from turnlog.errors import InvalidStoreUrl, StoreError
from turnlog.stores import open_store
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.postgres.sockets import hold
from turnlog.stores.postgres.urls import parts_of
from turnlog.stores.server.urls import masked, shown

WORD = "canary"

#: With a password that a URL cannot have as it is.
UNESCAPED = [
    "postgresql://u:a/canary@h/db",
    "postgresql://u:12/canary@h/db",
    "mysql://u:p#canary@h/db",
    "mysql://u:p?canary@h/db",
    "mysql://u:12/canary@h/db",
    "mysql://u:12?canary@h/db",
    "postgresql://u:can@ary/canary@h/db",
    "postgresql://u:canary@[h/db",
    "mysql://[u:canary@h/db",
    "postgresql://u:canary@h:99999/db",
    "mysql://u:canary@h:many/db",
    "postgresql://h/db?password=a&canary",
    "postgresql://h/db?password=a#canary",
    "mysql://u:canary@h/db?ssl-mode",
]
#: Of another shape than a server's URL has.
MISSHAPEN = [
    "postgresql://h:canary/db",
    "postgresql:u:canary@h/db",
    "mysql:/u:canary@h/db",
    "u:canary@h/db",
    "postgresqlx://u:canary@h/db",
]


def refusal(url: str) -> InvalidStoreUrl:
    """Why a URL is not opened."""
    with pytest.raises(InvalidStoreUrl) as refused:
        open_store(url)
    return refused.value


def connect(url: str) -> None:
    """Open a store, and close it."""

    async def work() -> None:
        async with open_store(url):
            pass

    anyio.run(work)


@pytest.mark.parametrize("url", [*UNESCAPED, *MISSHAPEN])
def test_no_piece_of_a_password_is_shown(url: str) -> None:
    """A URL that cannot be read is shown without what may be a password; tracebacks have none."""
    error = refusal(url)
    assert WORD not in "".join(traceback.format_exception(error))
    assert "***" in str(error)


@pytest.mark.parametrize("url", UNESCAPED)
def test_what_is_to_be_escaped_is_said(url: str) -> None:
    """Together with what was expected."""
    assert "/ %2F" in str(refusal(url))
    assert "expected" in str(refusal(url))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me@tenant:canary@h/db", "postgresql://me@tenant:***@h/db"),
        ("postgresql://h:5432/db?password=canary@x", "postgresql://h:***"),
        ("postgresql://h/db?password=canary&more&x=1", "postgresql://h/db?password=***&x=1"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
        (
            "postgresql://u@h:1,h2:2/db?sslmode=require",
            "postgresql://u@h:1,h2:2/db?sslmode=require",
        ),
        ("mysql://u:***@h/db", "mysql://u:***@h/db"),
        ("redis:somewhere", "redis:somewhere"),
        ("jsonl:/a:b@c", "jsonl:/a:b@c"),
    ],
)
def test_a_url_is_shown_as_it_is_but_for_passwords(url: str, expected: str) -> None:
    """And where it cannot be told what is one, less is shown."""
    assert shown(url) == expected


def test_urls_in_a_text_are_masked() -> None:
    """Those of a server that have a password; all else stays."""
    text = "no file '{}', nor http://h:80/v1: see mysql://USER@HOST:PORT/DB, a@b.c (12:30)"
    said = masked(text.format("--store=mysql://u:canary@h/db"))
    assert said == text.format("--store=mysql://u:***@h/db")


# -- PostgreSQL --------------------------------------------------------------------------------


def test_options_of_libpq_are_told_apart_from_settings() -> None:
    """What connecting needs, the socket's numbers, and settings of the session."""
    parts = parts_of(
        "postgresql://u@h/db?sslmode=require&connect_timeout=3&keepalives=1&keepalives_idle=7"
        "&tcp_user_timeout=900&gssencmode=disable&channel_binding=prefer&sslsni=1"
        "&load_balance_hosts=disable&fallback_application_name=x&search_path=a%20b"
    )
    assert parts.dsn == "postgresql://u@h/db?sslmode=require"
    assert parts.timeout == 3
    assert parts.sockets == {"keepalives": 1, "keepalives_idle": 7, "tcp_user_timeout": 900}
    assert parts.settings == {"search_path": "a b"}


@pytest.mark.parametrize(
    ("place", "dsn"),
    [
        ("me@tenant:p@ss@h/db", "me%40tenant:p%40ss@h/db"),
        ("[u]:p@[::1]:1/db", "%5Bu%5D:p@[::1]:1/db"),
        ("h/?password=a+b", "h?password=a%2Bb"),
        ("?connect_timeout=0", ""),
    ],
)
def test_the_place_is_written_for_the_driver(place: str, dsn: str) -> None:
    """The last @ ends a user's name and password, a + is no space, an empty name is none."""
    assert parts_of(f"postgresql://{place}").dsn == f"postgresql://{dsn}"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("channel_binding=require", "channel_binding=require cannot be had here: leave it out"),
        ("gssencmode=require", "gssencmode=require cannot be had here"),
        ("load_balance_hosts=random", "hosts are tried in their order"),
        ("hostaddr=127.0.0.1", "name the address as the host"),
        ("scram_client_key=canary", r"\*\*\*: scram_client_key cannot be had here"),
        ("connect_timeout=soon", "connect_timeout to be a whole number, got 'soon'"),
        ("port=1,many", "a port from 1 to 65535, got 'many'"),
        ("sslrootcert=/none/ca", "sslrootcert '/none/ca' cannot be read: No such file"),
        ("sslmode=verify-full&sslrootcert=system", "expected a file, such as"),
        ("sslcert=/none/cert", "sslcert '/none/cert' cannot be read"),
        ("service=shop&servicefile=/none/services", "no file of services '/none/services'"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(query: str, said: str) -> None:
    """Nothing that was asked for is silently left out."""
    with pytest.raises(InvalidStoreUrl, match=said) as refused:
        parts_of(f"postgresql://u@h/db?{query}")
    assert WORD not in str(refused.value)


def test_files_of_tls_that_the_environment_names_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where they are used."""
    monkeypatch.setenv("PGSSLROOTCERT", "/none/ca")
    with pytest.raises(InvalidStoreUrl, match="PGSSLROOTCERT '/none/ca' cannot be read"):
        parts_of("postgresql://h/db?sslmode=verify-full")
    assert parts_of("postgresql://h/db?sslmode=disable")
    assert parts_of("postgresql://h/db")


def test_a_service_is_connected_to(tmp_path: Path) -> None:
    """It says what the URL does not; one that is not there, or cannot be read, is refused."""
    on = postgres.server()
    services = tmp_path / "services"
    services.write_text(
        f"[shop]\nhost=127.0.0.1\nport={on.port}\nuser={postgres.USER}\n"
        f"dbname=postgres\npassword={postgres.PASSWORD}\n[odd]\npassword=100%{WORD}\n"
    )
    where = f"servicefile={services}&search_path={on.new_schema()}"

    with pytest.raises(InvalidStoreUrl, match="cannot be read as one") as refused:
        parts_of(f"postgresql://?service=shop&{where}")
    assert WORD not in "".join(traceback.format_exception(refused.value))
    services.write_text(services.read_text().partition("[odd]")[0])
    with pytest.raises(InvalidStoreUrl, match="no service 'none' in"):
        parts_of(f"postgresql://?service=none&{where}")
    connect(f"postgresql://?service=shop&{where}")


def test_a_socket_is_held_as_was_asked_for() -> None:
    """Numbers of libpq become options of the socket, unless it has none."""
    with socket.socket() as sock:
        hold(sock, {"keepalives_idle": 7, "keepalives_count": 0})
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 7
        hold(sock, {"keepalives": 0})
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    first, second = socket.socketpair()
    with first, second:
        hold(first, {"keepalives": 1})
        assert not first.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_the_options_of_hosted_servers_connect() -> None:
    """What they hand out is taken, all of it."""
    on = postgres.server()
    url = (
        f"{on.tcp_url(on.new_schema())}&connect_timeout=3&keepalives=1&keepalives_idle=9"
        "&gssencmode=disable&channel_binding=prefer&application_name=shop"
    )

    connect(url)


@pytest.mark.parametrize("query", ["sslmode=sometimes", "target_session_attrs=none", "host=h:x"])
def test_a_value_that_the_driver_does_not_take_is_no_fault_of_ours(query: str) -> None:
    """It is a `StoreError`, at once."""
    with pytest.raises(StoreError):
        connect(f"postgresql:///db?{query}")


# -- MySQL -------------------------------------------------------------------------------------


def test_a_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """From `MYSQL_PWD`, where the URL has none; an empty one is one."""
    assert options_of("mysql://u@h/d", "")["password"] == b""
    monkeypatch.setenv("MYSQL_PWD", "p/w ü")
    assert options_of("mysql://u@h/d", "")["password"] == "p/w ü".encode()
    assert options_of("mysql://u:q@h/d", "")["password"] == b"q"
    assert options_of("mysql://u:@h/d", "")["password"] == b""


@pytest.mark.parametrize("option", ["ssl-ca", "ssl-capath", "ssl-cert", "ssl-key"])
def test_a_file_of_tls_that_is_not_there_is_named(option: str) -> None:
    """With the option that names it."""
    others = f"&ssl-cert={os.devnull}" if option == "ssl-key" else ""
    with pytest.raises(InvalidStoreUrl, match=f"{option} '/none' of its TLS options cannot"):
        options_of(f"mysql://h/d?{option}=/none{others}", "shown")
