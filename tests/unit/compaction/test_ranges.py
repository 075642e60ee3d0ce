"""Where a surface may be cut, and which range is chosen."""

from __future__ import annotations

from turnlog import Session
from turnlog.compaction.meter import METER
from turnlog.compaction.ranges import Nodes, Range, ToolPairs, choose, parts
from turnlog.content import Source, Text, ToolCall, tool_message
from turnlog.events import Replace, SystemMessage, ToolResult
from turnlog.testing.builders import Author

WORDS = "some twenty tokens of plain words that say nothing much but take their room here "


def nodes_of(session: Session) -> Nodes:
    """The surface of a session."""
    return Nodes(session, session.fold(METER).nodes)


def pick(session: Session, retain: int, *, most: int = 10**9, least: int = 1) -> Range | None:
    """What is chosen."""
    state = session.fold(METER)
    return choose(
        nodes_of(session),
        total=state.total.tokens,
        open_step=state.open_step,
        retain=retain,
        most=most,
        least=least,
    )


def talk(turns: int) -> Session:
    """A conversation without tools."""
    session = Session.create("s")
    for number in range(turns):
        session.add_user(f"{number} {WORDS}")
        session.add_assistant(f"{number} {WORDS}")
    return session


def called(session: Session, *ids: str) -> None:
    """An answer that asks for tools, and their results."""
    session.add_assistant([ToolCall(name, "peek", WORDS) for name in ids])
    for name in ids:
        session.add_tool_result(name, WORDS)


def test_the_most_recent_stays() -> None:
    """As much as is to be kept, and not one node more; all that is older is the range."""
    session = talk(10)
    tokens = session.fold(METER).nodes[19].tokens
    found = pick(session, tokens * 5)
    assert found is not None
    assert found.nodes == tuple(range(15))
    assert found.kept == tokens * 5
    assert found.tokens == session.fold(METER).total.tokens - found.kept


def test_a_call_stays_with_its_results() -> None:
    """The cut moves to where no result behind it has its call before it."""
    session = talk(3)
    called(session, "a", "b", "c")
    tokens = nodes_of(session).tokens(len(session) - 1)
    for kept in (1, 2, 3):
        found = pick(session, tokens * kept)
        assert found is not None
        assert found.end in (6, 10), kept
    pairs = ToolPairs(nodes_of(session))
    assert [cut for cut in range(10, -1, -1) if pairs.allows(cut)] == [10, 6, 5, 4, 3, 2, 1, 0]


def test_a_result_that_repair_wrote_shares_its_calls_fate() -> None:
    """So does the real one that comes after it, wherever that stands."""
    session = talk(2)
    session.add_assistant([ToolCall("a", "peek", "{}")])
    session.repair()
    session.append(
        "tool/result",
        ToolResult(tool_message("a", "unknown", id="r"), None, None),
        surface_op="append",
    )
    session.add_user(WORDS)
    session.append(
        "tool/result",
        ToolResult(tool_message("a", "late", id="l"), None, None),
        surface_op="append",
    )
    session.add_user(WORDS)
    nodes = nodes_of(session)
    pairs = ToolPairs(nodes)
    allowed = [cut for cut in range(len(nodes), -1, -1) if pairs.allows(cut)]
    call = next(at for at in range(len(nodes)) if nodes.message(at).tool_calls)  # pyright: ignore[reportOptionalMemberAccess]
    assert allowed == [len(nodes), len(nodes) - 1, *range(call, -1, -1)]


def test_an_open_step_is_not_touched() -> None:
    """However much there is in it, and however little is to be kept."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.user(WORDS)
    author.answer([Text(WORDS)])
    author.end_step()
    author.begin_step()
    call = ToolCall("a", "peek", WORDS)
    author.user(WORDS)
    author.answer([call])
    found = pick(author.session, 0)
    assert found is not None
    assert found.nodes == author.session.surface.seqs[:2]


def test_turns_are_no_barrier() -> None:
    """A turn of many steps is cut between two of them."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.user(WORDS)
    author.answer([Text(WORDS)])
    author.end_step()
    for _ in range(20):
        author.begin_step()
        author.answer([Text(WORDS)])
        author.end_step()
    tokens = author.session.fold(METER).nodes[author.session.surface.seqs[-1]].tokens
    found = pick(author.session, tokens * 4)
    assert found is not None
    assert found.end == 18


def test_system_text_at_the_head_stays() -> None:
    """Imported logs have it on the surface."""
    session = Session.create("s")
    message = session.add_user("x").data
    system = SystemMessage(
        type(message)("y", "system", message.content, Source("system-prompt")), None, None
    )
    session.append("system/message", system, surface_op=Replace(0, 0), source_event_seqs=[0])
    for _ in range(4):
        session.add_user(WORDS)
    found = pick(session, 0)
    assert found is not None
    assert found.start == 1


def test_an_older_summary_is_inside_the_range() -> None:
    """It is merged, not nested; alone it is not worth another one."""
    session = talk(4)
    summary = session.replace(0, 5, WORDS).seq
    found = pick(session, 0)
    assert found is not None
    assert found.nodes[0] == summary
    session.replace(found.nodes[0], found.nodes[-1], WORDS)
    assert len(session.surface) == 2
    assert pick(session, 0) is None


def test_too_little_is_not_worth_a_summary() -> None:
    """None, rather than a range below the least."""
    session = talk(4)
    state = session.fold(METER)
    older = state.total.tokens - state.nodes[7].tokens  # the last node stays
    assert pick(session, 0, least=older) is not None
    assert pick(session, 0, least=older + 1) is None


def test_a_huge_last_message_goes_only_if_it_must() -> None:
    """It is more than is to be kept, and stays as long as it can."""
    session = talk(4)
    session.add_user(WORDS * 50)
    kept = pick(session, 10)
    assert kept is not None
    assert kept.end == 8
    gone = pick(session, 10, most=100)
    assert gone is not None
    assert gone.end == 9


def test_results_whose_call_is_nowhere_do_not_forbid_all_cuts() -> None:
    """Damaged logs have such."""
    session = talk(3)
    session.append("tool/result", ToolResult(tool_message("x", WORDS, id="r")), surface_op="append")
    called(session, "a")
    found = pick(session, 50)
    assert found is not None
    assert found.end == 7


def test_an_empty_surface_has_no_range() -> None:
    """Nor has one that is all to be kept."""
    assert pick(Session.create("s"), 0) is None
    assert pick(talk(2), 10**6) is None


def test_parts_cover_the_range_and_are_small_enough() -> None:
    """They are cut where rules allow, and what cannot be cut is a part of its own."""
    session = talk(4)
    called(session, "a", "b", "c", "d")
    session.add_user(WORDS * 40)
    session.add_user(WORDS)
    nodes = nodes_of(session)
    whole = pick(session, 0)
    assert whole is not None
    limit = nodes.tokens(0) * 3
    found = parts(nodes, whole, limit)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == whole.end
    large = [part for part in found if sum(map(nodes.tokens, range(*part))) > limit]
    assert large == [(8, 13), (13, 14)]


class Counting(Nodes):
    """Counts which messages are looked at."""

    looked = 0

    def message(self, at: int) -> object:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """The message, counted."""
        self.looked += 1
        return super().message(at)


def test_choosing_looks_at_what_is_kept_and_not_at_the_rest() -> None:
    """Planning costs the same at any length of the surface."""
    counts: list[int] = []
    for turns in (50, 500):
        session = talk(turns)
        state = session.fold(METER)
        nodes = Counting(session, state.nodes)
        found = choose(
            nodes, total=state.total.tokens, open_step=None, retain=200, most=10**9, least=1
        )
        assert found is not None
        counts.append(nodes.looked)
    assert counts[0] == counts[1]
