"""Hypothesis strategies of sessions: legal histories, mangled ones, and illegal appends.

    histories()   sessions as a loop, a person and a compactor would make them: every law holds
    mangled()     sessions that load, of messages that pair badly: orphans, doubles, empty blocks …
    illegal_appends(session)   appends that must be refused, each with its error

Needs the extra `turnlog[testing]`. Everything is deterministic: ids and times are counted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from turnlog import errors
from turnlog import events as ev
from turnlog.content import (
    Block,
    Finish,
    FinishReason,
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    ToolCall,
    user_message,
)
from turnlog.events import Replace, SessionHeader
from turnlog.records import Opaque
from turnlog.session import Session
from turnlog.testing.builders import START, Author, Counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.content import Role

Draw = st.DrawFn

HOSTILE = (
    "a\u2028b\u2029c\u0085d",
    "nul \x00 nul",
    "\ud83d",
    "half \udc00\ud800 turned",
    "line\r\nfeed\ttab\x0b\x0c\x1c",
    '"$tl.extra" \\ud800 {"run":',
    "\U0001f600 e\u0301 \ufeff",
    "x" * 300,
)
_DEEP: Any = json.loads("[" * 200 + "]" * 200)

TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=12)
SAID = TEXTS.map(lambda text: text if text.strip() else f"said {text}")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.just(_DEEP),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
UNKNOWN_BLOCKS = st.dictionaries(TEXTS, JSON, max_size=2).map(
    lambda rest: Opaque({**rest, "type": "acme-chart"})
)
EXTRA = st.none() | st.dictionaries(st.sampled_from(["cacheHint", "x"]), JSON, min_size=1)


@st.composite
def blocks(draw: Draw) -> list[Block]:
    """What a model says: text, reasoning with a signature or not, a block no one knows."""
    found: list[Block] = [Text(draw(SAID), draw(EXTRA))]
    if draw(st.booleans()):
        found.insert(0, Reasoning(draw(SAID), draw(st.none() | TEXTS)))
    if draw(st.integers(0, 4)) == 0:
        found.append(draw(UNKNOWN_BLOCKS))
    return found


@st.composite
def histories(draw: Draw, *, cut: bool = True) -> Session:
    """A legal session, cut anywhere if `cut`, else with everything closed; forks among them."""
    writer = _Writer(draw)
    for _ in range(draw(st.integers(1, 4))):
        writer.between_turns()
        writer.turn()
    writer.between_turns()
    session = writer.author.session
    if not cut or draw(st.booleans()):
        return session
    inherited = session.header.seed_length
    least = 0 if inherited is None else inherited + 1  # a child begins with its mark
    return prefix(session, draw(st.integers(least, len(session))))


def prefix(session: Session, length: int) -> Session:
    """The session as it was when it had `length` events."""
    return _reloaded(session, session.events[:length])


def _reloaded(session: Session, events: list[Any]) -> Session:
    counted = Counted(f"id{len(events)}")
    header = session.header
    return Session.from_events(header, events, clock=counted.clock, new_id=counted.new_id)


class _Writer:
    """Draws what happens next and has the author write it."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.author = Author()
        self.calls = 0
        self.header = False  # one is in force

    def maybe(self, one_in: int = 3) -> bool:
        """Yes, once in so many times."""
        return self.draw(st.integers(1, one_in)) == 1

    # -- between turns -------------------------------------------------------------------------

    def between_turns(self) -> None:
        """A few of the things that happen outside a turn."""
        actions = [self.title, self.link, self.application, self.stranger, self.fork, self.pin]
        actions += [self.compaction, self.prune, self.bare_talk, self.context]
        for action in self.draw(st.lists(st.sampled_from(actions), max_size=3)):
            action()

    def title(self) -> None:
        """A title."""
        self.author.record("session/title", ev.SessionTitle(self.draw(TEXTS)))

    def link(self) -> None:
        """A link to another session."""
        self.author.record("session/linked", ev.SessionLinked("other", "subagent"))

    def application(self) -> None:
        """An application's registered event."""
        ev.register_event_type("acme/deployed")
        self.author.record("acme/deployed", self.draw(JSON))

    def stranger(self) -> None:
        """An event of a type that no one here knows, which only loading lets in."""
        session = self.author.session
        wire: dict[str, Any] = {
            "type": "stranger/thing",
            "seq": session.next_seq,
            "time": START,
            "data": self.draw(JSON),
        }
        if self.maybe():
            wire["surfaceOp"] = "append"
        if self.maybe():
            wire["ignorable"] = True
        if self.maybe():
            wire["elsewhere"] = self.draw(JSON)
        events = [*session.events, wire]
        self.author.session = _reloaded(session, events)

    def fork(self) -> None:
        """Go on in a child that was forked anywhere."""
        session = self.author.session
        if len(session) and self.maybe():
            at = session.events[self.draw(st.integers(0, len(session) - 1))].seq
            child = session.fork(at, f"{session.id}/{at}")
            self.author = Author(child)
            self.header = False

    def context(self) -> None:
        """Context that no person typed."""
        self.author.session.add_context(self.draw(SAID))

    def pin(self) -> None:
        """A pin, now and then taken off again."""
        seqs = self.author.session.surface.seqs
        if seqs:
            name = f"pin{self.author.session.next_seq}"
            seq = self.draw(st.sampled_from(list(seqs)))
            self.author.record("context/pin", ev.ContextPin(name, seq))
            if self.maybe():
                self.author.record("context/unpin", ev.ContextUnpin(name))

    def compaction(self) -> None:
        """A compaction of a balanced range, or one that failed."""
        cuts = self._cuts()
        if len(cuts) < 2:
            return
        first, last = sorted(
            self.draw(st.lists(st.sampled_from(cuts), min_size=2, max_size=2, unique=True))
        )
        if self.maybe(4):
            self.author.record("compaction/start", ev.CompactionStart("failed"))
            failed = ev.CompactionEnd("failed", error={"code": "empty-summary"})
            self.author.record("compaction/end", failed)
        else:
            self.author.compact(first, last - 1, self.draw(SAID))

    def _cuts(self) -> list[int]:
        """Positions of the surface at which no call waits for its result."""
        found, waiting = [0], 0
        session = self.author.session
        for position, seq in enumerate(session.surface.seqs, 1):
            message = session.event_at(seq).message
            if message is not None:
                waiting += len(message.tool_calls) - (message.role == "tool")
            if not waiting:
                found.append(position)
        return found

    def prune(self) -> None:
        """A tool result made shorter."""
        session = self.author.session
        results = [s for s in session.surface.seqs if session.event_at(s).type == "tool/result"]
        if results:
            self.author.prune(self.draw(st.sampled_from(results)), self.draw(SAID))

    def bare_talk(self) -> None:
        """Messages without turns, as an adopted history has them."""
        session = self.author.session
        session.add_user(self.draw(SAID))
        calls = self._calls()
        session.add_assistant([Text(self.draw(SAID)), *calls])
        for call in calls:
            session.add_tool_result(call.id, self.draw(SAID), is_error=self.maybe())

    # -- turns ---------------------------------------------------------------------------------

    def turn(self) -> None:
        """A turn with its prompt and steps."""
        self.author.begin_turn()
        if self.maybe(6):
            self.author.end_turn("blocked")
            return
        self.author.user(self.draw(SAID))
        self.author.session.add_user([Text(self.draw(SAID), self.draw(EXTRA)), Image(url="x:y")])
        for _ in range(self.draw(st.integers(1, 3))):
            self.step()
            if self.maybe(4):
                self.draw(st.sampled_from([self.compaction, self.prune]))()
        self.author.end_turn()

    def step(self) -> None:
        """A step: attempts, an answer, its tools."""
        author = self.author
        author.begin_step()
        if self.maybe():
            author.record("inbox/accepted", ev.InboxAccepted({"type": "steer", "text": "go on"}))
        author.request(self.draw(TEXTS), header=not self.header or self.maybe(5))
        self.header = True
        while self.maybe(4):
            author.fail(author.stream([Text(self.draw(SAID))]) if self.maybe(2) else ())
            author.request(header=False)
        said = self.draw(blocks())
        calls = self._calls()
        streamed = self.maybe(2)
        chunks = author.stream([*said, *calls]) if streamed else None
        if streamed and self.maybe(6):
            kept = [b for b in said if isinstance(b, (Text, Reasoning)) and b.text.strip()]
            author.answer(kept, chunks, interrupted=True)
            calls = []
        else:
            author.answer([*said, *calls], chunks if streamed or self.maybe(2) else [])
        self.tools(calls)
        author.end_step()

    def _calls(self) -> list[ToolCall]:
        """A few calls; now and then an id is used again."""
        found: list[ToolCall] = []
        for i in range(self.draw(st.integers(0, 3))):
            self.calls += 1
            name = f"call-{i}" if self.maybe(4) else f"call{self.calls}"
            found.append(ToolCall(name, "tool", self.draw(st.just("{}") | TEXTS)))
        return found

    def tools(self, calls: list[ToolCall]) -> None:
        """Calls run in parallel; results settle in any order and enter in call order."""
        author = self.author
        running: list[ToolCall] = []
        for call in calls:
            asked = f"ask{author.session.next_seq}"
            if self.maybe(4):
                author.record("approval/asked", ev.ApprovalAsked(asked, call.name, call.id))
                outcome = self.draw(st.sampled_from(["granted", "denied"]))
                author.record("approval/decided", ev.ApprovalDecided(asked, outcome))
                if outcome == "denied":
                    continue
            if self.maybe(8):
                continue  # cancelled before it was dispatched
            author.dispatch(call)
            running.append(call)
        for call in self.draw(st.permutations(running)) if running else []:
            if self.maybe(2):
                author.settle(call, self.draw(SAID))
        for call in calls:
            author.result(call, self.draw(SAID), is_error=call not in running)
        if running and self.maybe(6):
            author.late(running[0], self.draw(SAID))


# -- mangled -----------------------------------------------------------------------------------

_IDS = st.sampled_from(["a", "b", "c"])
_ANY_BLOCK = st.one_of(
    TEXTS.map(Text),
    st.sampled_from([Text(""), Text(" \n"), Reasoning(""), Reasoning("", "sig"), Image()]),
    UNKNOWN_BLOCKS,
    st.builds(ToolCall, _IDS | st.just(""), st.sampled_from(["f", "f", "f", ""]), TEXTS),
)
_CALLING = st.lists(st.builds(ToolCall, _IDS, st.just("f"), st.just("{}")), max_size=3)
_ROLE = st.sampled_from(["user", "assistant", "assistant", "tool", "tool", "system"])
_EVENT_OF = {"user": "user/message", "assistant": "assistant/message", "tool": "tool/result"}


@st.composite
def mangled(draw: Draw, *, max_size: int = 14) -> Session:
    """Messages that pair badly, appended and replaced at will: orphans, doubles, wrong order."""
    header = SessionHeader("mangled", START)
    session = Session.from_events(header, ())
    events: list[dict[str, Any]] = []
    for seq in range(draw(st.integers(1, max_size))):
        wire = draw(_mangled_event(session, seq))
        events.append(wire)
        session = Session.from_events(header, events)
    return session


@st.composite
def _mangled_event(draw: Draw, session: Session, seq: int) -> dict[str, Any]:
    role = draw(_ROLE)
    content: list[Any] = draw(st.lists(_ANY_BLOCK, max_size=3))
    if role == "assistant":
        content += draw(_CALLING)
    message = Message(f"m{seq}", cast("Role", role), tuple(content), Source(role))
    if role == "tool":
        message = replace(
            message, tool_call_id=draw(st.none() | _IDS), is_error=draw(st.booleans())
        )
    type_name = _EVENT_OF.get(role, "system/message")
    data: Any = message if role == "user" else {"message": message.to_dict()}
    if draw(st.integers(0, 9)) == 0:
        type_name, data = "stranger/message", draw(JSON)
    seqs = list(session.surface.seqs)
    wire: dict[str, Any] = {"type": type_name, "seq": seq, "time": START, "surfaceOp": "append"}
    wire["data"] = data.to_dict() if isinstance(data, Message) else data
    if not seqs or draw(st.integers(0, 2)):
        return wire
    first = draw(st.integers(0, len(seqs) - 1))
    last = draw(st.integers(first, min(first + 4, len(seqs) - 1)))
    if type_name == "tool/result":
        results = [s for s in seqs if session.event_at(s).type == "tool/result"]
        if not results:
            return wire
        first = last = seqs.index(draw(st.sampled_from(results)))
        old = session.event_at(seqs[first]).to_dict()["data"]
        wire["data"] = {
            **old,
            "message": {**old["message"], "content": message.to_dict()["content"]},
        }
    wire["surfaceOp"] = Replace(seqs[first], seqs[last]).to_dict()
    wire["sourceEventSeqs"] = seqs[first : last + 1]
    return wire


# -- illegal -----------------------------------------------------------------------------------


class Illegal(msgspec.Struct, frozen=True):
    """An append that breaks a rule, and the error that must refuse it."""

    error: type[errors.AdmissionError]
    type_name: str
    data: Any
    surface_op: Any = None
    source_event_seqs: Any = None

    def attempt(self, session: Session) -> None:
        """Try it."""
        append: Any = session.append
        append(
            self.type_name,
            self.data,
            surface_op=self.surface_op,
            source_event_seqs=self.source_event_seqs,
        )


def illegal_appends(session: Session) -> Iterator[Illegal]:
    """Every way in which an append to this session can break a rule, each a legal one changed."""
    yield from _bad_payloads()
    yield from _bad_operations(session)
    yield from _bad_provenance(session)


def _cycle() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def _bad_payloads() -> Iterator[Illegal]:
    yield Illegal(errors.UnknownEventType, "nobody/knows", {})
    yield Illegal(errors.UnknownEventType, "turn/begin", {"turn": 1})
    unfit: list[Any] = [{"turn": "1"}, {"turn": True}, {"turn": 1.0}, {}, [], None, "turn"]
    for wrong in unfit:
        yield Illegal(errors.InvalidPayload, "turn/start", wrong)
    yield Illegal(errors.InvalidPayload, "turn/start", ev.StepStart(1, 1))
    unsound: Any = "one"
    yield Illegal(errors.InvalidPayload, "turn/start", ev.TurnStart(unsound))
    yield Illegal(errors.InvalidPayload, "user/message", {"role": "user"}, "append")
    not_json: list[Any] = [float("nan"), float("inf"), b"bytes", {"set"}, (1, 2), {1: 2}, 2**63]
    not_json += [-(2**63) - 1, object(), _cycle(), {"a": [{"b": {None: 1}}]}]
    for wrong in not_json:
        result: dict[str, Any] = {
            "message": {"id": "m", "role": "tool", "content": [], "source": {"kind": "t"}}
        }
        yield Illegal(errors.NotJson, "compaction/end", {"compactionId": "c", "error": wrong})
        yield Illegal(errors.NotJson, "compaction/end", ev.CompactionEnd("c", error=wrong))
        yield Illegal(errors.NotJson, "tool/result", {**result, "meta": wrong}, "append")
    for number in (2**63, -(2**63) - 1, 2**64):
        yield Illegal(errors.NotJson, "step/start", ev.StepStart(1, number))
        yield Illegal(errors.NotJson, "step/start", {"turn": 1, "step": number})
        chunk = ev.AssistantChunk(1, 1, Finish(FinishReason("stop"), {"state": number}))
        yield Illegal(errors.NotJson, "assistant/chunk", chunk)
    deep: Any = 1
    for _ in range(513):
        deep = [deep]
    finish = Finish(FinishReason("stop"), deep)
    yield Illegal(errors.PayloadTooDeep, "assistant/chunk", ev.AssistantChunk(1, 1, finish))
    yield Illegal(errors.PayloadTooDeep, "inbox/accepted", {"command": {"a": deep}})
    yield Illegal(errors.PayloadTooDeep, "inbox/accepted", ev.InboxAccepted({"a": deep}))
    for block in (Text(""), Reasoning("")):
        yield Illegal(errors.EmptyBlock, "user/message", user_message([block], id="e"), "append")


def _bad_operations(session: Session) -> Iterator[Illegal]:
    message, seqs = user_message("x", id="x"), list(session.surface.seqs)
    yield Illegal(errors.MissingSurfaceOp, "user/message", message)
    yield Illegal(errors.MissingSurfaceOp, "user/message", message, None, [0])
    yield Illegal(errors.UnexpectedSurfaceOp, "turn/start", ev.TurnStart(1), "append")
    whole = {"op": "replace", "start": 0, "end": 0}
    bad: list[Any] = ["prepend", 7, ["append"], {}, {"op": "replace"}, {**whole, "more": 1}]
    bad += [{**whole, "op": "append"}, {**whole, "start": "0"}, {**whole, "end": -1}]
    bad += [{**whole, "start": True}, {**whole, "start": 0.0}, Replace(-1, 0), b"append"]
    for op in bad:
        yield Illegal(errors.InvalidSurfaceOp, "user/message", message, op, [0])
    gone = next((s for s in range(session.next_seq + 2) if s not in session.surface), 0)
    for op in (Replace(gone, gone), Replace(seqs[0], gone) if seqs else Replace(gone, gone)):
        yield Illegal(errors.NotOnSurface, "user/message", message, op)
    if seqs:
        whole_op = Replace(seqs[0], seqs[-1])
        yield Illegal(errors.UncitedNodes, "user/message", message, whole_op)
        yield Illegal(errors.UncitedNodes, "user/message", message, whole_op, seqs[:-1] or None)
    if len(seqs) > 1:
        turned = Replace(seqs[-1], seqs[0])
        yield Illegal(errors.ReplaceOutOfOrder, "user/message", message, turned, seqs)
    yield from _bad_result_replacements(session, seqs)


def _bad_result_replacements(session: Session, seqs: list[int]) -> Iterator[Illegal]:
    results = [s for s in seqs if session.event_at(s).type == "tool/result"]
    others = [s for s in seqs if s not in results]
    some = ev.ToolResult(Message("r", "tool", (Text("x"),), Source("tool"), "c"))
    if len(seqs) > 1:
        op = Replace(seqs[0], seqs[1])
        yield Illegal(errors.ResultReplacesRange, "tool/result", some, op, seqs[:2])
    for seq in others[:1]:
        op = Replace(seq, seq)
        yield Illegal(errors.ResultReplacesOther, "tool/result", some, op, [seq])
    for seq in results[:1]:
        old = session.event_at(seq).data
        changed = [
            replace(old, message=replace(old.message, id="another")),
            replace(old, message=replace(old.message, is_error=not old.message.is_error)),
            replace(old, message=replace(old.message, tool_call_id="another")),
            replace(old, meta={"more": 1}),
            replace(old, error=ev.ToolError("E", "CODE")),
            replace(old, turn=(old.turn or 0) + 1),
        ]
        for data in changed:
            op = Replace(seq, seq)
            yield Illegal(errors.ResultChangesMore, "tool/result", data, op, [seq])


def _bad_provenance(session: Session) -> Iterator[Illegal]:
    message, following = user_message("x", id="x"), session.next_seq

    def citing(error: type[errors.AdmissionError], cited: Any) -> Illegal:
        return Illegal(error, "user/message", message, "append", cited)

    yield Illegal(errors.UnexpectedProvenance, "turn/start", ev.TurnStart(1), None, [0])
    for wrong in ("0", 0, {0}, [True], ["0"], [0.0], [None], b"0"):
        yield citing(errors.InvalidProvenance, wrong)
    yield citing(errors.InvalidProvenance, [-1])
    yield citing(errors.EmptyProvenance, [])
    yield citing(errors.EmptyProvenance, range(0))
    yield citing(errors.ProvenanceNotEarlier, [following])
    yield citing(errors.ProvenanceNotEarlier, [following + 10])
    yield citing(errors.ProvenanceNotEarlier, range(following + 1))
    if following:
        yield citing(errors.DuplicateProvenance, [0, 0])
