"""The process that the demo kills: `python -m demo.victim STORE SESSION MODEL`."""

from __future__ import annotations

import sys

import anyio

import turnlog
from demo.tools import endless_tool


async def main(store_url: str, session_id: str, model: str) -> None:
    """Run a turn whose tool never returns."""
    agent = turnlog.ReactLoopAgent(model, tools=[endless_tool()], max_output_tokens=60)
    async with (
        turnlog.open_store(store_url) as store,
        store.session(session_id) as session,
    ):
        await agent.run(session, "Send a mail to ada.", tool_choice="required")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
