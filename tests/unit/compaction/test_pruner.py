"""Oversized tool results become head, marker and tail."""

from __future__ import annotations

from base64 import b64encode

import pytest
from msgspec.structs import replace

from turnlog import Session
from turnlog.compaction.meter import measure
from turnlog.compaction.pruner import Pruner
from turnlog.content import Block, Image, Reasoning, Text, ToolCall, tool_message
from turnlog.errors import InvalidOption
from turnlog.events import ToolError, ToolResult
from turnlog.testing.builders import Author

NOW = Pruner(keep=0)
LONG = "0123456789" * 2000


def ran(author: Author, *contents: str | list[Block], end: bool = True) -> list[int]:
    """One step with a call for each content; returns the seqs of the results."""
    session = author.session
    calls = [ToolCall(f"c{session.next_seq}.{n}", "read", "{}") for n in range(len(contents))]
    author.begin_turn()
    author.user("go on")
    author.begin_step()
    author.answer([Text("reading"), *calls])
    seqs: list[int] = []
    for call, content in zip(calls, contents, strict=True):
        author.dispatch(call)
        seqs.append(session.add_tool_result(call.id, content).seq)
    if end:
        author.end_step()
        author.end_turn()
    return seqs


def texts(session: Session) -> list[str]:
    """The text of each tool result that the model sees."""
    return [m.text for m in session.derive_messages() if m.role == "tool"]


def test_a_long_result_becomes_head_marker_and_tail() -> None:
    """What is left of a result is its head and tail, and how many characters are missing."""
    author = Author()
    (seq,) = ran(author, LONG)
    assert NOW.prune(author.session) == [seq]
    (text,) = texts(author.session)
    head, marker, tail = text.split("\n")
    assert head == LONG[:4096]
    assert tail == LONG[-1024:]
    assert f"{len(LONG) - 4096 - 1024} characters are left out" in marker
    assert f"event {seq} " in marker


def test_the_log_says_so_and_keeps_the_original() -> None:
    """Each pruning is logged before its replacement, and the whole result can still be read."""
    author = Author()
    (seq,) = ran(author, LONG)
    NOW.prune(author.session)
    logged, replaced = author.session.events[-2:]
    assert (logged.type, logged.data.shadowed_seqs) == ("compaction/prune", (seq,))
    assert (replaced.type, replaced.source_event_seqs) == ("tool/result", (seq,))
    assert author.session.surface.shadowed_by(seq) == replaced.seq
    assert author.session.event_at(seq).data.message.text == LONG
    assert author.session.verify() == []


def test_nothing_but_content_differs() -> None:
    """Id, call, error, metadata and unknown fields of a result stay what they were."""
    message = replace(tool_message("c1", LONG, id="r1", is_error=True), extra={"x": 1})
    error = ToolError("Timeout", "TIMEOUT")
    whole = ToolResult(message, 1, 2, error, {"took": 5}, {"y": [1]})
    short = NOW.shortened(7, whole)
    assert short is not None
    assert short.message.content != message.content
    assert replace(short, message=replace(short.message, content=message.content)) == whole


def test_an_empty_block_of_an_imported_result_is_left_out() -> None:
    """What no event of ours may hold does not keep a result from being shortened."""
    whole = ToolResult(tool_message("c1", [Reasoning(""), Text(LONG)], id="r1"), 1, 1)
    short = NOW.shortened(7, whole)
    assert short is not None
    assert [type(block) for block in short.message.content] == [Text]


def test_a_result_at_the_limit_stays() -> None:
    """A result with as many characters as the limit is not oversized; one more is."""
    author = Author()
    _, long = ran(author, "x" * 8192, "x" * 8193)
    assert NOW.prune(author.session) == [long]


def test_the_oldest_is_replaced_first() -> None:
    """Results are replaced in the order in which the model reads them."""
    author = Author()
    seqs = [seq for _ in range(3) for seq in ran(author, LONG, LONG)]
    assert NOW.prune(author.session) == seqs


def test_the_most_recent_stay_whole() -> None:
    """As many of the most recent results stay whole as the pruner keeps, small ones counted."""
    author = Author()
    seqs = ran(author, LONG[:9000], LONG[:9000], "small", LONG[:9000])
    assert Pruner(keep=2).prune(author.session) == seqs[:2]
    assert Pruner(keep=2).prune(author.session) == []


def test_a_huge_result_is_shortened_however_recent() -> None:
    """A result that could never fit does not stay whole because it is the last."""
    author = Author()
    seqs = ran(author, LONG[:9000], LONG * 10)
    assert Pruner().prune(author.session) == seqs[1:]


def test_recent_results_stay_while_they_fit_together() -> None:
    """The most recent stay whole as long as they are not too long together."""
    author = Author()
    seqs = ran(author, LONG[:9000], LONG[:9000], LONG[:9000])
    assert Pruner(keep=3, whole=18_500).prune(author.session) == seqs[:1]


def test_an_open_step_is_not_touched() -> None:
    """The results of a step that has not ended stay whole, whatever their size."""
    author = Author()
    before = ran(author, LONG)
    within = ran(author, LONG * 10, end=False)
    assert NOW.prune(author.session) == before
    author.end_step()
    assert NOW.prune(author.session) == within


def test_a_pruned_result_is_never_pruned_again() -> None:
    """A result that is still over a limit after it was shortened is left alone."""
    author = Author()
    ran(author, LONG)
    assert len(Pruner(keep=0, limit=100, head=3000, tail=3000).prune(author.session)) == 1
    assert Pruner(keep=0, limit=100, head=10, tail=10).plan(author.session) == []


def test_no_shorter_no_replacement() -> None:
    """A result that a marker would make no shorter is left alone."""
    author = Author()
    ran(author, LONG[:9000])
    assert Pruner(keep=0, head=8990, tail=5).plan(author.session) == []
    assert Pruner(keep=0, head=5000, tail=5000).plan(author.session) == []


def test_planning_changes_nothing() -> None:
    """A plan is only a plan."""
    author = Author()
    ran(author, LONG)
    length = len(author.session)
    assert NOW.plan(author.session) == NOW.plan(author.session) != []
    assert len(author.session) == length


def test_images_stay_where_they_are() -> None:
    """Text blocks count as one text; what stands between them keeps its place."""
    author = Author()
    first, second = Image("image/png", "AAAA"), Image(url="https://example.org/x.png")
    parts: list[Block] = [Text("a" * 5000), first, Text("b" * 9000), second, Text("c" * 500)]
    ran(author, parts)
    NOW.prune(author.session)
    message = author.session.derive_messages()[-1]
    head, one, middle, two, tail = message.content
    assert (one, two, tail) == (first, second, parts[4])
    assert isinstance(head, Text)
    assert head.text.startswith("a" * 4096 + "\n[")
    assert middle == Text("b" * 524)


def test_blocks_that_are_left_out_whole_are_gone() -> None:
    """A text block of which nothing remains leaves no empty block behind."""
    author = Author()
    ran(author, [Text("a" * 4096), Text("b" * 5000), Text("c" * 1024)])
    NOW.prune(author.session)
    head, marker, tail = author.session.derive_messages()[-1].content
    assert (head, tail) == (Text("a" * 4096), Text("c" * 1024))
    assert isinstance(marker, Text)
    assert "5000 characters are left out" in marker.text


def test_a_result_of_base64_in_one_line_is_shortened() -> None:
    """A megabyte of base64 without a line's end becomes some kilobytes, and the gauge knows."""
    author = Author()
    ran(author, b64encode(bytes(range(256)) * 3600).decode())
    before = measure(author.session)
    Pruner().prune(author.session)
    after = measure(author.session)
    assert before.tokens > 500_000
    assert after.tokens < 5_000
    assert after.bytes < 6_000


@pytest.mark.parametrize(
    "one", ["e\u0301", "\U0001f468\u200d\U0001f469", "\r\n", "\U0001f1e9\U0001f1ea"]
)
def test_no_character_is_cut(one: str) -> None:
    """Head and tail begin and end between what is read as one character."""
    author = Author()
    ran(author, "x" + one * 6000)
    NOW.prune(author.session)
    (text,) = texts(author.session)
    head, _, tail = text.replace("\r\n", "¶").split("\n")
    one = one.replace("\r\n", "¶")
    assert head[1:] == one * (len(head[1:]) // len(one))
    assert tail == one * (len(tail) // len(one))


def test_other_results_of_the_model_are_not_in_the_way() -> None:
    """A result that a compaction took off the surface is no candidate any more."""
    author = Author()
    ran(author, LONG)
    ran(author, "small")
    author.compact(0, 2)
    assert NOW.plan(author.session) == []


def test_numbers_below_zero_are_refused() -> None:
    """A pruner of impossible numbers cannot be made."""
    with pytest.raises(InvalidOption, match=r"^pruner\.head: expected .* 0 or more, got -1$"):
        Pruner(head=-1)
