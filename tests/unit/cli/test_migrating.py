"""`turnlog migrate`, and what `turnlog doctor` says of a database server."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.e2e.command import done, turnlog, write
from tests.servers import postgres
from turnlog.session import Session


@pytest.fixture
def schema() -> str:
    """An empty schema."""
    return postgres.server().new_schema()


def tables(schema: str) -> list[str]:
    """The tables in a schema."""
    return postgres.server().sql(
        f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1"  # noqa: S608
    )


def test_a_dry_run_prints_statements_and_changes_nothing(schema: str) -> None:
    """What it prints is SQL that makes the store, and nothing is made."""
    url = postgres.server().tcp_url(schema)
    printed = done("migrate", "--dry-run", "--store", url)
    assert tables(schema) == []
    assert postgres.PASSWORD not in printed.out + printed.err
    postgres.server().sql(f"SET search_path = {schema}", printed.out)
    assert "events" in tables(schema)
    assert "up to date" in done("migrate", "--dry-run", "--store", url).out


def test_the_statements_for_a_file_are_all_there_are(tmp_path: Path) -> None:
    """Run by whatever speaks SQLite, they make the store."""
    file = tmp_path / "store.db"
    file.touch()
    printed = done("migrate", "--dry-run", "--store", f"sqlite:{file}")
    db = sqlite3.connect(file)
    db.executescript(printed.out)
    db.close()
    assert "up to date" in done("migrate", "--dry-run", "--store", f"sqlite:{file}").out
    write(f"sqlite:{file}", "a", lambda session: session.add_user("hello"))
    assert "hello" in done("show", "a", "--store", f"sqlite:{file}").out


def test_it_migrates_once(schema: str) -> None:
    """It makes the tables, and says the next time that there is nothing to do."""
    url = postgres.server().url(schema)
    (first,) = done("migrate", "--store", url, "--json").values
    assert (first["before"], first["done"]) == (0, True)
    assert {"events", "sessions", "turnlog_meta"} <= set(tables(schema))
    (again,) = done("migrate", "--store", url, "--json").values
    assert (again["before"], again["statements"]) == (first["after"], [])
    assert "up to date" in done("migrate", "--store", url).out


@pytest.mark.parametrize(
    "words", [["ls"], ["show", "a"], ["verify", "--all"], ["post", "a", "hello"], ["search", "a"]]
)
def test_what_only_reads_makes_no_tables(schema: str, words: list[str]) -> None:
    """In a database that holds no store yet, as where a URL was mistyped, nothing is made."""
    refused = turnlog(*words, "--store", postgres.server().tcp_url(schema))
    assert refused.status == 1
    assert "no store at" in refused.err
    assert "it has no tables yet" in refused.err
    assert postgres.PASSWORD not in refused.err
    assert tables(schema) == []


def test_a_file_is_migrated_too(tmp_path: Path) -> None:
    """An SQLite file has a version; one that is not there is not made."""
    url = f"sqlite:{tmp_path}/store.db"
    assert "no store at" in turnlog("migrate", "--store", url).err
    assert not (tmp_path / "store.db").exists()
    write(url, "a", lambda session: session.add_user("hello"))
    assert "up to date" in done("migrate", "--store", url).out
    db = sqlite3.connect(tmp_path / "store.db")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    db.execute(f"PRAGMA user_version = {version + 1}")
    db.close()
    refused = turnlog("migrate", "--store", url)
    assert refused.status == 1
    assert f"version {version + 1}" in refused.err


def test_a_store_without_tables_is_refused(tmp_path: Path) -> None:
    """A folder has no schema, and is told so."""
    url = f"jsonl:{tmp_path}/store"
    write(url, "a", lambda session: session.add_user("hello"))
    assert "no tables" in turnlog("migrate", "--store", url).err


def test_doctor_says_how_a_server_is(schema: str) -> None:
    """Version, privileges and settings that are not safe are named, and no password."""
    server = postgres.server()
    printed = done("doctor", "--store", server.tcp_url(schema))
    assert f"in schema {schema}" in printed.out
    assert "privileges: enough" in printed.out
    assert "fsync is off" in printed.out  # as it is on the tests' server
    assert postgres.PASSWORD not in printed.out
    assert "%20" not in printed.out


def test_doctor_names_a_privilege_that_is_lacking(schema: str) -> None:
    """A role that may only read is told what to grant it."""
    server, role = postgres.server(), f"reader_{schema}"
    done("migrate", "--store", server.url(schema))
    server.sql(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    )
    printed = turnlog("doctor", "--store", server.url(schema, user=role))
    assert printed.status == 1
    assert f"IN SCHEMA {schema} TO {role}" in printed.out


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["show", "a"],
        ["export", "a"],
        ["verify", "--all"],
        ["stats", "a"],
        ["search", "sky"],
    ],
)
def test_who_may_only_read_can_look(schema: str, words: list[str]) -> None:
    """The commands that only read need no more than SELECT."""
    server, role = postgres.server(), f"reader_{schema}"
    write(server.url(schema), "a", lambda session: session.add_user("Why is the sky blue?"))
    server.sql(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    )
    seen = done(*words, "--store", server.url(schema, user=role)).out
    assert seen == done(*words, "--store", server.url(schema)).out != ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("postgres?", "no_such_db?"), "createdb"),
        (("search_path=", "search_path=no_"), "CREATE SCHEMA"),
        ((":a%20secret@", ":wrong@"), "PGPASSWORD"),
        (("turnlog:a%20secret@", "nobody_known:x@"), "PGPASSWORD"),
    ],
)
def test_doctor_says_how_to_mend_what_refuses(
    schema: str, change: tuple[str, str], said: str
) -> None:
    """What a server refuses is said with what to do about it."""
    printed = turnlog("doctor", "--store", postgres.server().tcp_url(schema).replace(*change))
    assert printed.status == 1
    assert said in printed.out


def test_doctor_says_that_nobody_answers(schema: str) -> None:
    """Where no server listens, it says so."""
    printed = turnlog("doctor", "--store", postgres.server().tcp_url(schema, port=1))
    assert printed.status == 1
    assert "cannot be reached" in printed.out


def test_sessions_are_there_for_every_command(schema: str) -> None:
    """What one command wrote on a server others list, search and copy."""
    url = postgres.server().tcp_url(schema)

    def talk(session: Session) -> None:
        session.add_user("Why is the sky blue?")

    write(url, "talk", talk)
    assert "talk" in done("ls", "--store", url).out
    assert "talk #0" in done("search", "sky", "--store", url).out
    assert done("verify", "talk", "--store", url).status == 0
