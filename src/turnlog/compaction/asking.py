"""Asking a model for the summary of a range: in parts where it does not fit, a few times at most.

Each request is logged by `request/sent` before it leaves, and by `compaction/summary` whatever came
of it, with what it used. Its stream is not logged.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import anyio
import msgspec

from turnlog.assembly import Assembly
from turnlog.compaction.estimate import Estimator, header_size
from turnlog.compaction.plan import Spent
from turnlog.compaction.ranges import Nodes, Range, parts
from turnlog.compaction.structural import one_line
from turnlog.compaction.summary import (
    PromptFor,
    Rejected,
    complaint,
    instruction,
    is_runaway,
    judged,
)
from turnlog.content import Failure, Message, Text, ToolCall
from turnlog.dialects import encoder
from turnlog.errors import CompactionFailed, ContextOverflow, ModelError
from turnlog.events import CompactionSummary, Header, ModelConfig, RequestSent
from turnlog.heading import log_header
from turnlog.session import Session
from turnlog.views.loop import loop_fold
from turnlog.views.requests import COMPACTION, shown

if TYPE_CHECKING:
    from turnlog.backoff import Backoff
    from turnlog.models.port import Model

_LEAST_ROOM: Final = 64  # tokens of a conversation below which asking makes no sense
_LONGEST: Final = 8  # times the characters that a summary may have: then the stream is cut
_LOOK: Final = 400  # characters after which it is first looked whether it repeats itself
_STEADY: Final = 0.3  # a temperature up to which a model says about the same again
_EXCERPT: Final = 400  # characters of a message that is too long to be shown
_REJECTED: Final = 1000  # characters that are kept of an answer that is not used
_SUMMARY: Final = (256, 8, 4096)  # tokens of a summary: at least, the part of a window, at most
_SMALLER: Final = 2  # by which a request is made smaller that a provider refused as too large


@runtime_checkable
class Flushed(Protocol):
    """What a durable session has besides a `Session`'s."""

    async def flush(self) -> None:
        """Wait until everything appended is durable."""
        ...


async def flush(session: Session) -> None:
    """Make a session durable, if it is of the kind that can be."""
    if isinstance(session, Flushed):
        await session.flush()


class Job(msgspec.Struct, frozen=True):
    """What is to be summarised.

    Attributes:
        session, nodes, range: of which surface it is which range.
        compaction_id: of the open bracket.
        header: of the requests.
        window: tokens that the model takes.
        limit: tokens that the summary may have.
        scale: by how much the provider counts more than is estimated.
        wish: what a person wants to be kept.
        spent: counts what is sent.
    """

    session: Session
    nodes: Nodes
    range: Range
    compaction_id: str
    header: Header
    window: int
    limit: int
    scale: float
    wish: str | None
    spent: Spent

    def messages(self, start: int, end: int) -> list[tuple[int, Message]]:
        """The messages of some nodes, with their seqs."""
        found = ((self.nodes.seq(at), self.nodes.message(at)) for at in range(start, end))
        return [(seq, message) for seq, message in found if message is not None]


class _Told:
    """How far a range is told already: what failed goes on from there.

    Attributes:
        at: the position of the first node that no summary has.
        text: the summary of what comes before it.
        left_out: nodes before it that no request could show, a line each.
        asked: whether a model was asked at all.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.text = ""
        self.left_out: list[str] = []
        self.asked = False


def summary_limit(window: int) -> int:
    """Tokens that a summary may have, of a window of so many."""
    least, part, most = _SUMMARY
    return min(max(window // part, least), most)


def summary_header(header: Header | None, model: Model, limit: int) -> Header:
    """The header of the conversation itself, so that its prefix is a prefix of the request.

    But nothing in it may force an answer of another form than text, or cut one short that may have
    `limit` tokens.
    """
    if header is None:
        return Header(ModelConfig(model.provider, model.model))
    config, system, tools, extra = header.config, header.system, header.tools, header.extra
    if extra and "examples" in extra:  # a forced step's: its system text is about calling tools
        extra = {key: value for key, value in extra.items() if key != "examples"} or None
        system = None
    if not is_of(header, model):
        config = ModelConfig(model.provider, model.model)
        tools = tools if model.native_tools else None
    rest = {key: value for key, value in (config.extra or {}).items() if key != "response_format"}
    most = None if config.max_tokens is None else max(config.max_tokens, 2 * limit)
    config = msgspec.structs.replace(config, tool_choice=None, max_tokens=most, extra=rest or None)
    return Header(config, system, tools, extra)


def is_of(header: Header, model: Model) -> bool:
    """Whether a header's requests go to a model."""
    return (header.config.provider, header.config.model) == (model.provider, model.model)


class Asking:
    """Asks one model.

    Args:
        model: which.
        attempts: how many requests of one compaction may fail.
        delay: how long to wait after a failure of the provider.
        seconds: how long an answer may take.
        estimator: estimates tokens.
        prompt: in which words it is asked, unless in the usual ones.
    """

    def __init__(
        self,
        model: Model,
        *,
        attempts: int,
        delay: Backoff,
        seconds: float,
        estimator: Estimator,
        prompt: str | PromptFor | None = None,
    ) -> None:
        self._model = model
        self._attempts = attempts
        self._delay = delay
        self._seconds = seconds
        self._estimator = estimator
        self._prompt = prompt

    async def summarise(self, job: Job, check: Callable[[str], str]) -> str:
        """The summary of a range.

        Args:
            job: what is to be summarised.
            check: takes what the model said of it all, returns what is used of it.

        Raises:
            CompactionFailed: no attempt gave one.
            Rejected: `check`'s, when it is not the model that could do better.
        """
        failed, room, done = 0, self._room(job), _Told(job.range.start)
        failure: Failure | None = None
        again = ""
        while failed < self._attempts:
            if room < _LEAST_ROOM:
                raise CompactionFailed(failure or _no_room(job))
            try:
                return await self._in_parts(job, room, done, check, again)
            except ContextOverflow as error:
                failure = error.failure
                room = min(room, job.spent.shown) // _SMALLER
            except Rejected as rejected:
                failure = Failure(str(rejected), rejected.code)
                again = complaint(job.window, rejected)
                job = msgspec.structs.replace(job, header=_freer(job.header))
            except ModelError as error:
                failure = error.failure
                if not error.retryable:
                    break
                if failed + 1 < self._attempts:
                    await anyio.sleep(self._delay(failed + 1, failure) / 1000)
            failed += 1
        raise CompactionFailed(failure or Failure("no request may be sent", "exhausted"))

    def _room(self, job: Job) -> int:
        """Tokens of the conversation that a request can show, by our estimate."""
        fixed = header_size(job.header, self._estimator).tokens
        asked = self._estimator.text(self._instruction(job, job.range.start, job.range.end))
        return int((job.window - job.limit) / job.scale) - fixed - asked

    def _instruction(
        self, job: Job, start: int, end: int, before: str = "", left_out: tuple[str, ...] = ()
    ) -> str:
        said = job.messages(start, end)
        return instruction(
            job.window,
            job.limit,
            said,
            prompt=self._prompt,
            wish=job.wish,
            before=before,
            left_out=left_out,
        )

    async def _in_parts(
        self, job: Job, room: int, done: _Told, check: Callable[[str], str], again: str
    ) -> str:
        """Ask once, or part by part, each with the summary of those before."""
        nodes, start, end = job.nodes, done.at, job.range.end
        left = sum(map(nodes.tokens, range(start, end)))
        head = sum(map(nodes.tokens, range(job.range.start))) if start == job.range.start else 0
        fits = left + head <= room
        rest = Range(start, end, nodes.seqs(start, end), left, job.range.kept)
        piece = room - min(job.limit, room // 2)  # the summary of what came before is shown too
        for first, last in [(start, end)] if fits else parts(nodes, rest, piece):
            shown = sum(map(nodes.tokens, range(first, last)))
            if not fits and shown > piece:
                done.left_out += [_excerpt(seq, said) for seq, said in job.messages(first, last)]
            else:
                said = self._instruction(job, first, last, done.text, tuple(done.left_out)) + again
                asked = self._instruction(job, first, last) + again  # which is no answer
                job.spent.shown = shown + head if first == job.range.start else shown
                taken = check if last == end else str
                done.text = await self._ask(job, first, last, said, asked, taken)
                done.left_out, done.asked = [], True
            done.at = last
        if not done.asked:
            raise CompactionFailed(_no_room(job))
        if done.left_out:
            return check("\n".join([done.text, *done.left_out]))
        return done.text

    async def _ask(
        self, job: Job, start: int, end: int, said: str, asked: str, check: Callable[[str], str]
    ) -> str:
        """One request: logged, sent, judged, and logged what came of it."""
        session, model, spent = job.session, self._model, job.spent
        first = None if start == job.range.start else job.nodes.seq(start)
        through = job.nodes.seq(end - 1)
        log_header(session, job.header, model.context_window)
        messages = shown(session, first, through)
        body = encoder(model.encoder).encode(job.header, messages, instruction=said)
        digest = f"sha256:{sha256(body).hexdigest()}"
        state = session.fold(loop_fold)
        spent.attempts += 1
        session.append(
            "request/sent",
            RequestSent(
                COMPACTION,
                digest,
                model.encoder,
                model.name,
                state.turn if state.open else None,
                None,
                spent.attempts,
                said,
                first,
                through,
            ),
        )
        built = Assembly()
        error: Failure | None = Failure("it was cancelled", "cancelled")
        try:
            await flush(session)
            with anyio.fail_after(self._seconds):
                await self._read(body, built, job.limit * _LONGEST)
            calls = sum(isinstance(block, ToolCall) for block in built.blocks())
            finish = None if built.finish is None else built.finish.kind
            used = check(judged(_text(built), finish, calls, asked))
        except Rejected as rejected:
            error = Failure(str(rejected), rejected.code)
            raise
        except ModelError as failed:
            error = failed.failure
            raise
        except TimeoutError:
            error = Failure(f"no answer within {self._seconds:g} seconds", "timeout")
            raise Rejected(error.code, error.message) from None
        except Exception as failed:
            error = Failure(f"{type(failed).__name__}: {failed}", "internal")
            raise
        else:
            error = None
            return used
        finally:
            spent.usages.append(built.usage)
            kept = _text(built) if error is None else _text(built)[:_REJECTED]
            session.append(
                "compaction/summary",
                CompactionSummary(
                    job.compaction_id,
                    ({"type": "text", "text": kept},) if kept else None,
                    job.nodes.seqs(start, end),
                    built.usage,
                    "model",
                    spent.attempts,
                    error,
                ),
            )

    async def _read(self, body: bytes, built: Assembly, longest: int) -> None:
        """Read an answer, but not one that never ends."""
        said, look = "", _LOOK
        async with self._model.stream(body) as stream:
            async for chunk in stream:
                built.add(chunk)
                said += getattr(chunk, "text", "") or getattr(chunk, "arguments_delta", "")
                if len(said) > longest:
                    msg = f"the model said more than {longest} characters and was stopped"
                    raise Rejected("runaway", msg)
                if len(said) >= look:
                    look = 2 * len(said)
                    if is_runaway(said):
                        raise Rejected("runaway", "the model repeats itself and was stopped")


def _freer(header: Header) -> Header:
    """The header of another attempt: a model that always says the same would say it again."""
    if header.config.temperature is None or header.config.temperature > _STEADY:
        return header
    return msgspec.structs.replace(
        header, config=msgspec.structs.replace(header.config, temperature=None)
    )


def _text(built: Assembly) -> str:
    return "".join(block.text for block in built.blocks() if isinstance(block, Text))


def _excerpt(seq: int, message: Message) -> str:
    text = one_line(message.text, _EXCERPT)
    return f"- [{seq}] {message.role}, {len(message.text)} characters: {text}"


def _no_room(job: Job) -> Failure:
    said = (
        f"a window of {job.window} tokens leaves no room to summarise "
        f"{job.range.tokens} tokens of conversation"
    )
    return Failure(said, "fixed-too-large")
