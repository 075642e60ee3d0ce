"""Histories for the encoders: what a session may hold, healthy and mangled, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from turnlog.content import (
    Block,
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    ToolCall,
)
from turnlog.events import (
    AssistantMessage,
    Header,
    ModelConfig,
    SystemMessage,
    ToolResult,
    ToolSchema,
)
from turnlog.records import Opaque
from turnlog.session import Session

PROVIDERS = ("openai", "deepseek", "anthropic")
TOOL = ToolSchema("read", "Read a file.", {"type": "object", "properties": {"path": {}}})

said = st.sampled_from(
    ["hi", "  spaced out \n", "line\u2028end", "\ud83d alone", "\ud83d\ude00", "\x00"]
)
said_or_blank = st.one_of(said, st.just(" "))
# Ids that are fine, that repeat, that providers refuse, and that collide once they are cleaned.
call_ids = st.sampled_from(["a", "b", "Write:6", "Write|6", "a|b", "\ud800", "\udfff", "x" * 80])
arguments = st.sampled_from(
    [
        "{}",
        "",
        '{"path": "x"}',
        "{",
        "[1]",
        '{"n": 1e999}',
        '{"s": "\\ud800"}',
        '"\ud800"',
        "[" * 600,
    ]
)
providers = st.sampled_from([None, *PROVIDERS])

texts = st.builds(Text, said_or_blank)
images = st.one_of(
    st.just(Image("image/png", "aGk=")),
    st.just(Image("image/tiff", "aGk=")),
    st.just(Image(url="https://images.example/x.png")),
    st.just(Image(extra={"attachment": "x"})),
)
documents = st.just(
    Opaque(
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
    )
)
strange = st.just(Opaque({"type": "hologram", "rays": [1, 2]}))
reasonings = st.one_of(
    st.builds(Reasoning, st.just("hm")),
    st.builds(Reasoning, st.sampled_from(["hm", ""]), signature=st.just("c2ln")),
    st.builds(Reasoning, encrypted=st.just("ZW5j")),
)
calls = st.builds(ToolCall, call_ids, st.sampled_from(["read", "a b", "é" * 70]), arguments)
answers = st.lists(st.one_of(texts, reasonings, calls, images), min_size=1, max_size=5)
questions = st.lists(st.one_of(texts, images, strange), min_size=1, max_size=3)


@dataclass
class History:
    """A session that grows by steps which always fit; ids and times are counted."""

    session: Session = field(
        default_factory=lambda: Session.create(
            "h", clock=count(1).__next__, new_id=map("id-{}".format, count()).__next__
        )
    )
    ids: Callable[[], str] = field(
        default_factory=lambda: map(lambda n: f"m{n}" if n % 5 else "same", count()).__next__  # noqa: C417
    )

    def add(self, step: tuple[Any, ...]) -> None:
        """Append what the step says."""
        kind, *rest = step
        getattr(self, f"_{kind}")(*rest)

    def _user(self, content: list[Block], provider: str | None) -> None:
        message = Message(self.ids(), "user", tuple(content), Source("user", provider))
        self.session.append("user/message", message, surface_op="append")

    def _assistant(self, content: list[Block], provider: str | None) -> None:
        message = Message(self.ids(), "assistant", tuple(content), Source("model", provider))
        self.session.append("assistant/message", AssistantMessage(message), surface_op="append")

    def _tool(self, call_id: str, content: list[Block], is_error: Any) -> None:
        source = Source("tool", call_id=call_id)
        message = Message(self.ids(), "tool", tuple(content), source, call_id, is_error)
        self.session.append("tool/result", ToolResult(message), surface_op="append")

    def _system(self, text: str, role: Any) -> None:
        message = Message(self.ids(), role, (Text(text),), Source("system"))
        kind = "system/message" if role == "system" else "developer/message"
        self.session.append(kind, SystemMessage(message), surface_op="append")

    def _replace(self, start: float, length: int, content: list[Block]) -> None:
        nodes = self.session.surface.seqs
        if not len(nodes):
            return
        low = int(start * len(nodes))
        shadowed = list(nodes[low : low + length])
        message = Message(self.ids(), "user", tuple(content), Source("compaction"))
        op = {"op": "replace", "start": shadowed[0], "end": shadowed[-1]}
        self.session.append(
            "user/message", message, surface_op=op, source_event_seqs=sorted(shadowed)
        )


def _group(draw: Callable[..., Any], provider: str | None) -> list[tuple[Any, ...]]:
    """An answer with calls and all their results, in call order."""
    number = draw(st.integers(1, 3))
    asked = [draw(calls) for _ in range(number)]
    content: list[Block] = [*draw(st.lists(st.one_of(reasonings, texts), max_size=2)), *asked]
    return [
        ("assistant", content, provider),
        *(
            ("tool", call.id, draw(st.lists(texts, max_size=1)), draw(st.booleans()))
            for call in asked
        ),
    ]


@st.composite
def groups(draw: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """A turn as a loop writes it."""
    return [("user", [Text(draw(said))], None), *_group(draw, draw(providers))]


single = st.one_of(
    st.tuples(st.just("user"), questions, st.none()),
    st.tuples(st.just("user"), st.lists(documents, min_size=1, max_size=1), providers),
    st.tuples(st.just("assistant"), answers, providers),
    st.tuples(
        st.just("tool"),
        call_ids,
        st.lists(st.one_of(texts, images, strange), max_size=2),
        st.sampled_from([None, True, False]),
    ),
    st.tuples(st.just("system"), said, st.sampled_from(["system", "developer"])),
)
replacements = st.tuples(
    st.just("replace"),
    st.floats(0, 0.99),
    st.integers(1, 8),
    st.lists(texts, min_size=1, max_size=2),
)


def steps(*, replacing: bool = True) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Steps for `History.add`: whole turns, single messages in any order, replacements."""
    kinds: list[st.SearchStrategy[Any]] = [groups(), st.lists(single, min_size=1, max_size=3)]
    if replacing:
        kinds.append(st.lists(replacements, min_size=1, max_size=1))
    parts = st.lists(st.one_of(kinds), max_size=8)
    return parts.map(lambda several: [step for part in several for step in part])


def header(provider: str, **extra: Any) -> Header:
    """A header that asks `provider`."""
    config = ModelConfig(provider, "m-1", extra=extra or None)
    return Header(config, system="Be brief.", tools=(TOOL,))
