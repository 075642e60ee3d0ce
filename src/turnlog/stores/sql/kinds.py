"""The kind of a command, as the column `prompt` of an inbox has it, so that a query can ask for it.

0 is what waits for a turn that runs, 1 a prompt, 2 whatever else a loop is to do something about.
"""

from __future__ import annotations

from turnlog.commands import Command, Prompt, wakes

_NONE, _PROMPT, _OTHER = 0, 1, 2


def kind_of(command: Command) -> int:
    """The command's kind."""
    if type(command) is Prompt:
        return _PROMPT
    return _OTHER if wakes(command) else _NONE


def most_of(*, only_prompts: bool) -> int:
    """The greatest kind to ask for; the least is that of a prompt."""
    return _PROMPT if only_prompts else _OTHER
