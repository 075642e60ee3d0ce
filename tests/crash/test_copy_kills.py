"""A process that copies a store is killed again and again: the copy goes on and becomes exact."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store_urls import DURABLE, url_of
from turnlog import Prompt, open_store
from turnlog.stores.store import Store

KILLS = 6
EVENTS = 1_500  # three kills at least are in the middle of the first session
CHILD = str(Path(__file__).with_name("copy_child.py"))


def spin(count: int) -> None:
    """Let some time pass, a different one each time."""
    for _ in range(count):
        pass


def copy_and_die(source: str, target: str, pages: int, moment: int) -> None:
    """A process that copies so many pages, and is killed a moment later."""
    child = subprocess.Popen(
        [sys.executable, CHILD, source, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(pages):
            assert child.stdout.readline(), "it ended before it was killed"
            child.stdin.write(b"\n")
            child.stdin.flush()
        spin(moment)
        child.kill()


async def make(store: Store) -> None:
    """A family of sessions, large and small, with a command that waits."""
    async with store.session("parent") as session:
        for i in range(EVENTS):
            session.add_user(f"message {i}")
    for number, at in enumerate((EVENTS // 2, EVENTS - 1)):
        await store.fork("parent", at=at, new_id=f"child-{number}")
    async with store.session("child-0") as session:
        for i in range(300):
            session.add_user(f"the child's {i}")
    await store.inbox("child-0").post(Prompt("go on", id="p"))


async def check(source: Store, target: Store) -> int:
    """Each session of the copy is whole and the beginning of its original; how many events."""
    total = 0
    async for info in target.sessions():
        mine = await source.backend.read(info.id, 0)
        stored = await target.backend.load(info.id)
        assert list(stored.damage) == []
        assert list(stored.events) == mine[: len(stored.events)]
        assert stored.header == await source.backend.header(info.id)
        total += len(stored.events)
    return total


@pytest.mark.parametrize("name", DURABLE)
async def test_a_killed_copy_goes_on(name: str, tmp_path: Path) -> None:
    """Whenever it is killed the copy is a beginning, and it ends equal to its source."""
    moments = random.Random(name)  # noqa: S311 - not for secrets
    source_url, target_url = f"jsonl:{tmp_path}/source", url_of(name, tmp_path)
    held, lives, pages = 0, 0, 0
    async with open_store(source_url) as source:
        await make(source)
        for _ in range(KILLS):
            pages += 8 + moments.randrange(20)
            copy_and_die(source_url, target_url, pages, moments.randrange(100_000))
            async with open_store(target_url) as target:
                now = await check(source, target)
            assert now >= held
            lives += now > held
            held = now
        assert lives >= KILLS // 2
        async with open_store(target_url) as target:
            copied = await source.copy_to(target)
            counts = {info.id: info.events async for info in source.sessions()}
            assert {info.id: info.events async for info in target.sessions()} == counts
            assert 0 < sum(one.events for one in copied) <= sum(counts.values()) - held
            await check(source, target)
            assert [one.command.id for one in await target.inbox("child-0").waiting()] == ["p"]
            assert {one.done for one in await source.copy_to(target)} == {"identical"}
