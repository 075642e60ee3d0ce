"""How large the next request will be: what was last reported, and what changed since.

A pure fold; `tally` is what it keeps. A report stands for the nodes that its request had. Of what
has left the surface since, it loses its share; what has come since is added as estimated. So the
gauge is right directly after a compaction, and an estimator that is wrong by the same factor
everywhere is wrong about what is new alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from turnlog import events as ev
from turnlog.compaction.estimate import DEFAULT, Estimator, Size, header_size, message_size
from turnlog.compaction.tally import BIG, Kept, Mark, MeterState
from turnlog.content import Message, Reasoning, Text, Usage, user_message
from turnlog.records import encode

if TYPE_CHECKING:
    from turnlog.session import Session

PLAUSIBLE: Final = 3
"""By what factor an estimate may be too high: a report below that left something out."""


class MeterFold:
    """The fold behind `measure`; use it as `session.fold(METER)`."""

    def __init__(self, estimator: Estimator = DEFAULT) -> None:
        self.estimator = estimator

    def start(self) -> MeterState:
        """Before the first event."""
        return MeterState()

    def step(self, state: MeterState, event: ev.AnyEvent, /) -> MeterState:
        """After one more event."""
        state.seq = event.seq
        if event.surface_op is not None:
            self._node(state, event)
        elif event.type in _RECORDS:
            self._record(state, event)
        return state

    def _node(self, state: MeterState, event: ev.AnyEvent) -> None:
        seq, op, data = event.seq, event.surface_op, event.data
        message = event.message
        size = Size() if message is None else message_size(message, self.estimator)
        if isinstance(op, ev.Replace):
            gone = state.shadowed(event, op)
            if gone:
                state.anchors[seq] = min(state.anchors.get(node, node) for node in gone)
            state.leave(gone)
        elif isinstance(data, ev.AssistantMessage):
            mark = state.asked or state.mark(seq - 1)
            mark.answer, mark.tokens = seq, mark.tokens + size.tokens
            mark.left += size.tokens
            state.asked = None
            said = _kept_output(data)
            _take(state, mark, data.usage, seq, size.tokens if said is None else said)
        elif isinstance(data, ev.ToolResult):
            characters = sum(len(b.text) for b in data.message.content if isinstance(b, Text))
            state.results[seq] = characters
            if characters > BIG:
                state.big[seq] = characters
        if isinstance(data, ev.SystemMessage):
            state.system.add(seq)
        state.enter(seq, size)

    def _record(self, state: MeterState, event: ev.AnyEvent) -> None:
        match event.data:
            case ev.StepStart():
                state.open_step = event.seq
            case ev.StepEnd() | ev.TurnEnd():
                state.open_step = state.asked = None
            case ev.RequestHeader(header):
                state.header = prompt_key(header)
                state.fixed = header_size(header, self.estimator)
                state.model = header.config.provider, header.config.model
            case ev.RequestContext(provider, model, tokens):
                if tokens is not None and tokens > 0:
                    state.windows[provider, model] = tokens
            case ev.RequestSent("step"):
                state.asked = state.mark(event.seq)
            case ev.AssistantAttempt() as attempt:
                mark, state.asked = state.asked or state.mark(event.seq), None
                _take(state, mark, attempt.usage, event.seq, 0)
            case _:
                pass  # another request's, or a payload that has not its type's shape

    def dump(self, state: MeterState) -> dict[str, Any]:
        """The state as JSON, for `restore`; as long as the surface, whatever the log."""
        sizes = state.nodes.values()
        kept = Kept(
            self.estimator.name,
            state.seq,
            _steps(state.nodes),
            [size.tokens for size in sizes],
            [size.bytes for size in sizes],
            [size.media for size in sizes],
            list(state.anchors.items()),
            sorted(state.system),
            _steps(state.results),
            list(state.results.values()),
            state.header,
            state.fixed,
            state.model,
            [(*model, tokens) for model, tokens in state.windows.items()],
            state.asked,
            state.report,
            state.open_step,
        )
        return msgspec.to_builtins(kept)

    def restore(self, value: Any) -> MeterState:
        """The state that `dump` made JSON of.

        Raises:
            ValueError: it did not, or with another estimator.
        """
        try:
            kept = msgspec.convert(value, Kept)
        except msgspec.ValidationError as error:
            raise ValueError(f"expected the state of a meter: {error}") from None
        if kept.estimator != self.estimator.name:
            msg = f"expected sizes by {self.estimator.name!r}, got them by {kept.estimator!r}"
            raise ValueError(msg)
        state = MeterState()
        state.seq = kept.seq
        columns = kept.tokens, kept.bytes, kept.media
        sizes = map(Size._make, zip(*columns, strict=True))
        state.nodes = dict(zip(accumulate(kept.nodes), sizes, strict=True))
        state.total = Size(*map(sum, columns))
        state.anchors = dict(kept.anchors)
        state.system = set(kept.system)
        state.results = dict(zip(accumulate(kept.results), kept.characters, strict=True))
        state.big = {seq: length for seq, length in state.results.items() if length > BIG}
        state.header, state.fixed, state.model = kept.header, Size(*kept.fixed), kept.model
        state.windows = {(provider, model): tokens for provider, model, tokens in kept.windows}
        state.asked, state.report, state.open_step = kept.asked, kept.report, kept.open_step
        return state


def _steps(seqs: Iterable[int]) -> list[int]:
    """Each seq as the step from the one before, the first from 0; `accumulate` undoes it."""
    return [after - before for before, after in pairwise(chain((0,), seqs))]


_RECORDS: Final = frozenset(
    {
        "assistant/attempt",
        "request/context",
        "request/header",
        "request/sent",
        "step/end",
        "step/start",
        "turn/end",
    }
)


class Gauge(msgspec.Struct, frozen=True):
    """How large the next request will be.

    Attributes:
        tokens: its tokens.
        bytes: its bytes on the wire, roughly.
        media: its images.
        fixed: tokens of system text and tool schemas, as estimated: what compaction cannot shrink.
        reported: the provider's number that `tokens` builds on; None: it is all estimated.
        reported_at: the seq of the event that brought it.
        seq: the last event that was counted: the gauge is valid for this seq.
    """

    tokens: int
    bytes: int
    media: int
    fixed: int
    reported: int | None
    reported_at: int | None
    seq: int


def _take(state: MeterState, mark: Mark, usage: Usage | None, seq: int, answer: int) -> None:
    """Take a report, unless it says nothing: unknown is not zero, and no prompt is empty."""
    if usage is None or usage.input_tokens is None:
        return
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    prompt = usage.input_tokens + cached
    if prompt > 0:
        mark.reported, mark.at = prompt + answer, seq
        state.report = mark


def _kept_output(data: ev.AssistantMessage) -> int | None:
    """The reported tokens of what the answer left on the surface; None when not known.

    Reasoning that is not in the message does not come again. Of an interrupted answer the log has
    not all that was made.
    """
    usage = data.usage
    if usage is None or usage.output_tokens is None or data.interrupted:
        return None
    output = usage.output_tokens
    if not any(isinstance(block, Reasoning) for block in data.message.content):
        output -= usage.reasoning_tokens or 0
    return output if output > 0 else None


def prompt_key(header: ev.Header) -> str:
    """By which it is known whether two headers give the same prompt: model, system text, tools."""
    config = header.config
    parts = [config.provider, config.model, header.system, header.tools, header.extra]
    return blake2b(encode(parts), digest_size=16).hexdigest()


@lru_cache(maxsize=8)
def meter_of(estimator: Estimator) -> MeterFold:
    """The meter that uses this estimator: always the same one, so that its state is kept."""
    return METER if estimator is DEFAULT else MeterFold(estimator)


METER: Final = MeterFold()


def measure(
    session: Session,
    header: ev.Header | None = None,
    *,
    estimator: Estimator = DEFAULT,
    instruction: str | None = None,
    extra: Sequence[Message] = (),
) -> Gauge:
    """How large the next request would be; costs what is new since the last call.

    Args:
        session: the session.
        header: the header of that request; None: the one in force.
        estimator: how tokens are estimated.
        instruction: a trailing instruction that the request will have.
        extra: messages that it will have and the surface does not.
    """
    meter = meter_of(estimator)
    state = session.fold(meter)
    key, fixed = state.header, state.fixed
    if header is not None:
        if state.system:  # then system text lives there, and headers carry none
            header = replace(header, system=None)
        key = prompt_key(header)
        if key != state.header:
            fixed = header_size(header, estimator)
    tokens, reported, at = fixed.tokens + state.total.tokens, None, None
    report = state.report
    if report is not None and report.header == key:
        built = report.now() + state.total.tokens - report.left
        if built * PLAUSIBLE >= tokens:
            tokens, reported, at = built, report.reported, report.at
        else:
            tokens = -(-tokens // PLAUSIBLE)
    size = Size(tokens, fixed.bytes + state.total.bytes, state.total.media)
    coming = list(extra)
    if instruction is not None:
        coming.append(user_message(instruction))
    for message in coming:
        size = size.plus(message_size(message, estimator))
    standing = sum(state.nodes[seq].tokens for seq in state.system)
    unshrinkable = min(fixed.tokens + standing, size.tokens)
    return Gauge(*size, unshrinkable, reported, at, state.seq)
