"""A summary without a model: what the log itself says."""

from __future__ import annotations

from turnlog.compaction.sections import write
from turnlog.compaction.structural import one_line, outline, paths
from turnlog.content import Message, ToolCall, assistant_message, tool_message, user_message


def numbered(*messages: Message) -> list[tuple[int, Message]]:
    """Messages with their seqs."""
    return list(enumerate(messages))


def test_it_has_words_files_errors_and_results() -> None:
    """Each with the event that it comes from."""
    found = outline(
        numbered(
            user_message("fix src/app.py, and never touch db.sql"),
            assistant_message([ToolCall("a", "read", '{"path": "src/app.py"}')]),
            tool_message("a", "def main(): ..."),
            assistant_message([ToolCall("b", "run", '{"cmd": "pytest"}')]),
            tool_message("b", "3 failed in tests/test_app.py", is_error=True),
            assistant_message("I will fix it."),
        ),
        None,
        4000,
    )
    assert found["Goals"] == ["- [0] fix src/app.py, and never touch db.sql"]
    assert found["Files"] == ["- db.sql", "- src/app.py", "- tests/test_app.py"]
    assert found["Errors and fixes"] == [
        '- [4] run({"cmd": "pytest"}): 3 failed in tests/test_app.py'
    ]
    assert found["State"] == [
        '- [2] read({"path": "src/app.py"}): def main(): ...',
        "- [5] answered: I will fix it.",
    ]


def test_it_keeps_within_its_budget() -> None:
    """However much was said: the first words and the last ones stay."""
    messages = [user_message(f"wish {at} {'please ' * 100}") for at in range(300)]
    text = write(outline(numbered(*messages), None, 3000))
    assert len(text) < 3500
    assert "- [0] wish 0 " in text
    assert "- [299] wish 299 " in text


def test_it_merges_an_older_one_and_does_not_grow() -> None:
    """Thirty in a row are no longer than a few."""
    older = None
    lengths: list[int] = []
    for at in range(30):
        messages = numbered(user_message(f"wish {at}: edit src/m{at}.py"), assistant_message("ok"))
        older = outline(messages, older, 1200)
        lengths.append(len(write(older)))
    assert max(lengths) < 1500
    assert "wish 0:" in write(older or {})
    assert "wish 29:" in write(older or {})


def test_huge_messages_are_not_quoted() -> None:
    """Their beginning is, in one line."""
    assert one_line("a\n\n b " * 10**6, 10) == "a b a b a…"
    assert one_line("short", 10) == "short"


def test_names_of_files_are_told_from_other_words_with_dots() -> None:
    """A path, or a known ending."""
    text = "see src/x/y.rs, README.md and v1.2; e.g. example.com or ./a/b.weird, foo.bar"
    assert list(paths(text)) == ["src/x/y.rs", "README.md", "./a/b.weird"]
