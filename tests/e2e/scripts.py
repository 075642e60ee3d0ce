"""What the tests of `run` and `chat` share: scripts for models, and a module of tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TOOLS = '''
import time
from pathlib import Path

import anyio

from turnlog import tool

limit = 3


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(approve="ask")
def wipe(path: str) -> str:
    """Wipe a folder."""
    Path("wiped").write_text(path)
    return f"wiped {path}"


def gate(path: str) -> str:
    """Wait until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)
    return "open"


async def stubborn() -> None:
    """Work on, whoever cancels."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()
'''

HANG = {"hang": True}


def write_tools(folder: Path) -> None:
    """The module `tools` of a folder."""
    (folder / "tools.py").write_text(TOOLS)


def write_script(folder: Path, *answers: Any, repeat: bool = False) -> str:
    """A scripted model's name; each call writes another one."""
    path = folder / f"script-{len(list(folder.glob('script-*')))}.json"
    path.write_text(json.dumps({"answers": answers, "repeat": repeat}))
    return f"scripted:{path}"


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    """A step of a script that calls a tool."""
    return {"toolCall": {"name": name, "id": call_id, "arguments": arguments}}
