"""The ordered nodes of a projection, and the changes that one event makes to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.views.nodes import Change, Node

if TYPE_CHECKING:
    from turnlog.content import Chunk


class Board:
    """Nodes in the order in which they began; adding and updating cost O(1)."""

    __slots__ = ("_changes", "_nodes", "_places", "_taken")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._places: dict[str, int] = {}
        self._taken: tuple[Node, ...] | None = ()
        self._changes: list[Change] = []

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, node_id: str) -> Node | None:
        """The node of that id."""
        place = self._places.get(node_id)
        return None if place is None else self._nodes[place]

    def window(self, start: int, stop: int) -> tuple[Node, ...]:
        """The nodes from `start` to before `stop`."""
        return tuple(self._nodes[start:stop])

    def snapshot(self) -> tuple[Node, ...]:
        """All nodes; the same tuple until something changes."""
        if self._taken is None:
            self._taken = tuple(self._nodes)
        return self._taken

    def add(self, node: Node) -> None:
        """Put a new node at the end."""
        self._places[node.id] = len(self._nodes)
        self._nodes.append(node)
        self._note(Change("add", node))

    def update(self, node: Node, chunk: Chunk | None = None) -> None:
        """Put a node in the place of the one with its id; `chunk` if that is all that is new."""
        self._nodes[self._places[node.id]] = node
        self._note(Change("update", node, chunk))

    def remove(self, node_id: str) -> None:
        """Take a node out: O(nodes that began after it)."""
        place = self._places.pop(node_id)
        node = self._nodes.pop(place)
        for later in self._nodes[place:]:
            self._places[later.id] -= 1
        self._note(Change("remove", node))

    def take_changes(self) -> list[Change]:
        """What changed since this was last asked, in order."""
        changes, self._changes = self._changes, []
        return changes

    def _note(self, change: Change) -> None:
        self._changes.append(change)
        self._taken = None
