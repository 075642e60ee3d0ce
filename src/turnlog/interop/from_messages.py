"""A message list of OpenAI or Anthropic in a JSON file, as an import.

The file holds the list, or an object with the list under `messages`, as a request's body has it;
Anthropic's `system` beside it becomes the first message. The session's id is the file's name, its
times are the file's own, so that the same file again is the same session.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, cast

from turnlog import jsontext
from turnlog.errors import ImportFailed, InvalidMessages, why_unreadable
from turnlog.interop.dsh.frames import LIMITS
from turnlog.interop.dsh.source import open_regular
from turnlog.interop.incoming import FORMATS, Progress, checked_header, counted, preview
from turnlog.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from turnlog.dialects.adopt import ListDialect
    from turnlog.events import AnyEvent


class FromMessages:
    """The session that a list makes; see `Incoming`."""

    def __init__(
        self, path: Path, dialect: ListDialect | None = None, progress: Progress | None = None
    ) -> None:
        self.path = path
        self._progress = progress
        self.notes: list[str] = []
        messages = list_in(path)
        changed = int(path.stat().st_mtime * 1000)
        ids = count()
        try:
            self._session = Session.from_messages(
                messages,
                dialect=dialect,
                session_id=path.stem,
                clock=lambda: changed,
                new_id=lambda: f"{path.stem}:{next(ids)}",
            )
        except InvalidMessages as error:
            raise ImportFailed(f"{path}: {error}") from None
        self.header = checked_header(path, self._session.header)

    def __iter__(self) -> Iterator[AnyEvent]:
        """The messages' events, in order of seq."""
        return counted(iter(self._session.events), self._progress)


def list_in(path: Path) -> list[Any]:
    """The message list in a file.

    Raises:
        ImportFailed: it cannot be read, or holds none.
    """
    try:
        with open_regular(path) as file:
            raw = file.read(LIMITS.line + 1)
    except OSError as error:
        raise ImportFailed(f"{path}: {error.strerror or error}") from None
    if len(raw) > LIMITS.line:
        raise ImportFailed(f"{path}: expected a message list of at most {LIMITS.line} bytes")
    try:
        value = jsontext.decode(raw)
    except ValueError as error:
        got = preview(raw.partition(b"\n")[0])
        raise ImportFailed(
            f"{path}: expected a session or a message list, got {got} ({why_unreadable(error)}); "
            f"{FORMATS}"
        ) from None
    system: Any = None
    if isinstance(value, dict):
        wire = cast("dict[str, Any]", value)
        value, system = wire.get("messages"), wire.get("system")
    if not isinstance(value, list):
        raise ImportFailed(
            f"{path}: expected a session or a message list, got JSON without messages; {FORMATS}"
        )
    first = [] if system is None else [{"role": "system", "content": system}]
    return first + cast("list[Any]", value)
