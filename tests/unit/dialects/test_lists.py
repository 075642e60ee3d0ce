"""Message lists are adopted, and given back as they were."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dialects.histories import History, header, steps
from tests.unit.dialects.lists import anthropic_lists, openai_lists
from turnlog.content import Reasoning, Text, ToolCall
from turnlog.dialects import anthropic_messages, encoder, openai_messages
from turnlog.dialects.adopt import guess_dialect
from turnlog.errors import ConversionError, InvalidMessages
from turnlog.session import Session
from turnlog.testing.providers import check_anthropic, check_openai, require_valid

Json = dict[str, Any]
CALL: Json = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MARKED: Json = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
USE: Json = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}


def as_json(value: Any) -> str:
    """A list with its types told apart (1 and 1.0 and true), whatever the order of keys."""
    return json.dumps(value, sort_keys=True)


@settings(max_examples=300)
@given(openai_lists())
def test_an_openai_list_comes_out_equal(given_list: list[Json]) -> None:
    """Strings and parts, nulls, odd calls and unknown keys: all of it survives the session."""
    before = copy.deepcopy(given_list)
    session = Session.from_messages(given_list, dialect="openai")
    assert as_json(session.to_messages("openai")) == as_json(before)
    assert given_list == before


@settings(max_examples=300)
@given(anthropic_lists())
def test_an_anthropic_list_comes_out_equal(given_list: list[Json]) -> None:
    """Signatures, cache markers, several results in a message, results without content."""
    before = copy.deepcopy(given_list)
    session = Session.from_messages(given_list, dialect="anthropic")
    assert as_json(session.to_messages("anthropic")) == as_json(before)
    assert given_list == before


@settings(max_examples=100)
@given(st.one_of(openai_lists(), anthropic_lists()))
def test_an_adopted_session_survives_its_log(given_list: list[Json]) -> None:
    """Its events, written and read again, give the same list."""
    try:
        dialect = guess_dialect(given_list)
        session = Session.from_messages(given_list)
    except InvalidMessages:
        return
    events = [event.to_dict() for event in session.events]
    again = Session.from_events(session.header.to_dict(), json.loads(json.dumps(events)))
    assert as_json(again.to_messages(dialect)) == as_json(given_list)


@settings(max_examples=150)
@given(st.one_of(openai_lists(), anthropic_lists()), st.sampled_from(["openai", "deepseek"]))
def test_an_adopted_session_can_be_sent(given_list: list[Json], provider: str) -> None:
    """Whatever list it was made of, chat completions take what is encoded from it."""
    try:
        session = Session.from_messages(given_list)
    except InvalidMessages:
        return
    messages = session.request_messages()
    body = encoder(f"{provider}@1").encode(header(provider), messages, instruction="Go on.")
    require_valid(
        check_openai(json.loads(body), "deepseek" if provider == "deepseek" else "openai")
    )


@settings(max_examples=150)
@given(steps(), st.sampled_from(["openai", "anthropic"]))
def test_every_session_can_be_written_as_a_list(history: list[Any], dialect: Any) -> None:
    """What a session of any origin gives can be adopted again and then comes out equal."""
    made = History()
    for step in history:
        made.add(step)
    lists = openai_messages if dialect == "openai" else anthropic_messages
    written = made.session.to_messages(dialect)
    assert lists.write_messages(lists.read_messages(written)) == written


def test_a_plain_list_leaves_no_trace() -> None:
    """Usual spellings need no hints: the messages are as if they had been typed."""
    session = Session.from_messages(
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    )
    assert [message.extra for message in session.derive_messages()] == [None, None]


def test_the_messages_are_a_seed() -> None:
    """The header counts them; the first native event ends them and closes what was open."""
    session = Session.from_messages(
        [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [CALL]}]
    )
    assert session.header.seed_length == 2
    assert len(session) == 2
    session.add_user("and?")
    assert [event.type for event in session.events] == [
        "user/message",
        "assistant/message",
        "session/end-seed",
        "tool/result",
        "user/message",
    ]
    assert session.event_at(3).data.error.code == "TOOL_OUTCOME_UNKNOWN"
    assert session.request_messages().mends == ()


def test_a_result_that_comes_after_the_adoption_takes_the_place_of_its_placeholder() -> None:
    """No placeholder covers a real result, wherever that was appended."""
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ]
    session = Session.from_messages(messages)
    assert session.to_messages("openai") == messages
    session.add_tool_result(str(CALL["id"]), "the real one")
    assert [m.text for m in session.request_messages() if m.role == "tool"] == ["the real one"]
    assert [mend.kind for mend in session.request_messages().mends] == ["moved-result"]


def test_results_are_messages_of_their_own() -> None:
    """Two results and a text in one Anthropic message become three messages, in order."""
    session = Session.from_messages(
        [
            {"role": "assistant", "content": [USE, {**USE, "id": "b"}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b", "is_error": True},
                    {"type": "text", "text": "go on"},
                ],
            },
        ]
    )
    roles = [(m.role, m.tool_call_id, m.is_error) for m in session.request_messages()]
    assert roles == [
        ("assistant", None, None),
        ("tool", "a", None),
        ("tool", "b", True),
        ("user", None, None),
    ]


def test_blocks_are_read_as_ours() -> None:
    """Thinking, redacted thinking, text and calls become our blocks, in their places."""
    session = Session.from_messages(
        [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "d"},
                    {"type": "text", "text": "yes"},
                    USE,
                ],
            },
        ]
    )
    message = session.derive_messages()[1]
    assert message.content == (
        Reasoning("hm", "s"),
        Reasoning(encrypted="d"),
        Text("yes"),
        ToolCall("a", "f", '{"x":1}'),
    )
    assert message.source.provider == "anthropic"


def test_adopted_thinking_goes_back_to_anthropic() -> None:
    """A body for Anthropic carries the signed thinking of an adopted list, unaltered."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    answer = {"role": "assistant", "content": [thought, {"type": "text", "text": "yes"}]}
    session = Session.from_messages([{"role": "user", "content": "hi"}, answer])
    session.add_user("and?")
    body = json.loads(
        encoder("anthropic@1").encode(header("anthropic"), session.request_messages())
    )
    require_valid(check_anthropic(body))
    assert body["messages"][1] == answer


DIALECTS: list[tuple[list[Json], str]] = [
    ([{"role": "user", "content": "hi"}], "openai"),
    ([{"role": "tool", "tool_call_id": "a", "content": "x"}], "openai"),
    ([{"role": "assistant", "content": None, "tool_calls": [CALL]}], "openai"),
    ([{"role": "assistant", "content": [USE]}], "anthropic"),
    (
        [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}],
        "anthropic",
    ),
]


@pytest.mark.parametrize(("messages", "dialect"), DIALECTS)
def test_the_dialect_is_found_out(messages: list[Json], dialect: str) -> None:
    """By what only one of the two writes; where both read the same, it is OpenAI's."""
    assert guess_dialect(messages) == dialect


BAD: list[tuple[Any, int | None, str]] = [
    ("hi", None, "a list of messages, got str"),
    (7, None, "a list of messages, got int"),
    ([{"role": "user", "content": "hi"}, "x"], 1, "a message as a dict, got str"),
    ([{1: 2}], 0, "string keys, got 1"),
    ([{"content": "hi"}], 0, "role"),
    ([{"role": "function", "content": "hi"}], 0, "role"),
    ([{"role": "user"}], 0, "content"),
    ([{"role": "user", "content": 7}], 0, "content to be a list"),
    ([{"role": "user", "content": [7]}], 0, "a part as a dict"),
    ([{"role": "user", "content": [{"text": "x"}]}], 0, "a type"),
    ([{"role": "user", "content": [{"type": "text"}]}], 0, "text to be a string"),
    ([{"role": "tool", "content": "x"}], 0, "tool_call_id"),
    ([{"role": "assistant", "tool_calls": {}, "content": ""}, {"role": "x"}], 1, "role"),
    ([{"role": "assistant", "tool_calls": [{"id": "a", "type": "f"}]}], 0, "type function"),
    ([{"role": "assistant", "function_call": {}}], 0, "function_call"),
    ([{"role": "user", "content": "hi", "k": float("nan")}], 0, "finite"),
    ([{"role": "user", "content": "hi", "k": (1,)}], 0, "JSON"),
    ([{"role": "assistant", "content": [{**USE, "input": "x"}]}], 0, "input"),
    ([{"role": "assistant", "content": [{**USE, "input": {"x": {1}}}]}], 0, "input"),
    ([{"role": "assistant", "content": [USE]}, {"role": "tool"}], 1, "openai"),
    ([{"role": "user", "content": [{"type": "tool_result"}]}], 0, "tool_use_id"),
]


@pytest.mark.parametrize(("messages", "index", "why"), BAD)
def test_bad_input_is_refused_by_place(messages: Any, index: int | None, why: str) -> None:
    """The error says which message it was and what was expected of it."""
    with pytest.raises(InvalidMessages, match=why) as caught:
        Session.from_messages(messages)
    assert caught.value.index == index


def test_an_unknown_dialect_is_refused() -> None:
    """The error names the dialects there are."""
    dialect: Any = "klingon"
    with pytest.raises(ConversionError, match="openai, anthropic"):
        Session.create("x").to_messages(dialect)
