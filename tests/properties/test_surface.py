"""The surface against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import NotOnSurface
from turnlog.events import Replace
from turnlog.surface import Surface


@given(st.data())
def test_model(data: st.DataObject) -> None:
    """Positions, membership, generation and every past surface are those of a plain list."""
    surface, model, past = Surface(), list[int](), [list[int]()]
    shadowed: dict[int, int] = {}
    replaced = 0
    for seq in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["append", "append", "replace", "nothing"])):
            case "append":
                surface.append(seq)
                model.append(seq)
            case "replace" if model:
                first = data.draw(st.integers(0, len(model) - 1))
                last = data.draw(st.integers(first, len(model) - 1))
                nodes = model[first : last + 1]
                surface.apply(surface.plan(seq, Replace(nodes[0], nodes[-1]), nodes))
                model[first : last + 1] = [seq]
                shadowed |= dict.fromkeys(nodes, seq)
                replaced += 1
            case _:
                pass
        past.append(list(model))
        assert surface.seqs == model
        assert [surface.position(node) for node in model] == list(range(len(model)))
    assert len(surface) == len(model)
    assert surface.replace_generation == replaced
    for node in range(-1, len(past) + 1):
        assert (node in surface) == (node in model)
        assert surface.shadowed_by(node) == shadowed.get(node)
    for seq, was in enumerate(past, -1):
        assert surface.at(seq) == was
    with pytest.raises(NotOnSurface):
        surface.plan(len(past), Replace(len(past), len(past)), [])


@given(st.data())
def test_model_with_damage(data: st.DataObject) -> None:
    """A replacement placed around damage takes the first place of what it cites that is there."""
    surface, model, past = Surface(), list[int](), [list[int]()]
    for seq in range(data.draw(st.integers(1, 20))):
        cited = data.draw(st.lists(st.integers(0, 25), unique=True, max_size=5))
        planned = surface.plan_around_damage(seq, cited) if data.draw(st.booleans()) else None
        if planned is None:
            surface.append(seq)
            model.append(seq)
        else:
            surface.apply(planned)
            gone = [node for node in model if node in cited]
            place = model.index(gone[0])
            model = [node for node in model if node not in cited]
            model.insert(place, seq)
        past.append(list(model))
        assert surface.seqs == model
    for seq, was in enumerate(past, -1):
        assert surface.at(seq) == was
