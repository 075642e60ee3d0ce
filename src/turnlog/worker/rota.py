"""Whose turn it is: the sessions that wait, as one worker goes round them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet

import msgspec


class Delay(msgspec.Struct, frozen=True):
    """How long a session is let be: seconds, doubled each time in a row, up to a most."""

    least: float
    most: float

    def after(self, times: int, jitter: float) -> float:
        """The seconds after so many times, at least 1; `jitter` from 0 to 1 takes up to half."""
        return min(self.least * 2.0 ** min(times - 1, 30), self.most) * (1 - jitter / 2)


BUSY = Delay(0.25, 4.0)
"""For a session that another process runs."""
STUCK = Delay(0.5, 5.0)
"""For one with which nothing could be done: what waits is not what it waits for."""
BROKEN = Delay(1.0, 60.0)
"""For one that could not be opened or written."""


class Rota:
    """Sessions that wait, in a round: each is run for one turn, and then goes to the end.

    One that could not be run is let be for a while.

    Args:
        jitter: numbers from 0 to 1, so that workers do not do the same at the same moment.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._order: dict[str, None] = {}
        self._until: dict[str, float] = {}
        self._times: dict[tuple[str, Delay], int] = {}
        self._stuck: set[str] = set()
        self._busy: AbstractSet[str] = frozenset()
        self.running: set[str] = set()

    def see(
        self,
        ids: Iterable[str],
        *,
        but: Collection[str] = (),
        busy: AbstractSet[str] = frozenset(),
    ) -> None:
        """Take note of the sessions that wait now: new ones go to the end, in their order.

        Args:
            ids: all of them, as the store lists them.
            but: those that ran while the store was asked, about which it may be wrong by now.
            busy: those that another process runs; they keep their places, and are not due.
        """
        self._busy = busy
        waiting = dict.fromkeys(ids)
        self._order = {name: None for name in self._order if name in waiting}
        for name in waiting:
            if name not in but and name not in self.running:
                self._order.setdefault(name)
        self._until = {name: at for name, at in self._until.items() if name in waiting}
        self._times = {key: n for key, n in self._times.items() if key[0] in waiting}
        self._stuck &= waiting.keys()

    def due(self, now: float) -> str | None:
        """The session to run next, if there is one."""
        for name in self._order:
            if name in self.running or name in self._busy:
                continue
            if self._until.get(name, now) <= now:
                return name
        return None

    def start(self, name: str) -> None:
        """It is being run."""
        self._until.pop(name, None)
        self.running.add(name)

    def done(self, name: str) -> None:
        """It was run; if it still waits, the next `see` puts it at the end."""
        self.running.discard(name)
        self._order.pop(name, None)
        self._stuck.discard(name)
        self._times = {key: n for key, n in self._times.items() if key[0] != name}

    def later(self, name: str, now: float, delay: Delay) -> float:
        """It could not be run: let it be for a while; returns how many seconds.

        It keeps its place: what another process runs, and may leave, waited before others did.
        """
        self.running.discard(name)
        key = (name, delay)
        self._times[key] = self._times.get(key, 0) + 1
        seconds = delay.after(self._times[key], self._jitter())
        self._until[name] = now + seconds
        if delay is not BUSY:
            self._stuck.add(name)
        return seconds

    def never(self, name: str) -> None:
        """It could not be run, and is not tried again as long as it waits."""
        self.running.discard(name)
        self._until[name] = math.inf
        self._stuck.add(name)

    def wakes_in(self, now: float) -> float | None:
        """Seconds until one is due that is let be; None if there is none."""
        return min((max(0.0, at - now) for at in self._until.values()), default=None)

    @property
    def stuck(self) -> tuple[str, ...]:
        """The sessions that wait and could not be run, those of other processes aside."""
        return tuple(sorted(self._stuck))

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing waits but what is stuck."""
        return not self.running and all(name in self._stuck for name in self._order)
