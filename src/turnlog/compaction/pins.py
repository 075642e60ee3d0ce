"""Pins: what every compaction carries on verbatim (semantics.md §5).

A pin names an event. While that event is on the surface the model sees it there. Once it is
shadowed, the message that stands for it holds the pinned content in blocks of its own, marked with
the pin's seq, and so does whatever replaces that message later: so the content is always on the
surface, also in a session that has little else in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from turnlog.content import Block, Image, Int, Message, Source, Text, ToolCall, is_blank
from turnlog.errors import InvalidContent, NoMessage, NoSuchEvent, NoSuchPin, NotLoaded, brief
from turnlog.events import ContextPin, ContextUnpin, SessionErased
from turnlog.records import Codec, Opaque, Record, flatten, freeze

if TYPE_CHECKING:
    from turnlog.events import AnyEvent
    from turnlog.session import Session

MARK: Final = "pinned"
"""The key, in the `extra` of a block, under which the seq stands that the block came from."""
SOURCE: Final = "pin"
"""The kind of source of a message that was written to be pinned, or holds only pinned content."""
_MARK: Final = b'"pinned"'
_CARRYING: Final = frozenset({"user/message", "context/message"})
_STANDING: Final = frozenset({"system/message", "developer/message"})


class Pinned(msgspec.Struct, frozen=True):
    """Pinned content.

    Attributes:
        pin_id: of the earliest pin that names the event.
        seq: the event.
        blocks: its text and images; of a call or a result its text, quoted.
    """

    pin_id: str
    seq: int
    blocks: tuple[Block, ...]


class Pin(Record, frozen=True):
    """A pin as the fold knows it: `at` is its own event, `blocks` the content as far as seen."""

    pin_id: str
    seq: Int
    at: Int
    blocks: tuple[Block, ...] | None = None


_codec = Codec(Pin)


class PinState:
    """What is pinned, by pin id, and which messages hold pinned content: of which seqs."""

    def __init__(self) -> None:
        self.pins: dict[str, Pin] = {}
        self.carriers: dict[int, tuple[int, ...]] = {}


class PinFold:
    """The fold behind `pinned`; use it as `session.fold(PINS)`."""

    def start(self) -> PinState:
        """Nothing is pinned."""
        return PinState()

    def step(self, state: PinState, event: AnyEvent, /) -> PinState:
        """After one more event."""
        if event.type == "context/pin":
            data = event.data
            if isinstance(data, ContextPin):
                state.pins.setdefault(data.pin_id, Pin(data.pin_id, data.seq, event.seq))
        elif not state.pins:
            pass
        elif event.type == "context/unpin":
            if isinstance(event.data, ContextUnpin):
                state.pins.pop(event.data.pin_id, None)
        elif event.type == "session/erased":
            if isinstance(event.data, SessionErased):
                self._erase(state, event.data.seqs)
        elif event.type in _CARRYING:
            if _MARK in event.raw:
                self._carry(state, event)
            if event.surface_op != "append" and state.carriers:
                for seq in event.source_event_seqs or ():
                    state.carriers.pop(seq, None)
        return state

    @staticmethod
    def _carry(state: PinState, event: AnyEvent) -> None:
        held = _held(event.message)
        for pin in list(state.pins.values()):
            if pin.seq in held:
                state.pins[pin.pin_id] = msgspec.structs.replace(pin, blocks=held[pin.seq])
        if held:
            state.carriers[event.seq] = tuple(held)

    @staticmethod
    def _erase(state: PinState, seqs: Iterable[int]) -> None:
        gone = set(seqs)
        for pin in list(state.pins.values()):
            if pin.seq in gone:
                del state.pins[pin.pin_id]

    def dump(self, state: PinState) -> Any:
        """The state as JSON, for `restore`; as long as what is pinned, whatever the log."""
        carriers = [[seq, *held] for seq, held in state.carriers.items()]
        return {"pins": flatten(tuple(state.pins.values())), "carriers": carriers}

    def restore(self, value: Any) -> PinState:
        """The state that `dump` made JSON of.

        Raises:
            KeyError, TypeError, ValueError: it did not.
        """
        state = PinState()
        for wire in value["pins"]:
            pin = _codec.convert(freeze(wire))
            state.pins[pin.pin_id] = pin
        state.carriers = {int(seq): tuple(map(int, held)) for seq, *held in value["carriers"]}
        return state


PINS: Final = PinFold()


def pinned(session: Session) -> tuple[Pinned, ...]:
    """What is pinned now, each event once, in the order of pinning.

    A pin that came with an import does not count, nor one of an event that is lost or says nothing.

    Raises:
        NotLoaded: of a pinned event, nothing is in memory; our own compactions leave none such.
    """
    state, native = session.fold(PINS), session.header.imported
    found: dict[int, Pinned] = {}
    for pin in list(state.pins.values()):
        if pin.at < native or pin.seq in found:
            continue
        blocks = _content(session, pin)
        if blocks != pin.blocks:  # for whoever dumps the state
            state.pins[pin.pin_id] = msgspec.structs.replace(pin, blocks=blocks)
        if blocks:
            found[pin.seq] = Pinned(pin.pin_id, pin.seq, blocks)
    return tuple(found.values())


def pinned_seqs(session: Session) -> set[int]:
    """The seqs that are pinned now: their content is not to be made shorter."""
    native = session.header.imported
    return {pin.seq for pin in session.fold(PINS).pins.values() if pin.at >= native}


def carried(session: Session, leaving: Iterable[int] = ()) -> tuple[Block, ...]:
    """The blocks with which a replacing message carries on what is pinned: each content once.

    Args:
        session: the session, as it is before the replacement.
        leaving: the nodes that it will shadow. What stays visible without them needs no copy.
    """
    return tuple(block for pin in _missing(session, leaving) for block in _marked(pin))


def is_carried(block: Block) -> bool:
    """Whether a block was carried on because it was pinned (its heading too)."""
    return _seq_of(block) is not None


def content_of(event: AnyEvent) -> tuple[Block, ...]:
    """What a pin of an event carries: text and images, of a call or a result its text, quoted."""
    message = event.message
    if message is None or event.type in _STANDING:
        return ()
    if message.role == "tool":
        text = "\n".join(b.text for b in message.content if type(b) is Text and not is_blank(b))
        return (Text(_quoted(f"result of {message.tool_call_id}", text)),) if text else ()
    found: list[Block] = []
    for block in message.content:
        if is_carried(block) or is_blank(block):
            continue
        if isinstance(block, Text):
            found.append(Text(block.text))
        elif isinstance(block, Image):
            found.append(Image(block.media_type, block.data, block.url))
        elif isinstance(block, ToolCall):
            found.append(Text(_quoted(f"call of {block.name}", block.arguments)))
    return tuple(found)


def pin(session: Session, seq_or_text: int | str, new_id: Callable[[], str]) -> str:
    """What `Session.pin` does."""
    if isinstance(seq_or_text, str) and seq_or_text.strip():
        seq = session.add_context(seq_or_text, source=SOURCE).seq
    elif type(seq_or_text) is int:
        seq = seq_or_text
        known = next((each for each in pinned(session) if each.seq == seq), None)
        if known is not None:
            return known.pin_id
        _check_pinnable(session, seq)
    else:
        msg = f"expected a seq, or a text that says something, got {brief(seq_or_text)}"
        raise InvalidContent(msg)
    pin_id = new_id()
    session.append("context/pin", ContextPin(pin_id, seq))
    missing = _missing(session, ())
    if missing:
        content = tuple(block for each in missing for block in _marked(each))
        session.append(
            "context/message",
            Message(new_id(), "user", content, Source(SOURCE)),
            surface_op="append",
            source_event_seqs=[each.seq for each in missing],
        )
    return pin_id


def unpin(session: Session, pin_id: str) -> None:
    """What `Session.unpin` does."""
    found = session.fold(PINS).pins.get(pin_id)
    if found is None or found.at < session.header.imported:
        counting = ", ".join(repr(pin.pin_id) for pin in pinned(session))
        why = "there is no such pin" if found is None else "it came with an import and counts not"
        msg = f"session {session.id!r}: pin {pin_id!r}: {why}; there is {counting or 'none'}"
        raise NoSuchPin(msg)
    session.append("context/unpin", ContextUnpin(pin_id))


def _check_pinnable(session: Session, seq: int) -> None:
    """Nothing, if the event can be pinned.

    Raises:
        NoSuchEvent: there is none with that seq, or it was lost to damage.
        NotLoaded: it is in the store, but not in memory.
        NoMessage: it holds nothing that a pin could carry.
    """
    event = session.event_at(seq)
    if content_of(event):
        return
    if event.type in _STANDING:
        why = "holds system text, which no compaction takes"
    elif event.message is None:
        why = "holds no message"
    else:
        why = "holds neither text nor images"
    msg = f"session {session.id!r}: event {seq} ({event.type}) {why}, so it cannot be pinned"
    raise NoMessage(msg)


def _missing(session: Session, leaving: Iterable[int]) -> list[Pinned]:
    """What is pinned, and not to be seen on the surface without the nodes that leave."""
    gone, surface, pins = set(leaving), session.surface, pinned(session)
    carriers = session.fold(PINS).carriers.items()
    seen = {seq for at, held in carriers if at not in gone and at in surface for seq in held}
    return [
        pin for pin in pins if pin.seq not in seen and (pin.seq in gone or pin.seq not in surface)
    ]


def _content(session: Session, pin: Pin) -> tuple[Block, ...]:
    """The content of what is pinned: of the event itself, if it is in memory."""
    try:
        return content_of(session.event_at(pin.seq))
    except NotLoaded:
        if pin.blocks is None:
            raise
    except NoSuchEvent:  # lost to damage, if it ever was there
        pass
    return pin.blocks or ()


def _marked(pin: Pinned) -> Iterator[Block]:
    yield Text(f"Pinned, from event {pin.seq}, verbatim:", {MARK: {"seq": pin.seq, "head": True}})
    for block in pin.blocks:
        if isinstance(block, (Text, Image)):
            yield msgspec.structs.replace(block, extra={MARK: {"seq": pin.seq}})


def _held(message: Message | None) -> dict[int, tuple[Block, ...]]:
    """The pinned content that a message carries, by the seq it came from, without the marks."""
    held: dict[int, tuple[Block, ...]] = {}
    for block in () if message is None else message.content:
        seq = _seq_of(block)
        if seq is not None and isinstance(block, (Text, Image)) and not _mark(block).get("head"):
            held[seq] = (*held.get(seq, ()), msgspec.structs.replace(block, extra=None))
    return held


def _seq_of(block: Block) -> int | None:
    seq = _mark(block).get("seq")
    return seq if type(seq) is int else None


def _mark(block: Block) -> Mapping[str, Any]:
    mark = None if isinstance(block, Opaque) else (block.extra or {}).get(MARK)
    return cast("Mapping[str, Any]", mark) if isinstance(mark, Mapping) else {}


def _quoted(label: str, text: str) -> str:
    lines = "\n".join(f"> {line}" for line in text.split("\n"))
    return f"{label}:\n{lines}"
