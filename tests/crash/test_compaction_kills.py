"""A process that compacts is killed at every boundary of the bracket, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest

from tests.crash.agent_kills import check_next_request
from tests.crash.compact_children import MOMENTS, SESSION, WINDOW, make_agent, name
from tests.unit.agent.scenes import assert_lawful
from turnlog import Session, ToolCall, open_store
from turnlog.commands import Prompt
from turnlog.compaction.history import compactions
from turnlog.compaction.meter import measure
from turnlog.events import AnyEvent

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL on this system")

CHILD = Path(__file__).with_name("compact_children.py")
WORDS = "plain words that take room "
SCENES = ("hand", "turn")
KILLS = [
    *[f"{how}:{what}" for what in (*MOMENTS, "compaction/end") for how in ("at", "after")],
    "stream",
]


@pytest.fixture(scope="module")
def children() -> Generator[subprocess.Popen[str]]:
    """The process that forks them."""
    command = [sys.executable, str(CHILD)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHILD.parents[2]
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def killed(children: subprocess.Popen[str], scene: str, moment: str, url: str) -> bool:
    """Play the scene in a child until it dies; False when it came to its end."""
    assert children.stdin is not None
    assert children.stdout is not None
    children.stdin.write(f"{scene} {moment} {url}\n")
    children.stdin.flush()
    said = children.stdout.readline().strip()
    assert said in ("killed", "done")
    return said == "killed"


async def begin(url: str, scene: str) -> list[AnyEvent]:
    """A session that is nearly full, with a pin and a long result; what of it is durable."""
    async with open_store(url) as store:
        async with store.session(SESSION) as session:
            for number in range(10):
                session.add_user(f"question {number}: {WORDS * 9}")
                session.add_assistant(f"answer {number}: {WORDS * 9}")
                if number == 4:
                    session.add_assistant([ToolCall("c", "look", "{}")])
                    session.add_tool_result("c", WORDS * 30)
            session.pin(2)
            session.add_user(WORDS * 140)
            assert 0.8 * WINDOW < measure(session).tokens < 1.5 * WINDOW
            found = list(session.events)
        if scene == "turn":
            await store.inbox(SESSION).post(Prompt("look at it, please"))
    return found


async def check(url: str, scene: str, before: list[AnyEvent]) -> None:
    """What a kill left is whole, with the old surface or the new one, and goes on."""
    async with open_store(url) as store, store.session(SESSION) as session:
        assert session.damage == ()
        assert list(session.events)[: len(before)] == before
        check_surface(session, before)
        started = [e for e in session.events if e.type == "compaction/start"]
        ended = [e for e in session.events if e.type == "compaction/end"]
        closers = session.repair()
        closed = [event for event in closers if event.type == "compaction/end"]
        assert len(closed) == len(started) - len(ended)
        assert [event.data.error for event in closed] == ["interrupted"] * len(closed)
        assert {each.status for each in compactions(session)} <= {"done", "interrupted"}
        assert session.repair() == []
        check_surface(session, before)
        assert_lawful(session)
        check_next_request(session)
        result = await make_agent().run(session, "go on")
        assert result.text == "yes"
        assert_lawful(session)
        check_next_request(session)
        said = [m.text for m in session.extract_chat_messages() if m.role == "user"]
        assert said.count("look at it, please") == (scene == "turn")
        assert said.count("go on") == 1
        assert await store.inbox(SESSION).waiting() == []
    async with open_store(url) as store:
        again = await store.read(SESSION)
        assert list(again.events) == list(session.events)


def check_surface(session: Session, before: list[AnyEvent]) -> None:
    """Each old message is there, or one summary that stands for it and carries the pin."""
    standing = [m for m in session.derive_messages() if m.source.kind == "compaction"]
    summarised = {
        seq
        for each in session.surface.replacements
        if session.event_at(each.seq).type == "user/message"
        for seq in each.shadowed
    }
    assert len(standing) == bool(summarised)
    for event in before:
        if event.surface_op is not None and event.seq not in summarised:
            at = session.surface.shadowed_by(event.seq)  # None, or a result that is shorter now
            assert at is None or at in session.surface or at in summarised
    pinned = session.event_at(2).data.content[0].text
    assert sum(pinned in message.text for message in session.derive_messages()) == 1


@pytest.mark.parametrize("moment", KILLS)
async def test_a_kill_at_a_boundary_of_a_compaction_loses_nothing(
    tmp_path: Path, children: subprocess.Popen[str], moment: str
) -> None:
    """By hand or in a turn: the bracket is closed, the surface the old or the new one."""
    for scene in SCENES if moment.startswith("after") else SCENES[1:]:
        url = f"sqlite:{tmp_path}/{scene}.db"
        before = await begin(url, scene)
        assert killed(children, scene, moment, url)
        async with open_store(url) as store:
            last = (await store.read(SESSION)).events[-1]
        how, _, what = moment.partition(":")
        assert (name(last) == what) == (how == "after")
        await check(url, scene, before)


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("store", ["sqlite", "jsonl"])
async def test_a_kill_after_any_event_of_it_loses_nothing(
    tmp_path: Path, children: subprocess.Popen[str], scene: str, store: str
) -> None:
    """Wherever the log ends on disk, one event after the other, until it comes to its end."""
    number = 0
    for number in count(1):
        url = f"{store}:{tmp_path}/{number}.db"
        before = await begin(url, scene)
        is_killed = killed(children, scene, f"commit:{number}", url)
        await check(url, scene, before)
        if not is_killed:
            break
    assert number > 5


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
async def test_killed_again_and_again_the_same_session_is_compacted(
    tmp_path: Path, children: subprocess.Popen[str], scene: str
) -> None:
    """Sixty kills of one session, at each moment in turn: it is whole after every one."""
    url = f"sqlite:{tmp_path}/s.db"
    for number in range(60):
        before = await grown(url, scene, number)
        killed(children, scene, KILLS[number % len(KILLS)], url)
        async with open_store(url) as store, store.session(SESSION, load="all") as session:
            assert session.damage == ()
            assert list(session.events)[: len(before)] == before
            session.repair()
            assert_lawful(session)
            check_next_request(session)


async def grown(url: str, scene: str, number: int) -> list[AnyEvent]:
    """More of a conversation, enough for another compaction."""
    async with open_store(url) as store:
        async with store.session(SESSION, load="all") as session:
            session.repair()
            for turn in range(8):
                session.add_user(f"question {number}-{turn}: {WORDS * 12}")
                session.add_assistant(f"answer {number}-{turn}: {WORDS * 12}")
            found = list(session.events)
        if scene == "turn":
            await store.inbox(SESSION).post(Prompt(f"go on {number}"))
    return found
