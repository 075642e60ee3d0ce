"""The judge of requests notices when the view is sabotaged, in ten ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from tests.properties.views import violations
from turnlog import Message, Reasoning, Session, Text, ToolCall
from turnlog.testing.builders import new_session
from turnlog.testing.providers import Rule

Messages = list[Message]


def interrupted() -> Session:
    """Two closed calls, blank blocks, an orphan, a late result, and a call that is open."""
    session = new_session()
    session.add_user("do it")
    session.add_assistant([Text("  "), ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")])
    session.add_user("hurry")
    session.add_tool_result("b", "two")
    session.add_tool_result("a", "one")
    session.add_tool_result("nobody", "orphan")
    session.add_assistant([Reasoning(" "), Text("and"), ToolCall("c", "f", "{}")])
    session.add_user("well?")
    return session


def results(messages: Messages) -> Iterator[int]:
    """Where the results are."""
    return (i for i, message in enumerate(messages) if message.role == "tool")


def drop_the_placeholder(messages: Messages) -> Messages:
    """Leave open calls open."""
    return [m for m in messages if not m.id.startswith("open-call")]


def keep_completion_order(messages: Messages) -> Messages:
    """Results in the order in which they came."""
    first, second, *_ = results(messages)
    messages[first], messages[second] = messages[second], messages[first]
    return messages


def keep_the_note_between(messages: Messages) -> Messages:
    """A message between a call and its result stays where it was."""
    first = next(results(messages))
    note = next(m for m in messages if m.text == "hurry")
    messages.remove(note)
    return [*messages[:first], note, *messages[first:]]


def keep_the_orphan(messages: Messages) -> Messages:
    """A result whose call is not there."""
    orphan = replace(messages[next(results(messages))], tool_call_id="nobody")
    return [messages[0], orphan, *messages[1:]]


def answer_twice(messages: Messages) -> Messages:
    """A placeholder and the real result."""
    first = next(results(messages))
    return [*messages[: first + 1], messages[first], *messages[first + 1 :]]


def keep_blank_text(messages: Messages) -> Messages:
    """A text of blanks."""
    return [replace(messages[0], content=(*messages[0].content, Text(" \n"))), *messages[1:]]


def keep_blank_reasoning(messages: Messages) -> Messages:
    """Reasoning that says nothing, not even to its provider."""
    at = next(i for i, m in enumerate(messages) if m.role == "assistant")
    messages[at] = replace(messages[at], content=(Reasoning(" "), *messages[at].content))
    return messages


def keep_the_empty_message(messages: Messages) -> Messages:
    """A message of which nothing is left."""
    return [replace(messages[0], content=()), *messages[1:]]


def call_as_user(messages: Messages) -> Messages:
    """A call that no assistant made."""
    return [replace(messages[0], content=(ToolCall("z", "f", "{}"),)), *messages[1:]]


def forget_whose_result(messages: Messages) -> Messages:
    """A result that does not say which call it answers."""
    first = next(results(messages))
    messages[first] = replace(messages[first], tool_call_id=None)
    return messages


def results_before_the_call(messages: Messages) -> Messages:
    """Sorted by a clock that runs backwards."""
    first = next(results(messages))
    result = messages.pop(first)
    return [result, *messages]


SABOTAGES: dict[Callable[[Messages], Messages], Rule] = {
    drop_the_placeholder: Rule.CALL_WITHOUT_RESULT,
    keep_completion_order: Rule.RESULT_OUT_OF_ORDER,
    keep_the_note_between: Rule.RESULT_NOT_ADJACENT,
    keep_the_orphan: Rule.RESULT_WITHOUT_CALL,
    answer_twice: Rule.RESULT_REPEATED,
    keep_blank_text: Rule.TEXT_EMPTY,
    keep_blank_reasoning: Rule.REASONING_EMPTY,
    keep_the_empty_message: Rule.CONTENT_EMPTY,
    call_as_user: Rule.CALL_OUTSIDE_ASSISTANT,
    forget_whose_result: Rule.RESULT_CALL_ID_MISSING,
    results_before_the_call: Rule.RESULT_WITHOUT_CALL,
}


def test_unsabotaged() -> None:
    """The view of that session is valid as it is, and says all that it mended."""
    sent = interrupted().request_messages()
    assert not violations(sent)
    assert {mend.kind for mend in sent.mends} == {
        "open-call",
        "moved-result",
        "orphan-result",
        "empty-block",
    }


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda s: s.__name__)
def test_caught(sabotage: Callable[[Messages], Messages]) -> None:
    """Each sabotage of the view is caught by the rule that it breaks."""
    broken = sabotage(list(interrupted().request_messages()))
    assert SABOTAGES[sabotage] in {violation.rule for violation in violations(broken)}
