"""Workers are killed at random moments, and others go on, until each prompt is answered once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.fleet import Outcome, Plan, judge, post, run
from tests.servers.killed import Kind, private
from tests.store_urls import url_of
from turnlog import ReactLoopAgent, open_store
from turnlog.models.scripted import ScriptedModel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL on this system")


async def test_killed_workers_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    """Three of them, forty sessions: every law holds, no tool runs twice, none is forgotten."""
    plan = Plan(url_of("sqlite", tmp_path), workers=3, sessions=40, prompts=2, kills=8, seed=1)
    outcome = await run(plan, tmp_path)
    assert outcome.faults == []
    assert outcome.kills == 8
    assert outcome.bodies > 0


async def test_what_is_left_undone_is_noticed(tmp_path: Path) -> None:
    """A prompt that nobody answered, a body that ran twice, one that ran unlogged."""
    plan = Plan(url_of("sqlite", tmp_path), sessions=2, prompts=1)
    effects = tmp_path / "effects"
    effects.write_text("token\ntoken\n")
    outcome = Outcome()
    async with open_store(plan.url) as store:
        await post(store, plan)
        async with store.session(plan.names[0]) as session:
            await ReactLoopAgent(ScriptedModel(["done"])).run(session)
        await judge(store, plan, effects, outcome)
    faults = [fault.partition(": ")[::2] for fault in outcome.faults]
    name = plan.names[1]
    assert [what.partition(":")[0] for where, what in faults if where == name] == [
        "prompts",
        "accepted",
        "answers of each prompt",
        "still waits",
    ]
    assert ("a body ran 2 times", "token") in faults
    assert ("a body ran unlogged", "token") in faults
    assert len(faults) == 6


@pytest.mark.long
@pytest.mark.parametrize("store", ["jsonl", "sqlite"])
async def test_eight_workers_are_killed(tmp_path: Path, store: str) -> None:
    """The same with more of everything; enough kills to hit turns that run."""
    plan = Plan(url_of(store, tmp_path), workers=8, sessions=150, prompts=2, kills=40, seed=2)
    outcome = await run(plan, tmp_path)
    assert outcome.faults == []
    assert outcome.kills == 40
    assert outcome.cut_off > 0
    assert outcome.gone_on > 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
async def test_workers_and_their_server_are_killed(tmp_path: Path, kind: Kind) -> None:
    """The same on a server that crashes now and then, while workers are killed."""
    url, restart = private(kind)
    plan = Plan(
        url, workers=8, sessions=120, prompts=2, kills=24, restart=restart, restarts=4, seed=3
    )
    outcome = await run(plan, tmp_path)
    assert outcome.faults == []
    assert (outcome.kills, outcome.restarts) == (24, 4)
    assert outcome.cut_off > 0
    assert outcome.gone_on > 0
