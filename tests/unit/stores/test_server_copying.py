"""Copies from every store to those on database servers, and from them to every store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from tests.store_urls import SERVERS, STORES, forget, url_of
from tests.unit.stores.test_copying import add, ends, exported, opened, write
from turnlog.testing.conformance.samples import chunk, conversation, event, header, notes, prompt

pytestmark = pytest.mark.anyio

ALL = [*STORES, *SERVERS]
PAIRS = [pair for pair in permutations(ALL, 2) if not set(SERVERS).isdisjoint(pair)]


@pytest.fixture(params=[*PAIRS, *((name, name) for name in SERVERS)], ids="-".join)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two stores, of each pair of kinds with a server's."""
    folders = tmp_path / "from", tmp_path / "to"
    for folder in folders:
        folder.mkdir()
    source, target = request.param
    yield url_of(source, folders[0]), url_of(target, folders[1])
    for folder in folders:
        forget(folder)


async def test_a_copy_between_any_two_is_exact(urls: tuple[str, str]) -> None:
    """Texts, forks, long values, chunks and hostile names end in equal exports, whoever copies."""
    long = [prompt(0, "文字 \U0001f642" * 20_000), *(chunk(seq, "piece ") for seq in range(1, 40))]
    odd = [event(0, {"\0": "\ud800"}, type_name="acme/\u00e4 ", ignorable=True, extra={"x": None})]
    async with opened(urls) as (source, target):
        await write(source, header("a", cwd="/w", extra={"x": [1]}), conversation())
        await write(source, "long", long)
        await write(source, "b \u2028/../\udc00", odd)
        await write(source, "empty", [])
        assert await source.fork("long", at=20, new_id="child") == "child"
        copied = await source.copy_to(target)
        assert len(copied) == 5
        assert set(ends(copied).values()) == {"copied"}
        await add(source, "a", notes(len(conversation()), 2))
        assert ends(await source.copy_to(target))["a"] == "continued"
        for one in copied:
            assert await exported(target, one.id) == await exported(source, one.id)
        assert set(ends(await target.copy_to(source)).values()) == {"identical"}
