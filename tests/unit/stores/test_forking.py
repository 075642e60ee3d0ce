"""Forks that failed half-way, in any kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store_urls import STORES, forget, url_of
from turnlog.errors import SessionExists
from turnlog.stores import open_store
from turnlog.stores.adopting import fill
from turnlog.stores.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture(params=list(STORES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each kind of store, empty."""
    yield url_of(str(request.param), tmp_path)
    forget(tmp_path)


async def talk(store: Store) -> None:
    """A session `parent` whose turn is open."""
    async with store.session("parent") as session:
        for n in range(3):
            session.add_user(f"message {n}")
        session.append("turn/start", {"turn": 1})


@pytest.mark.parametrize("copied", [0, 2, 4])
async def test_a_fork_that_failed_is_gone_on_with(url: str, copied: int) -> None:
    """Forking again with the child's id makes the child that the first attempt did not finish."""
    async with open_store(url) as store:
        await talk(store)
        whole = await store.read(await store.fork("parent", new_id="whole"))
        child = (await store.read("parent")).fork(None, "child")
        if not await store.backend.fork(child.header, "parent", 4):
            await store.backend.create(child.header)
            await fill(store.backend, "child", child.events[:copied])
        assert await store.fork("parent", new_id="child") == "child"
        made = await store.read("child")
        assert [e.type for e in made.events] == [e.type for e in whole.events]
        assert not made.damage
        with pytest.raises(SessionExists):
            await store.fork("parent", new_id="child")


async def test_a_session_that_is_no_fork_of_the_parent_is_left_alone(url: str) -> None:
    """An id that another session has, or a fork at another event, is refused as a child's."""
    async with open_store(url) as store:
        await talk(store)
        async with store.session("other"):
            pass
        child = (await store.read("parent")).fork(1, "child")
        await store.backend.create(child.header)
        for taken in ("other", "child"):
            with pytest.raises(SessionExists):
                await store.fork("parent", new_id=taken)
            assert await store.backend.next_seq(taken) == 0
