"""What a screen draws: immutable nodes with stable ids, and the changes from one state to the next.

`turnlog.views.projector` makes them from events. A node's id is that of the event that began it
(`n17`; a tool card of that message is `n17.0`), so it is the same while an answer streams and
after, live and derived again.

    Node
    ├── MessageNode     a user's message, context, system text
    ├── AnswerNode      a model's answer: one bubble, unfinished while it streams
    ├── CallNode        a tool call with its approval and its result
    ├── CompactionNode  where history was shadowed, and what
    ├── EndNode         a turn that ended otherwise than completed
    ├── PinNode         something that every compaction carries on
    ├── OpaqueNode      something on the surface that we cannot read
    └── DamageNode      a stretch of the log that was lost
"""

from __future__ import annotations

from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from turnlog.assembly import Assembly
from turnlog.content import (
    Block,
    Chunk,
    Message,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from turnlog.events import EndReason, ToolResult
from turnlog.records import Record, flatten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.events import AnyEvent

Kind: TypeAlias = Literal[
    "user", "context", "system", "assistant", "call", "compaction", "end", "pin", "opaque", "damage"
]
Status: TypeAlias = Literal[
    "streaming",  # an answer that is still coming
    "waiting",  # a call that nothing was done about yet
    "asked",  # a call or question that waits for a person
    "running",  # a call that was dispatched, a compaction that has not ended
    "settled",  # a call whose result is known, but not yet the model's
    "done",
    "interrupted",
    "error",
    "unpinned",
]


class Partial:
    """The first chunks of a stream that may still grow; equal to any other of the same chunks.

    Taking one is O(1): the pieces are shared, and assembled when `blocks` is first read.
    """

    __slots__ = ("_blocks", "_chunks", "_count")

    def __init__(self, chunks: list[Chunk], count: int) -> None:
        self._chunks = chunks  # only ever appended to
        self._count = count
        self._blocks: tuple[Block, ...] | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The content so far."""
        if self._blocks is None:
            self._blocks = Assembly(self).blocks()
        return self._blocks

    def grown(self, chunk: Chunk) -> Partial:
        """The same and one more chunk; what this one has stays as it is."""
        chunks = self._chunks if len(self._chunks) == self._count else list(self)
        chunks.append(chunk)
        return Partial(chunks, self._count + 1)

    def to_list(self) -> list[dict[str, Any]]:
        """The chunks in wire form, neighbouring deltas of one block joined."""
        return [flatten(_join(list(run))) for _, run in groupby(self, key=_run)]

    def __iter__(self) -> Iterator[Chunk]:
        return islice(self._chunks, self._count)

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partial):
            return NotImplemented
        return self._count == other._count and list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"<{self._count} chunks>"


def _run(chunk: Chunk) -> object:
    """What neighbours must have in common to be joined."""
    if isinstance(chunk, (TextDelta, ReasoningDelta)) and not chunk.extra:
        return chunk.type, chunk.index
    if isinstance(chunk, ToolCallDelta) and not chunk.extra:
        return chunk.type, chunk.index, chunk.id, chunk.name
    return object()


def _join(run: list[Chunk]) -> Chunk:
    first = run[0]
    if isinstance(first, ToolCallDelta):
        said = "".join([c.arguments_delta for c in run if isinstance(c, ToolCallDelta)])
        return msgspec.structs.replace(first, arguments_delta=said)
    if isinstance(first, (TextDelta, ReasoningDelta)):
        said = "".join([c.text for c in run if isinstance(c, (TextDelta, ReasoningDelta))])
        return msgspec.structs.replace(first, text=said)
    return first


class Node(Record, frozen=True, kw_only=True):
    """One thing on a screen.

    Attributes:
        id: unique in its session and stable.
        kind: what it is; the struct's type says which fields there are.
        seq: the event that began it.
        last_seq: the last event that it was made from.
        time: when it began, epoch milliseconds.
        status: see `Status`.
        shadows: the surface nodes (seqs) whose place it took.
        shadowed_by: the seq of the replacement because of which the model no longer sees it as
            shown here; the person still does.
    """

    id: str
    kind: Kind
    seq: int
    last_seq: int
    time: int
    status: Status = "done"
    shadows: tuple[int, ...] = ()
    shadowed_by: int | None = None


def begin(
    event: AnyEvent, kind: Kind, shadows: tuple[int, ...] = (), *, part: str = ""
) -> dict[str, Any]:
    """The fields of a node that an event begins; `part` tells those of one event apart."""
    return {
        "id": f"n{event.seq}{part}",
        "kind": kind,
        "seq": event.seq,
        "last_seq": event.seq,
        "time": event.time,
        "shadows": shadows,
    }


class MessageNode(Node, frozen=True, kw_only=True):
    """A message: `kind` user (a person's), context (no person typed it) or system."""

    message: Message


class AnswerNode(Node, frozen=True, kw_only=True):
    """A model's answer: `kind` assistant; streaming, then done or interrupted.

    Attributes:
        message: the final message; None while it streams.
        stream: the chunks so far, while it streams.
        calls: the ids of the cards of its tool calls, in call order.
    """

    turn: int | None = None
    step: int | None = None
    attempt: int | None = None
    message: Message | None = None
    stream: Partial | None = None
    usage: Usage | None = None
    calls: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[Block, ...]:
        """The blocks, as far as they are known."""
        if self.message is not None:
            return self.message.content
        return () if self.stream is None else self.stream.blocks

    def to_dict(self) -> dict[str, Any]:
        """The wire form; an unfinished answer has its `chunks`, which more may follow."""
        if self.stream is None:
            return flatten(self)
        wire: dict[str, Any] = flatten(msgspec.structs.replace(self, stream=None))
        wire["chunks"] = self.stream.to_list()
        return wire


class Approval(Record, frozen=True):
    """A question to a person and the answer: `outcome` is None until it is decided."""

    id: str
    asked: int
    reason: str | None = None
    outcome: str | None = None
    decided: int | None = None
    decision_reason: str | None = None


class CallNode(Node, frozen=True, kw_only=True):
    """A tool call: `kind` call; waiting, asked, running, settled, then done, error or interrupted.

    Attributes:
        arguments: the raw string that the model produced.
        started: the seq of its `tool/call`: the body may have run from there on.
        result: the outcome as it settled or entered; the original, also after a prune.
        result_seq: the seq of its `tool/result`; None until that entered.
        reduced: what the model reads in place of the result after a prune.
        late: what came after the call had been closed.
    """

    call_id: str
    name: str
    arguments: str
    turn: int | None = None
    step: int | None = None
    started: int | None = None
    approval: Approval | None = None
    result: ToolResult | None = None
    result_seq: int | None = None
    reduced: ToolResult | None = None
    late: ToolResult | None = None


class CompactionNode(Node, frozen=True, kw_only=True):
    """A compaction: `kind` compaction; running, done, error or interrupted.

    Attributes:
        before: `session.fork(at=before)` is the session as it was before it (-1: empty).
        message: what the model reads in place of what was shadowed.
        reversible: all that it shadowed is in the log, so that a fork brings it back.
        error: why it failed, as logged.
    """

    before: int
    compaction_id: str | None = None
    message: Message | None = None
    reversible: bool = False
    usage: Usage | None = None
    error: Any = None

    @property
    def count(self) -> int:
        """How many surface nodes it shadowed."""
        return len(self.shadows)


class EndNode(Node, frozen=True, kw_only=True):
    """A turn that ended otherwise than completed: `kind` end."""

    turn: int
    reason: EndReason


class PinNode(Node, frozen=True, kw_only=True):
    """A pin: `kind` pin; done or unpinned. `target` is the id of the pinned node, if it has one."""

    pin_id: str
    pinned: int
    target: str | None = None


class OpaqueNode(Node, frozen=True, kw_only=True):
    """An event that holds a place on the surface and that we cannot read: `kind` opaque."""

    event_type: str


class DamageNode(Node, frozen=True, kw_only=True):
    """The events `seq` … `last_seq`, which were lost: `kind` damage."""


class Change(msgspec.Struct, frozen=True):
    """One step from a state to the next; `apply` takes it.

    `op` is add (at the end), update (the node of that id, in its place) or remove. An update that
    is one more chunk of a stream also has the `chunk`.
    """

    op: Literal["add", "update", "remove"]
    node: Node
    chunk: Chunk | None = None

    def to_dict(self) -> dict[str, Any]:
        """The wire form, as small as what is new.

        {op: add|update, node} | {op: chunk, id, seq, chunk} | {op: remove, id}
        """
        if self.chunk is not None:
            node = self.node
            return {
                "op": "chunk",
                "id": node.id,
                "seq": node.last_seq,
                "chunk": flatten(self.chunk),
            }
        if self.op == "remove":
            return {"op": "remove", "id": self.node.id}
        return {"op": self.op, "node": self.node.to_dict()}


def apply(nodes: dict[str, Node], change: Change) -> None:
    """Bring a consumer's state (id to node, in order) up to date."""
    if change.op == "remove":
        del nodes[change.node.id]
    else:
        nodes[change.node.id] = change.node
