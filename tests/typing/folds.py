"""How an application's fold is typed. Never run: test_typing.py has pyright read it."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from turnlog import Event, Fold, Session


class Count:
    """A fold of one number."""

    def start(self) -> int:
        """Nothing yet."""
        return 0

    def step(self, state: int, event: Event[Any], /) -> int:
        """One more."""
        return state + len(event.type)


class NoStep:
    """Not a fold."""

    def start(self) -> int:
        """Nothing yet."""
        return 0


def folds(session: Session) -> None:
    """A fold's state has its own type, now and in the past."""
    fold: Fold[int] = Count()
    assert_type(session.fold(fold), int)
    assert_type(session.fold(Count(), at=3), int)
    session.fold(NoStep())  # pyright: ignore[reportArgumentType]
