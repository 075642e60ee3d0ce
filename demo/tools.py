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

NOTES = """\
Ada has the key of the harbour office, and Grace has the key of the crane. The crane was repaired
on Monday; the repair took four hours and a new rope. On Tuesday two boats came from the north with
timber and salt, and one left for the islands with letters, bread and a piano. The piano belongs to
the school and must stay dry. On Wednesday it rained all day, so nobody worked at the pier; we wrote
the list of what is missing: rope, tar, a lamp, paper for the log book, and coffee. On Thursday the
lamp at the end of the pier went out twice. Linus looked at it and found water in the cable. He
wants to put in a new cable when the weather is dry. On Friday the fish market was full, and the
mayor came to ask how many boats will come in summer. I said forty, perhaps more if the new berths
are ready. On Saturday the children painted the boat house blue. On Sunday we closed.
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
