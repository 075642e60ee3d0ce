"""Random sessions: whatever the log admits, in any order, with forks and damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from turnlog import events as ev
from turnlog.content import (
    Block,
    Message,
    Reasoning,
    Source,
    Text,
    TextDelta,
    ToolCall,
    Usage,
    assistant_message,
)
from turnlog.events import Event, Replace
from turnlog.log import Damage, SessionLog
from turnlog.session import Session
from turnlog.testing.builders import Author

ENDS = ("completed", "aborted", "error", "limit", "forked")
CALL_IDS = ("a", "b", "c")


class Play:
    """Turns numbers into events; one number, one action."""

    def __init__(self) -> None:
        self.author = Author()
        self.chunks: list[int] = []
        self.actions: tuple[Callable[[int], object], ...] = (
            lambda _: self.author.begin_turn(),
            lambda n: self.author.end_turn(ENDS[n % len(ENDS)]),
            lambda _: self.author.begin_step(),
            lambda _: self.author.end_step(),
            lambda n: self.author.request(header=n % 2 == 0),
            self.chunk,
            self.chunk,
            self.chunk,
            self.fail,
            self.answer,
            self.answer,
            lambda n: self.author.dispatch(self.call(n)),
            lambda n: self.author.settle(self.call(n)),
            lambda n: self.author.result(self.call(n), is_error=n % 2 == 0),
            lambda n: self.author.result(self.call(n)),
            lambda n: self.author.late(self.call(n)),
            self.ask,
            self.decide,
            self.compact,
            self.prune,
            self.rewrite,
            self.auxiliary,
            lambda n: self.author.user(f"user {n}"),
            lambda n: self.session.add_context(f"context {n}"),
            self.pin,
            lambda n: self.author.record("context/unpin", ev.ContextUnpin(f"p{n % 2}")),
            self.retry,
            self.fork,
        )

    @property
    def session(self) -> Session:
        """The session as it stands."""
        return self.author.session

    def act(self, number: int) -> None:
        """Do what the number says."""
        number, action = divmod(number, len(self.actions))
        self.actions[action](number)

    def call(self, n: int) -> ToolCall:
        """One of few calls, so that ids come again."""
        return ToolCall(CALL_IDS[n % len(CALL_IDS)], "peek", "{}")

    def chunk(self, n: int) -> None:
        """A chunk, now and then of another attempt."""
        self.author.attempt = 1 + n % 2
        self.chunks.append(self.author.chunk(TextDelta(0, f"{n} ")).seq)

    def fail(self, n: int) -> None:
        """The attempt fails, as far as anybody knows."""
        self.author.fail(self.chunks if n % 2 else ())
        self.chunks = []

    def answer(self, n: int) -> None:
        """An answer with or without calls, that cites its chunks or not."""
        calls: list[Block] = [self.call(n + i) for i in range(n % 4)]
        cited = self.chunks if n % 3 and self.chunks else None
        said: list[Block] = [Reasoning("hm"), Text(f"answer {n}")]
        self.author.answer([*said, *calls], cited, interrupted=True if n % 5 == 0 else None)
        self.chunks = []

    def ask(self, n: int) -> None:
        """A question to a person, about a call or none."""
        call_id = self.call(n).id if n % 4 else None
        self.author.record("approval/asked", ev.ApprovalAsked(f"q{n % 3}", "peek", call_id))

    def decide(self, n: int) -> None:
        """A decision."""
        outcome = "granted" if n % 2 else "denied"
        self.author.record("approval/decided", ev.ApprovalDecided(f"q{n % 3}", outcome))

    def compact(self, n: int) -> None:
        """A compaction of some range, or one that failed."""
        size = len(self.session.surface)
        if n % 5 == 0 or size == 0:
            self.author.record("compaction/start", ev.CompactionStart(f"c{n}"))
            if n % 2:
                self.author.record("compaction/end", ev.CompactionEnd(f"c{n}", error="no luck"))
            return
        start = n % size
        self.author.compact(start, min(size - 1, start + n % 7))

    def prune(self, n: int) -> None:
        """A shorter result, if there is one to shorten."""
        session = self.session
        found = [s for s in session.surface.seqs if session.event_at(s).type == "tool/result"]
        if found:
            self.author.prune(found[n % len(found)])

    def rewrite(self, n: int) -> None:
        """Any other node replaces a range: an answer told anew, a system message."""
        seqs = self.session.surface.seqs
        if not len(seqs):
            return
        at = n % len(seqs)
        op, cited = Replace(seqs[at], seqs[at]), [seqs[at]]
        if n % 2:
            told = ev.AssistantMessage(assistant_message("told anew", id="x"), usage=Usage(1, 1))
            self.session.append("assistant/message", told, surface_op=op, source_event_seqs=cited)
        else:
            system = ev.SystemMessage(Message("s", "system", (), Source("system")))
            self.session.append("system/message", system, surface_op=op, source_event_seqs=cited)

    def auxiliary(self, n: int) -> None:
        """A request for something else."""
        sent = ev.RequestSent("compaction" if n % 2 else "title", "sha256:0", "e@1", "m")
        self.author.record("request/sent", sent)
        if n % 3 == 0:
            usage = Usage(3, None)
            self.author.record("compaction/summary", ev.CompactionSummary("c", usage=usage))

    def pin(self, n: int) -> None:
        """A pin of something."""
        seq = n % self.session.next_seq if self.session.next_seq else 0
        self.author.record("context/pin", ev.ContextPin(f"p{n % 2}", seq))

    def retry(self, _n: int) -> None:
        """A retry of which nothing else is said, as old logs have it."""
        failure = ev.Failure("cut", "transport")
        self.author.record("llm/retry", ev.LlmRetry(self.author.turn, 1, 1, 0.0, failure))

    def fork(self, n: int) -> None:
        """Go on in a fork."""
        session = self.session
        if session.next_seq and not session.damage:
            self.chunks = []
            self.author.session = session.fork(n % session.next_seq, f"fork-{session.next_seq}")


def play(numbers: Sequence[int]) -> Session:
    """The session that these numbers make."""
    played = Play()
    for number in numbers:
        played.act(number)
    return played.session


def damaged(session: Session, first: int, count: int) -> Session:
    """The same session with a stretch of its log lost and foreign events after it."""
    log = SessionLog(session.header)
    first = min(first, session.next_seq)
    last = min(first + count, session.next_seq) - 1
    for event in session.events:
        if event.seq == first <= last:
            log.lose(Damage("lost", first, last))
        if not first <= event.seq <= last:
            log.load(event)
    if log.next_seq < session.next_seq:
        log.lose(Damage("lost", first, last))
    seq = log.next_seq
    log.load(Event("other/message", seq, 1, b'{"text":"?"}', "append"))
    log.load(Event("other/note", seq + 1, 1, b"{}"))
    log.load(Event("user/message", seq + 2, 1, b'{"not":"a message"}', "append"))
    return Session(log)


def numbers(size: int = 40) -> st.SearchStrategy[list[int]]:
    """What `play` takes."""
    return st.lists(st.integers(0, 40_000), max_size=size)


def sessions(size: int = 40) -> st.SearchStrategy[Session]:
    """Random sessions, some of them damaged."""
    whole = numbers(size).map(play)
    cut = st.builds(damaged, whole, st.integers(0, size), st.integers(0, 5))
    return st.one_of(whole, cut)


def prefix(session: Session, at: int) -> Session:
    """A session that never had more than the events up to `at`."""
    log = SessionLog(session.header)
    for event in session.events:
        if event.seq > at:
            break
        if event.seq > log.next_seq:
            log.lose(Damage("lost", log.next_seq, event.seq - 1))
        log.load(event)
    return Session(log)
