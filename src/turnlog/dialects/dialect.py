"""What a dialect is, and the plain fold that makes a body of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from turnlog.dialects.carry import Carry
from turnlog.dialects.wire import examples
from turnlog.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turnlog.content import Message
    from turnlog.events import Header


class Dialect(Protocol):
    """One version of one provider's request body.

    Pieces of encoded messages are appended to `out`; each begins with what joins it to the ones
    before, a comma or the end of the last wire message and a comma. They are a pure function of
    provider, carry and message, so that pieces of a history can be kept.
    """

    @property
    def name(self) -> str:
        """`name@version`, as in `request/sent`."""
        ...

    def add(self, message: Message, carry: Carry, provider: str, out: list[bytes]) -> None:
        """Encode the next message."""
        ...

    def settle(self, carry: Carry, out: list[bytes]) -> None:
        """Close the group of results that is open: for the end, or before another message."""
        ...

    def head(self, header: Header, carry: Carry, *, stream: bool) -> bytes:
        """The body up to its messages, given what was carried at the end."""
        ...

    def close(self, carry: Carry) -> bytes:
        """What ends the last message, the messages and the body."""
        ...


def begin(dialect: Dialect, header: Header) -> tuple[Carry, bytes]:
    """The carry before the history, and the encoded examples that precede it."""
    carry, out = Carry(), list[bytes]()
    for message in examples(header):
        dialect.add(message, carry, header.config.provider, out)
    return carry, b"".join(out)


def end(dialect: Dialect, carry: Carry, header: Header, instruction: Message | None) -> bytes:
    """What follows the history: an open group's results, and the instruction."""
    out: list[bytes] = []
    dialect.settle(carry, out)
    if instruction is not None:
        dialect.add(instruction, carry, header.config.provider, out)
    return b"".join(out)


def frame(
    dialect: Dialect,
    carry: Carry,
    header: Header,
    history: Iterable[bytes],
    tail: bytes,
    *,
    stream: bool,
) -> list[bytes]:
    """The segments of a body: head, history, tail, end.

    Raises:
        ConversionError: there is nothing to say.
    """
    head = dialect.head(header, carry, stream=stream)
    said = [piece for piece in (*history, tail) if piece]
    if head.endswith(b"["):
        if not said:
            msg = f"{dialect.name}: expected something to send, there is no message"
            raise ConversionError(msg)
        said[0] = said[0][1:]  # nothing comes before it: no comma
    return [head, *said, dialect.close(carry)]
