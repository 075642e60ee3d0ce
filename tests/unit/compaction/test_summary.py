"""What is asked for, which answers may stand for a range, and under which headings."""

from __future__ import annotations

import pytest

from turnlog.compaction.sections import HEADINGS, STATE, cited, fit, merged, read, write
from turnlog.compaction.summary import (
    Rejected,
    complaint,
    instruction,
    is_runaway,
    judged,
    shortened,
    told,
)
from turnlog.content import Message, Source, Text, user_message

GOOD = "## Goals\n- ship it [3]\n\n## State\n- half done"


def said(*texts: str) -> list[tuple[int, Message]]:
    """What a person said, event by event."""
    return [(at, user_message(text, id=f"m{at}")) for at, text in enumerate(texts)]


def test_a_large_model_is_told_the_headings_and_the_numbers_of_events() -> None:
    """So that what it claims can cite what was said."""
    asked = instruction(32_000, 1000, said("never touch the schema", "go on"))
    assert [f"## {name}" in asked for name in HEADINGS] == [True] * 6
    assert "[0] never touch the schema\n[1] go on" in asked


def test_a_small_model_is_asked_in_one_sentence() -> None:
    """Headings would spoil what it says."""
    assert "##" not in instruction(4096, 256, said("hello"))


@pytest.mark.parametrize("window", [4096, 32_000])
def test_a_wish_and_what_is_not_shown_are_in_the_instruction(window: int) -> None:
    """Whoever is asked."""
    asked = instruction(
        window, 300, [], wish="keep the schema", before="it began", left_out=["- [7] a log"]
    )
    assert "keep the schema" in asked
    assert "it began" in asked
    assert "- [7] a log" in asked


def test_a_long_conversation_does_not_make_a_long_instruction() -> None:
    """The first and the last messages of a person are listed, and their beginnings."""
    asked = instruction(32_000, 1000, said(*(f"{at} {'word ' * 400}" for at in range(500))))
    assert len(asked) < 6000
    assert "[0] 0 word" in asked
    assert "[499] 499 word" in asked


@pytest.mark.parametrize(
    ("text", "finish", "calls", "code"),
    [
        ("", "stop", 0, "empty"),
        (" \n", "stop", 0, "empty"),
        ("```\n\n```", "stop", 0, "empty"),
        ("the same line\n" * 2000, "stop", 0, "runaway"),
        ("I am here to help. " * 20, "stop", 0, "runaway"),
        ("word and word again " * 50, "stop", 0, "runaway"),
        ("はい" * 1000, "stop", 0, "runaway"),
        (GOOD, "max-tokens", 0, "truncated"),
        (GOOD, "tool-calls", 1, "tool-calls"),
    ],
)
def test_what_is_no_summary_is_rejected(text: str, finish: str, calls: int, code: str) -> None:
    """With a word that says why."""
    with pytest.raises(Rejected) as caught:
        judged(text, finish, calls)
    assert caught.value.code == code


@pytest.mark.parametrize("window", [1024, 32_000])
def test_what_was_asked_is_no_answer(window: int) -> None:
    """A small model repeats the instruction, or what was wrong with the last answer."""
    why = Rejected("truncated", "the model ran out of tokens")
    asked = instruction(window, 300, []) + complaint(window, why)
    for echo in (asked, asked.splitlines()[-1].strip(), asked[: len(asked) // 2]):
        with pytest.raises(Rejected) as caught:
            judged(echo, "stop", 0, asked)
        assert caught.value.code == "echo"
    assert judged(GOOD, "stop", 0, asked) == GOOD


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "We spoke of Oslo and of cats.",
        "one line\n" * 3,
        "- a\n- b\n- a\n- c\n- d\n- a",
        f"```markdown\n{GOOD}\n```",
        f"<summary>\n{GOOD}\n</summary>",
    ],
)
def test_weak_summaries_are_taken(text: str) -> None:
    """It need not be wise, nor have the headings; what wraps it is taken off."""
    plain = judged(text, "stop", 0)
    assert not plain.startswith(("```", "<"))
    assert not is_runaway(plain)


def test_a_claim_that_cites_what_nobody_said_is_dropped() -> None:
    """A constraint is shown with the event that made it, or not at all."""
    text = "## Decisions and constraints\n- never push [3]\n- recorded: never eat [99]\n- no id\n"
    found = read(told(text, [], "", [1, 2, 3], 100))
    assert found is not None
    assert found["Decisions and constraints"] == ["- never push [3]", "- no id"]


def test_what_the_older_summary_cites_may_be_cited_again() -> None:
    """The events themselves are long shadowed."""
    older = "## Decisions and constraints\n- never push [3]"
    text = "## Decisions and constraints\n- never push [3]\n- nor pull [4, 5]"
    assert "never push" in told(text, [], older, [40], 100)
    assert "nor pull" not in told(text, [], older, [40], 100)


def test_a_text_without_headings_is_the_state() -> None:
    """What the log itself says stands under the others."""
    messages = said("look at src/app.py", "and never push")
    found = read(told("All is well.\nAlmost done [77].", messages, "", [0, 1], 1000))
    assert found is not None
    assert found[STATE] == ["All is well."]
    assert found["Files"] == ["- src/app.py"]
    assert found["Goals"][-1] == "- [1] and never push"


def test_headings_are_known_in_other_forms() -> None:
    """Models write them as they like; other headings belong to the state."""
    text = "Sure!\n**Goals:**\n- a\n### Current state\nb\n## Weather\nc\n1. **Next steps**\nd"
    assert read(text) == {"Goals": ["- a"], "State": ["b", "c"], "Next step": ["d"]}
    assert read("no headings here\n- at all") is None


def test_all_headings_are_written_in_their_order_and_read_again() -> None:
    """Those without anything say so."""
    sections = {"Files": ["- a.py"], "Goals": ["- x"]}
    text = write(sections)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(HEADINGS)
    assert {name: lines for name, lines in (read(text) or {}).items() if lines} == sections


def test_merging_neither_repeats_nor_grows() -> None:
    """What both say is said once; what was is replaced by what is; the first goal stays."""
    older = {"Goals": ["- the goal"], "State": ["- then"], "Files": ["- a"]}
    for turn in range(50):
        older = merged(older, {"Goals": [f"- {turn}"], "State": [f"- {turn}"]}, 300)
    assert older["State"] == ["- 49"]
    assert older["Goals"][0] == "- the goal"
    assert older["Goals"][-1] == "- 49"
    assert older["Files"] == ["- a"]
    assert len(write(older)) < 600


def test_what_one_section_does_not_need_is_the_others() -> None:
    """Goals alone may take all the room, and no more; shares are as said when all are full."""
    wishes = [f"- wish {at} for the sea" for at in range(90)]
    found = merged(None, {"Goals": wishes, "Files": ["- a.py"]}, 900)
    assert 700 < sum(len(line) + 1 for line in found["Goals"]) <= 900
    assert found["Files"] == ["- a.py"]
    full = merged(None, dict.fromkeys(HEADINGS, wishes), 1400)
    sizes = {name: sum(len(line) + 1 for line in lines) for name, lines in full.items()}
    assert sizes.pop("Goals") > 1.5 * max(sizes.values())
    assert min(sizes.values()) > 150


def test_lines_that_fit_are_the_first_and_the_last() -> None:
    """Each once, and never more than there is room for."""
    assert fit(["a", "b", "c", "c", "d"], 6) == ["a", "c", "d"]
    assert fit([], 10) == []
    assert fit(["long line"], 4) == ["long"]


def test_a_summary_that_is_too_long_is_cut_by_sections() -> None:
    """All headings stay, whatever one of them says."""
    text = write({"Goals": [f"- goal {n}" for n in range(500)], "State": ["- done"]})
    cut = shortened(text, 600)
    assert len(cut) < 800
    assert "- goal 0" in cut
    assert "- goal 499" in cut
    assert "- done" in cut
    assert len(shortened("x" * 5000, 100)) == 100


def test_citations_are_read_in_the_forms_that_models_use() -> None:
    """One, several, with or without a word."""
    assert cited("[3] [4, 5] [event 6] [#7] [events 8, 9] [x] (10)") == {3, 4, 5, 6, 7, 8, 9}


def test_no_person_is_not_listed_as_one() -> None:
    """Context and summaries are not what the user said."""
    context = Message("c", "user", (Text("disk is full"),), Source("context"))
    assert "disk is full" not in instruction(32_000, 1000, [(0, context)])
