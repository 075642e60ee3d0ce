"""`BasicCompactionEngine`: measure, shorten, measure, choose, ask, judge, replace, measure again.

Between `compaction/start` and `compaction/end`, which are the lock, at most one range is replaced,
and once: whatever fails leaves the surface as it was. How often it may fail is counted in the log
(`turnlog.compaction.state`), so no restart begins the count anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakKeyDictionary

import anyio
import msgspec

from turnlog import _ambient
from turnlog.backoff import Backoff, backoff
from turnlog.compaction.asking import Asking, Job, Spent, flush
from turnlog.compaction.draft import Draft
from turnlog.compaction.estimate import DEFAULT, Estimator
from turnlog.compaction.media import elide_images
from turnlog.compaction.meter import Gauge
from turnlog.compaction.port import Ahead, Compacted, CompactionEngine, Policy, Reason, compacting
from turnlog.compaction.pruner import Pruner
from turnlog.compaction.ranges import Range, choose
from turnlog.compaction.state import COMPACTIONS
from turnlog.compaction.summary import Rejected
from turnlog.compaction.task import ModelPolicy, Task
from turnlog.content import Failure, Message
from turnlog.errors import CompactionBusy, CompactionFailed, ContextOverflow, ModelError
from turnlog.events import CompactionEnd, CompactionStart, CompactionSummary, Header, ModelConfig
from turnlog.records import flatten
from turnlog.views.loop import loop_fold

if TYPE_CHECKING:
    from turnlog.models.port import Model
    from turnlog.session import Session

_LEAST: Final = 20  # the part of a window that a range must have to be worth a summary
_GAINED: Final = 10  # the part of a request that shortening results must save to be enough
_SUMMARY: Final = (256, 8, 4096)  # tokens of a summary: at least, the part of a window, at most


class BasicCompactionEngine(CompactionEngine):
    """Compacts with summaries by a model, or without one.

    Args:
        model: who makes summaries, `provider:model` or a model.
        threshold: how full the window may be before compaction is due: a part of it, or tokens.
        retain: how much of the most recent stays verbatim: a part of what messages may take, or
            tokens.
        overrides: for single models, by their name, `provider:model`.
        attempts: how many requests of one compaction may fail.
        stretch: how many compactions may fail one after the other before nothing is tried any more
            until the session has grown.
        fallback: "structural" makes a summary without a model when the model gave none.
        pruner: shortens tool results; None leaves them.
        automatic: whether to compact when nobody asked.
        estimator: estimates tokens.
        delay: how long to wait after a failure of the provider.
        seconds: how long one summary may take.
    """

    def __init__(  # noqa: PLR0913 - all optional
        self,
        model: str | Model,
        *,
        threshold: float = 0.8,
        retain: float = 0.25,
        overrides: Mapping[str, ModelPolicy] | None = None,
        attempts: int = 3,
        stretch: int = 2,
        fallback: Literal["structural", "none"] = "structural",
        pruner: Pruner | None = Pruner(),  # noqa: B008 - immutable
        automatic: bool = True,
        estimator: Estimator = DEFAULT,
        delay: Backoff = backoff,
        seconds: float = 300.0,
    ) -> None:
        self.model = _open(model)
        self.automatic = automatic
        self._default = ModelPolicy(threshold, retain)
        self._overrides = dict(overrides or {})
        self._stretch = max(stretch, 1)
        self._fallback = fallback
        self._pruner = pruner
        self._estimator = estimator
        self._asking = Asking(
            self.model,
            attempts=max(attempts, 1),
            delay=delay,
            seconds=seconds,
            estimator=estimator,
        )
        self._later: WeakKeyDictionary[Session, str | None] = WeakKeyDictionary()

    # -- the three ways to be asked ------------------------------------------------------------

    async def compact_if_needed(  # noqa: PLR0911 - one line a reason to do nothing
        self, session: Session, ahead: Ahead | None = None
    ) -> Compacted | None:
        """As the protocol says; also done: what the inbox asked for."""
        task = self._task(session, ahead)
        state = task.state
        if state.bracket is not None:
            return None
        if self.is_wanted(session):
            wish = self._later.pop(session, None)
            if wish is None and state.wanted is not None:
                wish = state.wanted.instruction
            return await self._manual(task, wish)
        if not self.automatic or not task.is_close():
            return None
        before = task.gauge()
        if not task.window.over(before) or not (state.asked or task.is_switch):
            return None
        reason: Reason = "switch" if task.is_switch else "threshold"
        pruned = self._prune(session)
        if not {"media", "bytes"}.isdisjoint(task.window.over(before)):
            pruned += elide_images(session, task.closed(), task.holds_media)
        gauge = task.gauge()
        if pruned and not task.window.over(gauge):
            return _pruned(reason, pruned, before, gauge)
        tokens, window = gauge.tokens, task.window
        if not state.may_try(self._stretch, tokens, window.tokens):
            return None
        if not state.may_help(tokens, window.tokens, window.limit):
            return None
        return await self._compact(_Plan(task, reason, gauge, task.window.retained(gauge), pruned))

    async def compact_now(
        self, session: Session, *, instruction: str | None = None, ahead: Ahead | None = None
    ) -> Compacted | None:
        """As the protocol says."""
        task = self._task(session, ahead)
        self._check_free(task)
        if task.is_in_step():
            self._later[session] = instruction
            return None
        return await self._manual(task, instruction)

    def is_wanted(self, session: Session) -> bool:
        """As the protocol says."""
        return session in self._later or session.fold(COMPACTIONS).wanted is not None

    async def on_overflow(
        self, session: Session, error: ContextOverflow, ahead: Ahead | None = None
    ) -> Compacted:
        """As the protocol says; images are left out when these are what there is too much of."""
        task = self._task(session, ahead)
        self._check_free(task)
        if not self.automatic:
            raise CompactionFailed(Failure("automatic compaction is off", "off"))
        before = task.gauge()
        pruned = self._prune(session)
        if error.kind != "tokens":
            pruned += elide_images(session, task.closed())
        gauge = task.gauge()
        if pruned and _has_shrunk(error.kind, before, gauge):
            return _pruned("overflow", pruned, before, gauge)
        window = task.window.tokens
        if not task.state.may_try(self._stretch, gauge.tokens, window):
            said = f"compaction failed before ({task.state.code}), and nothing has changed since"
            raise CompactionFailed(Failure(said, "exhausted"))
        if not task.state.may_help(gauge.tokens, window, window):
            said = "what compaction leaves is more than the window, and little came since"
            raise CompactionFailed(Failure(said, "no-progress"))
        messages = max(gauge.tokens - gauge.fixed, 0)
        retain = min(task.window.retained(gauge), messages // 2)
        return await self._compact(_Plan(task, "overflow", gauge, retain, pruned))

    async def _manual(self, task: Task, wish: str | None) -> Compacted:
        pruned = self._prune(task.session)
        gauge = task.gauge()
        retain = min(task.window.retained(gauge), max(gauge.tokens - gauge.fixed, 0) // 4)
        return await self._compact(_Plan(task, "manual", gauge, retain, pruned, wish))

    # -- one compaction ------------------------------------------------------------------------

    async def _compact(self, plan: _Plan) -> Compacted:
        """One bracket: whatever happens, it is closed, and says what was used."""
        task, session, gauge = plan.task, plan.task.session, plan.gauge
        window = task.window.tokens
        start = CompactionStart(plan.id, task.turn, plan.reason, plan.wish, gauge.tokens, window)
        session.append("compaction/start", start)
        compacting.add(session)
        failure: Failure | None = Failure("it was cancelled", "cancelled")
        done: Compacted | None = None
        try:
            made = await self._replaced(plan)
        except CompactionFailed as failed:
            failure = failed.failure
            raise
        except Exception as error:
            failure = Failure(f"{type(error).__name__}: {error}", "internal")
            raise
        else:
            done, failure = made, None
            return made
        finally:
            compacting.discard(session)
            with anyio.CancelScope(shield=True):
                if task.state.bracket == plan.id:
                    session.append("compaction/end", plan.end(done, failure))
                await flush(session)

    async def _replaced(self, plan: _Plan) -> Compacted:
        """Choose a range, have it summarised, and replace it."""
        task = plan.task
        limit = _summary_limit(min(task.window.tokens, self._model_window(task)))
        chosen = self._choose(plan, limit)
        draft = Draft(task.session, task.nodes(), chosen, limit, self._estimator)
        made: Policy = "model"
        try:
            text, message = await self._by_model(plan, draft, limit)
        except CompactionFailed as failed:
            if self._fallback != "structural":
                raise
            made = "structural"
            text, message = self._by_structure(plan, draft, failed)
        seq = draft.replace(message)
        return Compacted(
            compaction_id=plan.id,
            reason=plan.reason,
            seq=seq,
            start=chosen.nodes[0],
            end=chosen.nodes[-1],
            shadowed=len(chosen.nodes),
            pruned=plan.pruned,
            tokens_before=plan.gauge.tokens,
            tokens_after=task.gauge().tokens,
            policy=made,
            attempts=plan.spent.attempts,
            usage=plan.spent.usage,
            summary=text,
        )

    def _choose(self, plan: _Plan, limit: int) -> Range:
        task, gauge, window = plan.task, plan.gauge, plan.task.window
        room = window.room(gauge)
        asked = plan.reason == "manual"
        if room <= 0 and not asked:
            said = (
                f"system text and tools take {gauge.fixed} of the {window.limit} tokens that a "
                f"request may have (the window has {window.tokens}): no compaction can make room"
            )
            raise CompactionFailed(Failure(said, "fixed-too-large"))
        chosen = choose(
            task.nodes(),
            total=task.meter.total.tokens,
            open_step=task.meter.open_step,
            retain=plan.retain,
            most=max(room - limit, 0),
            least=1 if asked else window.tokens // _LEAST,
        )
        if chosen is None:
            said = "nothing that may be replaced is worth a summary: the rest is recent or open"
            raise CompactionFailed(Failure(said, "nothing-to-gain"))
        return chosen

    async def _by_model(self, plan: _Plan, draft: Draft, limit: int) -> tuple[str, Message]:
        task, gauge, model = plan.task, plan.gauge, self.model
        estimated = gauge.fixed + task.meter.total.tokens
        job = Job(
            task.session,
            task.nodes(),
            draft.chosen,
            plan.id,
            _summary_header(task.header, model, limit),
            self._model_window(task),
            limit,
            max(gauge.tokens / estimated, 1.0) if estimated else 1.0,
            plan.wish,
            plan.spent,
        )
        try:
            async with model.connected():
                text = await self._asking.summarise(job, draft.judged)
            return text, draft.message(text, model.provider, model.model)
        except Rejected as rejected:
            raise CompactionFailed(Failure(str(rejected), rejected.code)) from rejected
        except ModelError as error:  # it cannot even be connected to
            raise CompactionFailed(error.failure) from error

    def _by_structure(
        self, plan: _Plan, draft: Draft, failed: CompactionFailed
    ) -> tuple[str, Message]:
        text = draft.structural()
        try:
            message = draft.message(text, None, None)
        except Rejected as rejected:
            said = f"{failed.failure.message}; without a model: {rejected}"
            raise CompactionFailed(Failure(said, failed.code)) from rejected
        told = ({"type": "text", "text": text},)
        plan.task.session.append(
            "compaction/summary",
            CompactionSummary(plan.id, told, draft.chosen.nodes, policy="structural"),
        )
        return text, message

    # -- helpers -------------------------------------------------------------------------------

    def _task(self, session: Session, ahead: Ahead | None) -> Task:
        ahead = ahead or Ahead()
        header = ahead.header or session.fold(loop_fold).header
        name, window = "", ahead.window
        if header is None or _is_of(header, self.model):
            name = f"{self.model.provider}:{self.model.model}"
            window = window or self.model.context_window
        else:
            name = f"{header.config.provider}:{header.config.model}"
        policy = self._overrides.get(name, ModelPolicy()).over(self._default)
        return Task(session, ahead, header, policy, policy.window or window, self._estimator)

    def _model_window(self, task: Task) -> int:
        """What the model that makes summaries takes: as the next request's, if it does not say."""
        return self.model.context_window or task.window.tokens

    def _prune(self, session: Session) -> tuple[int, ...]:
        return () if self._pruner is None else tuple(self._pruner.prune(session))

    @staticmethod
    def _check_free(task: Task) -> None:
        if task.state.bracket is not None:
            said = f"session {task.session.id!r} is being compacted already: try again later"
            raise CompactionBusy(Failure(said, "busy"))


class _Plan:
    """One compaction: of what, why, and what it has used."""

    def __init__(
        self,
        task: Task,
        reason: Reason,
        gauge: Gauge,
        retain: int,
        pruned: tuple[int, ...],
        wish: str | None = None,
    ) -> None:
        self.id = _ambient.new_id()
        self.task = task
        self.reason: Reason = reason
        self.gauge = gauge
        self.retain = retain
        self.pruned = pruned
        self.wish = wish
        self.spent = Spent()

    def end(self, done: Compacted | None, failure: Failure | None) -> CompactionEnd:
        """What closes the bracket."""
        return CompactionEnd(
            self.id,
            self.task.turn,
            None if failure is None else flatten(failure),
            None if done is None else done.start,
            None if done is None else done.end,
            self.gauge.tokens,
            None if done is None else done.tokens_after,
            None if done is None else done.policy,
            self.spent.attempts,
            self.spent.usage,
        )


def _pruned(reason: Reason, pruned: tuple[int, ...], before: Gauge, after: Gauge) -> Compacted:
    return Compacted(
        compaction_id=None,
        reason=reason,
        pruned=pruned,
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        policy="prune",
    )


def _has_shrunk(kind: str, before: Gauge, after: Gauge) -> bool:
    """Whether enough went for the request to be sent again, in the respect that was complained of.

    What the provider counts is not known, so this is a guess; it is sent once more, not for ever.
    """
    if kind == "media":
        return after.media < before.media
    was, now = (before.bytes, after.bytes) if kind == "bytes" else (before.tokens, after.tokens)
    return (was - now) * _GAINED >= was


def _summary_limit(window: int) -> int:
    least, part, most = _SUMMARY
    return min(max(window // part, least), most)


def _summary_header(header: Header | None, model: Model, limit: int) -> Header:
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
    if not _is_of(header, model):
        config = ModelConfig(model.provider, model.model)
        tools = tools if model.native_tools else None
    rest = {key: value for key, value in (config.extra or {}).items() if key != "response_format"}
    most = None if config.max_tokens is None else max(config.max_tokens, 2 * limit)
    config = msgspec.structs.replace(config, tool_choice=None, max_tokens=most, extra=rest or None)
    return Header(config, system, tools, extra)


def _is_of(header: Header, model: Model) -> bool:
    return (header.config.provider, header.config.model) == (model.provider, model.model)


def _open(model: str | Model) -> Model:
    if not isinstance(model, str):
        return model
    from turnlog.models import open_model  # noqa: PLC0415 - providers are loaded when used

    return open_model(model)
