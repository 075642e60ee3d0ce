"""What the model sees as a provider is sent it, with the header that was in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from turnlog import jsontext
from turnlog.cli import screen
from turnlog.events import Header, ModelConfig
from turnlog.views.loop import loop_fold

if TYPE_CHECKING:
    from turnlog.session import Session
    from turnlog.views.requests import Request

Provider = Literal["openai", "anthropic"]


def body(session: Session, provider: Provider, at: int | None, model: str | None = None) -> Any:
    """The request's body, as JSON; says so where no header was in force, and names no model then.

    Args:
        session: whose.
        provider: for whom.
        at: after which event.
        model: to be named in place of the one that was logged.
    """
    logged = header_at(session, at)
    found = _encoded(session, provider, at, logged, model)
    if logged is None:
        hint = "" if model else "; --model names one"
        left_out = "system text and tools" if model else "model, system text and tools"
        screen.note_line(f"no request/header is logged there: {left_out} are left out{hint}")
        if model is None:
            found.pop("model", None)
    return found


def _encoded(
    session: Session,
    provider: Provider,
    at: int | None,
    header: Header | None,
    model: str | None = None,
) -> Any:
    from turnlog.dialects import encoder

    header = header or Header(ModelConfig("unknown", "unknown"))
    if model is not None:
        header = replace(header, config=replace(header.config, model=model))
    return jsontext.decode(encoder(_newest(provider)).encode(header, session.request_messages(at)))


def message_list(session: Session, provider: Provider) -> Any:
    """The messages alone; for anthropic with the system text, which stands beside them there."""
    whole = _encoded(session, provider, None, header_at(session, None))
    if provider == "openai":
        return whole["messages"]
    return {key: whole[key] for key in ("system", "messages") if key in whole}


def header_at(session: Session, at: int | None) -> Header | None:
    """The header in force after event `at`, if any was logged."""
    return session.fold(loop_fold, at).header


def rebuilt(session: Session, request: Request) -> tuple[bytes, bool]:
    """A request's body as it was sent, and whether it differs from that; then it says so.

    Raises:
        UnknownEncoder: this turnlog does not have the encoder that made it.
        ConversionError: no header was in force, or there was nothing to say.
    """
    from turnlog.proof import prove, rebuild

    if request.encoder is not None:
        differs = prove(session, request.index) == "differs"
        if differs:
            screen.note_line(f"these are not the bytes that were sent, which had {request.digest}")
        return rebuild(session, request.index), differs
    header = request.header or header_at(session, request.at)
    provider = "" if header is None else header.config.provider.lower()
    name = _newest("anthropic" if "anthropic" in provider else "openai")
    screen.note_line(f"the log does not say which bytes were sent; {name} would send these")
    return rebuild(session, request.index, name), False


def _newest(provider: Provider) -> str:
    from turnlog.dialects import ENCODERS

    return [name for name in ENCODERS if name.startswith(f"{provider}@")][-1]
