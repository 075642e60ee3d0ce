"""P8: bytes on disk of 10,000 messages, without and with the chunks that answers were streamed in.

The messages are those of the peers' workload; the floor is their SQLite row a message, with no ids
and no provenance. Counted is every byte of every file in the store's folder once it is closed.
Streamed is each text and each call's arguments, in deltas of 2 to 7 characters, 5 to 40 ms apart,
and committed as a writer would: every 200 ms of that time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any, TypeAlias

import anyio
from measure import NoPeer, Options, fresh, report, row, scratch, shared_peers, size_of
from turns import deltas, prose

import turnlog
from turnlog import Message, Source, Text, ToolCall
from turnlog import events as ev
from turnlog.content import Chunk, Finish, FinishReason, TextDelta, ToolCallDelta, tool_message
from turnlog.stores.live import StoredSession

FLOOR = "sqlite WAL NORMAL"
FLOOR_MORE = 15  # messages that the floor's program appends after the N it was asked for
KINDS = {"SQLite": "sqlite:{0}/s.db", "JSONL zstd": "jsonl:{0}/s?compress=zstd"}
PACE = 200  # milliseconds between two commits

Said: TypeAlias = tuple[str, str, str | None, dict[str, Any] | None]


def workload(n: int) -> list[Said]:
    """The messages as (kind, text, call id, arguments).

    Raises:
        NoPeer: the peers' programs are not here.
    """
    folder = str(shared_peers())
    sys.path.insert(0, folder)
    try:
        from bench_common import messages  # noqa: PLC0415 - found only there
    finally:
        sys.path.remove(folder)
    return messages(n)


def alike(n: int) -> list[Said]:
    """Messages of that kind, where the peers' are not at hand."""
    dice = Random(7)  # noqa: S311 - no secret
    found: list[Said] = []
    for i in range(0, n, 3):
        call = f"call_{i + 1:08d}"
        found.append(("user", prose(dice, 400), None, None))
        path = {"path": f"src/file_{i + 1}.py", "limit": 200}
        found.append(("assistant", prose(dice, 400), call, path))
        found.append(("tool", prose(dice, 400), call, None))
    return found[:n]


class Clock:
    """Time that passes as the chunks come."""

    def __init__(self) -> None:
        self.now = 1_760_000_000_000
        self._dice = Random(7)  # noqa: S311 - no secret

    def __call__(self) -> int:
        """Epoch milliseconds."""
        return self.now

    def pass_by(self) -> None:
        """The time between two chunks."""
        self.now += self._dice.randint(5, 40)


class Logging:
    """Appends the messages to a session; `streamed` says whether with their chunks."""

    def __init__(self, session: StoredSession, *, streamed: bool) -> None:
        self._session = session
        self._streamed = streamed
        self._clock = session._clock = Clock()  # noqa: SLF001 - a store's sessions have no other way
        self._dice = Random(11)  # noqa: S311 - no secret
        self._committed = self._clock.now

    async def add(self, i: int, said: Said) -> None:
        """Message number `i`; a flush when it is due."""
        kind, text, call, arguments = said
        append = self._session.append
        self._clock.pass_by()
        if kind == "user":
            append(
                "user/message",
                Message(f"m{i}", "user", (Text(text),), Source("user")),
                surface_op="append",
            )
        elif kind == "tool":
            result = ev.ToolResult(tool_message(str(call), text, id=f"m{i}"))
            append("tool/result", result, surface_op="append")
        else:
            asked = ToolCall(str(call), "read_file", json.dumps(arguments))
            chunks = [seq async for seq in self._stream(text, asked)]
            answer = Message(f"m{i}", "assistant", (Text(text), asked), Source("model", "p", "m"))
            append(
                "assistant/message",
                ev.AssistantMessage(answer),
                surface_op="append",
                source_event_seqs=chunks or None,
            )
        await self._pace()

    async def _stream(self, text: str, call: ToolCall) -> Any:
        """The seqs of an answer's chunks, as they are appended."""
        if self._streamed:
            for chunk in pieces(text, call, self._dice):
                self._clock.pass_by()
                event = self._session.append("assistant/chunk", ev.AssistantChunk(1, 1, chunk))
                yield event.seq
                await self._pace()

    async def _pace(self) -> None:
        if self._clock.now - self._committed >= PACE:
            self._committed = self._clock.now
            await self._session.flush()


def pieces(text: str, call: ToolCall, dice: Random) -> Iterator[Chunk]:
    """An answer as a provider streams it."""
    for delta in deltas(text, dice):
        yield TextDelta(0, delta)
    yield ToolCallDelta(1, call.id, call.name, "")
    for delta in deltas(call.arguments, dice):
        yield ToolCallDelta(1, call.id, None, delta)
    yield Finish(FinishReason("tool-calls"))


async def write(url: str, said: list[Said], *, streamed: bool) -> int:
    """Log the messages; how many events that were."""
    # What is written does not depend on the durability, only how often it is waited for.
    async with turnlog.open_store(url, durability="none") as store, store.session("s") as session:
        logging = Logging(session, streamed=streamed)
        for i, each in enumerate(said):
            await logging.add(i, each)
        return len(session)


def logged(url: str, said: list[Said], *, streamed: bool) -> tuple[float, int]:
    """Bytes a message of a store with these messages, and how many events it has."""
    with scratch() as folder:
        events = anyio.run(partial(write, url.format(folder), said, streamed=streamed))
        return size_of(folder) / len(said), events


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """Two rows for each kind of store."""
    n = options.size(10_000, 60)
    floor = missing = None
    with scratch() as folder:
        try:
            said = workload(n)
            command = (str(shared_peers() / "bench_floors.py"), "write", str(n), str(folder))
            floor = fresh(*command, FLOOR=FLOOR)["bytes"] / (n + FLOOR_MORE)
        except NoPeer as reason:
            said, missing = alike(n), str(reason)
    for kind, url in KINDS.items():
        bare, _ = logged(url, said, streamed=False)
        whole, events = logged(url, said, streamed=True)
        more = whole - bare
        against = f"floor {floor:.0f}: {bare / floor:.2f}x" if floor else missing
        yield row(
            "P8",
            f"bytes a message, {kind}, {n:,} messages without chunks",
            f"{bare:.0f} ({against})",
            "1x",
            met=bare <= floor if floor else None,
            bytes=bare,
            floor=floor,
        )
        yield row(
            "P8",
            f"… what all chunks add, {kind}, {events / n - 1:.0f} of them a message",
            f"{more:.0f} bytes a message"
            + (f" ({more / floor:.1%} of the floor)" if floor else f" ({missing})"),
            "15%",
            met=more / floor <= 0.15 if floor else None,
            bytes=more,
        )


if __name__ == "__main__":
    report(measure)
