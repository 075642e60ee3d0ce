"""The demo: it holds on the real model, and notices each thing that is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from demo.__main__ import run
from demo.steps import CHAT, UNDONE, Demo
from tests.e2e.local import require_local_model
from turnlog import Session, open_store
from turnlog.agent import dispatch
from turnlog.assembly import Assembly
from turnlog.codec import encode_event, event_from_dict
from turnlog.compaction.draft import Draft
from turnlog.content import Message, Text
from turnlog.dialects.body import Body
from turnlog.events import AnyEvent
from turnlog.stores.sql import to_rows
from turnlog.stores.store import Store
from turnlog.views.derive import DerivedMessages
from turnlog.views.sequence import MessageList

ROOT = Path(__file__).parents[2]
STEPS = ["stream", "tool", "cancel", "kill", "views", "time_travel", "fork", "compact", "verify"]
SEA: list[Any] = ["The sea ", "is deep."]
COUNT: list[Any] = ['{"tool": "word_count", "arguments": ', '{"path": "poem.txt"}}']
STORY: list[Any] = [*(f"word{n} " for n in range(20)), {"hang": True}]
SUMMARY: list[Any] = ["Ada has the key ", "of the office."]
TOLD: list[Any] = [["I do not know."], ["The sky ", "is blue."], ["Ada ", "has."]]
ANSWERS = [SEA, COUNT, ["It has 36."], STORY, *TOLD, SUMMARY]
MAIL: list[Any] = ['{"tool": "send_mail", "arguments": {"to": "ada"}}']


def script(path: Path, answers: list[Any]) -> str:
    """The name of a model that answers so, and knows no tools."""
    path.write_text(json.dumps({"answers": answers, "nativeTools": False}))
    return f"scripted:{path}"


class Show:
    """A demo on scripted models, and how it went."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.answers = list(ANSWERS)
        self.mail = MAIL

    def demo(self) -> Demo:
        """The demo, ready to run."""
        victim = script(self.folder / "victim.json", [self.mail])
        model = script(self.folder / "model.json", self.answers)
        return Demo(model, self.folder, self.said.append, self.said.append, victim_model=victim)

    async def failed(self, capsys: pytest.CaptureFixture[str]) -> str | None:
        """The step that failed."""
        code = await run(self.demo())
        lines = capsys.readouterr().out.splitlines()
        passed = lines.count("  ✓")
        assert code == (0 if passed == len(STEPS) else 1)
        return None if passed == len(STEPS) else STEPS[passed]


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """A demo of its own folder."""
    return Show(tmp_path)


async def test_the_demo_holds_on_scripted_models(
    show: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    """With nothing broken every step passes."""
    assert await show.failed(capsys) is None


# -- one thing broken at a time ------------------------------------------------------------------

Sabotage = Callable[[pytest.MonkeyPatch, Show], None]


def giving(value: object) -> Callable[[object], object]:
    """A method that always says the same."""
    return lambda _: value


def one_piece(_: pytest.MonkeyPatch, show: Show) -> None:
    """The answer does not stream."""
    show.answers[0] = ["The sea is deep."]


def pieces_unlogged(patch: pytest.MonkeyPatch, show: Show) -> None:
    """Chunks are shown but not kept: what is read back has none."""
    del show
    events: Any = Session.events  # the property itself

    def without(session: Session) -> list[AnyEvent]:
        return [event for event in events.__get__(session) if event.type != "assistant/chunk"]

    patch.setattr(Session, "events", property(without))


def answer_cut(patch: pytest.MonkeyPatch, show: Show) -> None:
    """The message is not what had streamed."""
    del show
    patch.setattr(Assembly, "blocks", giving((Text("The sea"),)))


def body_not_run(patch: pytest.MonkeyPatch, show: Show) -> None:
    """The tool's result is made up."""
    del show

    async def made_up(*_: object) -> tuple[Text, ...]:
        return (Text("7"),)

    patch.setattr(dispatch, "run_body", made_up)


def no_call(_: pytest.MonkeyPatch, show: Show) -> None:
    """The model answers in words where it must call a tool."""
    show.answers[1] = ["Thirty-six."]


def text_dropped(patch: pytest.MonkeyPatch, show: Show) -> None:
    """A cancel keeps nothing."""
    del show
    patch.setattr(Assembly, "visible", giving(()))


def text_cut(patch: pytest.MonkeyPatch, show: Show) -> None:
    """A cancel keeps the beginning only."""
    del show
    patch.setattr(Assembly, "visible", giving((Text("word0"),)))


def cancel_ignored(_: pytest.MonkeyPatch, show: Show) -> None:
    """The turn is over before it could be cancelled."""
    show.answers[3] = ["A ship ", "sailed."]


def repair_off(patch: pytest.MonkeyPatch, show: Show) -> None:
    """What a crash left open stays open."""
    del show
    repair = Session.repair

    def only_endings(self: Session, *, reason: str = "interrupted", end: Any = None) -> Any:
        return [] if end is None else repair(self, reason=reason, end=end)

    patch.setattr(Session, "repair", only_endings)


def victim_finished(_: pytest.MonkeyPatch, show: Show) -> None:
    """The process ends by itself before it can be killed."""
    show.mail = ["I would rather not."]


def transcript_loses(patch: pytest.MonkeyPatch, show: Show) -> None:
    """A person does not read the last prompt."""
    del show
    extract = Session.extract_chat_messages

    def shorter(session: Session) -> tuple[Message, ...]:
        return extract(session)[:-2]

    patch.setattr(Session, "extract_chat_messages", shorter)


def transcript_shows_tools(patch: pytest.MonkeyPatch, show: Show) -> None:
    """A person reads what was not meant for people."""
    del show
    extract = Session.extract_chat_messages

    def all_of_it(session: Session) -> tuple[Message, ...]:
        return extract(session, include_tools=True)

    patch.setattr(Session, "extract_chat_messages", all_of_it)


def no_time_travel(patch: pytest.MonkeyPatch, show: Show) -> None:
    """The view as it was is the view as it is."""
    del show

    def now(derived: DerivedMessages, _: int) -> MessageList:
        return derived.current()

    patch.setattr(DerivedMessages, "at", now)


def fork_writes_to_parent(patch: pytest.MonkeyPatch, show: Show) -> None:
    """The parent notices that it was forked."""
    del show
    fork = Store.fork

    async def meddling(self: Store, session_id: str, **options: Any) -> str:
        async with self.session(session_id) as parent:
            parent.add_context("I was forked.")
        return await fork(self, session_id, **options)

    patch.setattr(Store, "fork", meddling)


def fork_forgets(patch: pytest.MonkeyPatch, show: Show) -> None:
    """The child begins with nothing."""
    del show
    fork = Store.fork

    async def empty(self: Store, session_id: str, **options: Any) -> str:
        options["at"] = 0
        return await fork(self, session_id, **options)

    patch.setattr(Store, "fork", empty)


def summary_appended(patch: pytest.MonkeyPatch, show: Show) -> None:
    """A summary comes on top of what it was to stand for."""
    del show

    def append(draft: Draft, message: Message) -> int:
        session: Session = draft._session  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return session.append("user/message", message, surface_op="append").seq

    patch.setattr(Draft, "replace", append)


def compaction_erases(patch: pytest.MonkeyPatch, show: Show) -> None:
    """What was compacted is gone for a person too."""
    del show
    extract = Session.extract_chat_messages

    def seen(session: Session) -> tuple[Message, ...]:
        compacted = any(event.type == "compaction/end" for event in session.events)
        return tuple(session.derive_messages()) if compacted else extract(session)

    patch.setattr(Session, "extract_chat_messages", seen)


def undo_forgets(patch: pytest.MonkeyPatch, show: Show) -> None:
    """A fork from before the compaction is one from after it."""
    del show
    fork = Store.fork

    async def late(self: Store, session_id: str, **options: Any) -> str:
        if options.get("new_id") == UNDONE:
            del options["at"]
        return await fork(self, session_id, **options)

    patch.setattr(Store, "fork", late)


def digest_wrong(patch: pytest.MonkeyPatch, show: Show) -> None:
    """What is logged of a request is not what was sent."""
    del show
    patch.setattr(Body, "digest", "sha256:" + "0" * 64)


def event_tampered(patch: pytest.MonkeyPatch, show: Show) -> None:
    """Somebody edits what was said, on disk."""
    fork = Demo.fork

    async def then_tamper(self: Demo, store: Store) -> None:
        await fork(self, store)
        said, other = b"one thing about the sea", b"one thing about the tea"
        reader = await store.read(CHAT)
        event = next(event for event in reader.events if said in event.raw)
        edited = event_from_dict(json.loads(encode_event(event).replace(said, other)))
        ((seq, *_, data, _, _, _, _, checksum),) = to_rows([edited]).events
        db: Any = apsw.Connection(str(show.folder / "sessions.db"))
        db.execute(
            "UPDATE events SET data = ?, sum = ? WHERE seq = ? "
            "AND session = (SELECT no FROM sessions WHERE id = ?)",
            (data, checksum, seq, CHAT.encode()),
        )
        assert db.changes() == 1
        db.close()

    then_tamper.__doc__ = fork.__doc__
    patch.setattr(Demo, "fork", then_tamper)


@pytest.mark.parametrize(
    ("sabotage", "step"),
    [
        (one_piece, "stream"),
        (pieces_unlogged, "stream"),
        (answer_cut, "stream"),
        (body_not_run, "tool"),
        (no_call, "tool"),
        (text_dropped, "cancel"),
        (text_cut, "cancel"),
        (cancel_ignored, "cancel"),
        (repair_off, "kill"),
        (victim_finished, "kill"),
        (transcript_loses, "views"),
        (transcript_shows_tools, "views"),
        (no_time_travel, "time_travel"),
        (fork_writes_to_parent, "fork"),
        (fork_forgets, "fork"),
        (summary_appended, "compact"),
        (compaction_erases, "compact"),
        (undo_forgets, "compact"),
        (digest_wrong, "verify"),
        (event_tampered, "verify"),
    ],
)
async def test_a_step_that_is_broken_fails(
    show: Show,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sabotage: Sabotage,
    step: str,
) -> None:
    """Exactly the step that shows what was broken sees it, and the demo's exit says so."""
    sabotage(monkeypatch, show)
    assert await show.failed(capsys) == step


# -- the real thing --------------------------------------------------------------------------------


async def test_the_demo_on_the_real_model(tmp_path: Path) -> None:
    """It exits 0, and leaves sessions that the command line lists, reads and verifies."""
    require_local_model()
    python = [sys.executable, "-m"]
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [*python, "demo", str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("  ✓") == len(STEPS)
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    environment = {**os.environ, "TURNLOG_STORE": url}
    for words, shown in (
        (["ls"], "demo-fork"),
        (["show", CHAT, "--tools"], "poem.txt"),
        (["compactions", CHAT], "done, manual"),
        (["verify", "--all"], "demo-mail"),
    ):
        told = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
            [*python, "turnlog", *words],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert shown in told.stdout
    async with open_store(url) as store:
        assert {info.id async for info in store.sessions()} == {
            CHAT,
            "demo-mail",
            "demo-fork",
            UNDONE,
        }
