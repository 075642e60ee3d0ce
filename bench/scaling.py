"""From what was measured to machines: how many serve 10^5, 10^6 and 10^7 concurrent sessions.

    python scaling.py [--write]

Reads what `run.py p12_servers` wrote to bench/results.json, and prints two tables and, last, a line
of JSON; with `--write` the tables go between the marks of docs/scaling.md. Everything but the
constants below, which are assumptions, was measured; what it computes from both was not.
"""

from __future__ import annotations

import argparse
import json
import sys
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- scaling:begin -->", "<!-- scaling:end -->"

SESSIONS = (10**5, 10**6, 10**7)
TURNS_AN_HOUR = 20
"""Of one session: somebody reads the answer, thinks and types for three minutes. An agent that
works by itself has more; all figures are proportional to this."""
BUSY = 0.5
"""Of a core, on average: peaks, backups and the load of a machine that failed take the rest."""
CORES = 32
"""Of a machine, for databases and for agents: an ordinary large one."""
DISK = 8 * 10**12
"""Bytes of a database machine's disk that events may fill."""
DAYS = 30
"""How long events are kept in the database; older sessions are exported and removed."""
COPIES = 3
"""Machines that have each event: a primary and two standbys, or what a consensus needs."""
CONNECTIONS = 7
"""Of one process of agents at most: four read, two write, one listens (not on MySQL)."""
SERVERS = ("PostgreSQL", "MariaDB")


class NotMeasured(Exception):
    """The results hold not what is needed."""


class Measured(NamedTuple):
    """What one server took.

    Attributes:
        server: its name.
        events, commits: of a turn.
        server_cpu, agent_cpu: seconds of a turn.
        bytes: of an event on the server's disk, with indexes; without logs and copies.
        per_core: transactions a second of one core of the server's.
    """

    server: str
    events: float
    commits: float
    server_cpu: float
    agent_cpu: float
    bytes: float
    per_core: float


class Needed(NamedTuple):
    """What so many sessions need, calculated."""

    server: str
    sessions: int
    turns: float  # a second
    events: float  # a second
    transactions: float  # a second
    bytes_a_day: float  # one copy
    database_cores: int  # busy ones, of one copy
    database_machines: int  # with all copies
    bound_by: str
    agent_machines: int
    connections: int  # to one copy's machine, on average


def measured(results: Path) -> list[Measured]:
    """What was measured, of each server.

    Raises:
        NotMeasured: something of it is missing.
    """
    if not results.exists():
        msg = f"there is no {results.name}: run bench/run.py p12_servers"
        raise NotMeasured(msg)
    rows = [r for r in json.loads(results.read_text())["rows"] if r["script"] == "p12_servers"]
    return [_measured(name, rows) for name in SERVERS]


def _measured(name: str, rows: list[dict[str, Any]]) -> Measured:
    ours = [r for r in rows if r["detail"].get("server") == name]
    turns = [r["detail"]["ran"] for r in ours if r["id"] == "turn"]
    eight = [
        r["detail"]["ours"]
        for r in ours
        if r["id"] == "P12" and r["detail"]["kind"] == "turns" and r["detail"]["workers"] > 1
    ]
    if not turns or not eight or not turns[0].get("server_cpu"):
        msg = f"no figures of {name} in {RESULTS.name}: run bench/run.py p12_servers, on Linux"
        raise NotMeasured(msg)
    turn, many = turns[0], eight[0]
    return Measured(
        name,
        turn["events"] / turn["turns"],
        turn["commits"] / turn["turns"],
        turn["server_cpu"] / turn["turns"],
        turn["worker_cpu"] / turn["turns"],
        many["bytes"] / many["events"],
        turn["commits"] / turn["server_cpu"],
    )


def needed(given: Measured, sessions: int) -> Needed:
    """What so many concurrent sessions need."""
    turns = sessions * TURNS_AN_HOUR / 3600
    bytes_a_day = turns * given.events * given.bytes * 86_400
    cores = turns * given.server_cpu / BUSY
    by_cpu, by_disk = ceil(cores / CORES), ceil(bytes_a_day * DAYS / DISK)
    agent_cores = turns * given.agent_cpu / BUSY  # a process has one
    machines = max(by_cpu, by_disk)
    return Needed(
        given.server,
        sessions,
        turns,
        turns * given.events,
        turns * given.commits,
        bytes_a_day,
        ceil(turns * given.server_cpu),
        machines * COPIES,
        "disk" if by_disk > by_cpu else "CPU",
        ceil(agent_cores / CORES),
        ceil(ceil(agent_cores) * CONNECTIONS / machines),
    )


def said(count: float) -> str:
    """Bytes, for people."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} PB"


def inputs(found: list[Measured]) -> list[str]:
    """The table of what was measured."""
    rows = {
        "events a turn": [f"{m.events:.0f}" for m in found],
        "transactions a turn": [f"{m.commits:.2f}" for m in found],
        "the server's CPU a turn": [f"{m.server_cpu * 1e3:.1f} ms" for m in found],
        "transactions/s a core of the server's": [f"{m.per_core:,.0f}" for m in found],
        "the agent's CPU a turn": [f"{m.agent_cpu * 1e3:.1f} ms" for m in found],
        "bytes an event on disk": [f"{m.bytes:.0f}" for m in found],
        f"events a session-hour ({TURNS_AN_HOUR} turns)": [
            f"{m.events * TURNS_AN_HOUR:,.0f}" for m in found
        ],
        "bytes a session-hour": [said(m.events * TURNS_AN_HOUR * m.bytes) for m in found],
    }
    head = ["| measured | " + " | ".join(m.server for m in found) + " |", "|---" * 3 + "|"]
    return head + [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]


def outputs(found: list[Needed]) -> list[str]:
    """The table of what was calculated."""
    head = (
        "calculated: sessions",
        "server",
        "turns/s",
        "events/s",
        "transactions/s",
        "new data a day",
        "busy database cores",
        "database machines",
        "agent machines",
        "connections to each primary",
    )
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for n in found:
        cells = (
            f"{n.sessions:,}",
            n.server,
            f"{n.turns:,.0f}",
            f"{n.events:,.0f}",
            f"{n.transactions:,.0f}",
            said(n.bytes_a_day),
            f"{n.database_cores:,}",
            f"{n.database_machines:,} ({n.bound_by})",
            f"{n.agent_machines:,}",
            f"{n.connections:,}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def tables(found: list[Measured], computed: list[Needed]) -> str:
    """Both, as Markdown."""
    return "\n".join([*inputs(found), "", *outputs(computed)])


def compute(results: Path) -> tuple[list[Measured], list[Needed]]:
    """What was measured, and what follows; raises as `measured`."""
    found = measured(results)
    return found, [needed(given, sessions) for given in found for sessions in SESSIONS]


def update(results: Path) -> None:
    """Put the tables into the page; raises as `measured`."""
    text = tables(*compute(results))
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Read, compute, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="what run.py wrote")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scaling.md")
    chosen = parser.parse_args()
    try:
        found, computed = compute(chosen.results)
        if chosen.write:
            update(chosen.results)
    except NotMeasured as reason:
        sys.exit(f"scaling.py: {reason}")
    print(tables(found, computed))
    print()
    print(json.dumps([*(m._asdict() for m in found), *(n._asdict() for n in computed)]))


if __name__ == "__main__":
    main()
