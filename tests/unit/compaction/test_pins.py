"""Pins: what every compaction carries on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.views import violations
from turnlog import Session
from turnlog.compaction.engine import BasicCompactionEngine
from turnlog.compaction.history import compactions
from turnlog.compaction.pins import MARK, PINS, PinState, carried, content_of, is_carried, pinned
from turnlog.compaction.pruner import Pruner
from turnlog.content import Block, Image, Message, Reasoning, Source, Text, ToolCall
from turnlog.errors import InvalidContent, NoMessage, NoSuchEvent, NoSuchPin, NotLoaded
from turnlog.events import ContextPin, Replace
from turnlog.interop.from_turnlog import FromTurnlog
from turnlog.invariants import verify
from turnlog.log import Damage, SessionLog
from turnlog.models.scripted import ScriptedModel
from turnlog.stores import open_store
from turnlog.stores.resuming import WHOLE
from turnlog.testing.builders import Author, Counted
from turnlog.testing.strategies import histories

RULE = "Never touch the folder `data`.\nAsk first."


def new(session_id: str = "s") -> Session:
    """An empty session with counted ids."""
    counted = Counted("n")
    return Session.create(session_id, clock=counted.clock, new_id=counted.new_id)


def compact(session: Session, first: int, last: int, summary: str = "what happened") -> int:
    """Replace the nodes at two positions as an engine does: a summary, then what is pinned."""
    nodes = session.surface.seqs[first : last + 1]
    message = Message(
        f"sum{session.next_seq}",
        "user",
        (Text(summary), *carried(session, nodes)),
        Source("compaction"),
    )
    return session.append(
        "user/message",
        message,
        surface_op=Replace(nodes[0], nodes[-1]),
        source_event_seqs=list(nodes),
    ).seq


def seen(session: Session) -> list[Block]:
    """Every block that the model sees."""
    return [block for message in session.derive_messages() for block in message.content]


def texts(session: Session) -> list[str]:
    """Every text that the model sees."""
    return [block.text for block in seen(session) if isinstance(block, Text)]


# -- pinning -----------------------------------------------------------------------------------


def test_a_pinned_message_survives_thirty_compactions_verbatim_and_once() -> None:
    """Its text is in a block of its own, with the seq it came from, and never twice."""
    session = new()
    rule = session.add_user(RULE).seq
    session.pin(rule)
    for i in range(30):
        session.add_user(f"question {i}")
        session.add_assistant(f"answer {i}")
        compact(session, 0, len(session.surface) - 2)
        assert texts(session).count(RULE) == 1
        head = texts(session)[texts(session).index(RULE) - 1]
        assert f"event {rule}" in head
    assert not [f for f in verify(session) if f.level == "fault"]


def test_what_stays_on_the_surface_is_not_copied() -> None:
    """A pinned message outside the range needs no copy."""
    session = new()
    session.add_user("old")
    session.add_assistant("older")
    session.pin(session.add_user(RULE).seq)
    compact(session, 0, 1)
    assert texts(session) == ["what happened", RULE]


def test_a_pinned_text_enters_as_context() -> None:
    """`pin(text)` appends a context message and pins that."""
    session = new()
    pin_id = session.pin(RULE)
    message, pin = session.events
    assert (message.type, message.message and message.message.text) == ("context/message", RULE)
    assert pin.type == "context/pin"
    assert pin.data == ContextPin(pin_id, message.seq)
    assert [each.pin_id for each in pinned(session)] == [pin_id]
    assert session.extract_chat_messages() == ()


def test_a_message_is_pinned_once() -> None:
    """Pinning what is pinned returns the pin that is there."""
    session = new()
    seq = session.add_user(RULE).seq
    assert session.pin(seq) == session.pin(seq)
    assert len(session) == 2


def test_two_pins_of_one_event_are_carried_once() -> None:
    """As logs of others may have them; taking one off leaves the other."""
    session = new()
    seq = session.add_user(RULE).seq
    for name in ("a", "b"):
        session.append("context/pin", ContextPin(name, seq))
    compact(session, 0, 0)
    assert texts(session).count(RULE) == 1
    session.unpin("a")
    assert [each.pin_id for each in pinned(session)] == ["b"]


def test_an_unpinned_message_is_no_longer_carried() -> None:
    """The next compaction drops the copy."""
    session = new()
    pin_id = session.pin(session.add_user(RULE).seq)
    compact(session, 0, 0)
    session.unpin(pin_id)
    assert pinned(session) == ()
    compact(session, 0, 0, "later")
    assert texts(session) == ["later"]


def test_text_and_images_are_carried_calls_and_results_are_quoted() -> None:
    """Reasoning is left behind; of a call and of a result their text is quoted."""
    session = new()
    call = ToolCall("c1", "read", '{"path":"a"}')
    image = Image("image/png", "aGk=")
    asked = session.add_user([Text("look"), image]).seq
    said = session.add_assistant([Reasoning("hm"), Text("I read"), call]).seq
    got = session.add_tool_result("c1", "line one\nline two").seq
    for seq in (asked, said, got):
        session.pin(seq)
    blocks = [each.blocks for each in pinned(session)]
    assert blocks == [
        (Text("look"), image),
        (Text("I read"), Text('call of read:\n> {"path":"a"}')),
        (Text("result of c1:\n> line one\n> line two"),),
    ]
    compact(session, 0, 2)
    assert [each.blocks for each in pinned(session)] == blocks
    assert violations(session.request_messages()) == []


def test_pinning_what_the_model_no_longer_sees_shows_it_again() -> None:
    """It enters as context that cites the event, and the next compaction carries it on."""
    session = new()
    rule = session.add_user(RULE).seq
    session.add_assistant("yes")
    compact(session, 0, 1)
    assert RULE not in texts(session)
    session.pin(rule)
    shown = session.events[-1]
    assert (shown.type, shown.source_event_seqs) == ("context/message", (rule,))
    assert texts(session).count(RULE) == 1
    compact(session, 0, len(session.surface) - 1)
    assert texts(session).count(RULE) == 1


def test_a_message_that_was_replaced_by_hand_is_carried_by_the_next() -> None:
    """Whoever replaces without carrying loses it from sight, not from the pins."""
    session = new()
    session.pin(session.add_user(RULE).seq)
    session.add_user("more")
    session.replace(0, 0, "by hand")
    assert RULE not in texts(session)
    compact(session, 0, 1)
    assert texts(session).count(RULE) == 1


def test_a_pinned_result_is_not_made_shorter() -> None:
    """Its node stays whole until the pin is taken off."""
    session = new()
    session.add_assistant(ToolCall("c", "cat", "{}"))
    seq = session.add_tool_result("c", "long " * 4000).seq
    session.add_user("go on")
    pin_id = session.pin(seq)
    pruner = Pruner(keep=0)
    assert pruner.prune(session) == []
    session.unpin(pin_id)
    assert pruner.prune(session) == [seq]


async def test_the_engine_carries_pins_through_its_compactions() -> None:
    """A rule, and a quoted result, survive three summaries that forget them."""
    session = Session.create("s")
    rule = session.add_user(RULE).seq
    session.add_assistant(ToolCall("c", "cat", "{}"), model="m")
    result = session.add_tool_result("c", "the key is 4711").seq
    session.pin(rule)
    session.pin(result)
    forgets = "They talked at length about this and that, and nothing was decided. " * 5
    engine = BasicCompactionEngine(ScriptedModel([forgets] * 3), fallback="none")
    for _ in range(3):
        for i in range(20):
            session.add_user(f"question {i} " + "and so on " * 40)
            session.add_assistant(f"answer {i} " + "and so forth " * 40, model="m")
        assert await engine.compact_now(session) is not None
        assert texts(session).count(RULE) == 1
        assert texts(session).count("result of c:\n> the key is 4711") == 1
        assert violations(session.request_messages()) == []
    assert [each.status for each in compactions(session)] == ["done"] * 3
    assert RULE not in compactions(session)[-1].summary
    assert not [f for f in session.verify() if f.level == "fault"]


# -- misuse ------------------------------------------------------------------------------------


def test_what_cannot_be_pinned() -> None:
    """Each refusal is typed, says why, and changes nothing."""
    session = new()
    session.append("turn/start", {"turn": 1})
    session.append(
        "system/message",
        {"message": Message("y", "system", (Text("be nice"),), Source("system-prompt")).to_dict()},
        surface_op="append",
    )
    session.add_assistant([Reasoning("only thoughts")])
    wrong: Any = 1.5
    for what, error, said in [
        (0, NoMessage, "holds no message"),
        (1, NoMessage, "system text"),
        (2, NoMessage, "neither text nor images"),
        (3, NoSuchEvent, "from 0 to 2"),
        (-1, NoSuchEvent, "from 0 to 2"),
        ("", InvalidContent, "says something"),
        (" \n", InvalidContent, "says something"),
        (True, InvalidContent, "expected a seq"),
        (wrong, InvalidContent, "expected a seq"),
    ]:
        with pytest.raises(error, match=said):
            session.pin(what)
    assert len(session) == 3


def test_unpinning_what_is_not_pinned() -> None:
    """The error names the pins there are."""
    session = new()
    with pytest.raises(NoSuchPin, match="there is none"):
        session.unpin("x")
    pin_id = session.pin(RULE)
    with pytest.raises(NoSuchPin, match=repr(pin_id)):
        session.unpin("x")
    session.unpin(pin_id)
    with pytest.raises(NoSuchPin):
        session.unpin(pin_id)


def test_a_pin_of_a_lost_event_says_so() -> None:
    """An event that was lost to damage cannot be pinned; a pin of one carries nothing."""
    session = new()
    session.add_user("first")
    session.pin(session.add_user(RULE).seq)
    log = SessionLog(session.header)
    log.load(session.events[0])
    log.lose(Damage("gone", 1, 1))
    log.load(session.events[2])
    damaged = Session(log)
    assert pinned(damaged) == ()
    with pytest.raises(NoSuchEvent, match="lost to damage"):
        damaged.pin(1)


# -- forks and imports -------------------------------------------------------------------------


def test_pins_survive_a_fork() -> None:
    """A child has the pins of what it shares."""
    session = new()
    pin_id = session.pin(RULE)
    compact(session, 0, 0)
    child = session.fork()
    assert [each.pin_id for each in pinned(child)] == [pin_id]
    assert pinned(session.fork(0)) == ()


def exported(session: Session, folder: Path) -> FromTurnlog:
    """The session as an export of ours is read."""
    path = folder / f"{session.id}.jsonl"
    path.write_bytes(session.to_jsonl())
    return FromTurnlog(path)


async def test_imported_pins_wait_to_be_pinned_again(tmp_path: Path) -> None:
    """Neither in the import, nor in its forks and theirs; pinned again they count everywhere."""
    session = new("origin")
    seq = session.add_user(RULE).seq
    old = session.pin(seq)
    source = exported(session, tmp_path)
    async with open_store("memory:") as store:
        await store.adopt(source.header, source)
        assert pinned(await store.read("origin")) == ()
        early = (await store.read("origin")).fork(1, "early")
        assert pinned(early) == ()
        assert pinned(early.fork(None, "earlier")) == ()
        async with store.session("origin") as imported:
            with pytest.raises(NoSuchPin, match="import"):
                imported.unpin(old)
            again = imported.pin(seq)
            assert again != old
            assert [each.pin_id for each in pinned(imported)] == [again]
            compact(imported, 0, len(imported.surface) - 1)
            assert texts(imported).count(RULE) == 1
            child = imported.fork(None, "child")
            grandchild = child.fork(None, "grandchild")
            assert [each.pin_id for each in pinned(grandchild)] == [again]
            assert pinned(grandchild.fork(1, "back")) == ()
    reread = exported(grandchild, tmp_path)
    assert pinned(Session.from_events(reread.header, list(reread))) == ()


# -- partly loaded -----------------------------------------------------------------------------


async def test_a_session_that_is_partly_in_memory_knows_its_pins(tmp_path: Path) -> None:
    """What was shadowed before it was opened is carried on, verbatim and once, as if all were."""
    async with open_store(f"sqlite:{tmp_path / 'pins.db'}") as store:
        async with store.session("s") as session:
            session.pin(session.add_user(RULE).seq)
            late = session.add_user("to be pinned later").seq
            for i in range(WHOLE):
                session.add_user(f"filler {i}")
            compact(session, 0, WHOLE - 9)
        async with store.session("s") as session:
            assert session.first_held > late
            (pin,) = pinned(session)
            assert (pin.seq, pin.blocks) == (0, (Text(RULE),))
            assert session.pin(0) == pin.pin_id
            with pytest.raises(NotLoaded):
                session.pin(late)
            for i in range(3):
                session.add_user(f"more {i}")
                compact(session, 0, len(session.surface) - 1)
                assert texts(session).count(RULE) == 1
        async with store.session("s", load="all") as session:
            session.pin(late)
            assert [each.seq for each in pinned(session)] == [0, late]
            assert not [f for f in verify(session) if f.level == "fault"]


# -- the fold ----------------------------------------------------------------------------------


def same(one: PinState, other: PinState) -> bool:
    """Whether two states know the same."""
    return (one.pins, one.carriers) == (other.pins, other.carriers)


@given(histories(), st.data())
def test_a_kept_fold_goes_on_as_the_whole(session: Session, data: st.DataObject) -> None:
    """Dumped anywhere, through JSON and back, it ends as the fold that saw everything."""
    cut = data.draw(st.integers(0, len(session)))
    state = PINS.start()
    for event in session.events[:cut]:
        state = PINS.step(state, event)
    state = PINS.restore(json.loads(json.dumps(PINS.dump(state))))
    for event in session.events[cut:]:
        state = PINS.step(state, event)
    assert same(state, session.fold(PINS))


@settings(max_examples=50)
@given(histories(), st.lists(st.integers(0, 30), max_size=5), st.data())
def test_pinned_content_is_always_to_be_seen(
    session: Session, seqs: list[int], data: st.DataObject
) -> None:
    """Whatever is pinned and compacted in any order: pinned content is what its event said."""
    session = session.fork()
    for _ in range(data.draw(st.integers(1, 4))):
        for seq in seqs:
            if seq < session.next_seq and content_of(session.event_at(seq)):
                session.pin(seq)
        size = len(session.surface)
        if size:
            first = data.draw(st.integers(0, size - 1))
            compact(session, first, data.draw(st.integers(first, size - 1)))
        session.add_user("more")
        for pin in pinned(session):
            assert pin.blocks == content_of(session.event_at(pin.seq))
            marks = [
                block
                for block in seen(session)
                if is_carried(block) and _mark(block) == {"seq": pin.seq}
            ]
            assert len(marks) in (0, len(pin.blocks))
            assert marks or pin.seq in session.surface


def _mark(block: Block) -> Any:
    extra: Any = getattr(block, "extra", None)
    return extra[MARK]


def test_a_fold_restored_without_the_event_still_has_its_content() -> None:
    """Once carried, the content is in the fold; `dump` is bounded by what is pinned."""
    session = new()
    session.pin(session.add_user(RULE).seq)
    for _ in range(50):
        session.add_user("filler")
    compact(session, 0, 40)
    dumped = PINS.dump(session.fold(PINS))
    assert RULE in json.dumps(dumped).encode().decode("unicode_escape")
    assert len(json.dumps(dumped)) < 500
    (pin,) = PINS.restore(dumped).pins.values()
    assert pin.blocks == (Text(RULE),)


STALE: list[Any] = [None, {}, {"pins": [{}], "carriers": []}, {"pins": 1}]


@pytest.mark.parametrize("value", STALE)
def test_restoring_what_was_not_dumped(value: Any) -> None:
    """Anything else is refused, by an error that a store takes for a stale record."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        PINS.restore(value)


def test_an_erased_event_is_no_longer_pinned() -> None:
    """What was erased is carried by nothing."""
    session = new()
    session.pin(session.add_user(RULE).seq)
    session.append("session/erased", {"seqs": [0], "reason": "asked"})
    assert pinned(session) == ()


@given(st.data())
def test_one_pin_at_a_time_equals_all_at_once(data: st.DataObject) -> None:
    """The state after each event is that of a full refold."""
    session = new()
    author = Author(session)
    for _ in range(data.draw(st.integers(1, 12))):
        act = data.draw(st.sampled_from(["say", "pin", "unpin", "compact"]))
        if act == "say" or not len(session.surface):
            author.user("hello")
        elif act == "pin":
            session.pin(data.draw(st.sampled_from(list(session.surface.seqs))))
        elif act == "unpin" and pinned(session):
            session.unpin(pinned(session)[0].pin_id)
        elif act == "compact":
            compact(session, 0, len(session.surface) - 1)
        found = pinned(session)
        assert found == pinned(Session.from_events(session.header, list(session.events)))
