"""The sessions under examples/ are what their script makes, and keep every law."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT
from turnlog import proof
from turnlog.codec import decode_line
from turnlog.invariants import verify
from turnlog.session import Session

EXAMPLES = ROOT / "examples"
NAMES = ("trip", "trip-again")


def load(name: str) -> Session:
    """One of the sessions."""
    header, *lines = (EXAMPLES / f"{name}.jsonl").read_bytes().splitlines()
    return Session.from_events(json.loads(header), [e for line in lines for e in decode_line(line)])


def test_the_files_are_what_the_script_makes(tmp_path: Path) -> None:
    """Run again, the script writes the committed files, byte for byte."""
    script = EXAMPLES / "make_example.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, capture_output=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(made) == {f"{name}.jsonl" for name in NAMES}
    assert made == {name: (EXAMPLES / name).read_bytes() for name in made}


@pytest.mark.parametrize("name", NAMES)
def test_the_sessions_keep_every_law(name: str) -> None:
    """There is nothing to find in them, and each request is proved by its digest."""
    session = load(name)
    assert verify(session, prove=proof.finding) == []
    found = [proof.prove(session, request.index) for request in session.requests()]
    assert found == ["matches"] * len(session.requests())


def test_the_session_shows_what_the_page_says() -> None:
    """It has a tool call, a cancel, a repaired crash and a compaction; the other is its fork."""
    session, fork = load("trip"), load("trip-again")
    types = {event.type for event in session.events}
    assert {"tool/call", "assistant/chunk", "compaction/start"} <= types
    ends = [event.data.reason.kind for event in session.events if event.type == "turn/end"]
    assert ends == ["completed", "aborted", "interrupted", "completed"]
    assert session.surface.replace_generation == 1
    assert fork.header.parent_session == "trip"
    shared = fork.header.seed_length or 0
    assert 0 < shared < len(session)
    assert list(fork.events[:shared]) == list(session.events[:shared])
