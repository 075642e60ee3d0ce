"""The demo's two tools, which its victim process uses too."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from turnlog import Tool

POEM = """\
The log remembers every word we said,
the line that streamed, the thought that went ahead.
Cut off the light in the middle of a rhyme:
it opens the book and finds the place in time.
"""


def file_tools(folder: Path) -> list[Tool]:
    """Tools that read the files of `folder`."""

    def word_count(path: Literal["poem.txt", "empty.txt"]) -> int:
        """Count the words of a text file."""
        return len((folder / path).read_text(encoding="utf-8").split())

    examples = ({"path": "poem.txt"}, {"path": "empty.txt"})
    return [Tool(word_count, examples=examples)]


def endless_tool() -> Tool:
    """A tool that never returns: someone will have to kill its process."""

    def send_mail(to: Literal["ada", "grace"]) -> str:
        """Send a mail."""
        del to
        while True:
            time.sleep(3600)

    return Tool(send_mail, examples=({"to": "ada"}, {"to": "grace"}))
