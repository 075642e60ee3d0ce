"""`BasicCompactionEngine`: measure, shorten, measure, choose, ask, judge, replace, measure again.

Between `compaction/start` and `compaction/end`, which are the lock, at most one range is replaced,
and once: whatever fails leaves the surface as it was. How often it may fail is counted in the log
(`turnlog.compaction.state`), so no restart begins the count anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakKeyDictionary

import anyio

from turnlog.backoff import Backoff, backoff
from turnlog.compaction.asking import (
    Asking,
    Job,
    flush,
    is_of,
    summary_header,
    summary_limit,
)
from turnlog.compaction.draft import Draft
from turnlog.compaction.estimate import DEFAULT, Estimator
from turnlog.compaction.media import elide_images
from turnlog.compaction.options import Fallback, Options
from turnlog.compaction.plan import Plan, has_shrunk, pruned_only
from turnlog.compaction.port import Ahead, Compacted, CompactionEngine, Policy, Reason, compacting
from turnlog.compaction.pruner import Pruner
from turnlog.compaction.ranges import Range, choose
from turnlog.compaction.state import COMPACTIONS
from turnlog.compaction.summary import PromptFor, Rejected
from turnlog.compaction.task import ModelPolicy, Task
from turnlog.content import Failure, Message
from turnlog.errors import (
    CompactionBusy,
    CompactionFailed,
    ContextOverflow,
    InvalidModel,
    InvalidOption,
    ModelError,
)
from turnlog.events import CompactionStart, CompactionSummary
from turnlog.views.loop import loop_fold

if TYPE_CHECKING:
    from turnlog.models.port import Model
    from turnlog.session import Session

_LEAST: Final = 20  # the part of a window that a range must have to be worth a summary


class BasicCompactionEngine(CompactionEngine):
    """Compacts with summaries by a model, or without one.

    Args:
        model: who makes summaries, `provider:model` or a model; by default the model of the agent
            that is given this engine.
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
        prompt: the words that ask for a summary, or a function that makes them of a
            `SummaryRequest`, whose `default` is what is asked otherwise.

    Raises:
        InvalidOption: a value that makes no sense.
        InvalidModel, MissingExtra: no such model.
    """

    def __init__(  # noqa: PLR0913 - all optional
        self,
        model: str | Model | None = None,
        *,
        threshold: float = 0.8,
        retain: float = 0.25,
        overrides: Mapping[str, ModelPolicy] | None = None,
        attempts: int = 3,
        stretch: int = 2,
        fallback: Fallback = "structural",
        pruner: Pruner | None = Pruner(),  # noqa: B008 - immutable
        automatic: bool = True,
        estimator: Estimator = DEFAULT,
        delay: Backoff = backoff,
        seconds: float = 300.0,
        prompt: str | PromptFor | None = None,
    ) -> None:
        self._options = Options(
            threshold=threshold,
            retain=retain,
            overrides=dict(overrides or {}),
            attempts=attempts,
            stretch=stretch,
            fallback=fallback,
            pruner=pruner,
            automatic=automatic,
            estimator=estimator,
            delay=delay,
            seconds=seconds,
            prompt=prompt,
        )
        self._default = ModelPolicy(threshold, retain)
        self._model = _open(model)
        self._later: WeakKeyDictionary[Session, str | None] = WeakKeyDictionary()

    @property
    def model(self) -> Model:
        """Who makes summaries.

        Raises:
            InvalidModel: nobody yet.
        """
        if self._model is None:
            raise InvalidModel(
                "this compaction engine has no model: name one, or give the engine to an agent, "
                "whose model it then asks"
            )
        return self._model

    def asking(self, model: Model) -> BasicCompactionEngine:
        """The engine itself if it has a model, else the same with this one."""
        if self._model is not None:
            return self
        other = copy(self)
        other._model = model  # noqa: SLF001 - its own copy
        return other

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
        if not self._options.automatic or not task.is_close():
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
            return pruned_only(reason, pruned, before, gauge)
        tokens, window = gauge.tokens, task.window
        if not state.may_try(self._options.stretch, tokens, window.tokens):
            return None
        if not state.may_help(tokens, window.tokens, window.limit):
            return None
        return await self._compact(Plan(task, reason, gauge, task.window.retained(gauge), pruned))

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
        if not self._options.automatic:
            raise CompactionFailed(Failure("automatic compaction is off", "off"))
        before = task.gauge()
        pruned = self._prune(session)
        if error.kind != "tokens":
            pruned += elide_images(session, task.closed())
        gauge = task.gauge()
        if pruned and has_shrunk(error.kind, before, gauge):
            return pruned_only("overflow", pruned, before, gauge)
        window = task.window.tokens
        if not task.state.may_try(self._options.stretch, gauge.tokens, window):
            said = f"compaction failed before ({task.state.code}), and nothing has changed since"
            raise CompactionFailed(Failure(said, "exhausted"))
        if not task.state.may_help(gauge.tokens, window, window):
            said = "what compaction leaves is more than the window, and little came since"
            raise CompactionFailed(Failure(said, "no-progress"))
        messages = max(gauge.tokens - gauge.fixed, 0)
        retain = min(task.window.retained(gauge), messages // 2)
        return await self._compact(Plan(task, "overflow", gauge, retain, pruned))

    async def _manual(self, task: Task, wish: str | None) -> Compacted:
        pruned = self._prune(task.session)
        gauge = task.gauge()
        retain = min(task.window.retained(gauge), max(gauge.tokens - gauge.fixed, 0) // 4)
        return await self._compact(Plan(task, "manual", gauge, retain, pruned, wish))

    # -- one compaction ------------------------------------------------------------------------

    async def _compact(self, plan: Plan) -> Compacted:
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

    async def _replaced(self, plan: Plan) -> Compacted:
        """Choose a range, have it summarised, and replace it."""
        task = plan.task
        limit = summary_limit(min(task.window.tokens, self._model_window(task)))
        chosen = self._choose(plan, limit)
        draft = Draft(task.session, task.nodes(), chosen, limit, self._options.estimator)
        made: Policy = "model"
        try:
            text, message = await self._by_model(plan, draft, limit)
        except CompactionFailed as failed:
            if self._options.fallback != "structural":
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

    def _choose(self, plan: Plan, limit: int) -> Range:
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

    async def _by_model(self, plan: Plan, draft: Draft, limit: int) -> tuple[str, Message]:
        task, gauge, model, options = plan.task, plan.gauge, self.model, self._options
        estimated = gauge.fixed + task.meter.total.tokens
        job = Job(
            task.session,
            task.nodes(),
            draft.chosen,
            plan.id,
            summary_header(task.header, model, limit),
            self._model_window(task),
            limit,
            max(gauge.tokens / estimated, 1.0) if estimated else 1.0,
            plan.wish,
            plan.spent,
        )
        asking = Asking(
            model,
            attempts=options.attempts,
            delay=options.delay,
            seconds=options.seconds,
            estimator=options.estimator,
            prompt=options.prompt,
        )
        try:
            async with model.connected():
                text = await asking.summarise(job, draft.judged)
            return text, draft.message(text, model.provider, model.model)
        except Rejected as rejected:
            raise CompactionFailed(Failure(str(rejected), rejected.code)) from rejected
        except ModelError as error:  # it cannot even be connected to
            raise CompactionFailed(error.failure) from error

    def _by_structure(
        self, plan: Plan, draft: Draft, failed: CompactionFailed
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
        if header is None or is_of(header, self.model):
            name = f"{self.model.provider}:{self.model.model}"
            window = window or self.model.context_window
        else:
            name = f"{header.config.provider}:{header.config.model}"
        policy = self._options.overrides.get(name, ModelPolicy()).over(self._default)
        return Task(
            session, ahead, header, policy, policy.window or window, self._options.estimator
        )

    def _model_window(self, task: Task) -> int:
        """What the model that makes summaries takes: as the next request's, if it does not say."""
        return self.model.context_window or task.window.tokens

    def _prune(self, session: Session) -> tuple[int, ...]:
        pruner = self._options.pruner
        return () if pruner is None else tuple(pruner.prune(session))

    @staticmethod
    def _check_free(task: Task) -> None:
        if task.state.bracket is not None:
            said = f"session {task.session.id!r} is being compacted already: try again later"
            raise CompactionBusy(Failure(said, "busy"))


def _open(model: str | Model | None) -> Model | None:
    if model is None or hasattr(model, "context_window"):
        return cast("Model | None", model)
    if not isinstance(model, str):
        raise InvalidOption("model", "'provider:model' or a model", model)
    from turnlog.models import open_model  # noqa: PLC0415 - providers are loaded when used

    return open_model(model)
