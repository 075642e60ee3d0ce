"""The page about scaling shows what its script computes from the bench's results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "bench" / "scaling.py"
SERVERS = ("PostgreSQL", "MariaDB")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def row(number: str, server: str, **detail: object) -> dict[str, object]:
    """A row of results."""
    return {"id": number, "script": "p12_servers", "detail": {"server": server, **detail}}


def test_the_page_shows_what_was_computed() -> None:
    """The tables of the page are those that the script makes of the last results."""
    ran = run()
    assert ran.returncode == 0, ran.stderr
    tables = ran.stdout.rpartition("\n\n")[0]
    page = (ROOT / "docs" / "scaling.md").read_text()
    shown = page.partition("<!-- scaling:begin -->")[2].partition("<!-- scaling:end -->")[0]
    assert shown.strip() == tables.strip()


def test_without_measurements_it_fails_in_one_line(tmp_path: Path) -> None:
    """No results, and results without the servers' figures, are an error of one line."""
    results = tmp_path / "results.json"
    for text in (None, '{"rows": []}', json.dumps({"rows": [row("turn", "PostgreSQL", ran={})]})):
        if text is not None:
            results.write_text(text)
        ran = run("--results", str(results))
        assert ran.returncode == 1
        assert ran.stdout == ""
        assert ran.stderr.count("\n") == 1
        assert "run bench/run.py p12_servers" in ran.stderr


def test_machines_follow_from_measurements(tmp_path: Path) -> None:
    """Ten times the sessions are ten times the cores and the data, in whole machines."""
    results = tmp_path / "results.json"
    ran = {"events": 1000, "commits": 50, "turns": 10, "server_cpu": 0.5, "worker_cpu": 0.2}
    many = {"events": 10_000, "bytes": 900_000}
    rows = [row("turn", name, ran=ran) for name in SERVERS]
    rows += [row("P12", name, kind="turns", workers=8, ours=many) for name in SERVERS]
    results.write_text(json.dumps({"rows": rows}))
    computed = json.loads(run("--results", str(results)).stdout.splitlines()[-1])
    measured, needed = computed[0], computed[2:5]
    assert measured == {
        "server": "PostgreSQL",
        "events": 100.0,
        "commits": 5.0,
        "server_cpu": 0.05,
        "agent_cpu": 0.02,
        "bytes": 90.0,
        "per_core": 100.0,
    }
    assert [each["sessions"] for each in needed] == [10**5, 10**6, 10**7]
    turns = 10**5 * 20 / 3600  # a second
    assert needed[0]["turns"] == turns
    assert needed[0]["database_cores"] == 28  # 50 ms of each turn's second
    assert round(needed[0]["bytes_a_day"]) == 432 * 10**9
    assert needed[1]["database_machines"] == 3 * 18  # half of 32 cores each; 17 by disk
    assert needed[1]["bound_by"] == "CPU"
    assert needed[2]["agent_machines"] == 70  # 1,112 busy cores, half of 32 of each machine
