"""Source events in our shapes: what is renamed, lifted, named, and what is left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from turnlog.interop.dsh import upcast, upcast_type

TEXT = [{"type": "text", "text": "hi"}]
NAME = "legacy-message:s:7"


def read(version: int, event_type: str, data: Any) -> Any:
    """Upcast seq 7 of session s, and see that the input is not touched."""
    before = copy.deepcopy(data)
    result = upcast(version, event_type, data, session="s", seq=7)
    assert data == before
    return result


def result(content: Any, **more: Any) -> dict[str, Any]:
    """A tool result as v0 to v3 have it."""
    source = {"kind": "tool", "callId": "c"}
    message = {"id": "m", "role": "user", "source": source, "content": content}
    return {"turn": 1, "step": 1, "message": {**message, **more}}


def wrapper(**more: Any) -> dict[str, Any]:
    """The block around a tool's content."""
    return {"type": "tool-result", "toolCallId": "c", "content": TEXT, **more}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_lifted_result(version: int) -> None:
    """A tool result loses its wrapper; what else stood in it stays in the message."""
    data = read(version, "tool/result", result([wrapper(isError=True, acme=1)], kept=2))
    assert data == {
        "turn": 1,
        "step": 1,
        "message": {
            "id": "m",
            "role": "tool",
            "source": {"kind": "tool", "callId": "c"},
            "toolCallId": "c",
            "isError": True,
            "content": TEXT,
            "acme": 1,
            "kept": 2,
        },
    }


def test_a_result_without_error_flag() -> None:
    """A wrapper that does not say whether it failed did not."""
    assert read(3, "tool/result", result([wrapper()]))["message"]["isError"] is False


@pytest.mark.parametrize(
    "content",
    [
        [],
        [wrapper(), wrapper()],
        TEXT,
        "text",
        [None],
        [wrapper(toolCallId=1)],
        [wrapper(content="x")],
        [wrapper(isError="no")],
        [wrapper(id="taken")],
    ],
)
def test_malformed_wrapper(content: Any) -> None:
    """A wrapper that is not as it should be is left as it is."""
    data = result(content)
    assert read(3, "tool/result", data) == data


@pytest.mark.parametrize(
    ("source", "role", "ours"),
    [
        (
            {"kind": "plugin", "plugin": "compact", "compactionId": "k"},
            "user",
            {"kind": "compact-checkpoint", "compactionId": "k"},
        ),
        (
            {"kind": "plugin", "plugin": "@deepseek-ai/dsh-system-prompt"},
            "system",
            {"kind": "system-prompt"},
        ),
        (
            {"kind": "plugin", "plugin": "@deepseek-ai/dsh-system-prompt", "form": "snapshot"},
            "user",
            {"kind": "runtime-context", "form": "snapshot"},
        ),
        ({"kind": "plugin", "plugin": "acme"}, "user", {"kind": "plugin", "plugin": "acme"}),
        ({"kind": "user", "plugin": "compact"}, "user", {"kind": "user", "plugin": "compact"}),
        ("user", "user", "user"),
    ],
)
def test_sources(source: Any, role: str, ours: Any) -> None:
    """Plugin sources whose new names real files show get them; all others stay."""
    message = {"id": "m", "role": role, "content": TEXT, "source": source}
    if role == "system":
        data = read(3, "system/message", {"turn": 1, "step": 1, "message": message})["message"]
    else:
        data = read(3, "user/message", message)
    assert data == {**message, "source": ours}


@pytest.mark.parametrize("version", range(5))
def test_a_message_without_id(version: int) -> None:
    """A message without id is named after its session and seq, in every version."""
    message = {"role": "user", "content": TEXT, "source": {"kind": "user"}}
    assert read(version, "user/message", message) == {**message, "id": NAME}
    data = {"turn": 1, "step": 1, "message": {**message, "role": "assistant"}}
    assert read(version, "assistant/message", data)["message"]["id"] == NAME


def test_v4_is_ours() -> None:
    """A message of version 4, its embedded stream and unknown fields come back as they are."""
    message = {"id": "m", "role": "assistant", "content": TEXT, "source": {"kind": "model"}}
    data = {"turn": 1, "step": 1, "message": message, "stream": [{"type": "chunk"}], "acme": 1}
    assert read(4, "assistant/message", data) == data


def test_renamed_types() -> None:
    """Types that were renamed within version 0 get their later names; others keep theirs."""
    assert upcast_type("steering/message") == "user/message"
    assert upcast_type("compact/start") == "compaction/start"
    assert upcast_type("acme/steering") == "acme/steering"


def test_legacy_user() -> None:
    """A user message from before ids gets role and id."""
    data = {"content": TEXT, "source": {"kind": "user"}}
    assert read(0, "user/message", data) == {**data, "role": "user", "id": NAME}


def test_legacy_steering() -> None:
    """A steering message is the user message in it, or the one that it is beside its turn."""
    ours = {"content": TEXT, "source": {"kind": "user"}, "role": "user", "id": "m"}
    assert read(0, "steering/message", {"turn": 2, "message": ours}) == ours
    bare = {"turn": 2, "content": TEXT, "source": {"kind": "user"}}
    assert read(0, "steering/message", bare) == {**ours, "id": NAME}


def test_legacy_assistant() -> None:
    """Content and provenance become a message of the model that they name."""
    data = {
        "turn": 1,
        "step": 1,
        "content": TEXT,
        "provenance": {"provider": "p", "model": "m"},
        "usage": {"inputTokens": 1},
    }
    source = {"provider": "p", "model": "m", "kind": "model"}
    message = {"id": NAME, "role": "assistant", "content": TEXT, "source": source}
    expected = {"turn": 1, "step": 1, "usage": {"inputTokens": 1}, "message": message}
    assert read(0, "assistant/message", data) == expected


def test_legacy_result() -> None:
    """Call id, content and error flag become a tool's message."""
    data = {"turn": 1, "step": 1, "callId": "c", "content": TEXT, "isError": True, "meta": 1}
    assert read(0, "tool/result", data) == {
        "turn": 1,
        "step": 1,
        "meta": 1,
        "message": {
            "id": NAME,
            "role": "tool",
            "toolCallId": "c",
            "isError": True,
            "content": TEXT,
            "source": {"kind": "tool", "callId": "c"},
        },
    }


FAILURE = {"message": "m", "code": "C"}


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        (
            {"kind": "error", "step": 2, "failure": FAILURE},
            {"kind": "error", "step": 2, "error": FAILURE},
        ),
        (
            {"kind": "error", "step": 2, "message": "m", "code": "C"},
            {"kind": "error", "step": 2, "error": FAILURE},
        ),
        (
            {"kind": "error", "step": 2, "message": "m"},
            {"kind": "error", "step": 2, "error": {"message": "m", "code": "UNKNOWN"}},
        ),
        ({"kind": "completed"}, {"kind": "completed"}),
        ({"kind": "error", "error": FAILURE}, {"kind": "error", "error": FAILURE}),
        ({"kind": "acme/new", "x": 1}, {"kind": "acme/new", "x": 1}),
        ("completed", "completed"),
    ],
)
def test_legacy_ends(reason: Any, ours: Any) -> None:
    """Old ways to say why a turn ended are read as ours; unknown ones are kept."""
    assert read(0, "turn/end", {"turn": 1, "reason": reason}) == {"turn": 1, "reason": ours}


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("data", [None, 1, "x", [], {}, {"message": None}, {"content": None}])
@pytest.mark.parametrize(
    "event_type", ["turn/end", "tool/result", "assistant/message", "acme/unknown", "mode/set"]
)
def test_what_is_not_recognised(version: int, data: Any, event_type: str) -> None:
    """Data of no known shape, and any data of unknown types, come back as they are."""
    assert read(version, event_type, data) == data
