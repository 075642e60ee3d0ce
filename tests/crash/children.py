"""The process that forks a child for each thing it is asked to do, as a test holds it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self


class Children:
    """`store_child.py`, and what its children say."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("store_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def ask(self, line: str) -> None:
        """Start something."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin)

    def hear(self) -> str:
        """The next line that a child says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the children's process ended"
        self.lines.append(line)
        return line

    def start(self, line: str) -> int:
        """Start something and return its process id."""
        self.ask(line)
        return int(self.hear().removeprefix("pid "))

    def gone(self) -> list[str]:
        """Wait for all children; what they still said."""
        self.ask("wait")
        return list(self._until_gone())

    def _until_gone(self) -> Iterator[str]:
        while (line := self.hear()) != "gone":
            yield line


def spin(count: int) -> None:
    """Let some time pass, a different one each time."""
    for _ in range(count):
        pass
