"""What a listing says of a session, folded from its events as they pass by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnlog import jsontext
from turnlog.content import Message
from turnlog.events import AnyEvent, SessionHeader, SessionTitle
from turnlog.stores.loading import source_damage, unfinished
from turnlog.stores.port import SessionInfo
from turnlog.upcasts import reread

TITLE_LENGTH = 80


class InfoFold:
    """The listing's line, incrementally; only message, title and turn events are looked into."""

    __slots__ = (
        "_accepted",
        "_prompt",
        "_title",
        "_turn",
        "header",
        "last_activity",
        "messages",
        "next_seq",
    )

    def __init__(self, header: SessionHeader, state: dict[str, Any] | None = None) -> None:
        self.header = header
        state = state or {}
        self.next_seq: int = state.get("nextSeq", 0)
        self.messages: int = state.get("messages", 0)
        self.last_activity: int = state.get("lastActivity", header.created_at)
        self._title: str = state.get("title", "")
        self._prompt: str = state.get("prompt", "")
        self._turn: bool = state.get("turn", False)
        self._accepted: bool = state.get("accepted", False)

    def state(self) -> dict[str, Any]:
        """What `__init__` takes to go on from here."""
        return {
            "nextSeq": self.next_seq,
            "messages": self.messages,
            "lastActivity": self.last_activity,
            "title": self._title,
            "prompt": self._prompt,
            "turn": self._turn,
            "accepted": self._accepted,
        }

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Fold events that follow."""
        event: AnyEvent | None = None
        last = self.last_activity  # of all events: the same however they come in batches
        foreign = self.header.source_length or 0
        for event in events:
            kind = event.type
            if event.surface_op == "append":
                self.messages += 1
                if not self._prompt and kind == "user/message":
                    data = reread(self.header, event).data if event.seq < foreign else event.data
                    self._prompt = _first_line(data)
            elif kind == "turn/start":
                self._turn = True
            elif kind == "turn/end":
                self._turn = False
            elif kind == "session/damage-acknowledged":
                self._accepted = True
            elif kind == "session/title" and type(event.data) is SessionTitle:
                self._title = one_line(event.data.title)
            last = max(last, event.time)
        self.last_activity = last
        if event is not None:
            self.next_seq = event.seq + 1

    def info(self, *, size: int | None = None, problem: str | None = None) -> SessionInfo:
        """The line."""
        header = self.header
        problem = problem or (None if self._accepted else self._imported_damage())
        health = "damaged" if problem else "open" if self._turn else "ok"
        return SessionInfo(
            id=header.id,
            title=self._title or self._prompt,
            events=self.next_seq,
            messages=self.messages,
            created_at=header.created_at,
            last_activity=self.last_activity,
            bytes=size,
            health=health,
            parent=header.parent_session,
            source_format=header.source_format,
            problem=problem,
        )

    def _imported_damage(self) -> str | None:
        damage = source_damage(self.header)
        tail = [
            d.last_seq for d in damage if d.last_seq is not None and d.first_seq == self.next_seq
        ]
        missing = unfinished(self.header, max(tail, default=self.next_seq - 1) + 1)
        if missing is not None:
            return missing.reason
        return f"{damage[0].reason} in what was imported" if damage else None


def _first_line(data: Any) -> str:
    return one_line(data.text) if type(data) is Message else ""


def one_line(text: str) -> str:
    """A text as a title: its first words, on one line, without lone surrogates."""
    words = " ".join(jsontext.replace_surrogates(text[: 8 * TITLE_LENGTH]).split())
    return words if len(words) <= TITLE_LENGTH else f"{words[: TITLE_LENGTH - 1]}…"
