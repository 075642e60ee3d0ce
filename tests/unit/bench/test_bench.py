"""Each benchmark runs, small, and yields rows; no time is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
SCRIPTS = (
    "loop_step",
    "needle",
    "p10_import",
    "p12_servers",
    "p1_append",
    "p2_derive",
    "p3_planning",
    "p3_replace",
    "p4_body",
    "p4_first_byte",
    "p5_flush",
    "p6_sustained",
    "p7_million",
    "p7_open",
    "p8_size",
    "p9_find",
    "r1_kills",
    "r6_histories",
)
MODEL = "forced_tools"  # needs a local model; its own tests are elsewhere


def test_every_script_is_run_by_make_bench() -> None:
    """`make bench` runs the scripts tested here, and the one that needs a model."""
    text = (BENCH / "run.py").read_text()
    for script in (*SCRIPTS, MODEL):
        assert f'"{script}"' in text
    measuring = {p.stem for p in BENCH.glob("*.py") if "report(measure)" in p.read_text()}
    assert measuring == {*SCRIPTS, MODEL, "measure"} - {"measure"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_yields_its_rows(script: str) -> None:
    """Run small, a benchmark prints rows of the table, each with all its columns."""
    ran = subprocess.run(
        [sys.executable, str(BENCH / f"{script}.py"), "--small"],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "TURNLOG_SHARED": "nowhere"},
    )
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert rows
    for row in rows:
        assert row["id"]
        assert row["what"]
        assert row["measured"]
        assert row["target"]
        assert row["met"] in (True, False, None)


def test_the_numbers_on_show_were_measured() -> None:
    """The table in the README has every row of the last results, and nothing of another run."""
    results = json.loads((BENCH / "results.json").read_text())
    readme = (BENCH.parent / "README.md").read_text()
    table = readme.partition("<!-- numbers:begin -->")[2].partition("<!-- numbers:end -->")[0]
    shown = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(shown) == len(results["rows"])
    for row, line in zip(results["rows"], shown, strict=True):
        assert row["what"] in line
        assert row["measured"] in line
