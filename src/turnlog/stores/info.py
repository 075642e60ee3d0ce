"""What a listing says of a session, folded from its events as they pass by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from turnlog import jsontext
from turnlog.content import Message
from turnlog.errors import AdmissionError
from turnlog.events import AnyEvent, SessionHeader, SessionTitle
from turnlog.log import Damage, SessionLog, unacknowledged
from turnlog.stores.loading import build_log
from turnlog.stores.port import SessionInfo, Stored
from turnlog.views.transcript import said

TITLE_LENGTH = 80
_CHUNK = "assistant/chunk"
_STATE = {
    "nextSeq": 0,
    "events": 0,
    "messages": 0,
    "lastActivity": 0,
    "title": "",
    "prompt": "",
    "turn": False,
    "damage": 0,
    "problem": "",
}


class InfoFold:
    """The listing's line, incrementally; it agrees with what opening the session finds.

    Attributes:
        header: the session's.
        next_seq: of the event that may follow.
    """

    __slots__ = ("_state", "header", "next_seq")

    def __init__(self, header: SessionHeader, state: dict[str, Any] | None = None) -> None:
        """A line without events, or as `state()` left it.

        Raises:
            ValueError: that is no such state.
        """
        self.header = header
        self._state: dict[str, Any] = {**_STATE, "lastActivity": header.created_at}
        if state is not None:
            if any(type(state.get(key)) is not type(value) for key, value in _STATE.items()):
                raise ValueError("expected the state of a listing's line")
            self._state = {key: state[key] for key in _STATE}
        self.next_seq: int = self._state["nextSeq"]

    @classmethod
    def of(
        cls, header: SessionHeader, events: Sequence[AnyEvent], damage: Sequence[Damage] = ()
    ) -> InfoFold:
        """The line of a whole log: what is lost or breaks a rule is damage, and not counted."""
        log = build_log(Stored(header, events, damage))
        lost = unacknowledged(log)
        fold = cls(header)
        fold._add(log.events)
        fold._state["damage"] = len(lost)
        fold._state["problem"] = lost[0].reason if lost else ""
        return fold

    def state(self) -> dict[str, Any]:
        """What `__init__` takes to go on from here."""
        return {**self._state, "nextSeq": self.next_seq}

    def follow(self, events: Sequence[AnyEvent], log: SessionLog | None = None) -> bool:
        """Fold events that follow; False, with nothing changed, if the whole log must be read.

        That is where only the whole log tells whether they break a rule or what they accept: what
        was imported, a replacement, an acknowledgement of damage.

        Args:
            events: what follows, in order of seq.
            log: of all that came before, chunks aside, if it is at hand: it judges what was
                imported and replacements, too. It goes on with the events, unless it is False.
        """
        if not events:
            return True
        if log is None:
            if events[0].seq < (self.header.seed_length or 0):
                return False
            log = SessionLog(self.header)
        held = len(log.held)
        expected, chunks, last = self.next_seq, 0, self._state["lastActivity"]
        try:
            for event in events:
                kind = event.type
                if kind == _CHUNK and event.surface_op is None and event.source_event_seqs is None:
                    if event.seq != expected:  # no other rule is left to break
                        return False
                    chunks += 1
                    if event.time > last:  # noqa: PLR1730 - of each chunk, and `max` takes longer
                        last = event.time
                elif kind == "session/damage-acknowledged":
                    return False
                else:
                    log.skip(expected)
                    log.load(event)
                expected += 1
        except AdmissionError:
            return False
        self._add(log.held[held:])
        self._state["events"] += chunks
        self._state["lastActivity"] = max(last, self._state["lastActivity"])
        self.next_seq = expected
        return True

    def _add(self, events: Iterable[AnyEvent]) -> None:
        state = self._state
        event: AnyEvent | None = None
        last = state["lastActivity"]  # of all events: the same however they come in batches
        for event in events:
            kind = event.type
            state["events"] += 1
            if event.surface_op == "append":
                state["messages"] += said(event) is not None
                if kind == "user/message" and not state["prompt"]:
                    state["prompt"] = _first_line(event.data)
            elif kind in ("turn/start", "turn/end"):
                state["turn"] = kind == "turn/start"
            elif kind == "session/title" and type(event.data) is SessionTitle:
                state["title"] = one_line(event.data.title)
            last = max(last, event.time)
        state["lastActivity"] = last
        if event is not None:
            self.next_seq = event.seq + 1

    def info(self, *, size: int | None = None) -> SessionInfo:
        """The line."""
        header, state = self.header, self._state
        problem = state["problem"] or None
        return SessionInfo(
            id=header.id,
            title=state["title"] or state["prompt"],
            events=state["events"],
            messages=state["messages"],
            created_at=header.created_at,
            last_activity=state["lastActivity"],
            bytes=size,
            health="damaged" if problem else "open" if state["turn"] else "ok",
            damage=state["damage"],
            parent=header.parent_session,
            source_format=header.source_format,
            problem=problem,
        )


def _first_line(data: Any) -> str:
    return one_line(data.text) if type(data) is Message else ""


def one_line(text: str) -> str:
    """A text as a title: its first words, on one line, without lone surrogates."""
    words = " ".join(jsontext.replace_surrogates(text[: 8 * TITLE_LENGTH]).split())
    return words if len(words) <= TITLE_LENGTH else f"{words[: TITLE_LENGTH - 1]}…"
