"""What the model sees as a provider is sent it, with the header that was in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from turnlog import jsontext
from turnlog.cli import screen
from turnlog.events import Header, ModelConfig, RequestHeader

if TYPE_CHECKING:
    from turnlog.session import Session
    from turnlog.views.requests import Request

Provider = Literal["openai", "anthropic"]


def body(session: Session, provider: Provider, at: int | None) -> Any:
    """The request's body, as JSON."""
    from turnlog.dialects import encoder

    found = encoder(_newest(provider))
    return jsontext.decode(found.encode(header_at(session, at), session.request_messages(at)))


def message_list(session: Session, provider: Provider) -> Any:
    """The messages alone; for anthropic with the system text, which stands beside them there."""
    whole = body(session, provider, None)
    if provider == "openai":
        return whole["messages"]
    return {key: whole[key] for key in ("system", "messages") if key in whole}


def header_at(session: Session, at: int | None) -> Header:
    """The header in force after event `at`; one that only names a model where there is none."""
    for event in reversed(session.events):
        if (at is None or event.seq <= at) and isinstance(event.data, RequestHeader):
            return event.data.header
    return Header(ModelConfig("unknown", "unknown"))


def rebuilt(session: Session, request: Request) -> bytes:
    """A request's body as it was sent; says so on standard error where that cannot be had.

    Raises:
        UnknownEncoder: this turnlog does not have the encoder that made it.
        ConversionError: no header was in force, or there was nothing to say.
    """
    from turnlog.proof import prove, rebuild

    if request.encoder is not None:
        if prove(session, request.index) == "differs":
            screen.note_line(f"these are not the bytes that were sent, which had {request.digest}")
        return rebuild(session, request.index)
    header = request.header or header_at(session, request.at)
    name = _newest("anthropic" if "anthropic" in header.config.provider.lower() else "openai")
    screen.note_line(f"the log does not say which bytes were sent; {name} would send these")
    return rebuild(session, request.index, name)


def _newest(provider: Provider) -> str:
    from turnlog.dialects import ENCODERS

    return [name for name in ENCODERS if name.startswith(f"{provider}@")][-1]
