"""What commands print: safe on any terminal, plain where there is none, JSON where it is asked for.

Colours only on a terminal, and not with NO_COLOR. Whatever comes out of a log passes through
`turnlog.printable` on its way.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TextIO

from turnlog import jsontext
from turnlog.printable import printable_json, printable_line

WIDE = 70
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def set_up_streams() -> None:
    """A character that the terminal's encoding lacks becomes an escape, never an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def quiet_stdout() -> None:
    """Nobody reads any more: let what is still buffered go nowhere."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # pragma: no cover - no real file: nothing will be flushed
        return


def error_line(message: str, hint: str = "") -> None:
    """One line on standard error, without passwords of URLs."""
    text = printable_line(_masked(" ".join(message.split()))) + (f" ({hint})" if hint else "")
    print(f"{styled('turnlog:', 'red', sys.stderr)} {text}", file=sys.stderr)


def note_line(message: str) -> None:
    """One line on standard error that is no error; passwords of URLs are not in it."""
    print(styled(printable_line(_masked(message)), "dim", sys.stderr), file=sys.stderr)


def _masked(text: str) -> str:
    if ":/" not in text:  # nor a path that was made of a URL
        return text
    from turnlog.stores.server.urls import masked

    return masked(text)


def say(text: str = "") -> None:
    """Print text that is safe already."""
    print(text)


def say_json(value: Any) -> None:
    """Print one value as JSON on one line."""
    print(as_json(value))


def as_json(value: Any) -> str:
    """JSON on one line that no terminal acts on, in ASCII where the output is not UTF-8."""
    text = printable_json(jsontext.encode(value).decode())
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return text if encoding in ("utf-8", "utf8") else _ascii(text)


def _ascii(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be")
        pairs = range(0, len(units), 2)
        return "".join(f"\\u{int.from_bytes(units[i : i + 2], 'big'):04x}" for i in pairs)

    return re.sub(r"[^\x00-\x7f]", escape, text)


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text in a style, where the stream shows colours."""
    target = stream or sys.stdout
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not target.isatty():
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def width() -> int | None:
    """Columns of the terminal (or COLUMNS), None where the output goes elsewhere."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def cut(text: str, columns: int | None) -> str:
    """The text on one line, at most that many characters."""
    text = printable_line(text)
    return text if columns is None or len(text) <= columns else f"{text[: max(columns - 1, 0)]}…"


def rows(table: Iterable[tuple[str, str]]) -> None:
    """Names and values, aligned where there is room, else one under the other."""
    pairs = list(table)
    columns = width()
    indent = max((len(name) for name, _ in pairs), default=0) + 2
    for name, value in pairs:
        if columns is not None and indent + len(value) > columns:
            say(styled(cut(name, columns), "dim"))
            for line in textwrap.wrap(value, max(columns - 4, 10), break_long_words=True):
                say(f"    {line}")
        else:
            say(f"{styled(name.ljust(indent), 'dim')}{value}")


def when(milliseconds: int) -> str:
    """A time of the log as a person's own clock shows it."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things, in the right number."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def size(count: int | None) -> str:
    """Bytes for a person."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError  # pragma: no cover - the last unit returns


def say_parts(parts: Iterable[bytes]) -> None:
    """A document in pieces: its bytes, or on a terminal what of it does not act there."""
    if sys.stdout.isatty():
        end = "\n"
        for part in parts:
            text = printable_json(part.decode("utf-8", "backslashreplace"))
            sys.stdout.write(text)
            end = text[-1:] or end
        if end != "\n":
            sys.stdout.write("\n")
        return
    sys.stdout.flush()
    for part in parts:
        sys.stdout.buffer.write(part)
