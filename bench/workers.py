"""Eight workers, five hundred sessions, random kills: one command, exit status 1 on any fault.

    python workers.py --store URL --workers 8 --sessions 500 --kills 50

The store is SQLite in a temporary folder when no URL is given; `--server postgres` or `--server
mariadb` starts a server for it. With `--restarts N` that is crashed and started again at N random
moments, or any other server by `--restart-command`. What must hold is in
tests/crash/fleet.py: every prompt is answered once, in order; all laws hold, all requests are
proved; no tool body ran twice or without its call in the log; every worker lived until it was
killed. Prints a table and, last, the report as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crash.fleet import Outcome, Plan, run  # noqa: E402 - found by the line above


def main() -> int:
    """Run it; 1 if there was any fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--store", help="the store's URL")
    where.add_argument("--server", choices=("postgres", "mariadb"), help="one of its own")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--prompts", type=int, default=3, help="prompts of each session")
    parser.add_argument("--kills", type=int, default=50, help="workers to kill")
    parser.add_argument("--concurrency", type=int, default=4, help="of each worker")
    parser.add_argument("--restart-command", help="restarts the store's server, and returns")
    parser.add_argument("--restarts", type=int, default=0, help="how often to run it")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds without a turn")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="names and dice")
    chosen = parser.parse_args()
    restart: Callable[[], object] | None = None
    if chosen.restart_command:
        restart = partial(subprocess.run, shlex.split(chosen.restart_command), check=True)
    if chosen.server:
        from tests.servers.killed import private  # noqa: PLC0415 - which needs the drivers

        chosen.store, restart = private(chosen.server)
    if chosen.restarts and restart is None:
        parser.error("--restarts needs a --restart-command, or a --server")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = Plan(
            url=chosen.store or f"sqlite:{folder / 'fleet.db'}",
            workers=chosen.workers,
            sessions=chosen.sessions,
            prompts=chosen.prompts,
            kills=chosen.kills,
            restart=restart,
            restarts=chosen.restarts,
            concurrency=chosen.concurrency,
            patience=chosen.patience,
            seed=chosen.seed,
        )
        outcome = anyio.run(run, plan, folder)
    say(plan, outcome)
    return 1 if outcome.faults else 0


def say(plan: Plan, outcome: Outcome) -> None:
    """The table, then the report."""
    measured = outcome.to_dict()
    kind = plan.url.partition(":")[0]
    asked = {"store": kind, "workers": plan.workers, "concurrency": plan.concurrency}
    asked |= {"sessions": plan.sessions, "prompts": plan.sessions * plan.prompts}
    asked["seed"] = plan.seed
    for name, value in {**asked, **measured, "faults": len(outcome.faults)}.items():
        print(f"{name:20} {value}")
    for fault in outcome.faults[:20]:
        print(f"  {fault}")
    print(json.dumps({**asked, **measured, "faults": outcome.faults[:100]}))


if __name__ == "__main__":
    raise SystemExit(main())
