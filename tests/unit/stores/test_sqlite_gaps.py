"""Sessions of an SQLite store whose seqs jump far ahead, as an import's may."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.store_urls import SERVERS, STORES, url_of
from tests.unit.stores.sqlite_files import opened
from turnlog.errors import InvalidHeader, StoreError
from turnlog.stores import open_store
from turnlog.stores.port import Batch
from turnlog.stores.sqlite.schema import SEQ_MASK
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import FIRST, event, header, prompt

pytestmark = pytest.mark.anyio

FAR = 1 << 35
PATIENCE = 60  # seconds, after which a test has failed


async def far_apart(store: Store) -> None:
    """A session `a` with three messages, one of them far behind the others."""
    backend = store.backend
    await backend.create(header("a"))
    claim = await backend.claim("a", FIRST)
    for start, events in (
        (0, [prompt(0, "one")]),
        (1, [prompt(FAR, "two"), prompt(FAR + 1, "three")]),
    ):
        assert await backend.commit([Batch(claim, events, start)]) == [None]
    await backend.release(claim)


@pytest.mark.parametrize("kind", [*STORES, *SERVERS])
async def test_a_long_gap_is_jumped_over(kind: str, tmp_path: Path) -> None:
    """Loading, reading, listing, following and searching end at once where 2^35 seqs are empty."""
    with anyio.fail_after(PATIENCE):
        async with open_store(url_of(kind, tmp_path)) as store:
            await far_apart(store)
            seqs = [0, FAR, FAR + 1]
            assert [e.seq for e in (await store.backend.load("a")).events] == seqs
            assert [e.seq for e in await store.backend.read("a", 0)] == seqs
            assert [e.seq for e in await store.backend.read("a", 5, FAR + 1)] == [FAR]
            assert [info.id async for info in store.sessions()] == ["a"]
            tail = store.tail("a", -1)
            assert [(await anext(tail)).seq for _ in range(3)] == seqs
            assert [hit.seq for hit in await store.search("two")] == [FAR]


async def test_a_copy_jumps_over_a_long_gap(tmp_path: Path) -> None:
    """Copying a session with 2^35 empty seqs ends, and doing it again finds nothing to do."""
    with anyio.fail_after(PATIENCE):
        async with (
            open_store(f"sqlite:{tmp_path}/a.db") as store,
            open_store(f"sqlite:{tmp_path}/b.db") as target,
        ):
            await far_apart(store)
            done = [await store.copy_to(target), await store.copy_to(target)]
            assert [copied.done for copies in done for copied in copies] == ["copied", "identical"]
            assert [e.seq for e in await target.backend.read("a", 0)] == [0, FAR, FAR + 1]


async def test_a_seed_beyond_the_last_seq_is_refused(tmp_path: Path) -> None:
    """An import with a seq that the store cannot hold is refused, and makes no session."""
    async with opened(tmp_path) as backend, Store(backend) as store:
        whole = header("a", seed_length=SEQ_MASK + 2, source_format="acme/1")
        with pytest.raises(StoreError, match="expected seqs up to"):
            await store.adopt(whole, [event(0), event(SEQ_MASK + 1)])
        assert not await backend.exists("a")


async def test_an_id_that_json_reads_as_another_is_refused(tmp_path: Path) -> None:
    """A pair of surrogates is refused as a session's id: listings would show another one."""
    async with open_store(f"sqlite:{tmp_path}/a.db") as store:
        with pytest.raises(InvalidHeader, match="surrogates"):
            async with store.session("\ud800\udc00"):
                pass
        async with store.session("\U00010000"), store.session("\udc00\ud800"):
            pass
        assert {info.id async for info in store.sessions()} == {"\U00010000", "\udc00\ud800"}


async def test_source_damage_beyond_all_seqs_counts_as_without_seqs(tmp_path: Path) -> None:
    """An import's damage up to a seq that no store has leaves the session readable."""
    huge = {"firstSeq": 1, "lastSeq": 2**63 - 1, "reason": "torn"}
    async with opened(tmp_path) as backend, Store(backend) as store:
        whole = header("a", seed_length=1, source_format="acme/1", source_damage=(huge,))
        await store.adopt(whole, [event(0)])
        session = await store.read("a")
        assert (session.next_seq, session.damage[0].first_seq) == (1, None)
