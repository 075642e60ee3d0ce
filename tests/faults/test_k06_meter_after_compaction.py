"""How large the next request is, right after a compaction and after reopening."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.compacting import GOOD, WORDS, asked, engine, on, starts, talk
from tests.faults.scenes import assert_lawful
from turnlog import Message, Session, Source, Text, open_store
from turnlog.compaction.meter import METER, Gauge, measure
from turnlog.events import CompactionEnd, CompactionStart
from turnlog.testing import Used


async def test_an_old_total_starts_no_compaction_after_one_that_says_no_size() -> None:
    """Of another tool's compaction without any tokens the gauge knows what it took away."""
    session = talk(30)
    said = on(64_000, ["ok", Used(input_tokens=60_000, output_tokens=2)])
    await said.run(session, "how much is that?")
    assert measure(session).tokens > 55_000
    nodes = list(session.surface.seqs[:-2])
    session.append("compaction/start", CompactionStart("k"))
    message = Message("k", "user", (Text("what they said"),), Source("compact-checkpoint"))
    op = {"op": "replace", "start": nodes[0], "end": nodes[-1]}
    session.append("user/message", message, surface_op=op, source_event_seqs=nodes)
    session.append("compaction/end", CompactionEnd("k"))
    assert measure(session).tokens < 2_000
    made = engine(window=64_000)
    assert (await on(64_000, compaction=made).run(session, "go on")).text == "yes"
    assert asked(made) == []
    assert len(starts(session)) == 1
    assert_lawful(session)


@pytest.mark.parametrize("store", ["jsonl:{}", "sqlite:{}/s.db"])
async def test_a_reopened_session_measures_the_same(tmp_path: Path, store: str) -> None:
    """After each of some compactions: live, folded anew, and read from a store."""
    async with open_store(store.format(tmp_path)) as opened:
        for number in range(4):
            async with opened.session("s") as session:
                talk(12, session=session)
                answer = ["yes", Used(input_tokens=900 + number, output_tokens=3)]
                runner = on(4000, answer, compaction=engine(GOOD))
                await runner.run(session, f"{number}: {WORDS * 4}")
                await runner.compact(session)
                session.add_user("and what came after")
                live = measure(session)
                assert live == anew(session)
            viewed = await opened.read("s")
            assert measure(viewed) == live == anew(viewed)
            assert len(starts(viewed)) > number
            assert_lawful(viewed)


def anew(session: Session) -> Gauge:
    """The gauge of the same log, folded from its first event."""
    again = Session.from_events(session.header, session.events)
    assert METER.dump(again.fold(METER)) == METER.dump(session.fold(METER))
    return measure(again)
