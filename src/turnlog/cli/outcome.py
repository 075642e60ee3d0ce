"""How a command ends when it does not end well: 1 it failed, 2 it was misused."""

from __future__ import annotations


class Failed(Exception):
    """The command did its work, and the answer is no: exit status 1, nothing more to say."""


class Misused(Exception):
    """Words that do not make a command: exit status 2, the message on one line."""
