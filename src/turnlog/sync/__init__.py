"""The same for synchronous code, on every store.

    with turnlog.sync.open_store("jsonl:./sessions") as store:
        with store.session("support-42") as session:
            session.add_user("hello")
            session.flush()
            result = session.run(agent.run, "What's the weather in Oslo?")

Everything is as in the async store, with nothing to await. See `Store` for threads, for what is
blocked inside a running event loop, and for what ends when.
"""

from __future__ import annotations

from turnlog.sync.session import Session
from turnlog.sync.store import Inbox, Store, open_store

__all__ = ["Inbox", "Session", "Store", "open_store"]
