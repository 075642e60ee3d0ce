"""An owner that falls asleep at any message of a turn, and another that takes its session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from tests.store_urls import SERVERS
from tests.unit.stores.server_lines import Scene, each
from tests.unit.stores.server_suite import PATIENCE
from turnlog.errors import StaleWriter
from turnlog.invariants import verify
from turnlog.stores.mysql import driver as mysql
from turnlog.stores.postgres import dialect
from turnlog.stores.postgres import driver as postgres
from turnlog.stores.store import Store

SOME, MOST = 29, 3  # one message of so many, in the short and in the long runs
LEAST = 50  # messages that a turn has at least

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "step", [SOME, pytest.param(MOST, marks=pytest.mark.long)], ids=["some", "most"]
    ),
]


@pytest.fixture(params=SERVERS)
async def scene(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    """A line to an empty place of each server, where who sleeps keeps locks for a second."""
    sooner = {"idle_in_transaction_session_timeout": "1s", "lock_timeout": "2s"}
    monkeypatch.setattr(postgres, "SETTINGS", {**postgres.SETTINGS, **sooner})
    monkeypatch.setattr(dialect, "ASLEEP", 1)
    before, _, after = mysql.SETTINGS.partition(b"idle_transaction_timeout = 5")
    assert after
    monkeypatch.setattr(mysql, "SETTINGS", before + b"idle_transaction_timeout = 1" + after)
    async with Scene.on(request.param) as found:
        yield found


async def test_a_sleeping_owner_keeps_its_session_from_nobody(scene: Scene, step: int) -> None:
    """Wherever it sleeps, another has its session soon; awake it is refused, and nothing is lost.

    Where it had not begun, or was done, both do what they want to.
    """
    robbed = 0
    async with scene.store() as heir:
        async for name in each(scene, "asleep", 6, step):
            with anyio.fail_after(PATIENCE):
                robbed += await robbed_asleep(scene, heir, name)
    assert scene.line.count > LEAST
    assert robbed > 0


async def robbed_asleep(scene: Scene, heir: Store, name: str) -> bool:
    """One turn over the line, during which the heir steals its session; whether it noticed."""
    notices: list[StaleWriter] = []
    awake = True

    async def turn() -> None:
        try:
            await scene.turn(name)
        except StaleWriter as notice:
            notices.append(notice)
        scene.line.failed.set()  # or else it has not met the message

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        await scene.line.failed.wait()
        awake = not scene.line.hits
        async with heir.session(name, steal=True) as session:
            session.add_user("mine now")
        scene.line.let_go()
    assert not (awake and notices)
    assert scene.session is not None
    found = await heir.read(name, load="all")
    texts = [e.message.text for e in found.events if e.type == "user/message" and e.message]
    assert texts.count("mine now") == 1
    acknowledged = scene.session.durable_seq
    if notices:
        assert list(found.events[:acknowledged]) == list(scene.session.events[:acknowledged])
    else:
        assert all(event in found.events for event in scene.session.events)
    assert [fault for fault in verify(found) if fault.level == "fault"] == []
    return bool(notices)
