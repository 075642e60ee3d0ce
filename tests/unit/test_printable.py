"""What is shown of a hostile log does not act on what shows it."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.printable import printable, printable_json, printable_line

ANY = st.text(st.characters(), max_size=50)  # surrogates and controls among them


def acts(char: str) -> bool:
    """Whether a terminal does something else with it than draw it."""
    return (
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or char in "\u202e\u2066\u200f\ufeff"
    )


@given(ANY)
def test_nothing_acts(text: str) -> None:
    """No control, separator, bidirectional mark or surrogate is left; lines are where they were."""
    shown = printable(text)
    assert not [char for char in shown if acts(char) and char not in "\n\t"]
    assert shown.count("\n") == text.count("\n")
    shown.encode()


@given(ANY)
def test_one_line(text: str) -> None:
    """On one line there is no line break and no tab either."""
    assert not [char for char in printable_line(text) if acts(char)]


@given(st.recursive(ANY | st.integers(), lambda inner: st.dictionaries(ANY, inner)))
def test_json_means_the_same(value: object) -> None:
    """JSON that is made harmless reads as the same value."""
    text = json.dumps(value)
    assert json.loads(printable_json(json.dumps(value, ensure_ascii=False))) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\r\nb\rc", "a\nb\\rc"),
        ("\x9b2J", "\\x9b2J"),
        ("x\u202ey\ud800", "x\\u202ey\\ud800"),
        ("h\u00e9llo \U0001f642 \u65e5", "h\u00e9llo \U0001f642 \u65e5"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    """Escapes name the character; letters of any script stay."""
    assert printable(text) == shown
