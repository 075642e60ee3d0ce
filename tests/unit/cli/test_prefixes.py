"""An id may be shortened wherever a session must be there already, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.command import done, turnlog, write
from tests.e2e.scripts import write_script
from turnlog.session import Session

ID, OTHER = "019e2a7c41d0aa", "019e2a7c5500bb"


def talk(session: Session) -> None:
    """Something to show, to find and to pin."""
    session.add_user("Why is the sky blue?")
    session.add_assistant("Rayleigh.")


@pytest.fixture(params=["jsonl:{0}/store", "sqlite:{0}/store.db"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with two sessions whose ids begin alike, and one whose id begins another's."""
    url: str = request.param.format(tmp_path)
    for name in (ID, OTHER, "trip", "trip-2"):
        write(url, name, talk)
    return url


@pytest.mark.parametrize(
    "words",
    [
        ["show", "{}"],
        ["messages", "{}", "--dialect", "openai"],
        ["events", "{}", "--json"],
        ["requests", "{}"],
        ["tail", "{}", "--no-follow"],
        ["compactions", "{}"],
        ["recall", "{}", "--seq", "0"],
        ["export", "{}"],
        ["verify", "{}"],
        ["stats", "{}", "--json"],
        ["approvals", "{}"],
        ["search", "sky", "--session", "{}"],
    ],
)
def test_a_prefix_reads_as_the_whole_id(words: list[str], url: str) -> None:
    """The output is the same; a line on standard error says which session is meant."""
    whole = turnlog(*[word.format(ID) for word in words], "--store", url)
    short = turnlog(*[word.format("019e2a7c41") for word in words], "--store", url)
    assert (whole.status, short.status) == (0, 0)
    assert short.out == whole.out
    assert short.err == f"session {ID}\n{whole.err}"


@pytest.mark.parametrize(
    "words",
    [
        ["pin", "{}", "0"],
        ["pin", "{}", "Be brief."],
        ["recall", "{}", "--seq", "0", "--into-context"],
        ["repair", "{}"],
        ["fork", "{}", "--as", "child"],
        ["post", "{}", "And at night?"],
    ],
)
def test_a_prefix_is_written_to_as_the_whole_id(words: list[str], url: str) -> None:
    """Commands that change a session, or make another of it, take it too."""
    result = turnlog(*[word.format("019e2a7c41") for word in words], "--store", url, "--json")
    assert (result.status, result.err.splitlines()[0]) == (0, f"session {ID}"), result
    ids = {line["id"] for line in done("ls", "--store", url, "--json").values}
    assert ids - {"child"} == {ID, OTHER, "trip", "trip-2"}


def test_the_wish_to_compact_names_the_whole_id(url: str, tmp_path: Path) -> None:
    """What compact says of a session says it of the id it has."""
    model = write_script(tmp_path, "They asked about the sky.")
    result = turnlog("compact", "019e2a7c41", "--model", model, "--store", url)
    assert f"session {ID}\n" in result.err


def test_an_ambiguous_prefix_lists_what_it_could_mean(url: str) -> None:
    """One line, the ids in it, and nothing is done."""
    result = turnlog("pin", "019e2a7c", "Be brief.", "--store", url)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"2 sessions in {url} begin with '019e2a7c': " in result.err
    assert f"'{ID}'" in result.err
    assert f"'{OTHER}'" in result.err


def test_an_id_that_is_there_means_itself(url: str) -> None:
    """Also if others begin with it."""
    assert done("stats", "trip", "--store", url, "--json").values[0]["id"] == "trip"


@pytest.mark.parametrize("name", ["tri", "", "019E2A7C41", "2a7c41"])
def test_what_is_no_prefix_is_no_session(name: str, url: str) -> None:
    """Three characters, none, other case, or the middle of an id."""
    result = turnlog("show", name, "--store", url)
    assert (result.status, result.out) == (1, "")
    assert f"no session {name!r} in {url}" in result.err


def test_what_may_make_a_session_takes_the_id_as_it_is(url: str, tmp_path: Path) -> None:
    """run, post --create and fork --as make what is not there, whatever begins with it."""
    model = write_script(tmp_path, "It is dark.")
    new = {"019e2a7c4", "019e2a7c41", "trip-"}
    turnlog("run", "And at night?", "--session", "019e2a7c41", "--model", model, "--store", url)
    done("post", "019e2a7c4", "Hello?", "--create", "--store", url)
    done("fork", ID, "--as", "trip-", "--store", url)
    ids = {line["id"] for line in done("ls", "--store", url, "--json").values}
    assert ids == {ID, OTHER, "trip", "trip-2"} | new


def test_a_recorded_model_is_named_whole(url: str) -> None:
    """The log names the model that answered: a name that may mean another one later is none."""
    words = ["run", "Hi", "--model", "recorded:019e2a7c41", "--store", url]
    result = turnlog(*words)
    assert result.status == 1
    assert "no session '019e2a7c41'" in result.err
