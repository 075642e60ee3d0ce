"""A line to a database server that fails at any message of a turn, in either direction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.servers.line import How
from tests.store_urls import SERVERS
from tests.unit.stores.server_lines import Scene, each
from tests.unit.stores.server_suite import PATIENCE
from turnlog.stores.mysql import driver as mysql
from turnlog.stores.postgres import driver as postgres

LEAST = 100  # messages that a turn has at least
LONG = pytest.mark.long
SILENCE = 0.5  # seconds that count as never

pytestmark = pytest.mark.anyio


def one_in(*steps: int) -> pytest.MarkDecorator:
    """Fail at one message of so many: of the second number in the long runs."""
    some, more = steps
    return pytest.mark.parametrize("step", [some, pytest.param(more, marks=LONG)])


@pytest.fixture(params=SERVERS)
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A line to an empty place of each server."""
    async with Scene.on(request.param) as found:
        yield found


@pytest.mark.parametrize("how", ["cut", "torn"])
@one_in(43, 1)
async def test_a_line_that_ends_once_is_not_noticed(scene: Scene, how: How, step: int) -> None:
    """Wherever a connection ends, before or within a message, the turn goes on over another."""
    async for name in each(scene, how, 1, step):
        await scene.turn(name)
        await scene.check(name)
    assert scene.line.count > LEAST


@pytest.mark.parametrize("how", ["cut", "torn"])
@one_in(47, 1)
async def test_a_line_that_ends_for_good_loses_nothing(scene: Scene, how: How, step: int) -> None:
    """Wherever it ends, the call says so, and what it was to do is done once when tried again."""
    async for name in each(scene, how, 2, step, for_good=True):
        given_back = await scene.turn_in_spite(name)
        await scene.check(name, steal=not given_back)
    assert scene.line.count > LEAST


@one_in(53, 3)
async def test_a_line_that_is_slow_costs_only_time(scene: Scene, step: int) -> None:
    """While any message is held back others read all that was acknowledged; then it goes on."""
    async for name in each(scene, "held", 3, step):
        async with held_up(scene, name):
            pass
        await scene.check(name)
    assert scene.line.count > LEAST


@one_in(53, 3)
async def test_who_is_cancelled_while_the_line_is_slow_has_all(scene: Scene, step: int) -> None:
    """A cancel at any message stores what was appended, once, and gives the session back."""
    async for name in each(scene, "held", 4, step):
        async with held_up(scene, name) as turn:
            turn.cancel()
        if scene.session is not None:
            await scene.check(name)
    assert scene.line.count > LEAST


@asynccontextmanager
async def held_up(scene: Scene, name: str) -> AsyncGenerator[anyio.CancelScope]:
    """The scope of a turn that waits for a message; afterwards it goes on to its end."""
    scope = anyio.CancelScope()

    async def turn() -> None:
        with scope:
            await scene.turn(name)
        scene.line.failed.set()  # or else it has not met the message

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await scene.line.failed.wait()
            if scene.session is not None:
                await scene.look(scene.session.durable_seq)
            yield scope
            await anyio.wait_all_tasks_blocked()
            scene.line.let_go()


@one_in(97, 7)
async def test_a_line_that_falls_silent_is_given_up(
    scene: Scene, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing comes any more and nothing ends, waiting has an end, and the turn goes on."""
    monkeypatch.setattr(postgres, "COMMAND_TIMEOUT", SILENCE)
    monkeypatch.setattr(postgres, "CONNECT_TIMEOUT", SILENCE)
    monkeypatch.setattr(mysql, "READ_TIMEOUT", SILENCE)
    monkeypatch.setattr(mysql, "CONNECT_TIMEOUT", SILENCE)
    async for name in each(scene, "deaf", 5, step):
        await scene.turn(name)
        await scene.check(name)
    assert scene.line.count > LEAST
