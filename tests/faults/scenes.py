"""What the faults' scenes share: agents on scripts, every dialect's judge, a process to kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from turnlog import ReactLoopAgent, Session, Tool
from turnlog.agent import Turn
from turnlog.dialects import ENCODERS, encoder
from turnlog.events import AnyEvent, Header, ModelConfig, ToolSchema
from turnlog.invariants import verify
from turnlog.proof import finding
from turnlog.testing import ScriptedModel
from turnlog.testing.providers import (
    Rule,
    check_anthropic,
    check_neutral,
    check_openai,
    require_valid,
)

CHILD = Path(__file__).with_name("child.py")
TOOL = ToolSchema("read", "Read a file.", {"type": "object"})


def at_once(retry: int, failure: object) -> float:
    """Retry without waiting."""
    del retry, failure
    return 0.0


def agent(
    *answers: Any, tools: Sequence[Tool | Callable[..., Any]] = (), **options: Any
) -> ReactLoopAgent:
    """An agent whose model answers as told."""
    return ReactLoopAgent(ScriptedModel(list(answers)), tools=tools, delay=at_once, **options)


def sent(runner: ReactLoopAgent) -> list[bytes]:
    """The bodies that the agent's model got."""
    return cast("ScriptedModel", runner.model).requests


async def until(turn: Turn, type_name: str, count: int = 1) -> None:
    """Follow a turn until that many events of the type were logged."""
    async for event in turn:
        count -= event.type == type_name
        if not count:
            return


def leap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass at once: whatever waits for less is over."""
    loop = asyncio.get_running_loop()
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + 3600)


def of_type(session: Session, type_name: str) -> list[AnyEvent]:
    """The events of one type."""
    return [event for event in session.events if event.type == type_name]


def results(session: Session) -> list[tuple[str, str, str | None]]:
    """Each tool result in log order: its call id, its text, its error code."""
    found: list[tuple[str, str, str | None]] = []
    for event in of_type(session, "tool/result"):
        message, error = event.data.message, event.data.error
        found.append((message.tool_call_id, message.text, error and error.code))
    return found


def texts(session: Session) -> list[str]:
    """What the model sees, message by message."""
    return [message.text for message in session.request_messages()]


def bodies(session: Session, at: int | None = None, instruction: str | None = None) -> list[bytes]:
    """The request that would be sent after event `at`, in every dialect."""
    messages = session.request_messages(at)
    return [
        encoder(name).encode(_header(name), messages, instruction=instruction) for name in ENCODERS
    ]


def assert_accepted(session: Session) -> None:
    """Every provider takes each request that was sent, and the next one."""
    for request in session.requests():
        _judge(session, bodies(session, request.at))
    _judge(session, bodies(session, instruction="Go on."))
    found = check_neutral([message.to_dict() for message in session.request_messages()])
    require_valid(v for v in found if v.rule != Rule.LONE_SURROGATE)


def assert_lawful(session: Session) -> None:
    """No law is broken, every request is proved, and every provider takes what is sent."""
    assert [f for f in verify(session, prove=finding) if f.level == "fault"] == []
    assert_accepted(session)


def _judge(session: Session, made: Sequence[bytes]) -> None:
    for name, body in zip(ENCODERS, made, strict=True):
        wire = json.loads(body)
        if name.startswith("anthropic"):
            found = check_anthropic(wire)
        else:
            found = check_openai(wire, "deepseek" if name.startswith("deepseek") else "openai")
        require_valid(found, f"{name} of {session.id}")


def _header(name: str) -> Header:
    provider = name.partition("@")[0].partition("-")[0]
    return Header(ModelConfig(provider, "m-1"), "Be brief.", (TOOL,))


def killed(store: str, effects: Path, *calls: str) -> None:
    """Run a turn of these calls of `work` in a process of its own; kill it when one hangs."""
    command = [sys.executable, str(CHILD), store, str(effects), *calls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        os.kill(process.pid, signal.SIGKILL)
