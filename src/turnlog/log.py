"""The in-memory log of one session, and the one place where events are admitted.

Two admissions, one law. `append` is strict: known or registered types only. `load` takes what a
store, a seed or a file holds: it keeps a type that it does not know. Both check everything before
they change anything, and both use the same rules for surface and provenance.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, cast, overload

import msgspec

from turnlog import jsontext
from turnlog.content import Message, Text, is_empty
from turnlog.errors import (
    DuplicateProvenance,
    EmptyBlock,
    EmptyProvenance,
    InvalidEnvelope,
    InvalidProvenance,
    InvalidSurfaceOp,
    MissingSurfaceOp,
    NoSuchEvent,
    NotLoaded,
    ProvenanceNotEarlier,
    ResultChangesMore,
    ResultReplacesOther,
    ResultReplacesRange,
    SeqOutOfOrder,
    SurfaceError,
    UncitedCall,
    UncitedNodes,
    UnexpectedProvenance,
    UnexpectedSurfaceOp,
    UnknownEventType,
    UnknownProvenance,
)
from turnlog.events import (
    EVENT_TYPES,
    AnyEvent,
    DamageAcknowledged,
    Event,
    EventType,
    Replace,
    SessionHeader,
    SurfaceOp,
    ToolCallStart,
    ToolResult,
    event_type,
)
from turnlog.jsontext import is_object
from turnlog.records import freeze
from turnlog.surface import Replacement, Surface
from turnlog.upcasts import reread

MAX_RANGE = 1 << 22
"""How many seqs an event may cite that follow on each other, which take no room."""
MAX_SEQS = 1 << 20
"""How many seqs it may cite otherwise."""
_INT = {int}
_seq_of = attrgetter("seq")


class Damage(msgspec.Struct, frozen=True):
    """A stretch of a log that cannot be read; its bytes are kept where they were.

    Attributes:
        first_seq, last_seq: the seqs that are lost, inclusive; None when it is not known that
            any were (garbage between two events that follow on each other).
        offset, length: the bytes in the session's file, where there is one.
        reason: one line for a person.
        place: the file or row, for a person.
    """

    reason: str
    first_seq: int | None = None
    last_seq: int | None = None
    offset: int | None = None
    length: int | None = None
    place: str | None = None


class Base(msgspec.Struct, frozen=True):
    """What a log knows of events that it does not hold: all those before `next_seq`.

    Attributes:
        next_seq: the first seq that it holds.
        count: how many events there are before it.
        nodes: the events of the surface as it was then, in surface order.
        anchors: of those nodes that are replacements.
        generation: how many replacements there had been.
        calls: open call id -> [seqs of its tool/call and tool/settled], for each call of that id.
        unknown: see `SessionLog.unknown`.
        flagged: see `SessionLog.flagged`.
        damage: see `SessionLog.damage`; all of it was acknowledged.
        asked: provider and model of the last request header.
    """

    next_seq: int
    count: int
    nodes: Sequence[AnyEvent]
    anchors: Mapping[int, int] = {}
    generation: int = 0
    calls: Mapping[str, Sequence[Sequence[int]]] = {}
    unknown: Mapping[str, int] = {}
    flagged: Sequence[int] = ()
    damage: Sequence[Damage] = ()
    asked: tuple[str, str] | None = None


class Events(Sequence[AnyEvent]):
    """A read-only, live view of a log's events, in order.

    Of a log that was opened from a record the first ones are counted, but not held: reading them
    raises `NotLoaded`.
    """

    __slots__ = ("_before", "_events")

    def __init__(self, events: list[AnyEvent], before: int = 0) -> None:
        self._events = events
        self._before = before

    def __len__(self) -> int:
        return self._before + len(self._events)

    @overload
    def __getitem__(self, index: int) -> AnyEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[AnyEvent]: ...
    def __getitem__(self, index: int | slice) -> AnyEvent | list[AnyEvent]:
        return self._events[self._held(index) if self._before else index]

    def _held(self, index: int | slice) -> int | slice:
        """The place among those that are held."""
        before = self._before
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step < 0:
                raise not_loaded(before)
            if start < min(stop, before):
                raise not_loaded(before)
            return slice(max(start - before, 0), max(stop - before, 0), step)
        if index >= 0:
            if index < before:
                raise not_loaded(before)
            return index - before
        if -len(self) <= index < -len(self._events):
            raise not_loaded(before)
        return index

    def __iter__(self) -> Iterator[AnyEvent]:
        if self._before:
            raise not_loaded(self._before)
        return iter(self._events)

    def __repr__(self) -> str:
        return f"<{len(self)} events>"


def not_loaded(before: int) -> NotLoaded:
    """The error for what is in the store but not in memory."""
    msg = (
        f'the first {before} events are not in memory: open the session with load="all", or use '
        "the async reads (read_events, view, transcript)"
    )
    return NotLoaded(msg)


class SessionLog:
    """The events of one session with their surface. Not thread-safe: `Session` adds the lock."""

    __slots__ = (
        "_calls",
        "_events",
        "_gaps",
        "_lost",
        "_nodes",
        "base",
        "damage",
        "events",
        "flagged",
        "header",
        "messages",
        "next_seq",
        "surface",
        "unknown",
    )

    def __init__(self, header: SessionHeader, base: Base | None = None) -> None:
        """An empty log, or one that goes on from what is known of its beginning."""
        self.header = header
        #: What is known of the events that are not held.
        self.base = base
        self._events: list[AnyEvent] = []
        self.events = Events(self._events, 0 if base is None else base.count)
        #: The message events that are held (those on or once on the surface), in log order.
        self.messages: list[AnyEvent] = []
        self.surface = Surface()
        self.next_seq = 0
        self.damage: list[Damage] = []
        #: Replacements that had to be placed around damage: every view after them is flagged.
        self.flagged: list[int] = []
        #: Types that no one here knows and their writer did not mark as ignorable, with a count.
        self.unknown: dict[str, int] = {}
        self._lost: list[tuple[int, int]] = []
        self._gaps = base is not None  # whether an event's place is not its seq
        # Open call id -> [seqs of its tool/call and tool/settled], for each call of that id.
        self._calls: dict[str, list[list[int]]] = {}
        self._nodes: dict[int, AnyEvent] = {}  # of the base
        if base is not None:
            self._resume(base)

    def _resume(self, base: Base) -> None:
        self._nodes = {event.seq: event for event in base.nodes}
        self.surface.resume([event.seq for event in base.nodes], base.anchors, base.generation)
        self.next_seq = base.next_seq
        self.damage += base.damage
        self.flagged += base.flagged
        self.unknown.update(base.unknown)
        self._calls = {call: [list(seqs) for seqs in each] for call, each in base.calls.items()}
        self._lost = [
            (lost.first_seq, lost.last_seq)
            for lost in base.damage
            if lost.first_seq is not None and lost.last_seq is not None
        ]

    def __len__(self) -> int:
        return len(self.events)

    # -- reading -------------------------------------------------------------------------------

    @property
    def held(self) -> Sequence[AnyEvent]:
        """The events in memory, from `first_held` on. Do not change."""
        return self._events

    @property
    def first_held(self) -> int:
        """The first seq from which every event is in memory."""
        return 0 if self.base is None else self.base.next_seq

    @property
    def open_calls(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """Open call id -> [seqs of its tool/call and tool/settled], for each call of that id."""
        return self._calls

    def rebase(self) -> Base:
        """What a log that goes on from here has to know of all events so far."""
        surface = self.surface
        asked = None if self.base is None else self.base.asked
        return Base(
            self.next_seq,
            len(self.events),
            [self.event_at(seq) for seq in surface.seqs],
            {seq: surface.anchors[seq] for seq in surface.seqs if seq in surface.anchors},
            surface.replace_generation,
            self._calls,
            self.unknown,
            self.flagged,
            self.damage,
            asked,
        )

    def check_whole(self) -> None:
        """Nothing.

        Raises:
            NotLoaded: the first events are not in memory.
        """
        if self.base is not None:
            raise not_loaded(self.base.count)

    def index(self, seq: int) -> int:
        """How many events come before `seq`: its place in `events`, if it is there.

        Raises:
            NotLoaded: it is before what is in memory.
        """
        base = self.base
        if base is not None:
            if seq < base.next_seq:
                if seq <= 0:
                    return 0
                raise not_loaded(base.count)
            return base.count + bisect_left(self._events, seq, key=_seq_of)
        if not self._gaps:
            return min(max(seq, 0), len(self._events))
        return bisect_left(self._events, seq, key=_seq_of)

    def event_at(self, seq: int) -> AnyEvent:
        """The event with that seq.

        Raises:
            NoSuchEvent: outside the log, or lost to damage.
            NotLoaded: in the store, but not in memory.
        """
        events = self._events
        if not self._gaps:
            if 0 <= seq < len(events):
                return events[seq]
        else:
            at = bisect_left(events, seq, key=_seq_of)
            if at < len(events) and events[at].seq == seq:
                return events[at]
            if self.is_lost(seq):
                msg = f"session {self.header.id!r}: event {seq} was lost to damage"
                raise NoSuchEvent(msg)
            if self.base is not None and 0 <= seq < self.base.next_seq:
                node = self._nodes.get(seq)
                if node is None:
                    raise not_loaded(self.base.count)
                return node
        msg = f"session {self.header.id!r}: expected a seq from 0 to {self.next_seq - 1}, got {seq}"
        raise NoSuchEvent(msg)

    def check(self, at: object) -> int:
        """`at`, when it is a seq after which the log can be looked at; -1 is before the first.

        Raises:
            NoSuchEvent: it is not.
            NotLoaded: it is, but what came before it is not in memory.
        """
        if type(at) is int and -1 <= at < self.next_seq:
            if self.base is not None and at < self.base.next_seq - 1:
                raise not_loaded(self.base.count)
            return at
        name = self.header.id
        msg = f"session {name!r}: expected a seq from 0 to {self.next_seq - 1}, got {at!r}"
        raise NoSuchEvent(msg)

    def is_lost(self, seq: int) -> bool:
        """Whether the event was lost to damage."""
        return any(first <= seq <= last for first, last in self._lost)

    def call_seqs(self, call_id: str) -> list[int] | None:
        """What the result of an open call has to cite: its tool/call and tool/settled."""
        return list(next(iter(self._calls.get(call_id, ())), ())) or None

    # -- admission -----------------------------------------------------------------------------

    def admit(
        self,
        type_name: str,
        data: Any,
        time: int,
        surface_op: Any = None,
        source_event_seqs: Any = None,
        commit: Callable[[AnyEvent], None] | None = None,
    ) -> AnyEvent:
        """Check an event strictly and add it; `commit` may still refuse it by raising.

        `time` is for the caller to have checked.

        Raises:
            AdmissionError: it breaks a rule; nothing changed.
        """
        seq = self.next_seq
        kind = EVENT_TYPES.get(type_name)
        if kind is None:
            raise UnknownEventType(_unknown(type_name), seq=seq, value=type_name)
        raw, snapshot = kind.admit(data, seq)
        if kind.has_message:
            message: Message = snapshot if type(snapshot) is Message else snapshot.message
            for block in message.content:
                if (type(block) is not Text or not block.text) and is_empty(block):
                    msg = f"{type_name}: a {block.type} block is empty; leave it out"
                    raise EmptyBlock(msg, seq=seq, value=block)
        if surface_op is None and source_event_seqs is None and not kind.surface:
            # Its data is read again if anyone asks: few do, and chunks are many.
            event: AnyEvent = Event(type_name, seq, time, raw, None, None, False, None, kind.read)
            if commit is not None:
                commit(event)
            self._events.append(event)
            self.next_seq = seq + 1
            if kind.tracks_calls:
                self._track(event)
            return event
        if (
            surface_op == "append"
            and source_event_seqs is None
            and kind.surface
            and not self._calls
        ):  # citing nothing, with no call to cite: no rule is left to break
            event = Event(
                type_name, seq, time, raw, "append", None, False, None, kind.read, snapshot
            )
            if commit is not None:
                commit(event)
            self._events.append(event)
            self.next_seq = seq + 1
            self.messages.append(event)
            self.surface.append(seq)
            return event
        op = None if surface_op is None else _read_op(surface_op, seq)
        cited = None if source_event_seqs is None else _read_seqs(source_event_seqs, seq)
        event = Event(type_name, seq, time, raw, op, cited, False, None, kind.read, snapshot)
        if cited is not None:
            self._check_exists(event, cited)
        planned = self._check(event, kind, tolerant=False)
        if commit is not None:
            commit(event)
        self._add(event, planned)
        return event

    def load(self, event: AnyEvent) -> None:
        """Add an event that a store, a seed or a file holds.

        Raises:
            AdmissionError: it breaks a rule; nothing changed.
        """
        seq = event.seq
        if seq != self.next_seq:
            msg = f"expected seq {self.next_seq}, got {seq}"
            raise SeqOutOfOrder(msg, seq=seq, value=seq)
        if seq < (self.header.source_length or 0):
            event = reread(self.header, event)
        kind = EVENT_TYPES.get(event.type)
        if (
            event.surface_op == "append"
            and event.source_event_seqs is None
            and kind is not None
            and kind.surface
            and not self._calls
        ):  # as in `admit`
            self._events.append(event)
            self.next_seq = seq + 1
            self.messages.append(event)
            self.surface.append(seq)
            return
        if event.surface_op is None and event.source_event_seqs is None:
            if kind is not None and kind.surface:
                raise _missing_op(event)
            self._add_record(event)
            if kind is None and not event.ignorable:
                self.unknown[event.type] = self.unknown.get(event.type, 0) + 1
            return
        planned = self._check(event, kind, tolerant=bool(self.damage))
        self._add(event, planned)
        if kind is None and not event.ignorable:
            self.unknown[event.type] = self.unknown.get(event.type, 0) + 1

    def lose(self, damage: Damage) -> None:
        """Record a stretch that could not be read; the events after it go on behind its seqs.

        Raises:
            SeqOutOfOrder: the lost seqs do not start where the log ends.
        """
        if damage.first_seq is not None and damage.last_seq is not None:
            if damage.first_seq != self.next_seq or damage.last_seq < damage.first_seq:
                msg = f"expected damage from seq {self.next_seq}, got {damage.first_seq}"
                raise SeqOutOfOrder(msg, seq=damage.first_seq, value=damage.last_seq)
            self._lost.append((damage.first_seq, damage.last_seq))
            self._gaps = True
            self.next_seq = damage.last_seq + 1
        self.damage.append(damage)

    def skip(self, upto: int) -> None:
        """Leave out the events before `upto`, which no message view needs (chunks).

        For a log that is read only for its surface and messages: `events` does not have them.
        """
        if upto > self.next_seq:
            self.next_seq = upto
            self._gaps = True

    def _check(
        self, event: AnyEvent, kind: EventType | None, *, tolerant: bool
    ) -> Replacement | None:
        """The rules of surface and provenance; returns what a replacement would do."""
        op, cited, seq = event.surface_op, event.source_event_seqs, event.seq
        if kind is not None and not kind.surface:
            if op is not None:
                msg = f"{event.type} is log-only and must not carry surface_op"
                raise UnexpectedSurfaceOp(msg, seq=seq, value=op)
            if cited is not None:
                msg = f"{event.type} is log-only and must not carry source_event_seqs"
                raise UnexpectedProvenance(msg, seq=seq, value=cited)
        if op is None:
            if kind is not None:
                raise _missing_op(event)
            msg = f"{event.type} carries source_event_seqs without surface_op"
            raise UnexpectedProvenance(msg, seq=seq, value=cited)
        if cited is not None:
            self._check_provenance(event, cited)
        if op == "append":
            if event.type == "tool/result":
                self._check_cites_call(event, cited, tolerant=tolerant)
            return None
        try:
            planned = self.surface.plan(seq, op, cited)
            if event.type == "tool/result":
                self._check_result_replacement(event, planned)
        except (SurfaceError, UncitedNodes):
            if not tolerant:
                raise
            return self.surface.plan_around_damage(seq, cited)
        return planned

    def _check_provenance(self, event: AnyEvent, cited: Sequence[int]) -> None:
        seq = event.seq
        if not cited:
            if event.type != "assistant/message":
                msg = f"{event.type}: source_event_seqs is empty; leave it out or cite something"
                raise EmptyProvenance(msg, seq=seq, value=cited)
            return
        if type(cited) is range:
            low, high = cited[0], cited[-1]
        else:
            if len(set(cited)) != len(cited):
                twice = sorted(s for s, times in Counter(cited).items() if times > 1)[:10]
                msg = f"source_event_seqs must be unique, {twice} come twice"
                raise DuplicateProvenance(msg, seq=seq, value=twice)
            low, high = min(cited), max(cited)
        if low < 0:
            msg = f"source_event_seqs must not be negative, got {low}"
            raise InvalidProvenance(msg, seq=seq, value=low)
        if high >= seq:
            msg = f"source_event_seqs must be earlier than the event, got {high}"
            raise ProvenanceNotEarlier(msg, seq=seq, value=high)

    def _check_exists(self, event: AnyEvent, cited: Sequence[int]) -> None:
        """A new event cites what is there; one that was written before the damage may not."""
        gone = [s for s in cited if self.is_lost(s)] if self._lost else None
        if gone:
            msg = f"source_event_seqs must be in the log, {gone[:10]} were lost to damage"
            raise UnknownProvenance(msg, seq=event.seq, value=gone)

    def _check_cites_call(
        self, event: AnyEvent, cited: Sequence[int] | None, *, tolerant: bool
    ) -> None:
        data = event.data
        if type(data) is not ToolResult or tolerant or self._is_foreign(event.seq):
            return
        calls = self._calls.get(data.message.tool_call_id or "")
        if (
            calls
            and not any(all(seq in (cited or ()) for seq in call) for call in calls)
            and not self._cites_another(data.message.tool_call_id, cited or (), calls)
        ):
            call = next((call for call in calls if call[0] in (cited or ())), calls[0])
            seq = next(seq for seq in call if seq not in (cited or ()))
            what = "tool/call" if seq == call[0] else "tool/settled"
            msg = f"expected the result to cite its {what} {seq}, it cites {cited}"
            raise UncitedCall(msg, seq=event.seq, value=seq)

    def _cites_another(
        self, call_id: str | None, cited: Sequence[int], calls: Sequence[Sequence[int]]
    ) -> bool:
        """Whether it is the result of an older call, whose id was used again since."""
        waiting = {seq for call in calls for seq in call}
        for seq in cited:
            if seq not in waiting and not self.is_lost(seq) and seq >= self.first_held:
                event = self.event_at(seq)
                data = event.data
                if event.type == "tool/call" and getattr(data, "call_id", None) == call_id:
                    return True
        return False

    def _is_foreign(self, seq: int) -> bool:
        header = self.header
        return seq < (header.source_length or 0)

    def _check_result_replacement(self, event: AnyEvent, planned: Replacement) -> None:
        if len(planned.shadowed) != 1:
            msg = f"a tool/result replaces exactly one node, got {len(planned.shadowed)}"
            raise ResultReplacesRange(msg, seq=event.seq, value=planned.shadowed)
        old = self.event_at(planned.shadowed[0])
        if old.type != "tool/result":
            msg = f"a tool/result replaces a tool/result, node {old.seq} is a {old.type}"
            raise ResultReplacesOther(msg, seq=event.seq, value=old.seq)
        if _without_content(old) != _without_content(event):
            msg = f"nothing but the content may differ from the result {old.seq} that it replaces"
            raise ResultChangesMore(msg, seq=event.seq, value=old.seq)

    # -- committing ----------------------------------------------------------------------------

    def _add_record(self, event: AnyEvent) -> None:
        self._events.append(event)
        self.next_seq = event.seq + 1
        self._track(event)

    def _track(self, event: AnyEvent) -> None:
        """Remember what the result of a call will have to cite."""
        if event.type == "tool/call":
            data = event.data
            if type(data) is ToolCallStart:
                self._calls.setdefault(data.call_id, []).append([event.seq])
        elif event.type == "tool/settled":
            data = event.data
            if type(data) is ToolResult:
                for call in self._calls.get(data.message.tool_call_id or "", ()):
                    if len(call) == 1:
                        call.append(event.seq)
                        break

    def _add(self, event: AnyEvent, planned: Replacement | None) -> None:
        self._events.append(event)
        self.next_seq = event.seq + 1
        self.messages.append(event)
        if planned is not None:
            self.surface.apply(planned)
            if planned.scattered is not None:
                self.flagged.append(event.seq)
            return
        self.surface.append(event.seq)
        if event.surface_op != "append":
            self.flagged.append(event.seq)
        elif self._calls and event.type == "tool/result" and type(event.data) is ToolResult:
            self._answered(event.data.message.tool_call_id or "", event.source_event_seqs or ())
        elif self._calls and event.type == "assistant/message" and event.message is not None:
            for call in event.message.tool_calls:
                self._calls.pop(call.id, None)  # the id is used again: another call

    def _answered(self, call_id: str, cited: Sequence[int]) -> None:
        calls = self._calls.get(call_id)
        if calls and not self._cites_another(call_id, cited, calls):
            calls.remove(next((call for call in calls if call[0] in cited), calls[0]))
            if not calls:
                del self._calls[call_id]


class _Damaged(Protocol):
    """A log or a session."""

    @property
    def events(self) -> Sequence[AnyEvent]: ...
    @property
    def damage(self) -> Sequence[Damage]: ...


def unacknowledged(log: _Damaged) -> list[Damage]:
    """The damage that no `session/damage-acknowledged` covers."""
    base = log.base if isinstance(log, SessionLog) else None
    all_damage = log.damage if base is None else log.damage[len(base.damage) :]
    if not all_damage:
        return []
    seqs: list[tuple[int, int]] = []
    places: list[tuple[object, object]] = []
    for event in log.events if base is None else log.events[base.count :]:
        if event.type == "session/damage-acknowledged" and type(event.data) is DamageAcknowledged:
            for lost in event.data.ranges:
                match lost:
                    case {"firstSeq": int(first), "lastSeq": int(last)}:
                        seqs.append((first, last))
                    case _:
                        places.append((lost.get("offset"), lost.get("place")))
    stretches: list[tuple[int, int]] = []
    for first, last in sorted(seqs):
        if stretches and first <= stretches[-1][1] + 1:
            stretches[-1] = (stretches[-1][0], max(last, stretches[-1][1]))
        else:
            stretches.append((first, last))
    return [d for d in all_damage if not _accepted(d, stretches, places)]


def _accepted(
    damage: Damage, stretches: list[tuple[int, int]], places: list[tuple[object, object]]
) -> bool:
    """Whether it was accepted: by its seqs, which a fork keeps, or else by its bytes."""
    if damage.first_seq is None or damage.last_seq is None:
        return (damage.offset, damage.place) in places
    at = bisect_right(stretches, damage.first_seq, key=lambda stretch: stretch[0])
    return at > 0 and damage.last_seq <= stretches[at - 1][1]


def _unknown(type_name: object) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    msg = f"expected a core or registered event type, got {type_name!r}"
    close = get_close_matches(str(type_name), EVENT_TYPES, 1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{msg}: {meant}Your own you register with register_event_type"


def _missing_op(event: AnyEvent) -> MissingSurfaceOp:
    msg = f'{event.type} must say how it enters the surface: surface_op="append" or a replace'
    return MissingSurfaceOp(msg, seq=event.seq, value=None)


def _without_content(event: AnyEvent) -> Any:
    data = event.data
    if type(data) is ToolResult:
        message = msgspec.structs.replace(data.message, content=())
        return msgspec.structs.replace(data, message=message)
    wire = jsontext.decode(event.raw)
    if is_object(wire) and is_object(message := wire.get("message")):
        return {**wire, "message": {**message, "content": None}}
    return wire


def _read_op(op: Any, seq: int | None) -> SurfaceOp:
    start: Any
    end: Any
    if op == "append":
        return "append"
    if type(op) is Replace:
        start, end = op.start, op.end
    elif is_object(op) and op.keys() == {"op", "start", "end"} and op["op"] == "replace":
        start, end = op["start"], op["end"]
    else:
        start = end = None
    if type(start) is int and type(end) is int and start >= 0 and end >= 0:
        return op if type(op) is Replace else Replace(start, end)
    msg = f'expected "append" or {{"op": "replace", "start": seq, "end": seq}}, got {op!r}'
    raise InvalidSurfaceOp(msg, seq=seq, value=op)


def _read_seqs(seqs: Any, seq: int | None) -> Sequence[int]:
    """Cited seqs as a range where they are contiguous, else a tuple; order is kept."""
    found = _contiguous(seqs, seq)
    most = MAX_RANGE if type(found) is range else MAX_SEQS
    if len(found) > most:
        msg = f"expected at most {most} source_event_seqs, got {len(found)}"
        raise InvalidProvenance(msg, seq=seq, value=len(found))
    return found


def _contiguous(seqs: Any, seq: int | None) -> Sequence[int]:
    if type(seqs) is range:
        if seqs.step == 1:
            return seqs
        seqs = tuple(seqs)
    if not isinstance(seqs, Sequence) or isinstance(seqs, (str, bytes)):
        msg = f"expected source_event_seqs to be a list of seqs, got {type(seqs).__name__}"
        raise InvalidProvenance(msg, seq=seq, value=seqs)
    found: tuple[Any, ...] = tuple(cast("Sequence[Any]", seqs))
    if found and set(map(type, found)) != _INT:
        wrong = next(s for s in found if type(s) is not int)
        msg = f"expected source_event_seqs to be integers, got {wrong!r}"
        raise InvalidProvenance(msg, seq=seq, value=wrong)
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        run = range(found[0], found[-1] + 1)
        if found == tuple(run):
            return run
    return found


def make_event(  # noqa: PLR0913 - an envelope has this many fields
    type_name: Any,
    seq: Any,
    time: Any,
    raw: bytes,
    surface_op: Any = None,
    source_event_seqs: Any = None,
    *,
    ignorable: Any = False,
    extra: dict[str, Any] | None = None,
    reading: Callable[[bytes], Any] | None = None,
) -> AnyEvent:
    """An event from envelope fields of any origin, checked one by one; `raw` must be JSON.

    Raises:
        InvalidEnvelope, InvalidSurfaceOp, InvalidProvenance: a field is not what it must be.
    """
    at = seq if type(seq) is int else None
    if type(type_name) is not str or not type_name:
        raise InvalidEnvelope(f"expected a type, got {type_name!r}", seq=at, value=type_name)
    if type(seq) is not int or seq < 0:
        raise InvalidEnvelope(f"expected a seq, got {seq!r}", seq=None, value=seq)
    if type(time) is not int or not jsontext.INT_MIN <= time <= jsontext.INT_MAX:
        raise InvalidEnvelope(f"expected epoch milliseconds, got {time!r}", seq=at, value=time)
    if ignorable is not True and ignorable is not False:
        msg = f"expected ignorable to be true or absent, got {ignorable!r}"
        raise InvalidEnvelope(msg, seq=at, value=ignorable)
    op = None if surface_op is None else _read_op(surface_op, at)
    cited = None if source_event_seqs is None else _read_seqs(source_event_seqs, at)
    if reading is None:
        kind = event_type(type_name)
        reading = jsontext.decode if kind is None else kind.read
    extra = None if extra is None else freeze(extra)
    return Event(type_name, seq, time, raw, op, cited, ignorable, extra, reading)
