"""`turnlog search` as a person or a script uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.command import done, turnlog, write
from turnlog.session import Session

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202egnp.exe \ud800 \r\x00"


def talk(session: Session) -> None:
    """A question, an answer that acts on terminals, and a context that nobody typed."""
    session.add_user("Why is the Sky blue?")
    session.add_assistant(f"Rayleigh {HOSTILE} scattering")
    session.add_context("the sky report")


@pytest.fixture(params=["jsonl:{0}/store", "sqlite:{0}/store.db"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with one session, `talk`, and one beside it."""
    url: str = request.param.format(tmp_path)
    write(url, "talk", talk)
    write(url, "other", lambda session: session.add_user("No sky here"))
    return url


def test_it_says_where_what_was_found_stands(url: str) -> None:
    """Each hit has a line that says where it is, and one with what was said."""
    lines = done("search", "WHY sky", "--store", url).out.splitlines()
    assert lines[0].startswith("talk #0  user, ")
    assert lines[0].endswith("Why is the Sky blue?")
    assert lines[1:] == ["  Why is the Sky blue?"]


def test_it_marks_the_words_on_a_terminal(url: str) -> None:
    """What was looked for stands out where there are colours."""
    out = turnlog("search", "why sky", "--store", url, tty=True).out
    assert "\x1b[33mWhy\x1b[0m is the \x1b[33mSky\x1b[0m blue?" in out


def test_nothing_in_a_hit_acts_on_the_terminal(url: str) -> None:
    """What a log holds is shown as escapes."""
    out = done("search", "rayleigh scattering", "--store", url).out
    assert "Rayleigh \\x1b]0;owned\\x07\\x9b2J\\u202egnp.exe \\ud800" in out
    assert not set("\x1b\x07\x9b\u202e\r\x00") & set(out)


def test_json_has_the_matches(url: str) -> None:
    """A script gets all of a hit, and where the matches stand."""
    (hit,) = done("search", "why", "--store", url, "--json").values
    assert (hit["session"], hit["seq"], hit["kind"]) == ("talk", 0, "user")
    assert hit["snippet"][slice(*hit["matches"][0])] == "Why"


def test_it_looks_where_it_is_told_to(url: str) -> None:
    """In one session, in what no person typed, for so many at most."""

    def found(*options: object) -> set[tuple[str, int]]:
        hits = done("search", "sky", "--store", url, "--json", *options).values
        return {(hit["session"], hit["seq"]) for hit in hits}

    assert found() == {("talk", 0), ("other", 0)}
    assert found("--context") == {("talk", 0), ("talk", 2), ("other", 0)}
    assert found("--session", "other") == {("other", 0)}
    assert len(found("--limit", 1)) == 1


def test_finding_nothing_is_status_1(url: str) -> None:
    """As with recall, and with grep; a note says that there is nothing, and --json says nothing."""
    result = turnlog("search", "village", "--store", url)
    assert (result.status, result.out, result.err) == (1, "", "nothing was found\n")
    assert turnlog("search", "village", "--store", url, "--json") == (1, "", "")


@pytest.mark.parametrize("words", [["*"], ["sky", "--limit", "0"]])
def test_what_cannot_be_looked_for_is_misuse(url: str, words: list[str]) -> None:
    """A text without a word, or no hits at all, is the caller's mistake."""
    result = turnlog("search", *words, "--store", url)
    assert result.status == 2
    assert result.err.startswith("turnlog: ")


def test_an_unknown_session_is_told_what_there_is(url: str) -> None:
    """Looking in a session that does not exist says which do."""
    result = turnlog("search", "sky", "--session", "tlak", "--store", url)
    assert result.status == 1
    assert "did you mean 'talk'?" in result.err
