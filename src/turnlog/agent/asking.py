"""One request of a step: header, proof, stream, retries."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import msgspec

from turnlog import _ambient
from turnlog.agent.inbound import Inbound
from turnlog.agent.state import seqs_range, system_node
from turnlog.assembly import Assembly
from turnlog.backoff import Backoff
from turnlog.content import Block, Message, Source, Text, ToolCall
from turnlog.dialects import BodyEncoder
from turnlog.errors import ModelError
from turnlog.events import (
    AssistantAttempt,
    AssistantChunk,
    AssistantMessage,
    Header,
    LlmRetry,
    RequestSent,
    SystemMessage,
)
from turnlog.heading import log_header
from turnlog.models.forced_tools import as_tool_call
from turnlog.models.port import Model
from turnlog.session import Session

UNNAMED = "unnamed"  # a call whose tool the model did not name: no request can carry it as it is


class Answer(msgspec.Struct, frozen=True):
    """An answer as logged; `cut_off` when the model ran out of tokens."""

    message: Message
    cut_off: bool


class Asking:
    """Asks the model on behalf of one turn."""

    def __init__(
        self,
        session: Session,
        inbound: Inbound,
        model: Model,
        encoder: BodyEncoder,
        *,
        retries: int,
        delay: Backoff,
    ) -> None:
        self._session = session
        self._inbound = inbound
        self._model = model
        self._encoder = encoder
        self._retries = retries
        self._delay = delay
        self._attempt = 0

    def log_header(self, header: Header, turn: int, step: int) -> Header:
        """Log the header when it is not the one in force; returns it as logged.

        System text that lives on the surface (imported logs) is replaced there, and the header
        carries none.
        """
        session = self._session
        node = system_node(session)
        if node is not None:
            self._replace_system(node, header.system or "", turn, step)
            header = without_system(header)
        log_header(session, header, self._model.context_window)
        return header

    def _replace_system(self, node: tuple[int, Message], system: str, turn: int, step: int) -> None:
        seq, message = node
        if message.text == system or not system:
            return
        text = Message(_ambient.new_id(), "system", (Text(system),), Source("system-prompt"))
        self._session.append(
            "system/message",
            SystemMessage(text, turn, step),
            surface_op={"op": "replace", "start": seq, "end": seq},
            source_event_seqs=[seq],
        )

    async def ask(self, header: Header, turn: int, step: int, *, forced: bool = False) -> Answer:
        """Send the request, log what comes, and return the answer as logged.

        A failed attempt is closed by `assistant/attempt`; what is retryable is tried again. The
        attempts of a step are counted on when this is called again.

        Args:
            header: as `log_header` returned it.
            turn: the open turn.
            step: the open step.
            forced: the answer is a tool call in the form that `forced_header` asks for.

        Raises:
            ModelError: the last attempt failed; its `assistant/attempt` is logged.
        """
        retry = 0
        while True:
            self._attempt += 1
            retry += 1
            try:
                return await self._send(header, turn, step, self._attempt, forced=forced)
            except ModelError as error:
                if not error.retryable or retry > self._retries:
                    raise
                failure = error.failure
            delay = self._delay(retry, failure)
            logged = LlmRetry(turn, step, retry, delay, failure, self._retries)
            self._session.append("llm/retry", logged)
            await self._inbound.flush()
            await anyio.sleep(delay / 1000)

    def body(self, header: Header) -> bytes:
        """The request as it would be sent now."""
        return bytes(self._encoder.encode(header, self._session.request_messages()))

    async def _send(
        self, header: Header, turn: int, step: int, attempt: int, *, forced: bool
    ) -> Answer:
        session, model = self._session, self._model
        body = self._encoder.encode(header, session.request_messages())
        session.append(
            "request/sent",
            RequestSent("step", body.digest, model.encoder, model.name, turn, step, attempt),
        )
        await self._inbound.flush()  # logged means it may have been sent; unlogged is never sent
        seqs: list[int] = []
        built = Assembly()
        try:
            async with model.stream(body) as stream:
                chunks = as_tool_call(stream, _ambient.new_id()) if forced else stream
                async for chunk in chunks:
                    await self._inbound.room()
                    data = AssistantChunk(turn, step, chunk, attempt)
                    seqs.append(session.append("assistant/chunk", data).seq)
                    built.add(chunk)
        except ModelError as error:
            first, last = (seqs[0], seqs[-1]) if seqs else (None, None)
            session.append(
                "assistant/attempt",
                AssistantAttempt(turn, step, attempt, first, last, error.failure, built.usage),
            )
            raise
        extra = None if built.replay_state is None else {"replayState": built.replay_state}
        source = Source("model", model.provider, model.model, extra=extra)
        content = tuple(_told_apart(built.blocks()))
        message = Message(_ambient.new_id(), "assistant", content, source)
        session.append(
            "assistant/message",
            AssistantMessage(message, turn, step, built.usage),
            surface_op="append",
            source_event_seqs=seqs_range(seqs),
        )
        return Answer(message, built.finish is not None and built.finish.kind == "max-tokens")


def _told_apart(blocks: Iterable[Block]) -> Iterable[Block]:
    """The blocks, each call with a name and an id that no other call of the answer has.

    Models repeat ids, and a decision about one call must never be taken for another's.
    """
    ids: set[str] = set()
    for number, block in enumerate(blocks):
        if not isinstance(block, ToolCall):
            yield block
            continue
        call_id = block.id or f"call-{number}"
        while call_id in ids:
            call_id = f"{call_id}-{number}"
        ids.add(call_id)
        yield msgspec.structs.replace(block, id=call_id, name=block.name or UNNAMED)


def without_system(header: Header) -> Header:
    """The header of a session whose system text lives on the surface."""
    return Header(header.config, None, header.tools, header.extra)
