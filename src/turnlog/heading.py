"""Logging the header of a request: once for as long as it stays the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.events import Header, RequestContext, RequestHeader
from turnlog.views.loop import loop_fold

if TYPE_CHECKING:
    from turnlog.session import Session


def log_header(session: Session, header: Header, window: int | None) -> None:
    """Log a request's header when it is not the one in force, and what its model takes.

    Args:
        session: the session.
        header: the header of the request that will be sent.
        window: tokens that its model takes; None when nobody said.
    """
    state = session.fold(loop_fold)
    if state.header == header and state.header_is_ours:
        return
    reason = "initial" if state.header is None else "change"
    if state.header is not None and not state.header_is_ours:
        reason = "resume"
    session.append("request/header", RequestHeader(header, reason))
    if window is not None:
        context = RequestContext(header.config.provider, header.config.model, window)
        session.append("request/context", context)
