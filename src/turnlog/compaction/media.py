"""Images that a provider does not take any more become notes; the originals stay in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from turnlog.content import Block, Image, Message, Text
from turnlog.events import CompactionPrune, Replace, ToolResult

if TYPE_CHECKING:
    from turnlog.compaction.ranges import Nodes
    from turnlog.session import Session

_TYPES = ("user/message", "context/message", "tool/result")


def elide_images(
    session: Session, nodes: Nodes, end: int, enough: Callable[[], bool] = lambda: False
) -> tuple[int, ...]:
    """Replace the images of nodes by notes, oldest first; returns which nodes lost theirs.

    Args:
        session: whose they are.
        nodes: its surface.
        end: the position before which images are looked for.
        enough: whether the rest may stay. By default none may: which image a provider minds, its
            answer seldom tells.
    """
    found: list[int] = []
    for seq in nodes.seqs(0, end):
        if enough():
            break
        event = session.event_at(seq)
        message = event.message
        if event.type not in _TYPES or message is None:
            continue
        content = tuple(_noted(block, seq) for block in message.content)
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


def _noted(block: Block, seq: int) -> Block:
    if not isinstance(block, Image):
        return block
    kind = block.media_type or "image"
    size = len(block.data or "")
    said = f"{size} characters of base64" if size else "by its address"
    return Text(f"[{kind}, {said}, left out here; the original is event {seq}]", block.extra)
