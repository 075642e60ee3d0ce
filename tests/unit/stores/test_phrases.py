"""What a query asks for, what a text holds of it, and the snippet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import InvalidSearch
from turnlog.stores import searching
from turnlog.stores.phrases import MANY, Matcher, Phrase, parse
from turnlog.words import fold, places, terms

WORDS = st.sampled_from(
    ["go", "Going", "Café", "ﬁsh", "ß", "漢字", "東京都", "ｶﾞ", "한국어", "कि", "x_y", "ไทย"]
)
TEXTS = st.lists(WORDS | st.text(max_size=4), max_size=12).map(" ".join)


def phrase(*wanted: str, prefix: bool = False) -> Phrase:
    """One phrase."""
    return Phrase(wanted, prefix)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Hello  wörld", [phrase("hello"), phrase("world")]),
        ("again again", [phrase("again")]),
        ('"to be" or', [phrase("to", "be"), phrase("or")]),
        ('"open end', [phrase("open", "end")]),
        ("begin*", [phrase("begin", prefix=True)]),
        ("read_file don't", [phrase("read", "file"), phrase("don", "t")]),
        ("漢字", [phrase("漢字")]),
        ("東京都", [phrase("東京", "京都")]),
        ("京", [phrase("京", prefix=True)]),
        ("python入門", [phrase("python", "入門")]),
        ("入門python", [phrase("入門", "門", "python")]),
        ('a"b OR', [phrase("a", "b"), phrase("or")]),
        ("said:x ^y -z NEAR(p, 2)", None),
    ],
)
def test_a_query_is_words_phrases_and_beginnings(query: str, expected: list[Phrase] | None) -> None:
    """Words are asked for one by one, quoted ones in a row; nothing is an operator."""
    found = parse(query)
    if expected is None:
        expected = [phrase("said", "x"), *map(phrase, "yz"), phrase("near", "p"), phrase("2")]
    assert list(found) == expected


@pytest.mark.parametrize("query", ["", "  ", '""', "*", '"* -"', "\x00", "\ud83d", "👍 …"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    """Where there is nothing to look for the error says so."""
    with pytest.raises(InvalidSearch, match="expected a word"):
        parse(query)


def test_a_query_of_too_many_words_is_refused() -> None:
    """The number of words is bounded, and the bound is allowed."""
    assert len(parse(" ".join(f"w{i}" for i in range(MANY)))) == MANY
    with pytest.raises(InvalidSearch, match=f"at most {MANY}"):
        parse("漢" * (MANY + 2))


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("be", "To be or not to BE", [2]),
        ("to be", "To be or not to be", [2, 2]),
        ('"be or"', "to be or not to be", [1]),
        ('"or be"', "to be or not to be", None),
        ("no", "not", None),
        ("no*", "not, nor none", [3]),
        ("京", "東京都と京都", [2]),
        ("東京", "東京都", [1]),
        ("京東", "東京東", [1]),
        ("京東", "東京 東", None),
        ("cafe", "CAFÉ Cafe\u0301", [2]),
    ],
)
def test_a_text_holds_what_is_asked_for(query: str, text: str, expected: list[int] | None) -> None:
    """Each phrase is counted; where one does not occur there is no match."""
    found = Matcher(parse(query)).count([text])
    assert (found and found[0]) == expected


def test_texts_that_belong_together_are_one_for_words_and_not_for_phrases() -> None:
    """Each word may be in another text; a phrase is in one."""
    assert Matcher(parse("left right")).count(["left", "right"]) == ([1, 1], 2)
    assert Matcher(parse('"left right"')).count(["left", "right"]) is None


@given(TEXTS)
def test_a_term_is_part_of_the_folded_text(text: str) -> None:
    """Looking for a term in the folded text first loses nothing."""
    folded = fold(text)
    assert [term for term in terms(text) if term not in folded] == []


@given(TEXTS)
def test_places_lie_in_the_text_in_order(text: str) -> None:
    """Places neither go back nor beyond the end; what stands at one folds to its term."""
    last = 0
    for term, start, end in places(text):
        assert last <= start < end <= len(text)
        assert fold(term)[:1] in fold(text[start:end])
        last = start


# -- snippets ----------------------------------------------------------------------------------


def shown(query: str, text: str, width: int = 60) -> str:
    """The snippet with its matches in brackets."""
    said, matches = Matcher(parse(query)).snippet(text, width)
    for start, end in reversed(matches):
        said = f"{said[:start]}[{said[start:end]}]{said[end:]}"
    return said


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("be", "To be", "To [be]"),
        ("be", " To \n\n be\tor\n", "To [be] or"),
        ("to be", "to be", "[to] [be]"),
        ('"to be"', "to\n be!", "[to be]!"),
        ("no*", "nothing", "[no]thing"),
        ("京", "東京都", "東[京]都"),
        ("東京都", "大東京都庁", "大[東京都]庁"),
        ("strasse", "Die Straße!", "Die [Straße]!"),
        ("elsewhere", "Nothing of it", "Nothing of it"),
    ],
)
def test_a_snippet_shows_what_was_found(query: str, text: str, expected: str) -> None:
    """A short text is shown whole, on one line, with the matched stretches."""
    assert shown(query, text) == expected


def test_a_snippet_is_cut_at_words() -> None:
    """Of a long text the surroundings are shown, from a word to a word."""
    text = "before " * 100 + "the needle here" + " after" * 100
    assert shown("needle", text) == (
        "…before the [needle] here after after after after after after…"
    )


def test_a_snippet_is_where_most_stands_together() -> None:
    """Of several places the one with all the words is shown."""
    text = "one " + "x " * 100 + "two " + "x " * 100 + "one and two" + " x" * 100
    assert "[one] and [two]" in shown("one two", text)


def test_a_snippet_of_a_very_long_text() -> None:
    """What stands at the end of megabytes is found."""
    text = "漢x\u0301 " * 300_000 + "the needle"
    assert shown("needle", text).endswith("the [needle]")


@given(TEXTS, WORDS)
def test_a_snippet_is_one_line_with_ranges_in_it(text: str, word: str) -> None:
    """A snippet has no line break, and its ranges are in order and within it."""
    said, matches = Matcher(parse(word)).snippet(text, 20)
    assert said == " ".join(said.split())
    last = 0
    for start, end in matches:
        assert last <= start < end <= len(said)
        last = end


@given(TEXTS)
def test_what_a_text_says_is_found_in_it(text: str) -> None:
    """A text is found by itself, as words and as a phrase, and something of it is shown."""
    found = terms(text)
    if found:
        for query in (text.replace('"', " "), '"' + text.replace('"', " ") + '"'):
            assert Matcher(parse(query)).count([text]) is not None


@pytest.mark.parametrize(("limit", "skip"), [(2.5, 0), (0, 0), (1, -1), (1, 10**30), (True, 0)])
def test_hits_are_asked_for_in_whole_numbers(limit: int, skip: int) -> None:
    """What is no number of hits, or one that no store can count to, is refused."""
    with pytest.raises(InvalidSearch, match="expected a limit"):
        searching.asked_for("x", tools=False, context=False, shadowed=False, limit=limit, skip=skip)
