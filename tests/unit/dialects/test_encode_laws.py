"""The laws of every encoder, on histories of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dialects.histories import PROVIDERS, History, header, steps
from turnlog.dialects import encoder
from turnlog.errors import ConversionError
from turnlog.testing.providers import check_anthropic, check_openai, require_valid
from turnlog.views import sequence

NAMES = {provider: f"{provider}@1" for provider in PROVIDERS}
providers = st.sampled_from(PROVIDERS)
Step = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(sequence, "LEAF", 4)


def require(provider: str, body: bytes) -> None:
    """Let the judge of the provider's rules look at a body."""
    wire = json.loads(body)
    if provider == "anthropic":
        require_valid(check_anthropic(wire))
    else:
        require_valid(check_openai(wire, "deepseek" if provider == "deepseek" else "openai"))


@settings(max_examples=300)
@given(steps(), providers)
def test_providers_accept_every_body(history: list[Step], provider: str) -> None:
    """Whatever the history, its request messages are encoded to a body the judge accepts."""
    made = History()
    for step in history:
        made.add(step)
    messages = made.session.request_messages()
    try:
        body = encoder(NAMES[provider]).encode(header(provider), messages)
    except ConversionError:
        instruction = "Sum up."
        body = encoder(NAMES[provider]).encode(header(provider), messages, instruction=instruction)
    require(provider, body)


@settings(max_examples=150)
@given(steps())
def test_thinking_survives_every_history(history: list[Step]) -> None:
    """With a thinking budget the body is accepted too: thinking is off where it cannot be on."""
    made = History()
    for step in history:
        made.add(step)
    thinking = {"type": "enabled", "budget_tokens": 2048}
    body = encoder("anthropic@1").encode(
        header("anthropic", thinking=thinking), made.session.request_messages(), instruction="go"
    )
    require("anthropic", body)


looks = st.tuples(
    st.sampled_from(["nothing", "body", "body", "auxiliary", "earlier"]),
    st.one_of(st.none(), st.none(), st.none(), providers),
)


@settings(max_examples=400)
@given(steps(), providers, st.data())
def test_incremental_equals_stateless(
    history: list[Step], provider: str, data: st.DataObject
) -> None:
    """Body by body, with appends, replacements, older views and auxiliary requests between."""
    made = History()
    pure = encoder(NAMES[provider])
    kept = pure.incremental()
    head = header(provider)
    for step, (look, other) in zip(history, data.draw(_as_long_as(history)), strict=True):
        made.add(step)
        head = head if other is None else header(other)
        earlier = look == "earlier" and made.session.next_seq
        messages = made.session.request_messages(made.session.next_seq // 2 if earlier else None)
        instruction = "Sum up." if look == "auxiliary" else None
        if look == "nothing":
            continue
        try:
            wanted = pure.encode(head, list(messages), instruction=instruction)
        except ConversionError:
            with pytest.raises(ConversionError):
                kept.encode(head, messages, instruction=instruction)
            continue
        body = kept.encode(head, messages, instruction=instruction)
        assert bytes(body) == wanted
        assert len(body) == len(wanted)


def _as_long_as(history: list[Step]) -> st.SearchStrategy[list[tuple[str, str | None]]]:
    return st.lists(looks, min_size=len(history), max_size=len(history))


@settings(max_examples=150)
@given(steps(replacing=False), steps(replacing=False), providers)
def test_a_longer_history_extends_the_same_prefix(
    first: list[Step], second: list[Step], provider: str
) -> None:
    """System, tools and content blocks of a request are, one by one, a prefix of the next one's."""
    made = History()
    pure = encoder(NAMES[provider])
    bodies: list[Any] = []
    for part in (first, second):
        for step in part:
            made.add(step)
        messages = made.session.request_messages()
        if any(mend.kind == "open-call" for mend in messages.mends):
            return  # a placeholder gives way to its result: that is no continuation
        bodies.append([] if not len(messages) else _elements(pure, provider, messages))
    assert bodies[1][: len(bodies[0])] == bodies[0]


def _elements(pure: Any, provider: str, messages: Any) -> list[bytes]:
    try:
        return list(_blocks(json.loads(pure.encode(header(provider), messages))))
    except ConversionError:
        return []


def _blocks(body: Any) -> Iterator[Any]:
    yield body.get("system") if isinstance(body.get("system"), str) else None
    yield from body["tools"]
    for message in body["messages"]:
        content = message["content"]
        yield message["role"]
        if isinstance(content, list):
            yield from content
        else:
            yield message
