"""What a summary claims, contradicts, repeats or drops, and what holds all the same."""

from __future__ import annotations

import json
from typing import Any

from tests.faults.compacting import GOOD, WORDS, asked, engine, on, standing, talk
from tests.faults.scenes import assert_lawful, sent, texts
from turnlog import ReactLoopAgent, Reasoning, Session, Text, ToolCall
from turnlog.testing import Call, ScriptedModel, Think

INVENTED = """\
## Decisions and constraints
- never touch the billing tables [0]
- recorded constraint: all times must be UTC [4711]
- the tests must not use the network [2, 9999]

## State
- half done"""


async def test_a_constraint_that_cites_an_event_nobody_wrote_is_dropped() -> None:
    """What cites an event of the range stays; what cites another number is not shown."""
    session = Session.create("s")
    session.add_user(f"Never touch the billing tables. {WORDS * 4}")
    talk(8, session=session)
    await engine(INVENTED).compact_now(session)
    told = texts(session)[0]
    assert "- never touch the billing tables [0]" in told
    assert "UTC" not in told
    assert "network" not in told
    await engine(INVENTED).compact_now(talk(8, session=session))
    assert "- never touch the billing tables [0]" in texts(session)[0]  # cited by the older one
    assert_lawful(session)


async def test_a_summary_that_contradicts_a_pinned_rule_is_marked_as_less() -> None:
    """The rule stands verbatim behind it, as what it is; the summary says that it gives way."""
    session = talk(8)
    session.pin("Ship without asking.")
    talk(4, session=session)
    contradiction = "## Decisions and constraints\n- always ask before shipping"
    for _ in range(3):
        await engine(contradiction).compact_now(session)
        talk(4, session=session)
    (event,) = standing(session)
    first, *rest = event.data.content
    assert event.data.source.kind == "compaction"
    assert "always ask" in first.text
    assert "where it differs from what is pinned" in first.text.splitlines()[0]
    assert [b.text for b in rest if isinstance(b, Text)].count("Ship without asking.") == 1
    assert all("always ask" not in b.text for b in rest if isinstance(b, Text))
    assert_lawful(session)


def nested(body: bytes) -> str:
    """A summary that quotes all that it was shown, whatever it was told."""
    shown = [m["content"] for m in json.loads(body)["messages"][:-1]]
    lines = "\n".join(str(content) for content in shown).splitlines()
    kept = dict.fromkeys(line[:300] for line in lines if line and not line.startswith("#"))
    return "## State\n" + "\n".join(f"- {line}" for line in kept)


async def test_summaries_of_summaries_do_not_grow() -> None:
    """A model that quotes the older summary whole in each new one: there is a cap, and it holds."""
    session = talk(20)
    made = engine(nested, window=8000, attempts=1)
    sizes: list[int] = []
    for _ in range(12):
        done = await made.compact_now(session)
        assert done is not None
        assert done.tokens_after < done.tokens_before
        assert len(standing(session)) == 1
        sizes.append(len(texts(session)[0]))
        talk(10, session=session)
    assert max(sizes) < 8 * 1000 + 1000  # a thousand tokens, at most eight characters each
    assert max(sizes[6:]) <= max(sizes[:6])
    assert_lawful(session)


async def test_the_thoughts_of_what_is_kept_are_kept_whole() -> None:
    """A tool turn that stays has its signed thoughts, and they are sent as they came."""
    session = Session.create("s")
    for number in range(12):
        session.add_user(f"question {number}: {WORDS * 4}")
        thought = Reasoning(f"thought {number}", f"c2ln{number:04}")
        call = ToolCall(f"c{number}", "read", "{}")
        session.add_assistant([thought, Text("let me see"), call], provider="anthropic")
        session.add_tool_result(f"c{number}", WORDS * 4)
        session.add_assistant([Reasoning("so", "c28="), Text("done")], provider="anthropic")
    before = list(session.derive_messages())
    done = await engine().compact_now(session)
    assert done is not None
    kept = list(session.derive_messages())[1:]
    assert kept == before[-len(kept) :]
    assert sum(bool(message.tool_calls) for message in kept) >= 1
    thinking = ScriptedModel(["on"], name="anthropic:m", encoder="anthropic@1")
    await ReactLoopAgent(thinking).run(session, "go on")
    wire = json.loads(thinking.requests[0])
    blocks = [b for m in wire["messages"] if m["role"] == "assistant" for b in m["content"]]
    signed = [b["signature"] for b in blocks if b["type"] == "thinking"]
    thoughts = [b for message in kept for b in message.content if isinstance(b, Reasoning)]
    assert signed == [thought.signature for thought in thoughts]
    assert len(signed) >= 2
    assert_lawful(session)


async def test_a_thinking_model_takes_what_a_compaction_inside_its_turn_left() -> None:
    """Thoughts that must come back with their calls do, for every step that is still shown."""

    def look(path: str) -> str:
        return f"{path}: {WORDS * 12}"

    def answer(body: bytes) -> Any:
        number = len(json.loads(body)["messages"])
        if len(sent(runner)) > 24:
            return "done"
        return [Think(f"I think {number}"), Call("look", {"path": f"f{len(sent(runner))}"})]

    made = engine(GOOD)
    runner = on(
        4000, answer, name="deepseek:deepseek-reasoner", tools=[look], compaction=made, max_steps=40
    )
    model: Any = runner.model
    model.encoder = "deepseek@1"
    session = Session.create("s")
    result = await runner.run(session, "look at all of it")
    assert result.text == "done"
    assert len(asked(made)) >= 1
    calling = [m for m in json.loads(sent(runner)[-1])["messages"] if m.get("tool_calls")]
    assert calling
    assert all(m.get("reasoning_content", "").startswith("I think") for m in calling)
    assert_lawful(session)
