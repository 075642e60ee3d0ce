"""The same log gives the same requests: after a restart, elsewhere, with tools in another order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.prefixes import elements
from tests.unit.agent.restart_child import PROMPT, runner
from turnlog import ReactLoopAgent, Session, open_store
from turnlog.content import Content, Image, Text
from turnlog.models.scripted import Call, Hang, Think

CHILD = Path(__file__).with_name("restart_child.py")
FIRST: Content = [Text("What is this?"), Image("image/png", "aGk=")]
ANSWERS: list[Any] = [
    [Think("İ"), Call("weather", {"place": "Oslo"}, id="c1"), Call("add", "{", id="c2")],
    "warm",
    ["half an ", "answer", Hang()],
]
LAST: list[Any] = [Call("add", {"b": 2, "a": 1}, id="c9"), "3"]


async def _two_turns(made: ReactLoopAgent, session: Session) -> None:
    """A turn with tools, and one that is cancelled half-way."""
    await made.run(session, FIRST)
    async with made.stream(session, "go on") as turn:
        async for event in turn:
            if event.type == "assistant/chunk" and b"answer" in event.raw:
                break


async def _stayed(folder: Path) -> list[bytes]:
    """The requests of a process that never stopped."""
    made = runner(*ANSWERS, *LAST)
    async with open_store(f"jsonl:{folder}") as store, store.session("s") as session:
        await _two_turns(made, session)
        await made.run(session, PROMPT)
    model: Any = made.model
    return model.requests


async def _left(folder: Path) -> None:
    """The same session up to its last turn, closed."""
    made = runner(*ANSWERS)
    async with open_store(f"jsonl:{folder}") as store, store.session("s") as session:
        await _two_turns(made, session)


async def test_requests_are_the_same_after_a_restart(tmp_path: Path) -> None:
    """Byte for byte, with tools registered the other way round, and they extend what was sent."""
    stayed = await _stayed(tmp_path / "stayed")
    await _left(tmp_path / "left")
    made = runner(*LAST, backwards=True)
    async with open_store(f"jsonl:{tmp_path}/left") as store, store.session("s") as session:
        await made.run(session, PROMPT)
    model: Any = made.model
    assert model.requests == stayed[3:]
    before, after = list(elements(stayed[2])), list(elements(model.requests[0]))
    assert after[: len(before)] == before


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C", "TZ": "UTC"},
        {"LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "1"},
        {"LC_ALL": "de_DE.ISO-8859-1", "TZ": "America/St_Johns", "PYTHONUTF8": "0"},
    ],
    ids=lambda variables: variables["LC_ALL"],
)
async def test_requests_are_the_same_in_another_place(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """Another process, locale, time zone and hash seed send the same bytes."""
    stayed = await _stayed(tmp_path / "stayed")
    await _left(tmp_path / "left")
    shutil.copytree(tmp_path / "left", tmp_path / "copy")
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [sys.executable, str(CHILD), f"jsonl:{tmp_path}/copy"],
        env={**os.environ, **variables, "PYTHONPATH": str(CHILD.parents[3])},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert [bytes.fromhex(line) for line in done.stdout.decode().split()] == stayed[3:]
