"""Where a text may be cut."""

from __future__ import annotations

import pytest

from turnlog.compaction.graphemes import cut_after, cut_before

WHOLE = {
    "a mark": "e\u0301",
    "marks upon marks": "a" + "\u0300\u0323" * 20,
    "a spacing mark": "\u0915\u093f",
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "a skin": "\U0001f44d\U0001f3fd",
    "a keycap": "1\ufe0f\u20e3",
    "a flag": "\U0001f1e9\U0001f1ea",
    "a region's flag": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "letters of a syllable": "\u1100\u1161\u11a8",
    "a syllable and its end": "\uac00\u11a8",
    "an end and an end": "\uac01\u11a8",
    "vowels": "\u1100\u1161\u1162",
    "a line's end": "\r\n",
    "halves of a pair": "\ud83d\ude00",
}


@pytest.mark.parametrize("kind", WHOLE)
def test_what_is_read_as_one_is_not_cut(kind: str) -> None:
    """No cut falls inside what is read as one character."""
    one = WHOLE[kind]
    text = f"x{one}y"
    end = 1 + len(one)
    for at in range(2, end):
        assert cut_before(text, at) == 1
        assert cut_after(text, at) == end


@pytest.mark.parametrize(
    "text",
    [
        "ab",
        "\n\r",
        "\n\u0301",
        "\U0001f600\U0001f600",
        "語語",
        "\ude00\ud83d",
        "\ud83dx",
        "\uac01\uac00",
    ],
)
def test_what_is_read_as_two_may_be_cut(text: str) -> None:
    """Between two characters a cut stays where it is."""
    assert cut_before(text, 1) == cut_after(text, 1) == 1


def test_flags_are_cut_between_pairs() -> None:
    """Of a row of flags each keeps both of its letters."""
    flags = "\U0001f1e9\U0001f1ea" * 5
    assert [cut_before(flags, at) for at in range(11)] == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10]
    assert [cut_after(flags, at) for at in range(11)] == [0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]


def test_both_ends_are_places_to_cut() -> None:
    """The ends of a text are never moved, even if it is all marks."""
    marks = "\u0301" * 50
    assert cut_before(marks, 0) == cut_after(marks, 0) == 0
    assert cut_before(marks, 50) == cut_after(marks, 50) == 50
    assert cut_before(marks, 25) == 0
    assert cut_after(marks, 25) == 50
