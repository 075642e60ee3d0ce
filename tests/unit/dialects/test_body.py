"""The incremental encoder: what it keeps, what it encodes again, and why."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dialects.histories import History, header
from turnlog.content import Message, Source, Text, ToolCall, assistant_message, user_message
from turnlog.dialects import ENCODERS, Encoder, encoder
from turnlog.dialects.anthropic_v1 import AnthropicMessages
from turnlog.dialects.carry import Carry
from turnlog.errors import ConversionError, UnknownEncoder
from turnlog.views import sequence
from turnlog.views.sequence import Builder

HEADER = header("anthropic")
USER = ("user", [Text("hi")], None)


class Counting(AnthropicMessages):
    """Anthropic's dialect, which counts the messages that it encodes."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, message: Message, carry: Carry, provider: str, out: list[bytes]) -> None:
        """Count, and encode."""
        self.count += 1
        super().add(message, carry, provider, out)


@pytest.fixture(autouse=True)
def _small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(sequence, "LEAF", 4)


def asked(*ids: str) -> tuple[Any, ...]:
    """An answer that makes calls."""
    return ("assistant", [ToolCall(i, "read", "{}") for i in ids], None)


def result(call_id: str) -> tuple[Any, ...]:
    """The result of a call."""
    return ("tool", call_id, [Text("ok")], False)


def made_of(*steps: tuple[Any, ...]) -> History:
    """A history of these steps."""
    made = History()
    for step in steps:
        made.add(step)
    return made


def test_an_append_encodes_what_is_new() -> None:
    """After a hundred messages one more costs one, whatever came before."""
    made, dialect = made_of(*[USER, ("assistant", [Text("yes")], None)] * 50), Counting()
    kept = Encoder(dialect).incremental()
    kept.encode(HEADER, made.session.request_messages())
    assert dialect.count == 100
    made.add(USER)
    kept.encode(HEADER, made.session.request_messages())
    assert dialect.count == 101


def test_a_result_that_takes_its_slot_encodes_its_group() -> None:
    """A placeholder gives way to its result: what precedes it in the same leaf is kept."""
    made, dialect = made_of(*[USER] * 6, asked("a")), Counting()
    kept = Encoder(dialect).incremental()
    kept.encode(HEADER, made.session.request_messages())
    before = dialect.count
    made.add(result("a"))
    kept.encode(HEADER, made.session.request_messages())
    assert dialect.count == before + 1


def test_full_leaves_are_handed_over_uncopied() -> None:
    """Two bodies share the segments of their common history."""
    made = made_of(*[USER] * 20)
    kept = encoder("openai@1").incremental()
    first = kept.encode(HEADER, made.session.request_messages())
    made.add(USER)
    second = kept.encode(HEADER, made.session.request_messages())
    shared = [a is b for a, b in zip(first.segments, second.segments, strict=False)]
    assert sum(shared[1:5]) >= 3


def test_a_replacement_encodes_the_leaf_it_touches() -> None:
    """In a hundred messages, replacing one encodes a leaf, and the next if the roles changed."""
    steps = [USER, ("assistant", [Text("yes")], None)] * 50
    made, dialect = made_of(*steps), Counting()
    kept = Encoder(dialect).incremental()
    kept.encode(HEADER, made.session.request_messages())
    made.add(("replace", 0.5, 1, [Text("short")]))
    kept.encode(HEADER, made.session.request_messages())
    assert dialect.count <= 100 + 2 * sequence.LEAF


def test_a_body_is_bytes_with_a_digest() -> None:
    """Its segments joined, its length and its digest are those of the stateless encoding."""
    made = made_of(*[USER] * 9)
    messages = made.session.request_messages()
    raw = encoder("anthropic@1").encode(HEADER, messages)
    body = encoder("anthropic@1").incremental().encode(HEADER, messages)
    assert (bytes(body), body.to_bytes(), len(body)) == (raw, raw, len(raw))
    assert body.digest == f"sha256:{sha256(raw).hexdigest()}"


def check(kept: Any, made: History, name: str = "anthropic@1") -> None:
    """Compare the incremental body with the stateless one."""
    messages = made.session.request_messages()
    assert bytes(kept.encode(HEADER, messages)) == encoder(name).encode(HEADER, list(messages))


def test_a_role_that_changed_before_a_leaf_counts() -> None:
    """The first message of a leaf joins the one before it, which a replacement may have changed."""
    made = made_of(*[("assistant", [Text("so")], None)] * 12)
    kept = encoder("anthropic@1").incremental()
    check(kept, made)
    made.add(("replace", 0.3, 1, [Text("user now, at the end of the first leaf")]))
    check(kept, made)


def test_an_id_that_became_free_counts() -> None:
    """A call id is unique behind what is left of the history, not behind what was there once."""
    group = [asked("a"), result("a")]
    made = made_of(*group, *[USER] * 2, *[USER] * 8, *group, USER)
    kept = encoder("anthropic@1").incremental()
    check(kept, made)
    made.add(("replace", 0.0, 2, [Text("the first call is gone")]))
    check(kept, made)
    for step in [*group, USER, *group]:
        made.add(step)
        check(kept, made)


def test_an_id_that_became_free_is_free_for_what_is_new() -> None:
    """The open leaf was kept over a replacement, and hands out ids of the history as it is."""
    made = made_of(asked("a"), result("a"), *[USER] * 7)
    kept = encoder("anthropic@1").incremental()
    check(kept, made)
    made.add(("replace", 0.0, 2, [Text("the first call is gone")]))
    check(kept, made)
    made.add(asked("a"))
    check(kept, made)


def calling(ids: list[str], message_id: str) -> Message:
    """An answer that makes calls."""
    made = tuple(ToolCall(i, "read", "{}") for i in ids)
    return Message(message_id, "assistant", made, Source("model"))


said = st.builds(
    calling,
    st.lists(st.sampled_from("ab"), max_size=2),
    st.sampled_from(["same", "other"]),
)
pool = st.one_of(said, said, st.just(user_message("hi")))
moves = st.one_of(
    st.lists(pool, min_size=1, max_size=6),  # appended
    st.tuples(st.floats(0, 0.99), st.integers(1, 6), st.one_of(st.none(), pool)),  # replaced
)


@settings(max_examples=600)
@given(st.lists(moves, min_size=2, max_size=8))
def test_no_way_to_a_history_shows(made: list[Any]) -> None:
    """Calls come and go anywhere, ids repeat, messages share ids: the bytes are those of the list.

    The sequence is edited directly, with calls in replacements too, which no session does.
    """
    builder = Builder()
    kept, pure = encoder("anthropic@1").incremental(), encoder("anthropic@1")
    keys: list[int] = []
    for move in made:
        if isinstance(move, list):
            for message in cast("list[Message]", move):
                keys.append(keys[-1] + 1 if keys else 0)
                builder.append(keys[-1], message)
        elif keys:
            start, length, message = move
            low = int(start * len(keys))
            gone = keys[low : low + length]
            new = [] if message is None else [message]
            builder.splice(gone[0], gone[-1], gone[: len(new)], new)
            keys[low : low + length] = gone[: len(new)]
            keys = keys or [0]
            if not len(builder.snapshot()):
                builder.append(0, user_message("hi"))
        messages = builder.snapshot()
        wanted = pure.encode(HEADER, list(messages), instruction="Go on.")
        assert bytes(kept.encode(HEADER, messages, instruction="Go on.")) == wanted


def test_another_provider_starts_anew() -> None:
    """Reasoning goes back to its provider only, so that what was kept for another is no use."""
    made = made_of(*[USER] * 6)
    kept = encoder("anthropic@1").incremental()
    check(kept, made)
    for provider in ("bedrock", "anthropic"):
        head = header(provider)
        messages = made.session.request_messages()
        wanted = encoder("anthropic@1").encode(head, messages)
        assert bytes(kept.encode(head, messages)) == wanted


@pytest.mark.parametrize("name", ENCODERS)
def test_examples_come_before_the_history(name: str) -> None:
    """A header's worked examples are sent first, and may change from step to step."""
    made = made_of(*[USER] * 9)
    kept = encoder(name).incremental()
    shown: list[Any] = [
        {"role": "user", "content": "2 and 3?"},
        {"role": "assistant", "content": "5"},
    ]
    plain = header("anthropic")
    for head in (plain, type(plain)(plain.config, extra={"examples": shown}), plain):
        messages = made.session.request_messages()
        raw = bytes(kept.encode(head, messages))
        assert raw == encoder(name).encode(head, messages)
        assert (b"2 and 3?" in raw) == (head is not plain)
        assert json.loads(raw)["model"] == "m-1"


@pytest.mark.parametrize("name", ENCODERS)
def test_nothing_to_say_is_an_error(name: str) -> None:
    """A request without any message is not made."""
    head = type(HEADER)(HEADER.config)
    with pytest.raises(ConversionError, match="no message"):
        encoder(name).encode(head, [])


def test_an_unknown_encoder_is_named() -> None:
    """The error lists the encoders there are."""
    with pytest.raises(UnknownEncoder, match=r"openai@1.*got 'openai@9'"):
        encoder("openai@9")


@pytest.mark.parametrize("name", ENCODERS)
def test_an_instruction_comes_last(name: str) -> None:
    """An auxiliary request ends in its instruction and does not change the next body."""
    made = made_of(USER, ("assistant", [Text("yes")], None), USER)
    kept = encoder(name).incremental()
    messages = made.session.request_messages()
    plain = bytes(kept.encode(HEADER, messages))
    asking = bytes(kept.encode(HEADER, messages, instruction="Sum up."))
    assert "Sum up." in json.dumps(json.loads(asking)["messages"][-1])
    assert bytes(kept.encode(HEADER, messages)) == plain


def test_messages_need_no_session() -> None:
    """The stateless encoder takes any messages, and closes calls that lack a result."""
    call = assistant_message(ToolCall("a", "read", "{}"))
    body = json.loads(encoder("openai@1").encode(header("openai"), [user_message("hi"), call]))
    assert [message["role"] for message in body["messages"]][1:] == ["user", "assistant", "tool"]
