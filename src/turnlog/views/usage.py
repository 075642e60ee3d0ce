"""Tokens and what they cost: by step, turn and model, each event once in a family of forks.

Buckets are disjoint: uncached input, cache read, cache write, output. What a provider did not
report is unknown, never zero: each sum keeps what is known apart from how many did not say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from turnlog.content import Usage
from turnlog.events import (
    AssistantAttempt,
    AssistantMessage,
    CompactionSummary,
    ModelConfig,
    RequestHeader,
    RequestSent,
    StepStart,
    TurnStart,
)
from turnlog.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from turnlog.events import AnyEvent, SessionHeader

K = TypeVar("K")
#: Where tokens went: turn, step (None: between steps, as a compaction's may be) and model.
Place: TypeAlias = tuple[int | None, int | None, str | None]


class Count(Record, frozen=True, omit_defaults=False):
    """A sum of tokens: `known` of them, and `unknown` answers that did not say how many."""

    known: int = 0
    unknown: int = 0

    @property
    def exact(self) -> int | None:
        """The number, or None when a part of it is unknown."""
        return None if self.unknown else self.known

    @classmethod
    def of(cls, tokens: int | None) -> Count:
        """What one answer reported."""
        return _UNKNOWN if tokens is None else cls(tokens)

    def __add__(self, other: Count) -> Count:
        return Count(self.known + other.known, self.unknown + other.unknown)


_UNKNOWN = Count(0, 1)


class Tokens(Record, frozen=True, omit_defaults=False):
    """Sums over `answers`; `reasoning` is a part of `output`, all others are disjoint.

    An answer is what came back from a model: a message, a failed attempt, a summary. A request of
    which nothing came back is in `Session.requests` alone.
    """

    answers: int = 0
    input: Count = Count()
    cache_read: Count = Count()
    cache_write: Count = Count()
    output: Count = Count()
    reasoning: Count = Count()

    @property
    def total(self) -> Count:
        """All buckets; `unknown` counts the buckets that were not reported."""
        return self.input + self.cache_read + self.cache_write + self.output

    @classmethod
    def of(cls, usage: Usage | None) -> Tokens:
        """What one answer reported; None means that it reported nothing."""
        usage = Usage() if usage is None else usage
        return cls(
            1,
            Count.of(usage.input_tokens),
            Count.of(usage.cache_read_tokens),
            Count.of(usage.cache_write_tokens),
            Count.of(usage.output_tokens),
            Count.of(usage.reasoning_tokens),
        )

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.answers + other.answers,
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


class Prices(msgspec.Struct, frozen=True):
    """What a million tokens of each bucket cost, in any one currency.

    Give 0 for a bucket that is free or that a provider does not have; None is not known.
    """

    input: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    output: float | None = None

    def cost(self, tokens: Tokens) -> float | None:
        """The cost; None when a bucket that is not free, or its price, is not known."""
        buckets = (
            (tokens.input, self.input),
            (tokens.cache_read, self.cache_read),
            (tokens.cache_write, self.cache_write),
            (tokens.output, self.output),
        )
        cost = 0.0
        for count, price in buckets:
            if count == _NOTHING or price == 0:
                continue
            if price is None or count.unknown:
                return None
            cost += count.known * price / 1_000_000
        return cost


_NOTHING = Count()


class Spent:
    """An immutable account: tokens by place, summed as you ask."""

    __slots__ = ("_places",)

    def __init__(self, places: Mapping[Place, Tokens]) -> None:
        self._places = dict(places)

    @property
    def places(self) -> dict[Place, Tokens]:
        """A copy of the account itself."""
        return dict(self._places)

    @property
    def total(self) -> Tokens:
        """Everything."""
        return sum(self._places.values(), Tokens())

    @property
    def by_step(self) -> dict[tuple[int | None, int | None], Spent]:
        """By turn and step; what belongs to no step has None there."""
        return self._by(lambda place: place[:2])

    @property
    def by_turn(self) -> dict[int | None, Spent]:
        """By turn; what belongs to none is under None."""
        return self._by(lambda place: place[0])

    @property
    def by_model(self) -> dict[str | None, Spent]:
        """By model; None where the log does not name it."""
        return self._by(lambda place: place[2])

    def cost(self, prices: Mapping[str, Prices]) -> float | None:
        """The cost at these prices by model; None when any part of it is not known."""
        cost = 0.0
        for (_, _, model), tokens in self._places.items():
            listed = prices.get(model or "")
            part = None if listed is None else listed.cost(tokens)
            if part is None:
                return None
            cost += part
        return cost

    def _by(self, key: Callable[[Place], K]) -> dict[K, Spent]:
        groups: dict[K, dict[Place, Tokens]] = {}
        for place, tokens in self._places.items():
            groups.setdefault(key(place), {})[place] = tokens
        return {name: Spent(places) for name, places in groups.items()}

    def __add__(self, other: Spent) -> Spent:
        places = dict(self._places)
        for place, tokens in other._places.items():
            places[place] = places[place] + tokens if place in places else tokens
        return Spent(places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spent) and self._places == other._places

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        total = self.total
        count = total.total
        said = f"at least {count.known}" if count.unknown else str(count.known)
        said = "unknown" if count.unknown and not count.known else said
        plural = "" if total.answers == 1 else "s"
        return f"<Spent: {said} tokens in {total.answers} answer{plural}>"


class SessionUsage(msgspec.Struct, frozen=True):
    """What a session used.

    `own` is what this session asked for itself (an import's whole seed included), `inherited` what
    it shares with the session that it was forked from. Over a family of forks, the sum of every
    `own` counts each answer once.
    """

    own: Spent
    inherited: Spent

    @property
    def everything(self) -> Spent:
        """The whole log, as if nothing had been inherited."""
        return self.inherited + self.own


class Ledger:
    """The account as far as the log was read; O(1) an event."""

    __slots__ = ("_config", "_inherited", "_model", "_own", "_seed", "_step", "_taken", "_turn")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._own: dict[Place, Tokens] = {}
        self._inherited: dict[Place, Tokens] = {}
        self._turn: int | None = None
        self._step: int | None = None
        self._model: str | None = None  # that was asked last
        self._config: ModelConfig | None = None  # of the header in force
        self._taken: SessionUsage | None = None

    def snapshot(self) -> SessionUsage:
        """The account now: O(places) after a change."""
        if self._taken is None:
            self._taken = SessionUsage(Spent(self._own), Spent(self._inherited))
        return self._taken

    def add(self, event: AnyEvent) -> None:
        """Take the next event."""
        if event.type in _SPENDING:
            self._count(event, event.data)
        elif event.type in _PLACING:
            self._place(event.type, event.data)

    def _place(self, event_type: str, data: Any) -> None:
        if isinstance(data, TurnStart):
            self._turn, self._step = data.turn, None
        elif isinstance(data, StepStart):
            self._turn, self._step = data.turn, data.step
        elif isinstance(data, RequestHeader):
            self._config = data.header.config
            self._model = data.header.config.model
        elif isinstance(data, RequestSent):
            self._model = answering(data.model, self._config)
        elif event_type in ("step/end", "turn/end"):
            self._step = None
            if event_type == "turn/end":
                self._turn = None

    def _count(self, event: AnyEvent, data: Any) -> None:
        if isinstance(data, AssistantMessage):
            if event.surface_op == "append":  # else an older answer, told anew
                model = data.message.source.model or self._model
                self._spend(event, data.turn, data.step, model, data.usage)
        elif isinstance(data, AssistantAttempt):
            self._spend(event, data.turn, data.step, self._model, data.usage)
        elif isinstance(data, CompactionSummary) and data.policy != "structural":
            self._spend(event, None, None, self._model, data.usage)

    def _spend(
        self,
        event: AnyEvent,
        turn: int | None,
        step: int | None,
        model: str | None,
        usage: Usage | None,
    ) -> None:
        place = (self._turn, self._step, model) if turn is None else (turn, step, model)
        places = self._inherited if event.seq < self._seed else self._own
        tokens = Tokens.of(usage)
        places[place] = places[place] + tokens if place in places else tokens
        self._taken = None


def answering(asked: str | None, config: ModelConfig | None) -> str | None:
    """The model that a request went to, by the name that its answers have.

    A request says `provider:model`, an answer and the request's header say `model`.

    Args:
        asked: as in `RequestSent.model`.
        config: of the header in force, if there is one.
    """
    if asked is None or config is None:
        return asked
    name, _, _ = asked.partition("@")  # behind it is where the model is served
    return config.model if asked == config.model or name == _full(config) else asked


def _full(config: ModelConfig) -> str:
    return f"{config.provider}:{config.model}".partition("@")[0]


_SPENDING = frozenset({"assistant/message", "assistant/attempt", "compaction/summary"})
_PLACING = frozenset(
    {"turn/start", "turn/end", "step/start", "step/end", "request/header", "request/sent"}
)


def add_usage(used: Iterable[Usage | None]) -> Usage:
    """Usages added up, bucket by bucket; unknown where any part is, or where there is none."""
    parts = list(used)

    def total(bucket: str) -> int | None:
        values: list[int | None] = [None if one is None else getattr(one, bucket) for one in parts]
        known = [value for value in values if value is not None]
        return sum(known) if values and len(known) == len(values) else None

    uncached, output, read, written, reasoning = map(total, _BUCKETS)
    return Usage(uncached, output, read, written, reasoning)


_BUCKETS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


class UsageFold:
    """The fold behind `Session.usage`."""

    def __init__(self, header: SessionHeader) -> None:
        self._seed = inherited_length(header)

    def start(self) -> Ledger:
        """An empty account."""
        return Ledger(self._seed)

    def step(self, state: Ledger, event: AnyEvent, /) -> Ledger:
        """Feed it the next event."""
        state.add(event)
        return state


def inherited_length(header: SessionHeader) -> int:
    """How many leading events belong to the session that this one was forked from.

    An imported seed is this session's own, also where its source names a parent: that parent is the
    source's and need not be here.
    """
    parent = header.parent_session
    if parent is None or parent == (header.source or {}).get("parentSession"):
        return 0
    return header.seed_length or 0
