"""The demo's steps. Each shows one thing and checks that it did what it says."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

import turnlog
from demo.tools import NOTES, POEM, file_tools
from turnlog import Message, Session, proof
from turnlog.compaction.history import compactions
from turnlog.events import AssistantMessage, ToolResult
from turnlog.invariants import verify
from turnlog.stores.live import StoredSession
from turnlog.stores.store import Store

CHAT, MAIL, UNDONE = "demo-chat", "demo-mail", "demo-undone"
SYSTEM = "You are a friendly assistant. Answer in short sentences."
ROOT = Path(__file__).resolve().parent.parent
WINDOW = 2048  # tokens: what is said here does not take more, and a summary is short then
CANCEL_AFTER = 12  # pieces of text


class StepFailed(Exception):
    """A step did not do what it says."""


def check(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Fail the demo unless it holds."""
    if not holds:
        raise StepFailed(what)


class Demo:
    """What the steps share.

    Attributes:
        model: `provider:model` of the agent.
        victim_model: of the process that is killed; the same, unless a test says otherwise.
        folder: where the store and the text files live.
        say: prints a line.
        piece: prints a piece of a line, as it streams.
    """

    def __init__(
        self,
        model: str,
        folder: Path,
        say: Callable[[str], None],
        piece: Callable[[str], None],
        *,
        victim_model: str | None = None,
    ) -> None:
        self.model = model
        self.victim_model = victim_model or model
        self.folder = folder
        self.say = say
        self.piece = piece
        self.store_url = f"sqlite:{folder / 'sessions.db'}"
        opened = turnlog.open_model(model, context_window=WINDOW)
        self.agent = turnlog.ReactLoopAgent(
            opened,
            tools=file_tools(folder),
            system=SYSTEM,
            max_output_tokens=60,
            temperature=0.0,
            compaction=turnlog.BasicCompactionEngine(opened, attempts=3),
        )
        self.earlier: tuple[int, list[Message]] = (0, [])
        (folder / "poem.txt").write_text(POEM, encoding="utf-8")
        (folder / "empty.txt").write_text("", encoding="utf-8")

    def steps(self) -> Sequence[Callable[[Store], Any]]:
        """The steps, in order; the first line of a step's docstring is its headline."""
        return (
            self.stream,
            self.tool,
            self.cancel,
            self.kill,
            self.views,
            self.time_travel,
            self.fork,
            self.compact,
            self.verify,
        )

    # -- the steps -----------------------------------------------------------------------------

    async def stream(self, store: Store) -> None:
        """An answer streams in; every piece is an event of the log."""
        async with store.session(CHAT) as session:
            pieces = await self._streamed(session, "Tell me one thing about the sea.")
            answer = session.derive_messages()[-1]
            check(len(pieces) > 1, "the answer came in one piece")
            check("".join(pieces) == answer.text, "the answer is not the pieces that streamed")
            logged = [e for e in session.events if e.type == "assistant/chunk"]
            check(len(logged) >= len(pieces), "a piece that streamed is not in the log")
            self.earlier = (session.next_seq - 1, list(session.derive_messages()))

    async def tool(self, store: Store) -> None:
        """The model calls a tool on a real file; the call is logged before the body runs."""
        async with store.session(CHAT) as session:
            first = session.next_seq
            question = "How many words are in poem.txt?"
            await self._streamed(session, question, tool_choice="required")
            kinds = [event.type for event in session.events[first:]]
            check("tool/call" in kinds, "no tool was called")
            check(
                kinds.index("tool/call") < kinds.index("tool/result"),
                "the call was not logged before its result",
            )
            result = next(e for e in session.events[first:] if e.type == "tool/result")
            call = next(e for e in session.events[first:] if e.type == "tool/call")
            path = "poem.txt" if "poem" in call.data.arguments else "empty.txt"
            words = len((self.folder / path).read_text(encoding="utf-8").split())
            check(result.data.message.text == str(words), f"{path} has {words} words")
            self.say(f"  → {call.data.name}({call.data.arguments}) gave {words}")

    async def cancel(self, store: Store) -> None:
        """A turn is cancelled half-way: what had streamed is kept, and the model knows of it."""
        async with store.session(CHAT) as session:
            pieces = await self._streamed(
                session, "Write a long story about a ship.", stop_after=CANCEL_AFTER
            )
            message = session.event_at(session.surface.seqs[-1])
            check(isinstance(message.data, AssistantMessage), "no message was kept")
            check(message.data.interrupted is True, "the message is not marked as interrupted")
            check(message.data.message.text == "".join(pieces), "text that streamed was lost")
            check(
                session.request_messages()[-1].text == "".join(pieces),
                "the model would not know of what it had said",
            )
            check(session.events[-1].data.reason.kind == "aborted", "the turn was not closed")

    async def kill(self, store: Store) -> None:
        """A process is killed (kill -9) while its tool runs; its session goes on."""
        victim = [sys.executable, "-m", "demo.victim", self.store_url, MAIL, self.victim_model]
        async with store.session(MAIL, create="only"):
            pass  # so that there is a session to follow
        async with await anyio.open_process(
            victim, stdin=None, stdout=None, stderr=None, cwd=ROOT, start_new_session=True
        ) as process:
            try:
                await self._until_tool_runs(store, process)
            finally:
                if process.returncode is None:
                    process.kill()
        check(process.returncode == -signal.SIGKILL, "the process was not killed")
        before = (await store.read(MAIL)).next_seq
        async with store.session(MAIL) as session:
            closers = [event.type for event in session.events[before:]]
            check(
                closers == ["tool/result", "step/end", "turn/end"],
                f"the session was not repaired: {closers}",
            )
            result = session.event_at(before).data
            error = result.error if isinstance(result, ToolResult) else None
            check(
                error is not None and error.code == "TOOL_OUTCOME_UNKNOWN",
                "the repaired call does not say that its outcome is unknown",
            )
            self.say(f"  → killed process {process.pid}; repair appended {', '.join(closers)}")
            self.say(f"  → TOOL_OUTCOME_UNKNOWN: {result.message.text}")
            await self._streamed(session, "Was the mail sent?")
            check(session.events[-1].data.reason.kind == "completed", "the session did not go on")

    async def views(self, store: Store) -> None:
        """The conversation as a person reads it, beside what the model sees."""
        session = await store.read(CHAT)
        read = session.extract_chat_messages()
        seen = session.request_messages()
        self.say("  a person reads:")
        for message in read:
            self.say(f"    {message.role:>9}  {_line(message)}")
        self.say("  the model sees:")
        for message in seen:
            self.say(f"    {message.role:>9}  {_line(message)}")
        prompts = [m for m in read if m.role == "user"]
        check(len(prompts) == 3, "a person would miss a prompt")
        check(any(m.role == "tool" for m in seen), "the model would miss the tool's result")
        check(not any(m.role == "tool" for m in read), "a person would read tool results")
        check(seen.mends == (), "the request had to be mended")

    async def time_travel(self, store: Store) -> None:
        """The view as it was earlier: a pure fold of the log's prefix."""
        session = await store.read(CHAT)
        at, then = self.earlier
        again = session.derive_messages(at=at)
        check(list(again) == then, "the view at an earlier seq is not what it was then")
        check(len(session.derive_messages()) > len(again), "nothing happened since")
        self.say(f"  → after event {at} the model saw {len(again)} messages,")
        self.say(f"    now, after event {session.next_seq - 1}, {len(session.derive_messages())}")

    async def fork(self, store: Store) -> None:
        """A fork from that moment goes another way; its parent does not change."""
        before = (await store.read(CHAT)).next_seq
        fork_id = await store.fork(CHAT, at=self.earlier[0], new_id="demo-fork")
        async with store.session(fork_id) as session:
            check(fork_id != CHAT, "the fork is the parent")
            check(
                list(session.derive_messages()) == self.earlier[1],
                "the fork does not begin with what its parent had said",
            )
            await self._streamed(session, "And one thing about the sky.")
        check((await store.read(CHAT)).next_seq == before, "the parent changed")

    async def compact(self, store: Store) -> None:
        """The model summarises what was said, and sees only that; a fork from before undoes it."""
        async with store.session(CHAT) as session:
            await self._streamed(session, f"Here are my notes. {NOTES}Who has the key?")
            seen, read = list(session.derive_messages()), session.extract_chat_messages()
            done = await self.agent.compact(session)
            check(done is not None, "nothing was compacted")
            now = list(session.derive_messages())
            check(len(now) < len(seen), "the model still sees all of it")
            check(now[0].source.kind == "compaction", "no summary stands for what was said")
            check(now[-1] == seen[-1], "what was said last is not as it was")
            check(session.extract_chat_messages() == read, "a person would miss what was said")
            (compaction,) = compactions(session)
        short = compaction.summary.partition("## State\n")[2].partition("\n\n")[0]
        maker = "the model" if compaction.policy == "model" else "turnlog, without a model"
        self.say(f"  → {maker} summarised {len(compaction.shadowed)} messages: the next request")
        self.say(f"    has {compaction.tokens_after} tokens, not {compaction.tokens_before}")
        for line in short.splitlines():
            self.say(f"      | {line}")
        await store.fork(CHAT, at=compaction.start - 1, new_id=UNDONE)
        undone = list((await store.read(UNDONE)).derive_messages())
        check(undone == seen, "a fork from before does not see what was seen then")
        self.say(f"  → {UNDONE}, a fork from before it, sees all {len(undone)} messages again")

    async def verify(self, store: Store) -> None:
        """Every law of the log is verified, and every request that was sent is proved."""
        for session_id in (CHAT, MAIL, "demo-fork", UNDONE):
            session = await store.read(session_id)
            faults = [f for f in verify(session, prove=proof.finding) if f.level == "fault"]
            check(faults == [], f"{session_id}: {faults}")
            requests = session.requests()
            proofs = [proof.prove(session, k) for k in range(len(requests))]
            check(bool(proofs), f"{session_id}: no request was logged")
            check(set(proofs) == {"matches"}, f"{session_id}: not every request is proved")
            self.say(
                f"  → {session_id}: {session.next_seq} events, no fault, "
                f"{len(proofs)} requests rebuilt byte for byte"
            )

    # -- what they share -----------------------------------------------------------------------

    async def _streamed(
        self, session: StoredSession, prompt: str, *, stop_after: int = 0, tool_choice: Any = "auto"
    ) -> list[str]:
        """Run a turn, show it as it streams, and return its pieces of text."""
        self.say(f"  you: {prompt}")
        pieces: list[str] = []
        self.piece("  it:  ")
        async with self.agent.stream(session, prompt, tool_choice=tool_choice) as turn:
            async for event in turn:
                chunk = event.data.chunk if event.type == "assistant/chunk" else None
                if chunk is None or chunk.type != "text-delta" or not chunk.text:
                    continue
                pieces.append(chunk.text)
                self.piece(chunk.text)
                if len(pieces) == stop_after:
                    await turn.cancel()
                    self.piece(" … [cancelled]")
                    break
        self.piece("\n")
        if stop_after:
            # Pieces that came between the last one shown and the cancel are in the log too.
            logged = _logged_pieces(session)
            check(len(pieces) == stop_after, "the turn ended before it could be cancelled")
            check(logged[:stop_after] == pieces, "a piece that streamed is not in the log")
            return logged
        check(turn.result is not None and turn.result.error is None, f"{turn.result}")
        return pieces

    async def _until_tool_runs(self, store: Store, process: Process) -> None:
        """Wait until the log has the victim's call, or until there is nothing to wait for."""

        async def follow(scope: anyio.CancelScope) -> None:
            async for event in store.tail(MAIL, after=-1):
                if event.type == "tool/call":
                    scope.cancel()

        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, tasks.cancel_scope)
                await process.wait()
                tasks.cancel_scope.cancel()
        check(process.returncode is None, "the process that was to be killed ended by itself")


def _logged_pieces(session: Session) -> list[str]:
    """The pieces of the last attempt's text."""
    pieces: list[str] = []
    for event in session.events:
        if event.type == "step/start":
            pieces = []
        elif event.type == "assistant/chunk" and event.data.chunk.type == "text-delta":
            pieces.append(event.data.chunk.text)
    return pieces


def _line(message: Message, width: int = 64) -> str:
    said = " ".join(message.text.split())
    calls = " ".join(f"[calls {c.name}({c.arguments})]" for c in message.tool_calls)
    text = " ".join(part for part in (said, calls) if part)
    return text if len(text) <= width else f"{text[: width - 1]}…"
