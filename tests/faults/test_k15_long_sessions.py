"""Sessions that grow: many resumes, many turns."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from tests.faults.scenes import agent
from turnlog import open_store


async def test_ten_thousand_events_over_ten_takeovers_are_no_damage(tmp_path: Path) -> None:
    """A log in ten segments is one log, whole and in order."""
    url = f"jsonl:{tmp_path}"
    async with AsyncExitStack() as stack:
        for part in range(10):
            store = await stack.enter_async_context(open_store(url, durability="none"))
            session = await stack.enter_async_context(store.session("s", steal=True))
            assert session.next_seq == part * 1_000
            for i in range(1_000):
                session.append("session/title", {"title": f"{part}-{i}", "messageSeqs": []})
            await session.flush()
    assert len(list((tmp_path / "s").glob("*.jsonl"))) == 10
    async with open_store(url) as store:
        session = await store.read("s")
        assert (len(session), session.damage) == (10_000, ())
        assert session.event_at(9_999).data.title == "9-999"
        (info,) = [info async for info in store.sessions()]
        assert (info.events, info.title, info.health) == (10_000, "9-999", "ok")


async def test_the_size_of_a_log_grows_with_its_turns_and_no_faster(tmp_path: Path) -> None:
    """The second half of the turns takes as much space as the first."""
    sizes: list[int] = []
    runner = agent(*[["the same answer"]] * 200)
    async with (
        open_store(f"jsonl:{tmp_path}", durability="none") as store,
        store.session("s") as session,
    ):
        for turn in range(200):
            await runner.run(session, "the same prompt")
            if turn in (99, 199):
                await session.flush()
                sizes.append(sum(p.stat().st_size for p in (tmp_path / "s").iterdir()))
    assert sizes[1] < 2.1 * sizes[0]
