"""The JSONL store: a folder a session, a file an owner, a line an event.

    DIR/                      0700
      support-42/             the session's id, escaped (`names`)
        1.jsonl               the first segment: header line, then events; 2.jsonl … after `steal`
        1.lock                whoever holds its lock owns the segment (`locks`, `ownership`)
        torn-1-4711           what a crash left behind the last complete record of 1.jsonl
        inbox.jsonl           commands that wait (`inbox`)
        info.json             what a listing needs; may be deleted at any time (`listing`)

A segment of a compressing store is called `1.jsonl.zst`: the same lines, in zstd frames.
"""

from turnlog.stores.jsonl.store import JsonlStore

__all__ = ["JsonlStore"]
