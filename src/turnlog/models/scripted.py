"""A model that answers as it was told: the fake beside the real ones.

A script is a list of answers, one for each request. An answer is a list of steps, a single step, or
a function from the request's bytes to one of these; a plain string is text:

    ScriptedModel([
        [Think("A sum."), Call("add", {"a": 1, "b": 2}), Used(input_tokens=9)],
        ["It is", " 3."],
        ["It ", Wait(gate.wait), Fail("transport")],
        ["and then", Hang()],
    ])

The same as a file, for `scripted:FILE`:

    {"answers": [
      [{"reasoning": "A sum."}, {"toolCall": {"name": "add", "arguments": {"a": 1, "b": 2}}},
       {"usage": {"inputTokens": 9}}],
      ["It is", " 3."],
      ["It ", {"fail": "transport", "message": "cut"}],
      ["and then", {"hang": true}]
     ],
     "repeat": false, "contextWindow": 4096, "nativeTools": true}

`fail` takes a failure's code: rate-limit (with `retryAfterMs`), overflow-tokens, overflow-bytes,
overflow-media, server, transport, refused. `{"finish": KIND}` ends an answer in another way than
`stop` or `tool-calls`. With `repeat` the script begins again when it is over.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
import msgspec

from turnlog import jsontext
from turnlog.content import (
    BlockEnd,
    BlockStart,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from turnlog.errors import InvalidModel, RequestRefused
from turnlog.models.failures import error_of
from turnlog.models.port import Body, Chunks, to_bytes
from turnlog.records import Opaque


@dataclass(frozen=True)
class Think:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True)
class Call:
    """A tool call; arguments that are no string become JSON. Without an id it gets its own."""

    name: str
    arguments: str | dict[str, Any] = ""
    id: str | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing comes until `gate()` returns."""

    gate: Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class Hang:
    """Nothing comes any more: the stream is open until it is cancelled."""


@dataclass(frozen=True)
class Fail:
    """The stream fails here; as the first step, the request does."""

    code: str
    message: str = "as the script says"
    retry_after_ms: float | None = None


@dataclass(frozen=True)
class End:
    """The answer ends here, with another reason than `stop` or `tool-calls`."""

    kind: str


@dataclass(frozen=True)
class Used:
    """What the request took so far; what is not said is unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


Step: TypeAlias = str | Think | Call | Used | Wait | Hang | Fail | End | Chunk
Answer: TypeAlias = Step | Sequence[Step] | Callable[[bytes], "Step | Sequence[Step]"]


class ScriptedModel:
    """A model whose answers are given.

    Args:
        script: the answers, one for each request.
        repeat: begin again when the script is over; else a further request is refused.
        name, encoder, context_window, native_tools: as in the port.

    Attributes:
        requests: the bodies it got, in order.
        open_streams: how many streams are entered and not left.
    """

    def __init__(
        self,
        script: Sequence[Answer],
        *,
        repeat: bool = False,
        name: str = "scripted:script",
        encoder: str = "openai@1",
        context_window: int | None = None,
        native_tools: bool = True,
    ) -> None:
        self.name = name
        self.provider, _, self.model = name.partition(":")
        self.encoder = encoder
        self.context_window = context_window
        self.native_tools = native_tools
        self.requests: list[bytes] = []
        self.open_streams = 0
        self._script = tuple(script)
        self._repeat = repeat

    @classmethod
    def from_file(cls, path: str, *, context_window: int | None = None) -> ScriptedModel:
        """The model of a JSON file, in the form that this module's docstring shows.

        Raises:
            InvalidModel: no such file, or no script.
        """
        try:
            value = jsontext.decode(Path(path).read_bytes())
            file = msgspec.convert(value, _File)
            script = [_answer(answer) for answer in file.answers]
        except OSError as error:
            raise InvalidModel(f"scripted:{path}: {error.strerror or error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidModel(f"scripted:{path}: {error}") from error
        return cls(
            script,
            repeat=file.repeat,
            name=f"scripted:{path}",
            context_window=context_window or file.context_window,
            native_tools=file.native_tools,
        )

    @asynccontextmanager
    async def stream(self, body: Body) -> AsyncGenerator[Chunks]:
        """Take a body and stream the next answer (`turnlog.models.port`)."""
        number = len(self.requests)
        sent = to_bytes(body)
        self.requests.append(sent)
        steps = self._steps(number, sent)
        self.open_streams += 1
        try:
            await anyio.lowlevel.checkpoint()
            if steps and isinstance(first := steps[0], Fail):
                raise _error(first)
            async with aclosing(_play(steps, number)) as chunks:
                yield chunks
        finally:
            self.open_streams -= 1

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Nothing: there is no connection."""
        yield

    def _steps(self, number: int, body: bytes) -> Sequence[Step]:
        if self._repeat and self._script:
            number %= len(self._script)
        if number >= len(self._script):
            message = f"{self.name} has {len(self._script)} answers, this is request {number + 1}"
            raise RequestRefused(Failure(message, "refused"))
        answer = self._script[number]
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, (list, tuple)):
            return cast("Sequence[Step]", answer)
        return [cast("Step", answer)]


async def _play(steps: Sequence[Step], number: int) -> AsyncGenerator[Chunk]:
    writer = _Writer(number)
    for step in steps:
        if isinstance(step, Wait):
            await step.gate()
        elif isinstance(step, Hang):
            await anyio.sleep_forever()
        elif isinstance(step, Fail):
            raise _error(step)
        else:
            await anyio.lowlevel.checkpoint()
            for chunk in writer.chunks(step):
                yield chunk
        if writer.over:
            return
    yield Finish(FinishReason("tool-calls" if writer.calls else "stop"))


class _Writer:
    """Numbers the blocks of one answer."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._next = 0
        self._open: tuple[type[Any], int] | None = None
        self.calls = 0
        self.over = False

    def chunks(self, step: str | Think | Call | Used | End | Chunk) -> Iterator[Chunk]:
        if isinstance(step, str):
            yield TextDelta(self._block(str), step)
        elif isinstance(step, Think):
            yield ReasoningDelta(self._block(Think), step.text)
        elif isinstance(step, Call):
            self._open = None
            call_id = step.id or f"call-{self._number}-{self.calls}"
            self.calls += 1
            arguments = step.arguments
            if not isinstance(arguments, str):
                arguments = jsontext.encode(arguments).decode()
            yield ToolCallDelta(self._block(Call), call_id, step.name, arguments)
            self._open = None
        elif isinstance(step, Used):
            yield UsageChunk(Usage(**asdict(step)))
        elif isinstance(step, End):
            self.over = True
            yield Finish(FinishReason(step.kind))
        else:
            self._given(step)
            yield step

    def _block(self, kind: type[Any]) -> int:
        if self._open is None or self._open[0] is not kind:
            self._open = (kind, self._next)
            self._next += 1
        return self._open[1]

    def _given(self, chunk: Chunk) -> None:
        """A chunk that the script spells out takes its block's number."""
        self.over = isinstance(chunk, Finish)
        if not isinstance(chunk, (UsageChunk, Finish, Opaque)):
            self._open = None
            self._next = max(self._next, chunk.index + 1)
            is_call = isinstance(chunk, ToolCallDelta) or (
                isinstance(chunk, BlockStart) and chunk.block_type == "tool-call"
            )
            self.calls += is_call or (
                isinstance(chunk, BlockEnd) and chunk.block.type == "tool-call"
            )


def _error(step: Fail) -> Exception:
    return error_of(Failure(step.message, step.code, provider_retry_after_ms=step.retry_after_ms))


class _File(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    answers: list[Any]
    repeat: bool = False
    context_window: int | None = None
    native_tools: bool = True


class _UsedFile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def used(self) -> Used:
        return Used(**msgspec.structs.asdict(self))


def _answer(value: Any) -> Answer:
    steps = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [_step(step) for step in steps]


def _step(value: Any) -> Step:  # noqa: PLR0911 - one line a form
    if isinstance(value, str):
        return value
    match value:
        case {"text": str(text)}:
            return text
        case {"reasoning": str(text)}:
            return Think(text)
        case {"toolCall": {"name": str(name), **rest}}:
            arguments: Any = rest.get("arguments", "")
            return Call(name, cast("str | dict[str, Any]", arguments), cast("Any", rest.get("id")))
        case {"usage": usage}:
            return msgspec.convert(usage, _UsedFile).used()
        case {"fail": str(code), **rest}:
            message = str(rest.get("message", "as the script says"))
            return Fail(code, message, cast("Any", rest.get("retryAfterMs")))
        case {"finish": str(kind)}:
            return End(kind)
        case {"hang": True}:
            return Hang()
        case _:
            raise ValueError(f"expected a step of a script, got {value!r}")
