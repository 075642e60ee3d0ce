"""A tool for the examples of docs/agents.md: `turnlog run --tool examples.tides:tides …`."""

from __future__ import annotations

from turnlog import tool


def tides(place: str) -> str:
    """The times of high and low water.

    Args:
        place: a town on the coast.
    """
    return f"{place}: high 06:12, low 12:30, high 18:41"


@tool(approve="ask")
def book(place: str, guests: int = 2) -> str:
    """Book a table.

    Args:
        place: the town.
        guests: how many people.
    """
    return f"a table for {guests} in {place}"
