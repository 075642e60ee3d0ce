"""Owners on a server are killed and stopped at random moments, and others take over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.agent_child import SESSION, Digest, make_agent
from tests.crash.agent_kills import Lost
from tests.crash.takeovers import judge, run
from tests.store_urls import SERVERS, url_of
from turnlog import open_store

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL and SIGSTOP")


@pytest.mark.parametrize("name", SERVERS)
async def test_another_process_takes_over(tmp_path: Path, name: str) -> None:
    """Six times: nothing acknowledged is lost, no body runs twice, who slept is told so."""
    happened = await run(url_of(name, tmp_path), tmp_path, rounds=6, lanes=3, seed=3)
    assert sum(n for what, n in happened.items() if what.startswith("SIG")) == 6


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
async def test_two_hundred_takeovers(tmp_path: Path, name: str) -> None:
    """The same, two hundred times: killed and stopped, by waiting and by stealing."""
    happened = await run(url_of(name, tmp_path), tmp_path, rounds=200, lanes=4, seed=100)
    hows = {f"{sent} {how}" for sent in ("SIGKILL", "SIGSTOP") for how in ("wait", "steal")}
    assert hows < set(happened)
    assert sum(happened[how] for how in hows) == 200
    assert happened["waited"] > 0


async def test_what_was_lost_or_run_again_is_noticed(tmp_path: Path) -> None:
    """An acknowledgement that is not true, one of too much, and a body that ran twice."""
    effects = tmp_path / "effects"
    async with open_store(url_of("sqlite", tmp_path)) as store:
        async with store.session(SESSION) as session:
            await make_agent(effects, 1).run(session, "go")
        digest = Digest()
        half = (len(session) // 2, digest.add(session.events[: len(session) // 2]))
        whole = (len(session), digest.add(session.events[len(session) // 2 :]))
        await judge(store, SESSION, effects, [whole, half])
        for false in [(half[0], whole[1]), (whole[0] + 1, whole[1])]:
            with pytest.raises(Lost, match="not what was acknowledged"):
                await judge(store, SESSION, effects, [half, false])
        token = effects.read_text().split()[0]
        with effects.open("a") as file:
            file.write(f"{token}\n")
        with pytest.raises(Lost, match="ran twice"):
            await judge(store, SESSION, effects, [whole, half])
