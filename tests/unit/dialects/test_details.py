"""What each encoder makes of one thing at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnlog.content import (
    Block,
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    ToolCall,
    assistant_message,
    tool_message,
    user_message,
)
from turnlog.dialects import ENCODERS, encoder
from turnlog.events import Header, ModelConfig, ToolSchema
from turnlog.records import Opaque

TOOL = ToolSchema("read", "Read a file.", {"type": "object"})
HI = user_message("hi")


def sent(name: str, *messages: Message, **config: Any) -> Any:
    """The body for these messages; the configuration's provider is the dialect's own."""
    provider = config.pop("provider", name.partition("@")[0])
    tools = config.pop("tools", (TOOL,))
    header = Header(ModelConfig(provider, "m", **config), tools=tools)
    return json.loads(encoder(name).encode(header, messages))


def answer(provider: str | None, *content: Block) -> Message:
    """A model's answer."""
    return Message("m", "assistant", content, Source("model", provider))


def group(*calls: ToolCall) -> list[Message]:
    """An answer that makes calls, and their results."""
    results = [tool_message(call.id, f"result of {call.id}") for call in calls]
    return [assistant_message(calls), *results]


@pytest.mark.parametrize("name", ["openai@1", "deepseek@1", "anthropic@1"])
@pytest.mark.parametrize(
    "ids", [["Write:6"], ["a|b"], ["x" * 80], [""], ["W:6", "W|6"], ["a", "a"]]
)
def test_a_result_follows_the_id_of_its_call(name: str, ids: list[str]) -> None:
    """Whatever becomes of an id, the result's is the same, and no two calls share one."""
    body = sent(name, HI, *group(*[ToolCall(i, "read", "{}") for i in ids]))
    flat = json.dumps(body)
    if name == "anthropic@1":
        given = [block["id"] for block in body["messages"][1]["content"]]
        answered = [block["tool_use_id"] for block in body["messages"][2]["content"]]
    else:
        given = [call["id"] for call in body["messages"][1]["tool_calls"]]
        answered = [message["tool_call_id"] for message in body["messages"][2:]]
    assert given == answered
    assert len(set(given)) == len(ids), flat


def test_legal_ids_stay() -> None:
    """An id that a provider takes is sent as it is, colons too where they are taken."""
    openai = sent("openai@1", HI, *group(ToolCall("Write:6", "read", "{}")))
    assert openai["messages"][1]["tool_calls"][0]["id"] == "Write:6"
    anthropic = sent("anthropic@1", HI, *group(ToolCall("toolu_01", "read", "{}")))
    assert anthropic["messages"][1]["content"][0]["id"] == "toolu_01"


def test_an_id_may_come_again_for_openai_and_not_for_anthropic() -> None:
    """Anthropic wants ids unique in a request: the second call with an id gets another."""
    twice = [HI, *group(ToolCall("a", "read", "{}")), HI, *group(ToolCall("a", "read", "{}"))]
    openai = [
        m["tool_calls"][0]["id"] for m in sent("openai@1", *twice)["messages"] if "tool_calls" in m
    ]
    assert openai == ["a", "a"]
    uses = [
        block["id"]
        for message in sent("anthropic@1", *twice)["messages"]
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    assert uses[0] == "a"
    assert uses[1] != "a"


DEEP = '{"x":' + "[" * 450 + "]" * 450 + "}"
ARGUMENTS: list[tuple[str, Any]] = [
    ('{"x": 1.0}', {"x": 1.0}),
    ("", {}),
    (" \n", {}),
    ("{", {"_raw": "{"}),
    ("[1]", {"_raw": "[1]"}),
    ('{"x": NaN}', {"_raw": '{"x": NaN}'}),
    ('{"x": "\\ud800"}', {"x": "\ufffd"}),
    (DEEP, {"_raw": DEEP}),
    ('{"x": [' + ",".join(["{}"] * 900) + "]}", {"x": [{}] * 900}),
]


@pytest.mark.parametrize(("arguments", "given"), ARGUMENTS)
def test_arguments_are_an_object(arguments: str, given: Any) -> None:
    """For Anthropic as such; for others as a string that holds one; else the raw string in one."""
    call = ToolCall("a", "read", arguments)
    body = sent("anthropic@1", HI, *group(call))
    assert body["messages"][1]["content"][0]["input"] == given
    wire = sent("openai@1", HI, *group(call))["messages"][1]["tool_calls"][0]
    text = wire["function"]["arguments"]
    kept = given and "_raw" not in given
    assert (text == arguments) if kept else (json.loads(text) == given)


THOUGHT = Reasoning("hm", "c2ln")


@pytest.mark.parametrize(
    ("provider", "blocks", "kinds"),
    [
        ("anthropic", [THOUGHT, Text("x")], ["thinking", "text"]),
        ("anthropic", [Reasoning(encrypted="ZW5j"), Text("x")], ["redacted_thinking", "text"]),
        ("anthropic", [THOUGHT, Text("x"), THOUGHT], ["thinking", "text"]),
        ("anthropic", [Reasoning("hm"), Text("x")], ["text"]),
        ("openai", [THOUGHT, Text("x")], ["text"]),
        (None, [THOUGHT, Text("x")], ["text"]),
        (
            "anthropic",
            [Opaque({"type": "server_tool_use", "id": "s"}), Text("x")],
            ["server_tool_use", "text"],
        ),
        ("openai", [Opaque({"type": "server_tool_use", "id": "s"}), Text("x")], ["text"]),
    ],
)
def test_private_blocks_go_home_only(provider: str, blocks: list[Block], kinds: list[str]) -> None:
    """Signed or encrypted reasoning and unknown blocks are sent to the provider that made them."""
    body = sent("anthropic@1", HI, answer(provider, *blocks), HI)
    assert [block["type"] for block in body["messages"][1]["content"]] == kinds


def test_thinking_blocks_are_replayed_in_place() -> None:
    """Two signed thoughts among calls come back where they were, unaltered."""
    first, second = ToolCall("a", "read", "{}"), ToolCall("b", "read", "{}")
    said = answer("anthropic", THOUGHT, Text("x"), first, Reasoning("more", "s2"), second)
    body = sent("anthropic@1", HI, said, tool_message("a", "1"), tool_message("b", "2"))
    content = body["messages"][1]["content"]
    assert content[0] == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert content[3] == {"type": "thinking", "thinking": "more", "signature": "s2"}


@pytest.mark.parametrize(("provider", "kind"), [("anthropic", "enabled"), ("openai", "disabled")])
def test_thinking_is_off_where_the_history_forbids_it(provider: str, kind: str) -> None:
    """In an open tool loop of another provider there is no thought to begin with."""
    extra = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
    said = answer(provider, THOUGHT, ToolCall("a", "read", "{}"))
    body = sent("anthropic@1", HI, said, tool_message("a", "1"), extra=extra)
    assert body["thinking"]["type"] == kind


def test_deepseek_gets_its_reasoning_back() -> None:
    """Its own, and that of unknown origin; a call without any has an empty one."""
    call = ToolCall("a", "read", "{}")
    for provider, wanted in (("deepseek", "hm"), (None, "hm"), ("anthropic", "")):
        said = answer(provider, Reasoning("hm"), call)
        body = sent("deepseek@1", HI, said, tool_message("a", "1"))
        assert body["messages"][1]["reasoning_content"] == wanted
    body = sent("deepseek@1", HI, answer("deepseek", Text("x")))
    assert "reasoning_content" not in body["messages"][1]


def test_openai_gets_no_reasoning() -> None:
    """Chat completions have no place for it."""
    assert "hm" not in json.dumps(
        sent("openai@1", HI, answer("openai", Reasoning("hm"), Text("x")))
    )


@pytest.mark.parametrize("name", ENCODERS)
def test_an_answer_with_nothing_left_is_not_sent(name: str) -> None:
    """Reasoning that stays here may be all there was."""
    body = sent(name, HI, answer("other", Reasoning("hm")), HI)
    assert "assistant" not in [message["role"] for message in body["messages"]]


@pytest.mark.parametrize("name", ENCODERS)
def test_surrogates_are_replaced_on_the_wire_only(name: str) -> None:
    """A lone one becomes U+FFFD, a pair its character; the message keeps both."""
    message = user_message("\ud83d alone, \ud83d\ude00 pair")
    body = sent(name, message)
    assert "\ufffd alone, \U0001f600 pair" in json.dumps(body, ensure_ascii=False)
    assert message.text == "\ud83d alone, \ud83d\ude00 pair"


def test_roles_take_turns_for_anthropic() -> None:
    """Neighbours of a role are one message; results come first in theirs."""
    call = ToolCall("a", "read", "{}")
    told = [HI, HI, assistant_message(call), tool_message("a", "1"), HI, assistant_message("b")]
    body = sent("anthropic@1", assistant_message("a"), *told, assistant_message("c"))
    shape = [
        (message["role"], [block["type"] for block in message["content"]])
        for message in body["messages"]
    ]
    assert shape == [
        ("user", ["text"]),
        ("assistant", ["text"]),
        ("user", ["text", "text"]),
        ("assistant", ["tool_use"]),
        ("user", ["tool_result", "text"]),
        ("assistant", ["text", "text"]),
    ]


def test_system_text_has_its_place() -> None:
    """Before anything else it is Anthropic's `system`; later, a user's text that says so."""
    system = Message("s", "system", (Text("rule"),), Source("system"))
    body = sent("anthropic@1", system, HI, system)
    assert body["system"] == [{"type": "text", "text": "rule"}]
    assert body["messages"][0]["content"][1]["text"] == "[system message] rule"
    roles = [m["role"] for m in sent("openai@1", system, HI, system)["messages"]]
    assert roles == ["system", "user", "system"]


def test_errors_and_images_of_tools() -> None:
    """Anthropic takes both in the result; for OpenAI the image follows the group."""
    image = Image("image/png", "aGk=")
    two = [ToolCall("a", "read", "{}"), ToolCall("b", "read", "{}")]
    told = [
        HI,
        assistant_message(two),
        tool_message("a", image, is_error=True),
        tool_message("b", "2"),
    ]
    block = sent("anthropic@1", *told)["messages"][2]["content"][0]
    assert block["is_error"] is True
    assert block["content"][0]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "aGk=",
    }
    messages = sent("openai@1", *told)["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert messages[4]["content"][0]["image_url"]["url"] == "data:image/png;base64,aGk="


@pytest.mark.parametrize("image", [Image(), Image("image/tiff", "aGk="), Image(extra={"a": "b"})])
def test_an_image_that_cannot_be_sent_is_a_note(image: Image) -> None:
    """Media types that Anthropic refuses and references we do not follow become text."""
    content = sent("anthropic@1", user_message(image))["messages"][0]["content"]
    assert content == [{"type": "text", "text": "[image omitted]"}]


def test_configuration_goes_to_its_fields() -> None:
    """Each dialect has its own names for the same things; what we do not know is passed on."""
    config: dict[str, Any] = {
        "temperature": 0.5,
        "max_tokens": 9,
        "stop": ("END",),
        "tool_choice": "required",
        "extra": {"top_p": 0.1, "messages": "never"},
    }
    openai = sent("openai@1", HI, **config)
    assert (openai["max_completion_tokens"], openai["stop"], openai["top_p"]) == (9, ["END"], 0.1)
    assert openai["tool_choice"] == "required"
    assert sent("openai@1", HI, provider="vllm", **config)["max_tokens"] == 9
    anthropic = sent("anthropic@1", HI, **config)
    assert (anthropic["max_tokens"], anthropic["stop_sequences"]) == (9, ["END"])
    assert anthropic["tool_choice"] == {"type": "any"}
    assert "tool_choice" not in sent("anthropic@1", HI, **config, tools=())
    assert sent("deepseek@1", HI, reasoning_effort="none")["thinking"] == {"type": "disabled"}
    assert sent("anthropic@1", HI)["max_tokens"] == 8192


@pytest.mark.parametrize("name", ["openai@1", "deepseek@1", "anthropic@1"])
def test_orphans_and_strays_do_not_break_a_group(name: str) -> None:
    """Results of unknown calls wait for the end of the group that they came into."""
    two = [ToolCall("a", "read", "{}"), ToolCall("b", "read", "{}")]
    told = [
        assistant_message(two),
        tool_message("a", "1"),
        tool_message("zz", "lost"),
        tool_message("b", "2"),
    ]
    body = sent(name, HI, *told)
    last = json.dumps(body["messages"][-1])
    assert "unknown call" in last
    assert "lost" in last
