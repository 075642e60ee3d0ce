"""R6: random histories; every projection at every seq valid, and incremental equal to a refold.

python r6_histories.py --count 10000
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from measure import Options, report, row

from turnlog import Session
from turnlog.testing.providers import Rule, check_neutral
from turnlog.testing.strategies import histories, mangled, prefix

COUNT = 300
VIEWS: dict[str, Callable[[Session, int | None], Any]] = {
    "derive_messages": lambda session, at: list(session.derive_messages(at)),
    "request_messages": lambda session, at: list(session.request_messages(at)),
    "mends": lambda session, at: session.request_messages(at).mends,
    "surface": lambda session, at: list(
        session.surface.seqs if at is None else session.surface.at(at)
    ),
    "transcript": lambda session, at: session.extract_chat_messages(
        include_tools=True, include_context=True, at=at
    ),
    "nodes": lambda session, at: session.nodes(at),
    "requests": lambda session, at: session.requests(at),
    "usage": lambda session, at: session.usage(at),
}


class Broken(Exception):
    """A history for which a law does not hold."""


def judge(session: Session) -> int:
    """Check every view at every seq; returns how many projections were judged.

    Raises:
        Broken: a view says something else than a refold, or something no provider would take.
    """
    growing = prefix(session, 0)
    judged = 0
    for n in range(len(session) + 1):
        if n:
            growing._log.load(session.events[n - 1])  # noqa: SLF001 - what a store does
        anew = prefix(session, n)
        for name, view in VIEWS.items():
            then = view(anew, None)
            if view(growing, None) != then:
                msg = f"{name} after {n} events differs from a refold"
                raise Broken(msg)
            if view(session, n - 1) != then:
                msg = f"{name} at={n - 1} differs from the prefix"
                raise Broken(msg)
            judged += 1
        sent = [message.to_dict() for message in anew.request_messages()]
        wrong = [v for v in check_neutral(sent) if v.rule != Rule.LONE_SURROGATE]
        if wrong:
            msg = f"request_messages after {n} events: {wrong[0]}"
            raise Broken(msg)
    return judged


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row."""
    logging.getLogger("turnlog").setLevel(logging.CRITICAL)
    count = options.count or options.size(COUNT, 5)
    told = [0, 0, 0]  # histories, events, projections
    broken: list[str] = []

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories() | mangled())
    def run(session: Session) -> None:
        told[0] += 1
        told[1] += len(session)
        try:
            told[2] += judge(session)
        except Broken as fault:
            broken.append(str(fault))

    run()
    yield row(
        "R6",
        f"{told[0]:,} random histories, {told[1]:,} events",
        f"{told[2]:,} projections: {len(broken)} histories broke a law",
        "0",
        met=not broken,
        histories=told[0],
        broken=broken[:10],
    )


if __name__ == "__main__":
    report(measure)
