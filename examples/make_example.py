"""Writes the session that the README shows: `python examples/make_example.py [FOLDER]`.

An agent plans a day at the sea: a tool call, a turn that was cancelled, a crash in the middle of a
tool and its repair, a compaction, and a fork from before the compaction. The clock and the ids are
counted, so the files are the same each time.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnlog import Session, Source, Text, ToolCall, Usage, user_message
from turnlog.dialects import encoder
from turnlog.events import EndReason, Header, ModelConfig, ToolSchema
from turnlog.interop.exporting import to_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent
ENCODER = "openai@1"
PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
HEADER = Header(
    ModelConfig("openai", "parrot"),
    "You help to plan trips. Be brief.",
    (
        ToolSchema("tides", "The times of high and low water.", PLACE),
        ToolSchema("book", "Book a table for two.", PLACE),
    ),
)


class Loop:
    """What an agent's loop would log, in its order; the answers are written down here."""

    def __init__(self, session: Session, turn: int = 0) -> None:
        self.session = session
        self.turn = turn
        self.step = 0
        self.headed = False

    def begin(self, prompt: str) -> None:
        """A turn starts with what a person said."""
        self.turn, self.step = self.turn + 1, 0
        self.session.append("turn/start", {"turn": self.turn})
        self.session.add_user(prompt)

    def end(self, kind: str = "completed", **why: Any) -> None:
        """A turn ends, and says why."""
        self.session.append("turn/end", {"turn": self.turn, "reason": {"kind": kind, **why}})

    def ask(self) -> None:
        """A step starts with a request: what it says besides its messages, and its proof."""
        self.step += 1
        self.session.append("step/start", self.here())
        if not self.headed:
            self.session.append("request/header", {"header": HEADER.to_dict(), "reason": "initial"})
            self.headed = True
        body = encoder(ENCODER).encode(HEADER, self.session.request_messages())
        digest = f"sha256:{sha256(body).hexdigest()}"
        sent = {"purpose": "step", "digest": digest, "encoder": ENCODER, "model": "parrot"}
        self.session.append("request/sent", {**sent, **self.here()})

    def here(self) -> dict[str, int]:
        """Turn and step."""
        return {"turn": self.turn, "step": self.step}

    def stream(self, said: str) -> list[int]:
        """An answer's text arrives, a word or two at a time; returns the seqs of its chunks."""
        pieces = said.replace(" ", " \0").split("\0")
        chunks = ({"type": "text-delta", "index": 0, "text": piece} for piece in pieces)
        data = [{**self.here(), "chunk": chunk} for chunk in chunks]
        return [self.session.append("assistant/chunk", one).seq for one in data]

    def answer(self, said: str, *calls: ToolCall) -> None:
        """An answer is complete."""
        self.session.add_assistant(
            [*([Text(said)] if said else []), *calls],
            provider="openai",
            model="parrot",
            usage=Usage(input_tokens=90 * self.turn, output_tokens=9),
            source_event_seqs=self.stream(said) if said else None,
            **self.here(),
        )

    def start(self, call: ToolCall) -> None:
        """A tool's body is about to run."""
        data = {"callId": call.id, "name": call.name, "arguments": call.arguments}
        self.session.append("tool/call", {**data, **self.here()})

    def done(self) -> None:
        """A step ends."""
        self.session.append("step/end", self.here())


def trip() -> Session:
    """The session."""
    times, ids = count(1_760_000_000_000, 250), count(1)
    session = Session.create("trip", clock=lambda: next(times), new_id=lambda: f"m{next(ids)}")
    session.append("session/title", {"title": "A day at the sea", "source": {"kind": "user"}})
    loop = Loop(session)

    loop.begin("When is high water in Cuxhaven tomorrow?")  # a tool call
    loop.ask()
    tides = ToolCall("call-1", "tides", '{"place":"Cuxhaven"}')
    loop.answer("", tides)
    loop.start(tides)
    session.add_tool_result("call-1", "high 06:12, low 12:30, high 18:41", **loop.here())
    loop.done()
    loop.ask()
    loop.answer("High water is at 06:12 and at 18:41.")
    loop.done()
    loop.end()

    loop.begin("Tell me everything about tides.")  # cancelled half-way: what had arrived stays
    loop.ask()
    loop.stream("Tides are the rise and fall of the sea, and they come from")
    session.repair(reason="cancelled", end=EndReason("aborted", "user"))

    loop.begin("Never mind. Book a table in Cuxhaven.")  # killed while the tool was running
    loop.ask()
    book = ToolCall("call-2", "book", '{"place":"Cuxhaven"}')
    loop.answer("I will book one.", book)
    loop.start(book)
    session.repair()  # as the next process does when it opens the session

    compact(session, "The user plans a day in Cuxhaven. High water tomorrow: 06:12 and 18:41.")

    loop.begin("Did you book?")
    loop.ask()
    loop.answer("I cannot tell, I was interrupted. Shall I call them?")
    loop.done()
    loop.end()
    return session


def compact(session: Session, summary: str) -> None:
    """The first two turns, six nodes of the surface, give way to a summary of them."""
    session.append("compaction/start", {"compactionId": "c1"})
    nodes = [*session.surface.seqs[:6]]
    told = session.append("compaction/summary", {"compactionId": "c1", "shadowedSeqs": nodes})
    session.append(
        "user/message",
        user_message(summary, source=Source("compaction")),
        surface_op={"op": "replace", "start": nodes[0], "end": nodes[-1]},
        source_event_seqs=[*nodes, told.seq],
    )
    session.append("compaction/end", {"compactionId": "c1"})


def trip_again(parent: Session) -> Session:
    """The same up to the compaction, then another way."""
    started = next(e.seq for e in parent.events if e.type == "compaction/start")
    child = parent.fork(started - 1, "trip-again")
    loop = Loop(child, turn=3)
    loop.begin("Book it again, to be sure.")
    loop.ask()
    loop.answer("That could give you two tables. I would rather call.")
    loop.done()
    loop.end()
    return child


def sessions() -> Iterator[Session]:
    """The session, and its fork."""
    parent = trip()
    yield parent
    yield trip_again(parent)


def main(folder: Path = FOLDER) -> None:
    """Write them."""
    for session in sessions():
        path = folder / f"{session.id}.jsonl"
        path.write_bytes(b"".join(to_jsonl(session)))
        print(f"{path.name}: {len(session)} events")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
