"""A session as a Markdown page: readable, and safe whatever stands in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.content import ToolCall
from turnlog.interop.exporting import to_markdown
from turnlog.session import Session


def page(session: Session) -> str:
    """The page as text."""
    return b"".join(to_markdown(session)).decode()


def talk(*texts: str) -> Session:
    """A session in which a person said these."""
    session = Session.create("demo", clock=lambda: 0)
    for text in texts:
        session.add_user(text)
    return session


def test_plain_markdown_is_quoted() -> None:
    """Text that is plain Markdown stays readable, inside a quotation."""
    assert "## user\n\n> # Title\n>\n> - a list\n" in page(talk("# Title\n\n- a list"))


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "</details>",
        "<!-- ",
        "![x](http://example.org/track.png)",
        "[x](javascript:alert(1))",
        "[ref]: http://example.org",
        "&#x3c;b&#x3e;",
        "http://example.org",
        "~~~\n</details>\n~~~~~~",
    ],
)
def test_what_could_act_is_shown_verbatim(text: str) -> None:
    """HTML, links, images and references stand in a fence that nothing in them closes."""
    found = page(talk(text))
    fence, body = re.search(r"^(~{3,})text\n(.*)\n\1\n", found, re.DOTALL | re.MULTILINE).groups()  # pyright: ignore[reportOptionalMemberAccess]
    assert body == text
    assert fence not in text


@given(st.text(max_size=60))
def test_no_text_leaves_its_place(text: str) -> None:
    """Whatever a text is, each of its lines is quoted, or inside a fence longer than any in it."""
    found = page(talk(text or "x"))
    _, _, body = found.partition("## user\n\n")
    lines = body.split("\n")
    if lines[0].startswith("~~~"):
        fence = lines[0].removesuffix("text")
        assert [i for i, line in enumerate(lines) if line.startswith(fence)][1:] == [len(lines) - 2]
    else:
        assert all(line.startswith(">") for line in lines[:-1])
        assert "<" not in body


def test_tools_are_folded() -> None:
    """Calls and results are folded, their names escaped, their content fenced."""
    session = talk("go")
    session.add_assistant([ToolCall("c<1>", "</summary><b>", '{"a":1}')], model="m*1*")
    session.add_tool_result("c<1>", "</details>\x1b[2J", is_error=True)
    found = page(session)
    assert "## assistant (m\\*1\\*)" in found
    assert "<summary>call of &lt;/summary&gt;&lt;b&gt;, c&lt;1&gt;</summary>" in found
    assert "result of c&lt;1&gt; (error)" in found
    assert "\x1b" not in found
    assert found.count("<details>") == 2


def test_hostile_ids() -> None:
    """An id cannot be more than text in the title."""
    session = Session.create("x\n# y <b> [l](u)\ud800", clock=lambda: 0)
    assert page(session).startswith("# Session x\\\\n# y \\<b> \\[l\\](u)\\\\ud800\n")


def test_nothing_is_escaped_without_need() -> None:
    """Names as they usually are stand there as they are; what would act is escaped."""
    session = talk("hi")
    session.add_assistant("yes", model="gpt-5.1_mini (beta)!")
    assert "## assistant (gpt-5.1_mini (beta)!)\n" in page(session)
    for name, shown in {
        "_x_ #": r"\_x\_ \#",
        "https://e.org": r"https\://e.org",
        "www.e.org": r"www\.e.org",
        "a@e.org": r"a\@e.org",
    }.items():
        assert page(Session.create(name)).startswith(f"# Session {shown}\n")


def test_the_title_heads_the_page() -> None:
    """A session that has a title is headed by it, and its id follows."""
    session = talk("hi")
    session.append("session/title", {"title": "High\nwater", "messageSeqs": []})
    assert page(session).startswith("# High water\n\nSession demo, 2 events\n")


def test_what_was_cut_off_says_so() -> None:
    """An answer that was interrupted is marked."""
    session = talk("hi")
    session.add_assistant("It is", model="m", interrupted=True)
    assert "## assistant (m) (interrupted)\n" in page(session)


def test_compactions_are_marked_where_they_took_effect() -> None:
    """What the model reads instead stands, folded, behind what it stands for."""
    session = talk("one", "two", "three")
    session.replace(0, 1, "one and two")
    session.replace(3, 2, "all of it")
    found = page(session)
    places = [found.index(text) for text in ("> two", "\none and two", "> three", "\nall of it")]
    assert places == sorted(places)
    assert "compaction: here the model reads this instead of 2 messages" in found
