"""Terms of a text: what a search compares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.words import asked, fold, is_unspaced, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, WORLD user_id x1", ["hello", "world", "user", "id", "x1"]),
        ("Straße café \uff26\uff35\uff2c\uff2c \ufb01ne", ["strasse", "cafe", "full", "fine"]),
        ("soft\u00adly jo\u200dined", ["softly", "joined"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ABC猫です", ["abc", "猫で", "です", "す"]),
        ("", []),
        ("… — !", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    """Words in lower case without accents; pairs of characters where no space divides words."""
    assert terms(text) == expected


def test_a_question_asks_for_each_term_once() -> None:
    """A question has no last character alone, unless it is all there is."""
    assert asked("a B a 日本語 猫") == ["a", "b", "日本", "本語", "猫"]


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_is_asked_for_is_found_in_its_text(before: str, text: str) -> None:
    """Each term of a question is a term of any text that holds it, or begins one."""
    found = terms(f"{before} {text}")
    for term in asked(text):
        lone = is_unspaced(term) and len(term) == 1
        assert term in found or (lone and any(each.startswith(term) for each in found))


@given(st.text(max_size=20))
def test_folding_twice_changes_nothing(text: str) -> None:
    """What is folded is folded."""
    assert fold(fold(text)) == fold(text)
