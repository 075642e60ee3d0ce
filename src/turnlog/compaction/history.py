"""What was compacted: each compaction of a log, done or not, and what came of it.

Read from the events, whoever wrote them: a field that is missing, older or of another tool is
unknown, and tokens that were not logged are estimated. A compaction may have made things longer;
then its gain is negative, and that is what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec

from turnlog import jsontext
from turnlog.compaction.estimate import DEFAULT, Estimator
from turnlog.compaction.pins import is_carried
from turnlog.compaction.port import SOURCE
from turnlog.compaction.prefix import Prefixes, Replaced
from turnlog.content import Message, Text
from turnlog.events import SEED_END, CompactionSummary, RequestHeader, RequestSent
from turnlog.jsontext import is_object
from turnlog.views.usage import Tokens, answering

if TYPE_CHECKING:
    from turnlog.events import AnyEvent, ModelConfig
    from turnlog.session import Session
    from turnlog.views.usage import Prices

V = TypeVar("V")
Status: TypeAlias = Literal["done", "failed", "interrupted", "open"]
_CUT_OFF: Final = ("interrupted", "forked")  # what repair writes


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """One compaction, done or not.

    Attributes:
        number: from 0, as `fork --before-compaction` counts.
        id: as its events have it.
        start, end: the seqs of `compaction/start` and `compaction/end`, if it has ended.
        status: whether anything came of it.
        reason: why it was done, as far as the log says.
        instruction: what a person asked for.
        policy: who made the summary: a model, or rules alone.
        seq: the message that stands for the range; None if there is none.
        shadowed: the nodes it stands for, in surface order.
        pruned: the messages that were made shorter within it.
        summary: what the model reads instead, without what is pinned.
        tokens_before, tokens_after: of the next request; None while it is open.
        is_estimated: not both are logged; what is missing was estimated of the messages alone.
        tokens: of the requests that made the summary.
        cost: of the same; None where prices or tokens are not known.
        model: which one was asked.
        error: why it failed, for a person.
        broke, resent: see `prefix.Replaced`: the first break, and all of them together.
    """

    number: int
    id: str
    start: int
    end: int | None = None
    status: Status = "open"
    reason: str | None = None
    instruction: str | None = None
    policy: str | None = None
    seq: int | None = None
    shadowed: tuple[int, ...] = ()
    pruned: tuple[int, ...] = ()
    summary: str = ""
    tokens_before: int
    tokens_after: int | None = None
    is_estimated: bool = False
    tokens: Tokens = Tokens()
    cost: float | None = None
    model: str | None = None
    error: str | None = None
    broke: int | None = None
    resent: int = 0

    @property
    def gain(self) -> int | None:
        """Tokens that the next request lost; negative if it grew."""
        return None if self.tokens_after is None else self.tokens_before - self.tokens_after


def compactions(
    session: Session,
    *,
    prices: Mapping[str, Prices] | None = None,
    estimator: Estimator = DEFAULT,
) -> tuple[Compaction, ...]:
    """Every compaction of the log, in order.

    Args:
        session: with all of its events in memory.
        prices: by model, for `cost`.
        estimator: for tokens that are not logged.

    Raises:
        NotLoaded: the first events are not in memory.
    """
    prefixes, brackets = Prefixes(session, estimator), _Brackets(session)
    for event in session.events:
        replaced = prefixes.read(event)
        brackets.read(event, replaced, prefixes)
    return tuple(run.told(number, prices or {}) for number, run in enumerate(brackets.runs))


class _Run:
    """A compaction while its events are read."""

    def __init__(self, event: AnyEvent, model: str | None, total: int) -> None:
        self.seq = event.seq
        self.end: int | None = None
        self.model = model  # in force, or asked in particular
        self.before = total
        self.after: int | None = None  # while it is open
        self.message: Message | None = None
        self.replaced: list[Replaced] = []
        self.tokens = Tokens()
        self.error: Any = None
        self.logged: list[Mapping[str, Any]] = []  # the payloads, whatever their shape
        self.texts: list[str] = []

    def add(self, event: AnyEvent) -> None:
        """Take an event of the bracket."""
        wire = jsontext.decode(event.raw)
        if not is_object(wire):
            return
        self.logged.append(wire)
        if event.type == "compaction/summary":
            data = event.data
            if wire.get("policy") != "structural":  # which asks no model
                usage = data.usage if isinstance(data, CompactionSummary) else None
                self.tokens += Tokens.of(usage)
            if wire.get("error") is None:
                self.texts.append(_texts(wire.get("summary")))
            self.model = _first(str, [wire], "model") or self.model
        elif event.type == "compaction/end":
            self.error = wire.get("error")

    def told(self, number: int, prices: Mapping[str, Prices]) -> Compaction:
        """The compaction as it is shown."""
        logged = self.logged
        before, after, is_estimated = self._sizes()
        standing = next((each for each in self.replaced if each.kind == "summary"), None)
        listed = prices.get(self.model or "")
        return Compaction(
            number=number,
            id=_first(str, logged, "compactionId") or _first(str, logged, "id") or "",
            start=self.seq,
            end=self.end,
            status=self._status(),
            reason=_first(str, logged, "reason"),
            instruction=_first(str, logged, "instruction"),
            policy=_first(str, logged[::-1], "policy"),
            seq=None if standing is None else standing.seq,
            shadowed=() if standing is None else standing.shadowed,
            pruned=tuple(each.broke for each in self.replaced if each.kind == "prune"),
            summary=self._summary(),
            tokens_before=before,
            tokens_after=after,
            is_estimated=is_estimated,
            tokens=self.tokens,
            cost=None if listed is None else listed.cost(self.tokens),
            model=self.model,
            error=None if self.error is None else _said(self.error),
            broke=self.replaced[0].broke if self.replaced else None,
            resent=sum(each.resent for each in self.replaced),
        )

    def _sizes(self) -> tuple[int, int | None, bool]:
        """Tokens before and after, and whether one of them had to be estimated."""
        before = _first(int, self.logged, "tokensBefore")
        after = _first(int, self.logged, "tokensAfter")
        removed = _first(int, self.logged, "tokensRemoved")
        if before is not None and after is None and removed is not None:
            after = before - removed
        is_estimated = before is None or after is None
        before = self.before if before is None else before
        if after is None and self.after is not None:
            after = before - (self.before - self.after)
        return before, after, is_estimated

    def _status(self) -> Status:
        if self.message is not None:  # then it has happened, however the bracket was closed
            return "done"
        if self.error is not None:
            return "interrupted" if self.error in _CUT_OFF else "failed"
        return "open" if self.end is None else "done"

    def _summary(self) -> str:
        message = self.message
        if message is None:
            return ""
        if message.source.kind != SOURCE and self.texts and self.texts[-1]:
            return self.texts[-1]  # the message of another tool has a frame around it
        own = [b.text for b in message.content if isinstance(b, Text) and not is_carried(b)]
        return "\n".join(own)


class _Brackets:
    """The compactions as far as the log was read; at most one is open."""

    def __init__(self, session: Session) -> None:
        self.runs: list[_Run] = []
        self._foreign = session.header.source_length or 0
        self._open: _Run | None = None
        self._config: ModelConfig | None = None  # of the header in force

    def read(self, event: AnyEvent, replaced: Replaced | None, prefixes: Prefixes) -> None:
        """Take the next event, what it replaced, and the surface after it."""
        run = self._open
        if event.type == "compaction/start":
            self._close(None, prefixes)
            model = answering(prefixes.model, self._config)
            self._open = run = _Run(event, model, prefixes.total)
            self.runs.append(run)
            run.add(event)
        elif event.type == SEED_END and event.seq >= self._foreign:
            self._close(None, prefixes)  # one that was inherited or imported open is dead
        elif event.type == "request/header" and isinstance(event.data, RequestHeader):
            self._config = event.data.header.config
        elif run is None:
            return
        elif replaced is not None:
            run.replaced.append(replaced)
            if replaced.kind == "summary" and run.message is None:
                run.message = event.message
        elif event.type == "request/sent" and isinstance(event.data, RequestSent):
            if event.data.purpose == "compaction":
                run.model = answering(event.data.model, self._config)
        elif event.type.startswith("compaction/"):
            run.add(event)
            if event.type == "compaction/end":
                self._close(event.seq, prefixes)

    def _close(self, end: int | None, prefixes: Prefixes) -> None:
        """The bracket ends; without an end of its own it was cut off."""
        if self._open is not None:
            if end is None and self._open.error is None:
                self._open.error = _CUT_OFF[0]
            self._open.end, self._open.after = end, prefixes.total
            self._open = None


def _first(kind: type[V], payloads: Iterable[Mapping[str, Any]], key: str) -> V | None:
    """The first value of that kind under a key of payloads of any shape."""
    found = (wire.get(key) for wire in payloads)
    return next((value for value in found if type(value) is kind), None)


def _texts(blocks: Any) -> str:
    """The text of content blocks in wire form, whatever else is there."""
    parts = cast("list[Any]", blocks) if isinstance(blocks, list) else []
    texts = [
        part["text"] for part in parts if is_object(part) and isinstance(part.get("text"), str)
    ]
    return "\n".join(texts)


def _said(error: Any) -> str:
    """An error of any shape, for a person."""
    if isinstance(error, str):
        return error
    if is_object(error):
        words = [error.get("code"), error.get("message")]
        said = ": ".join(word for word in words if isinstance(word, str) and word)
        if said:
            return said
    return jsontext.encode(error).decode("utf-8", "surrogatepass")
