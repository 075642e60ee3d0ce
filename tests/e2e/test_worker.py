"""`turnlog worker` and `turnlog post`, as commands and as processes."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.children import child
from tests.e2e.command import done, turnlog
from tests.e2e.scripts import HANG, call, write_script, write_tools

AGENTS = """
from turnlog import ReactLoopAgent
from turnlog.models.scripted import ScriptedModel

shared = ReactLoopAgent(ScriptedModel(["shared"], repeat=True))
number = 3


def make():
    return ReactLoopAgent(ScriptedModel(["made"]))


async def make_for(session):
    return ReactLoopAgent(ScriptedModel([f"made for {session.id}"]))


def broken(session):
    return {}[session.id]


def empty():
    pass
"""

MEASURED = """
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from agents import shared

reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=open("metrics", "w")), 3_600_000)
set_meter_provider(MeterProvider(metric_readers=[reader]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with modules of tools and agents, and a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("tools", "agents"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("TURNLOG_STORE", f"sqlite:{tmp_path / 'store.db'}")
    write_tools(tmp_path)
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def texts(session_id: str) -> list[str]:
    """What the model sees of a stored session, as text."""
    values = done("messages", session_id, "--json").values
    return ["".join(b.get("text", "") for b in value["content"]) for value in values]


def end(session_id: str) -> dict[str, Any]:
    """Why a stored session's last turn ended."""
    (*_, last) = done("events", session_id, "--type", "turn/end").values
    return last["data"]["reason"]


def test_what_was_posted_is_run(folder: Path) -> None:
    """A prompt has a turn, a line on standard output, and is gone."""
    assert done("post", "trip", "Where to?", "--create").out == "prompt posted to session trip\n"
    model = write_script(folder, "Rome.")
    result = done("worker", "--once", "--model", model)
    assert result.out.startswith("trip  turn 1 completed, ")
    assert result.out.endswith("  Rome.\n")
    assert texts("trip") == ["Where to?", "Rome."]
    assert done("worker", "--once", "--model", model).out == ""


def test_json_is_a_line_a_turn(folder: Path) -> None:
    """With what became of it."""
    (posted,) = done("post", "a", "one", "--create", "--json").values
    assert posted["session"] == "a"
    done("post", "a", "two")
    (one, two) = done(
        "worker", "--once", "--json", "--model", write_script(folder, "1", "2")
    ).values
    assert one.pop("seconds") >= 0
    expected = {"session": "a", "turn": 1, "end": "completed", "error": None, "goesOn": False}
    assert one == {**expected, "text": "1"}
    assert (two["turn"], two["text"]) == (2, "2")


@pytest.mark.usefixtures("folder")
def test_posting_to_a_session_that_is_not_there_is_refused() -> None:
    """Unless it is to be made; the message says what there is."""
    done("post", "trip", "x", "--create")
    result = turnlog("post", "tripp", "Where to?")
    assert (result.status, result.out) == (1, "")
    assert "did you mean 'trip'?" in result.err
    assert turnlog("post", "trip", " ").status == 2


@pytest.mark.parametrize(
    ("name", "answer"), [("shared", "shared"), ("make", "made"), ("make_for", "made for s")]
)
@pytest.mark.usefixtures("folder")
def test_an_agent_of_ones_own(name: str, answer: str) -> None:
    """It may be an agent, a function that makes one, or one that makes it for a session."""
    done("post", "s", "who?", "--create")
    done("worker", "--once", "--agent", f"agents:{name}")
    assert texts("s") == ["who?", answer]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--agent", "agents:number"], "expected an agent or a function, got int"),
        (["--agent", "agents:none"], "agents has no 'none'"),
        (["--agent", "agents"], "expected MODULE:NAME"),
        (["--agent", "agents:make", "--model", "x"], "says all of the agent"),
        (["--concurrency", "0"], "expected 1 or more, got 0"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_misuse(words: list[str], message: str) -> None:
    """Is one line, and exit status 2."""
    result = turnlog("worker", "--once", *words)
    assert (result.status, result.out) == (2, "")
    assert message in result.err


def test_a_session_keeps_its_system_text(folder: Path) -> None:
    """An option that is left out takes nothing away from it."""
    model = write_script(folder, "1", "2", "3")
    done("post", "s", "one", "--create")
    done("worker", "--once", "--model", model, "--system", "Be brief.")
    done("post", "s", "two")
    done("worker", "--once", "--model", model)
    (*_, last) = done("requests", "s", "--json").values
    (body,) = done("requests", "s", "--show", last["index"]).values
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_decision_reaches_a_suspended_turn(folder: Path) -> None:
    """`approve` leaves it, a worker goes on with the turn."""
    done("post", "s", "wipe it", "--create")
    work = ["worker", "--once", "--tool", "tools:wipe", "--model"]
    assert "suspended" in done(*work, write_script(folder, [call("wipe", path="x")])).out
    turnlog("approve", "s", "c1")
    assert "completed" in done(*work, write_script(folder, "Wiped.")).out
    assert (folder / "wiped").read_text() == "x"


def test_what_is_broken_hides_nothing(folder: Path) -> None:
    """A damaged session is reported on standard error, the others are run, and the status is 1."""
    url = f"jsonl:{folder / 'store'}"
    store = ["--store", url]
    for name in ("bad", "good"):
        done("post", name, "hello", "--create", *store)
    done("worker", "--once", "--model", write_script(folder, "hi", "hi"), *store)
    for name in ("bad", "good"):
        done("post", name, "again", *store)
    (log,) = [path for path in (folder / "store").rglob("*.jsonl") if b'"bad"' in path.read_bytes()]
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[4:]]))
    model = write_script(folder, "hi")
    result = turnlog("worker", "--once", "--model", model, *store)
    assert result.status == 1
    assert result.out.startswith("good  turn 2 completed")
    assert "'bad' is damaged" in result.err


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken", "the function that makes its agent failed: KeyError('s')"),
        ("empty", "expected a function that makes an agent, it made NoneType"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_an_agent_that_cannot_be_made_is_one_line(name: str, why: str) -> None:
    """It says which session, and what failed how; with --once there is no "again"."""
    done("post", "s", "who?", "--create")
    result = turnlog("worker", "--once", "--agent", f"agents:{name}")
    assert (result.status, result.out) == (1, "")
    assert result.err == f"turnlog: session 's': {why}\nnot run, and waiting: 's'\n"


def test_metrics_go_where_the_agents_module_sends_them(folder: Path) -> None:
    """The process says at its end what it has written: as many events as there are."""
    (folder / "measured.py").write_text(MEASURED)
    done("post", "trip", "Where to?", "--create")
    with child("worker", "--once", "--metrics", "--agent", "measured:shared") as running:
        running.rest()
        assert running.status() == 0
    collected = json.loads((folder / "metrics").read_text())
    metrics = collected["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    (events,) = (metric for metric in metrics if metric["name"] == "turnlog.writer.events")
    (point,) = events["data"]["data_points"]
    assert point["value"] == len(done("events", "trip", "--json").values)
    assert point["attributes"] == {"turnlog.store": "sqlite"}


@pytest.mark.usefixtures("folder")
def test_metrics_that_nobody_takes_are_misuse() -> None:
    """Rather than measured in vain."""
    result = turnlog("worker", "--once", "--metrics", "--agent", "agents:shared")
    assert (result.status, result.out) == (2, "")
    assert "--metrics: this process has no meter provider" in result.err


termios = pytest.importorskip("termios", reason="signals as POSIX has them")


def test_sigterm_lets_the_turn_end(folder: Path) -> None:
    """And nothing else begins; the exit status is 0."""
    for text in ("one", "two"):
        done("post", "s", text, "--create")
    model = write_script(folder, [call("gate", path="open")], "Through.", "Never.")
    with child("worker", "--model", model, "--tool", "tools:gate", "--json") as running:
        _until_called("s")
        running.signal(signal.SIGTERM)
        (folder / "open").touch()
        (line,) = [json.loads(line) for line in running.rest().splitlines()]
        assert running.status() == 0
    assert (line["end"], line["text"]) == ("completed", "Through.")
    assert texts("s")[-1] == "Through."


def test_a_second_sigterm_cuts_off_and_another_goes_on(folder: Path) -> None:
    """What had arrived is kept, and the prompt has its answer in the end."""
    done("post", "s", "tell", "--create")
    model = write_script(folder, ["Once upon", HANG])
    with child("worker", "--model", model, "--json") as running:
        _until("s", "assistant/chunk")
        running.signal(signal.SIGTERM)
        running.signal(signal.SIGTERM)
        (line,) = [json.loads(line) for line in running.rest().splitlines()]
        assert running.status() == 1
    assert line["end"] == "aborted"
    assert end("s") == {"kind": "aborted", "reason": {"kind": "shutdown"}}
    (again,) = done("worker", "--once", "--json", "--model", write_script(folder, "a time.")).values
    assert (again["turn"], again["goesOn"], again["text"]) == (2, True, "a time.")
    assert texts("s")[::3] == ["tell", "a time."]
    assert turnlog("verify", "s").status == 0


def test_a_killed_worker_is_taken_over(folder: Path) -> None:
    """By one that runs already: it repairs, says that the outcome is unknown, and goes on."""
    done("post", "s", "go", "--create")
    model = write_script(folder, [call("gate", path="open")])
    with child("worker", "--model", model, "--tool", "tools:gate") as doomed:
        assert doomed.process.stderr is not None
        said = doomed.process.stderr.readline().decode()
        assert said == f"runs what waits in sqlite:{folder / 'store.db'}; Ctrl-C lets it end\n"
        _until_called("s")
        other = ["worker", "--tool", "tools:gate", "--json", "--model"]
        with child(*other, write_script(folder, "Done.")) as heir:
            doomed.signal(signal.SIGKILL)
            line = heir.event()
            heir.signal(signal.SIGTERM)
            assert heir.status() == 0
    assert (line["turn"], line["goesOn"], line["text"]) == (2, True, "Done.")
    (result,) = done("events", "s", "--type", "tool/result").values
    assert result["data"]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert turnlog("verify", "s").status == 0


def _until_called(session_id: str) -> None:
    """Return once a tool of the session runs."""
    _until(session_id, "tool/call")


def _until(session_id: str, type_name: str) -> None:
    """Return once such an event is durable."""
    with child("tail", session_id, "--from", "0", "--json") as tail:
        tail.until(f'"type":"{type_name}"')
