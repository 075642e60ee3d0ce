"""Damage of an SQLite file that nobody has met is found by looking through it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.e2e.command import turnlog
from tests.unit.stores.sqlite_files import FILE, connected, opened, page_of, write
from turnlog.stores.sqlite.inspecting import inspect
from turnlog.stores.sqlite.schema import SEQ_BITS
from turnlog.testing.conformance.samples import event

pytestmark = pytest.mark.anyio

LONG = [event(i, {"n": i, "text": f"{i} {i * i} {i**3} " * 40}) for i in range(300)]


async def a_store(folder: Path) -> str:
    """A store with one session of some pages; its URL."""
    await write(folder, "a", LONG)
    return f"sqlite:{folder / FILE}"


def spoil(folder: Path) -> None:
    """Overwrite a page in the middle of the events, which neither a listing nor a header needs."""
    page, _ = page_of(folder, "events", (1 << SEQ_BITS) + 150)
    with connected(folder) as db:
        size = db.pragma("page_size")
    with (folder / FILE).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


async def test_a_whole_file_has_no_findings(tmp_path: Path) -> None:
    """The full-text index and the inbox included."""
    await a_store(tmp_path)
    async with opened(tmp_path) as store:
        assert await store.inspect() == []


async def test_a_page_that_went_bad_is_found(tmp_path: Path) -> None:
    """Also if all that was read since is in order."""
    await a_store(tmp_path)
    spoil(tmp_path)
    async with opened(tmp_path) as store:
        assert [info.health async for info in store.sessions()] == ["ok"]
        found = await store.inspect()
        assert found
        assert all("\n" not in line for line in found)


async def test_a_file_that_is_larger_than_wanted_is_left_alone(tmp_path: Path) -> None:
    """None says that it was not looked at, damaged or not."""
    await a_store(tmp_path)
    spoil(tmp_path)
    size = (tmp_path / FILE).stat().st_size
    async with opened(tmp_path) as store:
        assert await store.inspect(most=size - 1) is None
        assert await store.inspect(most=size)


async def test_looking_through_a_file_can_be_ended(tmp_path: Path) -> None:
    """Whoever waits is asked now and then; what that raises ends the search, not the connection."""
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise InterruptedError

    with connected(tmp_path) as db:
        db.execute("CREATE TABLE t (a PRIMARY KEY, b NOT NULL)")
        rows = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30000)"
        db.execute(f"{rows} INSERT INTO t SELECT i, i FROM n")  # noqa: S608 - constants
        with pytest.raises(InterruptedError):
            inspect(db, check)
        assert len(asked) == 2
        assert inspect(db, lambda: None) == []


# -- as doctor says it -------------------------------------------------------------------------


async def test_doctor_finds_it(tmp_path: Path) -> None:
    """With what to do about it; the exit status is 1. A whole file is said to be so."""
    url = await a_store(tmp_path)

    def file() -> tuple[int, str, str]:
        result = turnlog("doctor", "--store", url, "--json")
        (found,) = [value for value in result.values if value["check"] == "file"]
        return result.status, found["state"], found["detail"]

    status, state, detail = await anyio.to_thread.run_sync(file)
    assert (status, state, "finds no damage" in detail) == (0, "ok", True)
    await anyio.to_thread.run_sync(spoil, tmp_path)
    status, state, detail = await anyio.to_thread.run_sync(file)
    assert (status, state) == (1, "failed")
    assert detail.startswith("damaged (")
    assert "turnlog verify --all" in detail
    assert f"turnlog copy {url} NEW-URL" in detail


async def test_doctor_looks_through_a_large_file_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it says how large the file is, and how to ask."""
    url = await a_store(tmp_path)
    monkeypatch.setattr("turnlog.cli.diagnosis.MOST", 4096)

    def out(*words: str) -> str:
        return turnlog("doctor", "--store", url, *words).out

    assert "kB: turnlog doctor --deep does that" in await anyio.to_thread.run_sync(out)
    assert "SQLite finds no damage" in await anyio.to_thread.run_sync(out, "--deep")
