"""Runs every script of this folder, prints one table, and writes it down.

    python run.py [--long] [SCRIPT …]

Writes bench/results.json (the rows, with versions, date and machine) and, between their marks, the
tables of README.md and docs/scaling.md. With names of scripts only those are run; the other rows
stay as they were.
`--long` kills a thousand times (R1), draws ten thousand histories (R6), and measures the database
servers at full size (P9, P12): three quarters of an hour.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scaling
from measure import DSH, HERE, PEERS, ROOT
from rich.console import Console
from rich.table import Table

SCRIPTS = (
    "p1_append",
    "p2_derive",
    "p3_replace",
    "p3_planning",
    "p4_body",
    "p4_first_byte",
    "loop_step",
    "p5_flush",
    "p6_sustained",
    "p7_open",
    "p7_million",
    "p8_size",
    "p9_find",
    "p10_import",
    "p12_servers",
    "r1_kills",
    "r6_histories",
    "needle",
    "forced_tools",
)
PACKAGES = ("turnlog", "msgspec", "anyio", "zstandard", "apsw", "asyncpg", "asyncmy")
LONG = {"p12_servers": 3, "r1_kills": 1_000, "r6_histories": 10_000}
RESULTS = HERE / "results.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- numbers:begin -->", "<!-- numbers:end -->"
MET = {True: "yes", False: "**no**", None: "-"}


def run(script: str, *, long: bool) -> list[dict[str, Any]]:
    """The rows of one script.

    Raises:
        SystemExit: it failed; what it said is printed.
    """
    command = [sys.executable, str(HERE / f"{script}.py")]
    if long and script in LONG:
        command += ["--count", str(LONG[script])]
    ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    if ran.returncode:
        raise SystemExit(f"{script} failed with status {ran.returncode}")
    return [{**json.loads(line), "script": script} for line in ran.stdout.splitlines()]


def machine() -> dict[str, str]:
    """Where this was measured."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [n for n in info.read_text().splitlines() if n.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """What was measured, and against what."""
    found = {name: version(name) for name in PACKAGES}
    package = PEERS / "node_modules" / "@deepseek-ai" / "dsh-session" / "package.json"
    if package.exists():
        found["@deepseek-ai/dsh-session"] = json.loads(package.read_text())["version"]
        node = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True)  # noqa: S607
        found["node"] = node.stdout.strip()
    return found


def markdown(results: dict[str, Any]) -> str:
    """The table as the README has it."""
    lines = ["| id | what | measured | target | met |", "|---|---|---|---|---|"]
    for row in results["rows"]:
        cells = (row["id"], row["what"], row["measured"], row["target"], MET[row["met"]])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    where, what = results["machine"], results["versions"]
    measured = (
        f"{results['date']}, {where['cores']} shared cores ({where['cpu']}), {where['system']}, "
        f"Python {where['python']}; " + ", ".join(f"{name} {v}" for name, v in what.items())
    )
    more = "How each is measured, and where the time of one that is not met goes: "
    return "\n".join([*lines, "", f"{measured}. {more}[docs/numbers.md](docs/numbers.md)."])


def show(rows: list[dict[str, Any]]) -> None:
    """The table on the terminal."""
    table = Table()
    for name in ("id", "what", "measured", "target", "met"):
        table.add_column(name)
    for row in rows:
        met = {True: "yes", False: "NO", None: "-"}[row["met"]]
        table.add_row(row["id"], row["what"], row["measured"], row["target"], met)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main(chosen: list[str]) -> None:
    """Run, show, write."""
    long, chosen = "--long" in chosen, [name for name in chosen if name != "--long"]
    if unknown := set(chosen) - set(SCRIPTS):
        raise SystemExit(f"no script {', '.join(sorted(unknown))}; there are {', '.join(SCRIPTS)}")
    before = json.loads(RESULTS.read_text())["rows"] if chosen and RESULTS.exists() else []
    rows: list[dict[str, Any]] = []
    for script in SCRIPTS:
        if chosen and script not in chosen:
            rows += [row for row in before if row["script"] == script]
            continue
        print(f"{script} …", file=sys.stderr, flush=True)
        rows += run(script, long=long)
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "peers": list(DSH),
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    try:
        scaling.update(RESULTS)
    except scaling.NotMeasured as reason:
        print(f"docs/scaling.md stays as it is: {reason}", file=sys.stderr)
    text = README.read_text()
    if BEGIN in text and END in text:
        head, _, rest = text.partition(BEGIN)
        tail = rest.partition(END)[2]
        README.write_text(f"{head}{BEGIN}\n{markdown(results)}\n{END}{tail}")
    show(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
