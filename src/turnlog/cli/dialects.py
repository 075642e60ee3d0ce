"""What the model sees as a provider is sent it, with the header that was in force."""

from __future__ import annotations

from hashlib import sha256
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
    encoded = _encode(_newest(provider), header_at(session, at), session, at)
    return jsontext.decode(encoded)


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
        ConversionError: there is nothing to say.
    """
    if request.encoder is None:
        header = request.header or header_at(session, request.at)
        provider = "anthropic" if "anthropic" in header.config.provider.lower() else "openai"
        name = _newest(provider)
        screen.note_line(
            f"the log does not have the bytes that were sent; this is what {name} would send"
        )
        return _encode(name, header, session, request.at)
    header = request.header or header_at(session, request.at)
    found = _encode(request.encoder, header, session, request.at, request.instruction)
    if f"sha256:{sha256(found).hexdigest()}" != request.digest:
        screen.note_line(f"these are not the bytes that were sent, which had {request.digest}")
    return found


def _newest(provider: Provider) -> str:
    from turnlog.dialects import ENCODERS

    return [name for name in ENCODERS if name.startswith(f"{provider}@")][-1]


def _encode(
    name: str, header: Header, session: Session, at: int | None, instruction: str | None = None
) -> bytes:
    from turnlog.dialects import encoder

    return encoder(name).encode(header, session.request_messages(at), instruction=instruction)
