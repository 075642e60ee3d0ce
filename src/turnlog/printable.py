"""Text that may hold anything, made fit to be shown: nothing in it acts on what shows it.

A log is hostile input: control characters drive a terminal, bidirectional marks make a line read
otherwise than it is, lone surrogates cannot be encoded. They are shown as escapes. For showing
only; what is exported or sent keeps the text.
"""

from __future__ import annotations

import re

_ACTS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_acting = re.compile(f"[{_ACTS}]")
_acting_in_line = re.compile(f"[{_ACTS}\t\n]")
_acting_in_json = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text over as many lines as it has; CR LF ends a line as LF does."""
    return _acting.sub(_escape, text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    """The text on one line, line breaks and tabs escaped too."""
    return _acting_in_line.sub(_escape, text)


def printable_json(text: str) -> str:
    """JSON that means the same, with escapes for what would act on a terminal."""
    return _acting_in_json.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
