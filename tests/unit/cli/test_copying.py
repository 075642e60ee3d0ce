"""`turnlog copy`: what it says, what it leaves behind, how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.command import done, turnlog
from tests.store_urls import DURABLE, url_of
from turnlog import Prompt, sync


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A store with a session and its fork, to which a prompt was posted."""
    url = f"jsonl:{tmp_path}/source"
    with sync.open_store(url) as store:
        with store.session("trip") as session:
            session.add_user("Where to?")
            session.add_assistant("Oslo.")
        store.fork("trip", at=0, new_id="other")
        store.inbox("other").post(Prompt("go on"))
    return url


@pytest.mark.parametrize("name", DURABLE)
def test_it_copies_and_says_what(name: str, source: str, tmp_path: Path) -> None:
    """A line for each session, parents first; a second time there is nothing to do."""
    target = url_of(name, tmp_path)
    shared = "1 event, 1 shared with its parent" if name == "sqlite" else "2 events"
    assert done("copy", source, target).out.splitlines() == [
        "copied trip (2 events)",
        f"copied other ({shared}, 1 waiting command)",
    ]
    assert done("copy", source, target).out.splitlines() == ["identical trip", "identical other"]
    for one in ("trip", "other"):
        exported = [done("export", one, "--store", url).out for url in (source, target)]
        assert exported[0] == exported[1]


def test_it_says_it_in_json(source: str, tmp_path: Path) -> None:
    """With --json each session is an object."""
    target = f"jsonl:{tmp_path}/target"
    assert turnlog("copy", source, target, "trip", "--json").values == [
        {"id": "trip", "done": "copied", "events": 2}
    ]
    assert turnlog("copy", source, target, "--json").values == [
        {"id": "trip", "done": "identical", "events": 0},
        {"id": "other", "done": "copied", "events": 2, "commands": 1},
    ]


def test_what_cannot_be_copied_fails_alone(source: str, tmp_path: Path) -> None:
    """A conflict and an unknown id are a line each on standard error, and the status is 1."""
    target = f"jsonl:{tmp_path}/target"
    with sync.open_store(target) as store, store.session("trip") as session:
        session.add_user("Something else")
    result = turnlog("copy", source, target, "trip", "other", "nowhere")
    assert result.status == 1
    assert result.out.splitlines() == ["copied other (2 events, 1 waiting command)"]
    conflict, unknown = result.err.splitlines()
    assert "session 'trip'" in conflict
    assert "header differs" in conflict
    assert "no session 'nowhere'" in unknown
    (failed,) = turnlog("copy", source, target, "trip", "--json").values
    assert (failed["id"], failed["done"]) == ("trip", "failed")
    assert "header differs" in failed["error"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["jsonl:{}/none", "jsonl:{}/target"], 1),
        (["nothing:", "jsonl:{}/target"], 2),
        (["jsonl:{}/source"], 2),
        (["jsonl:{}/source", "jsonl:{}/target", "--store", "memory:"], 2),
    ],
)
def test_misuse_makes_no_store(words: list[str], status: int, source: str, tmp_path: Path) -> None:
    """Where nothing can be copied from or to, one line says so and nothing is made."""
    del source
    result = turnlog("copy", *(word.format(tmp_path) for word in words))
    assert (result.status, result.out, len(result.err.splitlines())) == (status, "", 1)
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "target").exists()
