"""A tool with which the model reads again what was compacted away."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import anyio.to_thread

from turnlog.agent.tools import BadArguments, Tool, calling
from turnlog.compaction.recall import BUDGET, LIMIT, recall, told
from turnlog.errors import InvalidSearch, NoMessage, NoSuchEvent
from turnlog.events import AnyEvent
from turnlog.session import Session

NAME = "recall"
NOTHING = "Nothing that was said earlier holds these words. Try fewer or other ones."


@runtime_checkable
class _Stored(Protocol):
    """A session that need not have all of its events in memory."""

    async def read_events(self, start: int = 0, stop: int | None = None) -> Sequence[AnyEvent]:
        """The events with `start <= seq < stop`."""
        ...


def recall_tool(
    session: Session | None = None, *, budget: int = BUDGET, limit: int = LIMIT
) -> Tool:
    """A tool that finds what a compaction took out of sight.

    Args:
        session: the session that is searched; None: the one in which it is called.
        budget: characters of recalled text in one result, about.
        limit: messages in one result.
    """

    async def search(query: str = "", seq: int = -1, offset: int = 0) -> str:
        """Read again what was said earlier in this conversation and was summarised since.

        Args:
            query: Words that the earlier message holds; rare ones find it best.
            seq: Instead of words, the number of an event, to read it whole.
            offset: With seq, how many characters to leave out.
        """
        if (seq < 0) is (not query.strip()) or offset < 0:
            msg = "expected either query or seq, and an offset of 0 or more"
            raise BadArguments(msg)
        searched = calling.get() if session is None else session
        events = await searched.read_events() if isinstance(searched, _Stored) else None
        wanted = query if seq < 0 else seq
        find = partial(recall, searched, wanted, limit=limit, events=events)
        try:
            hits = await anyio.to_thread.run_sync(find)
        except (InvalidSearch, NoSuchEvent, NoMessage) as error:
            raise BadArguments(str(error)) from None
        return told(hits, budget, offset) or NOTHING

    return Tool(search, name=NAME)
