"""A session: one log, its surface, its views, its observers.

Everything here is in memory and synchronous; time and ids come in through `clock` and `new_id`.
`append` is atomic and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, overload

from msgspec.structs import replace

from turnlog import _ambient, jsontext
from turnlog import events as ev
from turnlog.codec import decode_line, encode_lines, event_from_dict
from turnlog.content import Content, Message, assistant_message, blocks, tool_message, user_message
from turnlog.errors import InvalidEnvelope, InvalidPayload, ReentrantAppend, UnknownEventType
from turnlog.events import AnyEvent, Event, Replace, SessionHeader, event_type
from turnlog.log import Damage, Events, SessionLog, not_loaded
from turnlog.repair import closers
from turnlog.surface import Replacement, Seqs, Surface
from turnlog.views.derive import DerivedMessages
from turnlog.views.nodes import Node
from turnlog.views.projector import NODES
from turnlog.views.request import RequestFold, RequestMessages
from turnlog.views.requests import REQUESTS, Request
from turnlog.views.sequence import MessageList
from turnlog.views.transcript import Transcript
from turnlog.views.usage import SessionUsage, UsageFold

if TYPE_CHECKING:
    from turnlog.dialects.adopt import ListDialect
    from turnlog.invariants import Finding

S = TypeVar("S")
Observer: TypeAlias = Callable[[AnyEvent], object]
SurfaceOpLike: TypeAlias = Literal["append"] | Replace | dict[str, Any]
Cited: TypeAlias = Sequence[int] | None


class Fold(Protocol[S]):
    """An application's own view: a start value and a pure step."""

    def start(self) -> S:
        """The value for an empty log."""
        ...

    def step(self, state: S, event: AnyEvent, /) -> S:
        """The value after one more event; may change and return `state`."""
        ...


class SurfaceFace:
    """The read-only face of a session's surface."""

    __slots__ = ("_lock", "_log")

    def __init__(self, log: SessionLog, lock: RLock) -> None:
        self._log = log
        self._lock = lock

    @property
    def _surface(self) -> Surface:
        return self._log.surface

    @property
    def seqs(self) -> Seqs:
        """The nodes in order: a live, read-only sequence of seqs."""
        return self._surface.seqs

    @property
    def replace_generation(self) -> int:
        """How many replacements there were."""
        return self._surface.replace_generation

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """All replacements, oldest first.

        Raises:
            NotLoaded: the first events are not in memory.
        """
        self._log.check_whole()
        return tuple(self._surface.replacements)

    def at(self, seq: int) -> tuple[int, ...]:
        """The nodes as they were after event `seq`.

        Raises:
            NoSuchEvent: outside the log.
            NotLoaded: what came before it is not in memory.
        """
        with self._lock:
            return tuple(self._surface.at(self._log.check(seq)))

    def shadowed_by(self, seq: int) -> int | None:
        """The replacement that took node `seq` off the surface, or None.

        Raises:
            NotLoaded: that may have been before what is in memory.
        """
        with self._lock:
            found = self._surface.shadowed_by(seq)
            if found is None and seq < self._log.first_held and seq not in self._surface:
                self._log.check_whole()
            return found

    def anchor(self, seq: int) -> int:
        """The first seq that the node `seq` transitively stands for; nodes are in their order."""
        with self._lock:
            return self._surface.anchor(seq)

    def __len__(self) -> int:
        return len(self._surface)

    def __repr__(self) -> str:
        return f"<Surface of {len(self)} nodes: {list(self.seqs)!r}>"

    def __contains__(self, seq: int) -> bool:
        with self._lock:
            return seq in self._surface


class _Fits(Exception):
    """An event was tried and would be taken; nothing was changed."""


def _checked(clock: Callable[[], int], log: SessionLog) -> Callable[[], int]:
    """A clock that was passed in, looked at each time."""

    def now() -> int:
        time = clock()
        if type(time) is not int or not jsontext.INT_MIN <= time <= jsontext.INT_MAX:
            msg = f"expected the clock to give epoch milliseconds, got {time!r}"
            raise InvalidEnvelope(msg, seq=log.next_seq, value=time)
        return time

    return now


class Session:
    """One session in memory. Make it with `create`, `from_events` or `from_messages`."""

    def __init__(
        self,
        log: SessionLog,
        *,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
        commit: Callable[[AnyEvent], None] | None = None,
        standing: Mapping[str, Any] | None = None,
    ) -> None:
        self._log = log
        self._standing = standing or {}  # what standing folds had made of what is not in memory
        self._admit = log.admit
        self._lock = RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._clock = _ambient.clock
        if clock is not None and clock is not _ambient.clock:
            self._clock = _checked(clock, log)
        self._new_id = new_id or _ambient.new_id
        self._commit = commit  # called before an event enters; may refuse it by raising
        self._publishing = False
        seed = log.header.seed_length
        self._seed_end = -1 if seed is None else seed  # the first seq after what was inherited
        self._observers: list[Observer] = []
        self._derived = DerivedMessages(log)
        self._requests = RequestFold(log)
        self._transcripts: dict[tuple[bool, bool], Transcript] = {}
        self._usage = UsageFold(log.header)
        self._folds: dict[int, tuple[Any, int, Any]] = {}  # id -> fold, events seen, state
        self.surface = SurfaceFace(log, self._lock)

    # -- making one ----------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        session_id: str | None = None,
        *,
        cwd: str | None = None,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> Session:
        """An empty session.

        Args:
            session_id: any non-empty string; a new id when left out.
            cwd: the folder the work is about, for people.
            clock: returns epoch milliseconds.
            new_id: returns a new unique id.
        """
        session_id = (new_id or _ambient.new_id)() if session_id is None else session_id
        header = SessionHeader(session_id, (clock or _ambient.clock)(), cwd=cwd)
        header.check()
        return cls(SessionLog(header), clock=clock, new_id=new_id)

    @classmethod
    def from_events(
        cls,
        header: SessionHeader | dict[str, Any],
        events: Iterable[AnyEvent | dict[str, Any]],
        *,
        refuse_unknown: bool = False,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> Session:
        """A session of events that exist already; types that no one knows are kept.

        Args:
            header: the session's, or its wire form.
            clock: as for `create`.
            new_id: as for `create`.
            events: `Event`s, or dicts in wire form (`Event.to_dict()`).
            refuse_unknown: refuse a type that is neither core nor registered.

        Raises:
            AdmissionError: an event breaks a rule.
            InvalidHeader, UnsupportedVersion: the header is not ours.
        """
        if not isinstance(header, SessionHeader):
            header = SessionHeader.from_dict(header)
        header.check()
        log = SessionLog(header)
        for item in events:
            event: AnyEvent = item if isinstance(item, Event) else event_from_dict(item)
            if refuse_unknown and event_type(event.type) is None:
                msg = f"expected a core or registered event type, got {event.type!r}"
                raise UnknownEventType(msg, seq=event.seq, value=event.type)
            log.load(event)
        return cls(log, clock=clock, new_id=new_id)

    @classmethod
    def from_messages(
        cls,
        messages: Iterable[Mapping[str, Any]],
        *,
        dialect: ListDialect | None = None,
        session_id: str | None = None,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> Session:
        """Adopt a message list of OpenAI or Anthropic as the seed of a new session.

        `to_messages` of the same dialect gives an equal list back. As after an import, the first
        event that is appended comes behind `session/end-seed`, and calls that nobody had answered
        are closed then.

        Args:
            messages: what a chat-completions or a messages request has under `messages`.
            dialect: whose list it is; found out when left out.
            session_id: any non-empty string; a new id when left out.
            clock: returns epoch milliseconds.
            new_id: returns a new unique id.

        Raises:
            InvalidMessages: which message cannot be read (`index`), and why.
        """
        from turnlog.dialects.adopt import adopt  # noqa: PLC0415 - few sessions are adopted

        session_id = (new_id or _ambient.new_id)() if session_id is None else session_id
        log = adopt(
            messages, dialect, session_id, clock or _ambient.clock, new_id or _ambient.new_id
        )
        return cls(log, clock=clock, new_id=new_id)

    @classmethod
    def from_jsonl(
        cls,
        raw: bytes,
        *,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> Session:
        """The session in the bytes of one JSONL file, as `to_jsonl` and `turnlog export` write it.

        A torn or damaged file is for `turnlog import`, which keeps what can be read.

        Args:
            raw: a header line and event lines.
            clock: as for `create`.
            new_id: as for `create`.

        Raises:
            InvalidHeader, UnsupportedVersion: the first line is no header of ours.
            AdmissionError: an event breaks a rule.
            ValueError: a line is not JSON.
        """
        head, *lines = raw.split(b"\n")
        events = (event for line in lines if line for event in decode_line(line))
        return cls.from_events(jsontext.decode(head), events, clock=clock, new_id=new_id)

    def verify(self) -> list[Finding]:
        """Every law of the log that admission does not hold, checked; every request proved.

        Findings of level "fault" are broken laws; "note" is legal but worth knowing.
        """
        from turnlog import invariants, proof  # noqa: PLC0415 - only when asked for

        return invariants.verify(self, prove=proof.finding)

    def to_jsonl(self) -> bytes:
        """The whole session as one JSONL file: a header line, then the events."""
        with self._lock:
            header = jsontext.encode(self.header.to_dict())
            return header + b"\n" + encode_lines(self._log.events)

    def fork(self, at: int | None = None, session_id: str | None = None) -> Session:
        """A child that shares the log up to and including event `at` (default: all of it).

        The child's own log begins with `session/end-seed`, then repair's closers if the cut was
        inside an open turn. The parent does not change. Nothing before the end of the seed
        authorises anything in the child.

        Raises:
            NoSuchEvent: there is no event `at`.
            NotLoaded: what came before it is not in memory: fork by the store.
        """
        with self._lock:
            log = self._log
            if at is None:
                at = log.held[-1].seq if log.held else log.first_held - 1
            if log.is_lost(log.check(at)):
                log.event_at(at)
            shared = log.events[log.index(log.first_held) : log.index(at + 1)]
            header = SessionHeader(
                self._new_id() if session_id is None else session_id,
                self._clock(),
                cwd=log.header.cwd,
                parent_session=log.header.id,
                seed_length=at + 1,
                source_format=log.header.source_format,
                source_length=min(log.header.source_length or 0, at + 1) or None,
                imported_length=min(log.header.imported, at + 1)
                if log.header.source_format
                else None,
                source=log.header.source,
            )
            header.check()
            child = SessionLog(header, log.base)
            damage = log.damage[len(child.damage) :]
            child.damage.extend(d for d in damage if d.first_seq is None)
            holes = [d for d in damage if d.first_seq is not None and d.first_seq <= at]
            for event in shared:
                while event.seq > child.next_seq:
                    child.lose(holes.pop(0))
                child.load(event)
        session = Session(child, clock=self._clock, new_id=self._new_id, standing=self._standing)
        session.end_seed()
        return session

    # -- reading -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id."""
        return self._log.header.id

    @property
    def header(self) -> SessionHeader:
        """What was written before the first event."""
        return self._log.header

    @property
    def events(self) -> Events:
        """All events: a live, read-only sequence, never a copy."""
        return self._log.events

    @property
    def held(self) -> Sequence[AnyEvent]:
        """The events in memory from `first_held` on: a live, read-only sequence."""
        return self._log.held

    @property
    def first_held(self) -> int:
        """The first seq from which every event is in memory; 0 unless it was partly loaded."""
        return self._log.first_held

    @property
    def next_seq(self) -> int:
        """The seq that the next event will have."""
        return self._log.next_seq

    @property
    def damage(self) -> tuple[Damage, ...]:
        """The stretches of the log that cannot be read."""
        return tuple(self._log.damage)

    @property
    def flagged(self) -> tuple[int, ...]:
        """Replacements that were placed around damage; views after the first are flagged."""
        return tuple(self._log.flagged)

    @property
    def unknown_types(self) -> dict[str, int]:
        """Types that no one here knows, not marked as ignorable, with how many events there are."""
        return dict(self._log.unknown)

    def event_at(self, seq: int) -> AnyEvent:
        """The event with that seq.

        Raises:
            NoSuchEvent: outside the log, or lost to damage.
        """
        return self._log.event_at(seq)

    def __len__(self) -> int:
        return len(self._log)

    def __repr__(self) -> str:
        return f"<Session {self.id!r}: {len(self)} events, {len(self.surface)} on the surface>"

    # -- appending -----------------------------------------------------------------------------

    @overload
    def append(
        self,
        type: Literal["user/message", "context/message"],
        data: Message | dict[str, Any],
        *,
        surface_op: SurfaceOpLike,
        source_event_seqs: Cited = ...,
    ) -> Event[Message]: ...
    @overload
    def append(
        self,
        type: Literal["assistant/message"],
        data: ev.AssistantMessage | dict[str, Any],
        *,
        surface_op: SurfaceOpLike,
        source_event_seqs: Cited = ...,
    ) -> Event[ev.AssistantMessage]: ...
    @overload
    def append(
        self,
        type: Literal["tool/result"],
        data: ev.ToolResult | dict[str, Any],
        *,
        surface_op: SurfaceOpLike,
        source_event_seqs: Cited = ...,
    ) -> Event[ev.ToolResult]: ...
    @overload
    def append(
        self,
        type: Literal["system/message", "developer/message"],
        data: ev.SystemMessage | dict[str, Any],
        *,
        surface_op: SurfaceOpLike,
        source_event_seqs: Cited = ...,
    ) -> Event[ev.SystemMessage]: ...
    @overload
    def append(
        self, type: ev.LogOnlyType, data: ev.LogOnlyPayload | dict[str, Any]
    ) -> AnyEvent: ...
    @overload
    def append(
        self,
        type: ev.EventType,
        data: Any,
    ) -> AnyEvent: ...
    def append(
        self,
        type: str | ev.EventType,
        data: Any,
        *,
        surface_op: Any = None,
        source_event_seqs: Any = None,
    ) -> AnyEvent:
        """Check an event and add it to the log; atomic, from any thread.

        Args:
            type: a core type by name, or a registered one: what `register_event_type` returned
                (at run time its name does too, but a type checker cannot tell it from a
                message type whose `surface_op` was forgotten).
            data: the type's struct, or a plain dict in wire form, which is copied.
            surface_op: "append", or {"op": "replace", "start": seq, "end": seq}; for message
                types only, and required there.
            source_event_seqs: the seqs this event was made from.

        Raises:
            AdmissionError: a rule was broken; the error names rule, seq and value. Nothing changed.
            ReentrantAppend: called by an observer of this session.
            QueueFull, ReadOnly, ForkedProcess: a durable session cannot take it; nothing changed.
        """
        self._acquire()  # `with` costs as much again
        try:
            if self._publishing:
                self._refuse_reentry()
            if surface_op is not None and (data.__class__ is not Message or not data.id):
                data = self._with_id(data)
            name = type if isinstance(type, str) else getattr(type, "name", repr(type))
            if self._seed_end >= 0 and self.seed_is_open and name != ev.SEED_END:
                self._end_import(name, data, surface_op, source_event_seqs)
            event = self._admit(
                name, data, self._clock(), surface_op, source_event_seqs, self._commit
            )
            if self._observers:
                self._publish(event)
            return event
        finally:
            self._release()

    @property
    def seed_is_open(self) -> bool:
        """Whether it was imported or adopted, and nothing native has been appended yet."""
        return self._seed_end == self._log.next_seq

    def _end_import(self, *event: Any) -> None:
        """`session/end-seed` and repair's closers, unless the event to come would be refused."""
        type_name, data, surface_op, source_event_seqs = event
        try:
            self._admit(type_name, data, 0, surface_op, source_event_seqs, self._try)
        except _Fits:
            self.end_seed("interrupted")

    def _try(self, event: AnyEvent) -> None:
        self._check_writable(event.type)
        raise _Fits

    def _check_writable(self, type_name: str) -> None:
        """Raise when nothing can be appended; a session in memory takes everything."""

    def _refuse_reentry(self) -> None:
        if self._publishing:
            msg = "an observer must not append to the session that it observes"
            raise ReentrantAppend(msg)

    def _with_id(self, data: Any) -> Any:
        """The payload, its message with a new id if it has an empty one."""
        if isinstance(data, Message):
            return data if data.id else replace(data, id=self._new_id())
        if isinstance(data, (ev.AssistantMessage, ev.ToolResult, ev.SystemMessage)):
            message: Any = data.message
            if isinstance(message, Message) and not message.id:
                return replace(data, message=replace(message, id=self._new_id()))
        return data

    def add_user(self, content: Content, *, source: str = "user") -> Event[Message]:
        """Append a user's message: text, a block, or blocks.

        Raises:
            InvalidPayload: there is no content.
        """
        message = user_message(self._content(content), id=self._new_id(), source=ev.Source(source))
        return self.append("user/message", message, surface_op="append")

    def add_context(self, content: Content, *, source: str = "context") -> Event[Message]:
        """Append context that no person typed: workspace state, a notice."""
        message = user_message(self._content(content), id=self._new_id(), source=ev.Source(source))
        return self.append("context/message", message, surface_op="append")

    def add_assistant(
        self,
        content: Content,
        *,
        provider: str | None = None,
        model: str | None = None,
        usage: ev.Usage | None = None,
        turn: int | None = None,
        step: int | None = None,
        interrupted: bool = False,
        source_event_seqs: Cited = None,
    ) -> Event[ev.AssistantMessage]:
        """Append a model's answer: text, a block, or blocks (`ToolCall` among them)."""
        message = assistant_message(content, id=self._new_id(), provider=provider, model=model)
        return self.append(
            "assistant/message",
            ev.AssistantMessage(message, turn, step, usage, interrupted or None),
            surface_op="append",
            source_event_seqs=source_event_seqs,
        )

    def add_tool_result(
        self,
        call_id: str,
        content: Content,
        *,
        is_error: bool = False,
        turn: int | None = None,
        step: int | None = None,
    ) -> Event[ev.ToolResult]:
        """Append a tool's result, citing its `tool/call` and `tool/settled` where there are any."""
        said = blocks(content) or blocks("(no output)")
        message = tool_message(call_id, said, id=self._new_id(), is_error=is_error)
        with self._lock:
            return self.append(
                "tool/result",
                ev.ToolResult(message, turn, step),
                surface_op="append",
                source_event_seqs=self._log.call_seqs(call_id),
            )

    def replace(
        self, start: int, end: int, content: Content, *, source: str = "compaction"
    ) -> Event[Message]:
        """Shadow the nodes from `start` to `end` by one user message, which cites them all.

        What compaction does with a summary. The shadowed events stay in the log.

        Args:
            start: the seq of the first node that leaves.
            end: the seq of the last one, not before `start` by position; may be the same.
            content: text, a block, or blocks.
            source: the kind of its source.

        Raises:
            NotOnSurface, ReplaceOutOfOrder: `start` or `end` is not such a node.
        """
        message = user_message(self._content(content), id=self._new_id(), source=ev.Source(source))
        with self._lock:
            return self.append(
                "user/message",
                message,
                surface_op=Replace(start, end),
                source_event_seqs=self._log.surface.between(start, end),
            )

    def pin(self, seq_or_text: int | str) -> str:
        """Pin the content of an event, or a text: every compaction carries it on verbatim.

        A text enters as a `context/message`. So does the content of an event that the model no
        longer sees: what is pinned is always on the surface.

        Returns:
            The pin's id, for `unpin`; of an event that is pinned already, the one it has.

        Raises:
            NoSuchEvent: there is no event with that seq, or it was lost to damage.
            NotLoaded: it is in the store, but not in memory.
            NoMessage: it holds no text or image, or is system text, which stays anyhow.
            InvalidContent: neither a seq nor a text that says something.
        """
        from turnlog.compaction import pins  # noqa: PLC0415 - few sessions have pins

        with self._lock:
            return pins.pin(self, seq_or_text, self._new_id)

    def unpin(self, pin_id: str) -> None:
        """Take a pin off: what it names is compacted like anything else.

        Raises:
            NoSuchPin: there is none, or it came with an import and does not count.
        """
        from turnlog.compaction import pins  # noqa: PLC0415 - few sessions have pins

        with self._lock:
            pins.unpin(self, pin_id)

    def _content(self, content: Content) -> Content:
        found = blocks(content)
        if not found:
            msg = f"expected text, a block or blocks that say something, got {content!r}"
            raise InvalidPayload(msg, seq=self.next_seq, value=content)
        return found

    def end_seed(self, reason: str = "forked") -> list[AnyEvent]:
        """Close an inherited or imported seed: `session/end-seed`, then repair's closers."""
        with self._lock:
            added = [self.append(ev.SEED_END, ev.EndSeed(inherited=True))]
            added += self.repair(reason=reason)
            return added

    def repair(
        self, *, reason: str = "interrupted", end: ev.EndReason | None = None
    ) -> list[AnyEvent]:
        """Append what an interrupted tail lacks; nothing on a healthy log.

        Args:
            reason: what cut the tail off, one word.
            end: what `turn/end` says; without one, a turn that waits for approvals stays open.

        Raises:
            ReadOnly: the log is damaged and nobody acknowledged it.
        """
        with self._lock:
            self._refuse_reentry()
            added: list[AnyEvent] = []
            log = self._log
            missing = closers(
                log.header,
                log.held,
                log.next_seq,
                on_surface=log.surface.__contains__,
                reason=reason,
                end=end,
                asked=None if log.base is None else log.base.asked,
            )
            if missing and self.seed_is_open:
                added.append(self.append(ev.SEED_END, ev.EndSeed(inherited=True)))
                return added + self.repair(reason=reason, end=end)
            for closer in missing:
                event = log.admit(
                    closer.type,
                    closer.data,
                    time=closer.time if end is None else self._clock(),
                    surface_op=closer.surface_op,
                    source_event_seqs=closer.source_event_seqs,
                    commit=self._commit,
                )
                if self._observers:
                    self._publish(event)
                added.append(event)
            return added

    # -- observing -----------------------------------------------------------------------------

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` with each event after it was committed; returns how to stop that.

        An observer that raises is reported to the `turnlog` logger; it hurts neither the append
        nor other observers. An append from inside an observer is refused.
        """
        with self._lock:
            self._observers.append(observer)

        def stop() -> None:
            with self._lock:
                if observer in self._observers:
                    self._observers.remove(observer)

        return stop

    def _publish(self, event: AnyEvent) -> None:
        self._publishing = True
        try:
            for observer in tuple(self._observers):
                try:
                    observer(event)
                except Exception:  # noqa: BLE001 - reported; neither append nor siblings are hurt
                    _ambient.report_observer(self.id, event.seq)
        finally:
            self._publishing = False

    # -- views ---------------------------------------------------------------------------------

    def derive_messages(self, at: int | None = None) -> MessageList:
        """What the **model** sees, now or after event `at`: the surface, in order.

        For what a person reads, which no compaction erases, see `extract_chat_messages`; for a
        form that every provider accepts, whatever the log, see `request_messages`.
        """
        with self._lock:
            return self._derived.current() if at is None else self._derived.at(self._check(at))

    def request_messages(self, at: int | None = None) -> RequestMessages:
        """What the model sees, in a form that any provider accepts; `.mends` says what was mended.

        The same as `derive_messages` on a healthy log of ours, except that a call that is still
        open has a placeholder for its result.
        """
        with self._lock:
            return self._requests.current() if at is None else self._requests.at(self._check(at))

    def to_messages(self, dialect: ListDialect) -> list[dict[str, Any]]:
        """What the model sees as a message list of OpenAI or Anthropic, to go on elsewhere.

        A list that was adopted comes out equal, unknown keys included. For the bytes of a request,
        which keep every rule of a provider, see `turnlog.dialects.encoder`.
        """
        from turnlog.dialects.adopt import is_said, write  # noqa: PLC0415 - few are written

        with self._lock:
            seen = (self._log.event_at(seq).message for seq in self.surface.seqs)
            return write((m for m in seen if m is not None and is_said(m)), dialect)

    def extract_chat_messages(
        self,
        *,
        include_tools: bool = False,
        include_context: bool = False,
        at: int | None = None,
    ) -> tuple[Message, ...]:
        """What a **person** reads: the conversation as it happened, in log order.

        No compaction erases it. For what the model sees, see `derive_messages`.

        Args:
            include_tools: tool calls and tool results too.
            include_context: what no person typed, too: context, system text, summaries' sources.
            at: only what had happened after event `at`.
        """
        with self._lock:
            transcript = self.transcript_fold(tools=include_tools, context=include_context)
            return transcript.current() if at is None else transcript.at(self._check(at))

    def transcript_fold(self, *, tools: bool, context: bool) -> Transcript:
        """The incremental fold behind `extract_chat_messages`, which also knows the seqs."""
        key = (tools, context)
        if key not in self._transcripts:
            self._transcripts[key] = Transcript(self._log, tools=tools, context=context)
        return self._transcripts[key]

    def nodes(self, at: int | None = None) -> tuple[Node, ...]:
        """What a **screen** draws, now or after event `at`: UI nodes with stable ids.

        To follow a session change by change, feed a `SurfaceProjector` of your own. For the
        conversation as messages, see `extract_chat_messages`.
        """
        with self._lock:
            return self.fold(NODES, at).nodes

    def requests(self, at: int | None = None) -> tuple[Request, ...]:
        """Each request that was sent, up to now or to event `at`, numbered from 0.

        For the messages that the next one would have, see `request_messages`.
        """
        with self._lock:
            return self.fold(REQUESTS, at).snapshot()

    def usage(self, at: int | None = None) -> SessionUsage:
        """Tokens by step, turn and model, up to now or to event `at`; unknown is not zero.

        `.own` is what this session used itself: summed over a family of forks it counts each
        request once. For what came of each request, see `requests`.
        """
        with self._lock:
            return self.fold(self._usage, at).snapshot()

    def fold(self, fold: Fold[S], at: int | None = None) -> S:
        """The state of an application's own fold, now (incremental) or after event `at`."""
        with self._lock:
            events = self._log.events
            if at is not None:
                seen, state = self._start(fold)
                for event in events[seen : self._log.index(self._check(at) + 1)]:
                    state = fold.step(state, event)
                return state
            kept, seen, state = self._folds.get(id(fold), (fold, 0, None))
            if seen == 0:
                seen, state = self._start(fold)
            self._folds.pop(id(fold), None)  # a step that fails may leave a half-changed state
            for event in events[seen:]:
                state = kept.step(state, event)
            self._folds[id(fold)] = (kept, len(events), state)
            return state

    def _start(self, fold: Fold[S]) -> tuple[int, S]:
        """Where a fold begins: before the first event, or with what a record has of it."""
        base = self._log.base
        if base is None:
            return 0, fold.start()
        from turnlog.standing import STANDING, name_of  # noqa: PLC0415 - few sessions need it

        name = name_of(fold)
        if name is None:
            raise not_loaded(base.count)
        return base.count, STANDING[name].restore(self._standing[name])

    def opening_record(self) -> bytes | None:
        """What a store keeps to open the session without reading all of it; see `turnlog.opening`.

        None where none can be made: something is open, or damaged.
        """
        from turnlog import opening  # noqa: PLC0415 - when a record is made

        with self._lock:
            return opening.make(self._log, self.fold)

    def _check(self, at: int) -> int:
        return self._log.check(at)
