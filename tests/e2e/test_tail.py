"""`turnlog tail` on a terminal, beside the process whose turn it follows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.children import child, on_terminal
from tests.e2e.scripts import HANG, call, write_script, write_tools

pytest.importorskip("termios", reason="terminals as POSIX has them")


def test_a_turn_is_drawn_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said comes first, then the call, its result, the answer as it streams, the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TURNLOG_STORE", f"sqlite:{tmp_path / 'store.db'}")
    write_tools(tmp_path)
    script = ["One,", call("gate", path="go")], ["two,", " three", HANG]
    model = write_script(tmp_path, *map(list, script))
    run = ["run", "Count.", "--model", model, "--tool", "tools:gate", "--session", "s"]
    with child(*run) as running:
        running.until("One,")
        with on_terminal("tail", "s", "--from", "0") as (tail, _):
            tail.until("user  #", "Count.", "assistant", "One,", '[call c1] gate {"path":"go"}')
            (tmp_path / "go").touch()
            tail.until("[result c1] open", "assistant", "two, three")
            assert running.process.poll() is None
            running.signal()
            tail.until("[turn 1 aborted]")
            tail.signal()
            tail.rest()
            assert tail.status() == 0
        assert running.status() == 1
    assert tail.text.count("two, three") == 1
    assert "Traceback" not in tail.text
