"""What the inbox carries: commands to whichever process owns a session.

Each has an `id`, by which a store drops what was posted twice; an empty one is filled in by `post`.
`turn` names the turn a command is meant for: a stale one has no effect.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from turnlog.content import Extra, extra_field
from turnlog.records import Codec, Record


class Prompt(Record, frozen=True, tag_field="type", tag="prompt"):
    """Run a turn on this text when the session is free; claimed by a loop only."""

    type: ClassVar[str] = "prompt"
    text: str
    id: str = ""
    extra: Extra = extra_field()


class Steer(Record, frozen=True, tag_field="type", tag="steer"):
    """Say something to the running turn at its next step."""

    type: ClassVar[str] = "steer"
    text: str
    turn: int | None = None
    id: str = ""
    extra: Extra = extra_field()


class Cancel(Record, frozen=True, tag_field="type", tag="cancel"):
    """Cancel the running turn; what had arrived is kept."""

    type: ClassVar[str] = "cancel"
    turn: int | None = None
    reason: str = "user"
    id: str = ""
    extra: Extra = extra_field()


class Approve(Record, frozen=True, tag_field="type", tag="approve"):
    """Let the call run."""

    type: ClassVar[str] = "approve"
    call_id: str
    id: str = ""
    extra: Extra = extra_field()


class Deny(Record, frozen=True, tag_field="type", tag="deny"):
    """Do not let the call run; the model reads the reason."""

    type: ClassVar[str] = "deny"
    call_id: str
    reason: str | None = None
    id: str = ""
    extra: Extra = extra_field()


class Compact(Record, frozen=True, tag_field="type", tag="compact"):
    """Compact the context at the next boundary."""

    type: ClassVar[str] = "compact"
    instruction: str | None = None
    id: str = ""
    extra: Extra = extra_field()


Command: TypeAlias = Prompt | Steer | Cancel | Approve | Deny | Compact


class _Wrapped(Record, frozen=True):
    command: Command


_codec = Codec(_Wrapped)


def wakes(command: Command) -> bool:
    """Whether a session that nobody runs is to be run for the command's sake.

    Steering is for a turn that runs, and waits for the next one.
    """
    return not isinstance(command, Steer)


def encode_command(command: Command) -> bytes:
    """The command's wire form."""
    return _codec.admit(_Wrapped(command), None)[0][len(b'{"command":') : -1]


def decode_command(raw: bytes) -> Command:
    """The command in its wire form.

    Raises:
        msgspec.ValidationError: no command that we know.
    """
    return _codec.decode(b'{"command":' + raw + b"}").command


def with_id(command: Command, command_id: str) -> Command:
    """The command with that id."""
    return msgspec.structs.replace(command, id=command_id)
