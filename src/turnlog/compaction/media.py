"""Images that a provider does not take any more become notes; the originals stay in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from turnlog.content import Block, Image, Message, Text
from turnlog.events import CompactionPrune, Replace, ToolResult

if TYPE_CHECKING:
    from turnlog.session import Session

_TYPES = ("user/message", "context/message", "tool/result")


def elide_images(
    session: Session,
    seqs: Iterable[int],
    enough: Callable[[], bool] = lambda: False,
    which: Callable[[Image], bool] = lambda image: True,  # noqa: ARG005 - any image
) -> tuple[int, ...]:
    """Replace images by notes, in the order of the nodes; returns which nodes lost theirs.

    Args:
        session: whose they are.
        seqs: the nodes.
        enough: whether the rest may stay.
        which: which images may not. By default none may: which one a provider minds, its answer
            seldom tells.
    """
    found: list[int] = []
    for seq in seqs:
        if enough():
            break
        event = session.event_at(seq)
        message = event.message
        if event.type not in _TYPES or message is None:
            continue
        content = tuple(
            _note(block, seq) if isinstance(block, Image) and which(block) else block
            for block in message.content
        )
        if content == message.content:
            continue
        data = event.data
        shorter = msgspec.structs.replace(message, content=content)
        session.append("compaction/prune", CompactionPrune((seq,)))
        if isinstance(data, ToolResult):
            _replace(session, event.type, seq, msgspec.structs.replace(data, message=shorter))
        else:
            _replace(session, event.type, seq, shorter)
        found.append(seq)
    return tuple(found)


def _replace(session: Session, kind: str, seq: int, data: Message | ToolResult) -> None:
    replaced = {"surface_op": Replace(seq, seq), "source_event_seqs": [seq]}
    session.append(kind, data, **replaced)  # pyright: ignore[reportCallIssue, reportArgumentType]


def _note(image: Image, seq: int) -> Block:
    kind = image.media_type or "image"
    size = len(image.data or "")
    said = f"{size} characters of base64" if size else "by its address"
    return Text(f"[{kind}, {said}, left out here; the original is event {seq}]", image.extra)
