"""One more turn in another process: `restart_child.py STORE`; prints its requests as hex."""

from __future__ import annotations

import locale
import sys
import time
from contextlib import suppress
from typing import Any

import anyio

from turnlog import ReactLoopAgent, Tool, open_store
from turnlog.models.scripted import Call, ScriptedModel

SYSTEM = "Réponds brièvement."
PROMPT = "And now? Ünïcödé \U0001f600"


def weather(place: str, days: int = 3, scale: float = 1.5) -> dict[str, Any]:
    """Say what the weather will be."""
    return {"place": place, "days": days, "scale": scale, "İstanbul": "çok"}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def runner(*answers: Any, backwards: bool = False) -> ReactLoopAgent:
    """The agent; its tools may be registered in the other order."""
    tools = [Tool(weather, examples=[{"place": "Ålesund"}]), Tool(add)]
    model = ScriptedModel(list(answers))
    return ReactLoopAgent(model, tools=tools[::-1] if backwards else tools, system=SYSTEM)


async def main(store_url: str) -> None:
    """Run the turn and print what was sent."""
    made = runner(Call("add", {"b": 2, "a": 1}, id="c9"), "3", backwards=True)
    async with open_store(store_url) as store, store.session("s") as session:
        await made.run(session, PROMPT)
    model: Any = made.model
    for body in model.requests:
        print(body.hex())  # noqa: T201 - how the parent learns it


if __name__ == "__main__":
    with suppress(locale.Error):  # where it is not installed the variables are set all the same
        locale.setlocale(locale.LC_ALL, "")
    time.tzset()
    anyio.run(main, sys.argv[1])
