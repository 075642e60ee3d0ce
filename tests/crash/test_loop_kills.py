"""A process that runs the real loop is killed at random moments, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.crash.agent_kills import check, kill_at_random
from tests.store_urls import DURABLE, url_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL on this system")

KILLS_A_SESSION = 10


async def _kill(name: str, folder: Path, seed: int, kills: int) -> None:
    """Kill the agent of one session again and again; each goes on from what the last one left."""
    dice = Random(seed)  # noqa: S311 - a test's dice
    url, effects = url_of(name, folder), folder / "effects"
    for _ in range(kills):
        acknowledged = kill_at_random(url, effects, dice)
        assert acknowledged is not None
        await check(url, effects, acknowledged, dice.randrange(2**31))


@pytest.mark.parametrize("name", ["jsonl", "sqlite"])
async def test_a_killed_agent_loses_and_repeats_nothing(tmp_path: Path, name: str) -> None:
    """What was acknowledged is there, no body ran twice, and the agent runs on: ten times."""
    await _kill(name, tmp_path, 0, KILLS_A_SESSION)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("name", DURABLE)
async def test_two_hundred_killed_agents(tmp_path: Path, name: str, seed: int) -> None:
    """The same, two hundred times on each store."""
    await _kill(name, tmp_path, seed, KILLS_A_SESSION)
