"""The surface: append, replace by position, what was there before."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.errors import NotOnSurface, ReplaceOutOfOrder, UncitedNodes
from turnlog.events import Replace
from turnlog.surface import Seqs, Surface
from turnlog.testing.builders import new_session


def surface(count: int) -> Surface:
    """Nodes 0, 1, 2 and so on."""
    made = Surface()
    for seq in range(count):
        made.append(seq)
    return made


def replace(made: Surface, seq: int, start: int, end: int) -> None:
    """Plan and apply, citing everything earlier."""
    made.apply(made.plan(seq, Replace(start, end), range(seq)))


def test_replace_is_by_position() -> None:
    """After a replacement the order is no longer that of the seqs, and ranges follow the order."""
    made = surface(5)
    replace(made, 5, 1, 2)
    assert made.seqs == [0, 5, 3, 4]
    replace(made, 6, 5, 3)
    assert made.seqs == [0, 6, 4]
    with pytest.raises(ReplaceOutOfOrder) as caught:
        made.plan(7, Replace(4, 6), range(7))
    assert caught.value.value == (4, 6)
    replace(made, 7, 0, 4)
    assert made.seqs == [7]
    assert made.replace_generation == 3


def test_past_surfaces() -> None:
    """The surface after any event is found again."""
    made = surface(4)
    replace(made, 4, 0, 1)
    made.append(5)
    replace(made, 6, 4, 3)
    assert [made.at(seq) for seq in (-1, 0, 3, 4, 5, 6, 99)] == [
        [],
        [0],
        [0, 1, 2, 3],
        [4, 2, 3],
        [4, 2, 3, 5],
        [6, 5],
        [6, 5],
    ]


def test_a_plan_changes_nothing() -> None:
    """Planning does not touch the surface, whether it is refused or not."""
    made = surface(3)
    made.plan(3, Replace(0, 2), [0, 1, 2])
    with pytest.raises(NotOnSurface):
        made.plan(3, Replace(0, 3), [0, 1, 2])
    with pytest.raises(UncitedNodes) as caught:
        made.plan(3, Replace(0, 2), [1])
    assert caught.value.value == [0, 2]
    assert made.seqs == [0, 1, 2]
    assert made.replace_generation == 0


def test_shadowed_by() -> None:
    """Each shadowed node knows what took its place; what is on the surface was not shadowed."""
    made = surface(3)
    replace(made, 3, 0, 1)
    replace(made, 4, 3, 3)
    assert [made.shadowed_by(seq) for seq in range(5)] == [3, 3, None, 4, None]
    assert [seq in made for seq in range(6)] == [False, False, True, False, True, False]


def test_the_view_of_seqs_is_live_and_read_only() -> None:
    """`surface.seqs` follows the session and is equal to any sequence of the same seqs."""
    session = new_session()
    seqs: Any = session.surface.seqs
    session.add_user("a")
    session.add_user("b")
    assert seqs == [0, 1] == list(seqs)
    assert (seqs == range(2), seqs == (0, 1), seqs == Seqs([0, 1]), seqs == "01") == (
        True,
        True,
        True,
        False,
    )
    assert (seqs[0], seqs[-1], seqs[0:1], len(seqs)) == (0, 1, (0,), 2)
    with pytest.raises(TypeError):
        seqs[0] = 7
    with pytest.raises(TypeError):
        hash(seqs)
    assert 1 in session.surface
    assert len(session.surface) == 2
