"""A process that is killed while a tool runs: `child.py STORE EFFECTS CALL…`.

It runs one turn on session "s"; `work("hang")` never returns.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from turnlog import ReactLoopAgent, open_store, tool
from turnlog.testing import Call, ScriptedModel


async def main(store_url: str, effects: Path, calls: list[str]) -> None:
    """Run the turn."""

    @tool(exclusive=True)
    async def work(name: str) -> str:
        """Do something that the world remembers."""
        with effects.open("a") as file:
            file.write(f"{name}\n")
        if name == "hang":
            print("hanging", flush=True)  # noqa: T201 - the signal to kill
            await anyio.sleep_forever()
        return f"{name} is done"

    script = [[Call("work", {"name": name}, id=f"call-{name}") for name in calls]]
    runner = ReactLoopAgent(ScriptedModel(script), tools=[work])
    async with open_store(store_url) as store, store.session("s") as session:
        await runner.run(session, "Do the work.")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
