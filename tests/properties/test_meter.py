"""The meter is a pure fold: incremental, reproducible, kept and restored, and never stale."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.views import naive_surface
from turnlog import Session
from turnlog.compaction.estimate import Size, header_size, message_size
from turnlog.compaction.meter import METER, PLAUSIBLE, measure
from turnlog.content import Reasoning, Usage
from turnlog.events import AnyEvent, AssistantAttempt, AssistantMessage, Header
from turnlog.testing.strategies import histories, mangled, prefix

ANY = histories() | mangled()


class Naive:
    """The gauge as plainly as can be written: one look at the whole log, nothing kept."""

    def __init__(self, session: Session) -> None:
        self.events = list(session.events)
        self.by_seq = {event.seq: event for event in self.events}
        self.surface = naive_surface(self.events)

    def size(self, seq: int) -> Size:
        """The size of one node."""
        message = self.by_seq[seq].message
        return Size() if message is None else message_size(message)

    def tokens(self) -> int:
        """Tokens of the next request."""
        header = self.header(len(self.events))
        fixed = 0 if header is None else header_size(header).tokens
        estimate = fixed + sum(self.size(seq).tokens for seq in self.surface)
        report = self.report()
        if report is None or _prompt(self.header(report[2])) != _prompt(header):
            return estimate
        reported, covered, _ = report
        whole = fixed + sum(self.size(seq).tokens for seq in covered)
        left = fixed + sum(self.size(seq).tokens for seq in covered if seq in self.surface)
        new = sum(self.size(seq).tokens for seq in self.surface if seq not in covered)
        built = new + (-(-reported * left // whole) if whole else reported)
        return built if built * PLAUSIBLE >= estimate else -(-estimate // PLAUSIBLE)

    def header(self, length: int) -> Header | None:
        """The header in force after so many events."""
        logged = [e.data.header for e in self.events[:length] if e.type == "request/header"]
        return logged[-1] if logged else None

    def report(self) -> tuple[int, list[int], int] | None:
        """The last report: tokens, the nodes it covers, and how long the log was when asked."""
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            data = event.data
            answers = isinstance(data, AssistantMessage) and event.surface_op == "append"
            if not answers and not isinstance(data, AssistantAttempt):
                continue
            usage: Usage | None = data.usage
            if usage is None or not usage.input_tokens:  # the strategies know no caches
                continue
            sent = self.sent(index)
            covered = naive_surface(self.events[:sent])
            if not answers:
                return usage.input_tokens, covered, sent
            return usage.input_tokens + self.output(event), [*covered, event.seq], sent
        return None

    def sent(self, index: int) -> int:
        """How long the log was when the request was sent that the event at `index` answers."""
        for n in range(index - 1, -1, -1):
            event = self.events[n]
            if event.type == "request/sent" and event.data.purpose == "step":
                return n
            settled = event.type == "assistant/message" and event.surface_op == "append"
            if settled or event.type in ("assistant/attempt", "step/end", "turn/end"):
                break
        return index

    def output(self, event: AnyEvent) -> int:
        """What an answer is, as reported where that is known."""
        data: AssistantMessage = event.data
        output = None if data.usage is None else data.usage.output_tokens
        if output is None or data.interrupted or output <= 0:
            return self.size(event.seq).tokens
        assert data.usage is not None
        hidden = not any(isinstance(block, Reasoning) for block in data.message.content)
        return output - ((data.usage.reasoning_tokens or 0) if hidden else 0)


def _prompt(header: Header | None) -> Any:
    if header is None:
        return None
    return header.config.provider, header.config.model, header.system, header.tools


@settings(max_examples=60)
@given(ANY)
def test_incremental_equals_refold(session: Session) -> None:
    """A meter that is fed event by event equals one that reads that prefix anew."""
    growing = prefix(session, 0)
    for n, event in enumerate(session.events, 1):
        growing._log.load(event)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 - what a store does
        anew = prefix(session, n)
        assert measure(growing) == measure(anew), n
        assert METER.dump(growing.fold(METER)) == METER.dump(anew.fold(METER)), n
        assert METER.dump(growing.fold(METER)) == METER.dump(session.fold(METER, event.seq)), n


@settings(max_examples=60)
@given(ANY)
def test_the_gauge_is_what_the_log_says(session: Session) -> None:
    """At every seq the gauge equals what is read off the whole log without keeping anything."""
    for n in range(len(session.events) + 1):
        cut = prefix(session, n)
        naive = Naive(cut)
        gauge = measure(cut)
        assert gauge.tokens == naive.tokens(), n
        assert sorted(cut.fold(METER).nodes) == sorted(naive.surface), n
        assert gauge.media == sum(naive.size(seq).media for seq in naive.surface), n


@settings(max_examples=60)
@given(ANY, st.data())
def test_a_restored_meter_goes_on_as_the_one_that_was_kept(
    session: Session, data: st.DataObject
) -> None:
    """What was dumped anywhere as JSON, restored and fed the rest equals what read it all."""
    events = session.events
    cut = data.draw(st.integers(0, len(events)))
    kept = METER.start()
    for event in events[:cut]:
        kept = METER.step(kept, event)
    restored = METER.restore(msgspec.json.decode(msgspec.json.encode(METER.dump(kept))))
    for event in events[cut:]:
        restored = METER.step(restored, event)
    assert METER.dump(restored) == METER.dump(session.fold(METER))


@settings(max_examples=60)
@given(ANY)
def test_the_dump_is_bounded_by_the_surface(session: Session) -> None:
    """What is kept has nothing of nodes that are not on the surface."""
    kept: dict[str, list[Any]] = METER.dump(session.fold(METER))
    here = set(session.surface.seqs)
    assert set(accumulate(kept["nodes"])) == here
    assert {seq for seq, _ in kept["anchors"]} <= here
    assert set(accumulate(kept["results"])) <= here
    assert set(kept["system"]) <= here
    for seq, anchor in kept["anchors"]:
        assert session.surface.anchor(seq) == anchor


@settings(max_examples=60)
@given(ANY)
def test_a_fork_measures_what_its_parent_did(session: Session) -> None:
    """A child whose closers add nothing to the surface has its parent's gauge, but for the seq."""
    child = session.fork()
    if child.surface.seqs == session.surface.seqs:
        here, there = measure(session), measure(child)
        assert msgspec.structs.replace(there, seq=here.seq) == here
