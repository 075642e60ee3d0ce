"""How far a long import or copy is: a line on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from turnlog.printable import printable_line

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Counts sessions and events; draws only where someone looks."""

    def __init__(self, sessions: int = 0) -> None:
        self._sessions = sessions
        self._at = 0
        self._events = 0
        self._bar: Bar | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            text = TextColumn("{task.description}", markup=False)
            console = Console(stderr=True)
            self._bar = Bar(
                SpinnerColumn(), text, TimeElapsedColumn(), console=console, transient=True
            )
            self._task = self._bar.add_task("")
            self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def next(self, path: Path) -> None:
        """The next session begins."""
        self._at += 1
        self._events = 0
        self._name = printable_line(f"{path.parent.name}/{path.name}")
        self._draw()

    def stand(self, at: int, sessions: int, name: str, events: int) -> None:
        """How far a copy is: at which session of how many, and how many of its events were read."""
        self._at, self._sessions, self._events = at, sessions, events
        self._name = printable_line(name)
        self._draw()

    def events(self, count: int) -> None:
        """So many more events were read; each is, twice: to look it over, and to take it."""
        self._events += count
        self._draw()

    def pause(self, say: Callable[[], None]) -> None:
        """Print something without the line in between."""
        if self._bar is None:
            say()
            return
        self._bar.stop()
        say()
        self._bar.start()

    def _draw(self) -> None:
        if self._bar is not None:
            text = f"{self._at}/{self._sessions} {self._name}: {self._events} events read"
            self._bar.update(self._task, description=text)
