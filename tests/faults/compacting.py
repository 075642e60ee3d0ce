"""What the scenes of compaction share: conversations of a known size, engines, what they asked."""

from __future__ import annotations

import json
from typing import Any, cast

from tests.faults.scenes import at_once
from turnlog import BasicCompactionEngine, ReactLoopAgent, Session
from turnlog.compaction.estimate import DEFAULT
from turnlog.content import Failure
from turnlog.events import AnyEvent, CompactionEnd, CompactionStart, CompactionSummary
from turnlog.testing import Fail, ScriptedModel
from turnlog.testing.providers import check_openai, require_valid

WORDS = "plain words that say nothing much and take their room in every request "  # 14 tokens
GOOD = "## Goals\n- ship it\n\n## State\n- half done"


def talk(turns: int, *, words: int = 4, session: Session | None = None) -> Session:
    """A conversation without tools; each turn is about 28 tokens for each of `words`, and a few."""
    session = Session.create("s") if session is None else session
    for number in range(turns):
        session.add_user(f"question {number}: {WORDS * words}")
        session.add_assistant(f"answer {number}: {WORDS * words}")
    return session


def engine(*answers: Any, window: int | None = 4000, **options: Any) -> BasicCompactionEngine:
    """An engine that waits for nothing; its model gives these summaries again and again."""
    model = ScriptedModel(
        answers or (GOOD,), repeat=True, name="scripted:summaries", context_window=window
    )
    options.setdefault("delay", at_once)
    return BasicCompactionEngine(model, **options)


def asked(made: BasicCompactionEngine) -> list[bytes]:
    """The requests that an engine's model got."""
    return cast("ScriptedModel", made.model).requests


def on(
    window: int | None, *answers: Any, name: str = "scripted:m", **options: Any
) -> ReactLoopAgent:
    """An agent whose model has a window and gives these answers again and again."""
    model = ScriptedModel(answers or ("yes",), repeat=True, name=name, context_window=window)
    options.setdefault("delay", at_once)
    return ReactLoopAgent(model, **options)


def tokens(body: bytes) -> int:
    """About how many tokens the texts of a request are, as a provider would count them."""
    wire = json.loads(body)
    found = 0
    for message in wire["messages"]:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [p.get("text", "") for p in content]
        found += sum(DEFAULT.text(part) for part in parts)
    return found


def strict(window: int, answer: Any = GOOD) -> Any:
    """A step of a script: the answer, but an overflow to a request above the window."""

    def answers(body: bytes) -> Any:
        return Fail("overflow-tokens") if tokens(body) > window else answer

    return answers


def starts(session: Session) -> list[CompactionStart]:
    """The compactions that began."""
    return [e.data for e in session.events if isinstance(e.data, CompactionStart)]


def codes(session: Session) -> list[str | None]:
    """How each compaction ended: None, or the code of its error."""
    found = [e.data.error for e in session.events if isinstance(e.data, CompactionEnd)]
    return [error["code"] if isinstance(error, dict) else error for error in found]


def failures(session: Session) -> list[Failure | None]:
    """What came of each request for a summary."""
    found = [e.data for e in session.events if isinstance(e.data, CompactionSummary)]
    return [summary.error for summary in found]


def standing(session: Session) -> list[AnyEvent]:
    """The messages on the surface that stand for others by a compaction."""
    found = [session.event_at(seq) for seq in session.surface.seqs]
    return [e for e in found if e.message is not None and e.message.source.kind == "compaction"]


def assert_openai(bodies: list[bytes]) -> None:
    """Each body is one that the provider takes."""
    for body in bodies:
        require_valid(check_openai(json.loads(body)))
