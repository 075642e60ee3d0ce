"""Real processes on one JSONL store: killed, stopped, woken, many at once."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.crash.children import Children, spin
from turnlog.errors import SessionInUse
from turnlog.events import AnyEvent
from turnlog.stores.jsonl import JsonlStore
from turnlog.stores.jsonl.names import folder_name
from turnlog.stores.jsonl.scan import Scan, scan
from turnlog.stores.port import Batch
from turnlog.testing.conformance.samples import SECOND, header, prompt

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
KILLS = 100
STOPS = 25


def said(event: AnyEvent) -> str:
    """The text of a message."""
    assert event.message is not None
    return event.message.text


def checked(root: Path) -> Scan:
    """The session "a": dense and undamaged, each message where its writer put it."""
    found = scan(root / folder_name("a"), "a")
    assert found.damage == []
    assert [event.seq for event in found.events] == list(range(len(found.events)))
    assert all(said(event).split()[1] == str(event.seq) for event in found.events)
    return found


@pytest.mark.parametrize("option", ["", "?compress=zstd"])
def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path, option: str) -> None:
    """A process is killed a hundred times while it appends: what a flush acknowledged is there."""
    moments = random.Random(option)  # noqa: S311 - not for secrets
    acknowledged = 0
    with Children() as children:
        for life in range(KILLS):
            pid = children.start(f"append life{life} jsonl:{tmp_path}{option}")
            for _ in range(moments.randrange(4)):
                acknowledged = int(children.hear().split()[2])
            spin(moments.randrange(200_000))
            os.kill(pid, signal.SIGKILL)
            for line in children.gone():
                acknowledged = int(line.split()[2])
            if acknowledged:
                assert checked(tmp_path).mark.next_seq >= acknowledged
    assert acknowledged > KILLS
    if not option:
        assert sorted(tmp_path.glob("a/*.jsonl")) == [tmp_path / "a" / "1.jsonl"]


async def test_a_stopped_owner_that_wakes_hurts_nothing(tmp_path: Path) -> None:
    """An owner is stopped anywhere, robbed and woken: it is told, nothing is lost or doubled."""
    moments = random.Random(1)  # noqa: S311 - not for secrets
    texts: list[str] = []
    with Children() as children:
        for life in range(STOPS):
            store = JsonlStore(tmp_path)
            await store.open()
            pid = children.start(f"append life{life} jsonl:{tmp_path}")
            for _ in range(1 + moments.randrange(3)):
                assert children.hear().startswith("ack")
            spin(moments.randrange(200_000))
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(SessionInUse, match=f"process {pid} "):
                await store.claim("a", SECOND)
            claim = await store.claim("a", SECOND, steal=True)
            seq = await store.next_seq("a")
            mine = [prompt(seq, f"thief{life} {seq}"), prompt(seq + 1, f"thief{life} {seq + 1}")]
            assert await store.commit([Batch(claim, mine[:1])]) == [None]
            os.kill(pid, signal.SIGCONT)
            assert any(SECOND.host in line for line in children.gone() if "stale" in line)
            assert await store.commit([Batch(claim, mine[1:])]) == [None]
            await store.release(claim)
            await store.close()
            texts = [said(event) for event in checked(tmp_path).events]
            assert texts[seq:] == [said(event) for event in mine]
        for line in children.lines:
            if line.startswith("ack"):
                _, name, upto = line.split()
                assert texts[int(upto) - 1] == f"{name} {int(upto) - 1}"


def test_many_processes_open_a_new_store_at_once(tmp_path: Path) -> None:
    """Eight processes that make the same store and session at once each get their turn."""
    root = tmp_path / "new"
    with Children() as children:
        for i in range(8):
            children.ask(f"share {i} jsonl:{root}")
        said_all = children.gone()
    assert {line for line in said_all if line.startswith("ack")} == {f"ack {i}" for i in range(8)}
    assert {line for line in said_all if line.startswith("sh")} == {f"shared {i}" for i in range(8)}
    assert sum(line.startswith("second") for line in said_all) == 7
    found = scan(root / folder_name("shared"), "shared")
    assert found.damage == []
    assert sorted(map(said, found.events)) == [str(i) for i in range(8)]
    assert [event.seq for event in found.events] == list(range(8))
    for i in range(8):
        own = scan(root / folder_name(f"own-{i}"), f"own-{i}")
        assert [said(event) for event in own.events] == [str(i)]


async def test_many_processes_post_at_once(tmp_path: Path) -> None:
    """Commands that processes post at the same time are all there, once each, each in order."""
    store = JsonlStore(tmp_path)
    await store.open()
    await store.create(header("a"))
    with Children() as children:
        for i in range(4):
            children.ask(f"post {i} jsonl:{tmp_path}")
        assert len([line for line in children.gone() if line.startswith("ack")]) == 4
    queued = await store.inbox("a")
    assert [one.position for one in queued] == list(range(125))
    ids = [one.command.id for one in queued]
    assert len(set(ids)) == 125
    for i in range(4):
        ours = [command_id for command_id in ids if command_id.startswith(f"{i}-")]
        assert ours == [f"{i}-{n}" for n in range(25)]
    await store.close()
