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
    assert "## assistant \\(m\\*1\\*\\)" in found
    assert "<summary>call of &lt;/summary&gt;&lt;b&gt;, c&lt;1&gt;</summary>" in found
    assert "result of c&lt;1&gt; (error)" in found
    assert "\x1b" not in found
    assert found.count("<details>") == 2


def test_hostile_ids() -> None:
    """An id cannot be more than text in the title."""
    session = Session.create("x\n# y <b> [l](u)\ud800", clock=lambda: 0)
    assert page(session).startswith("# Session x\\\\n\\# y \\<b\\> \\[l\\]\\(u\\)\\\\ud800\n")
