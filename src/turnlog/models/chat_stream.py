"""From the JSON of an OpenAI-compatible stream to chunks (pure).

Servers agree on little: ids and indexes of tool calls are missing or repeated, reasoning goes by
several names, usage comes in the last event, in every event or never, and the reason to finish may
be missing. What is known is passed on as it arrives; nothing is made up but ids of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from turnlog import jsontext
from turnlog.content import (
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
from turnlog.errors import RequestRefused
from turnlog.models.failures import failure_of, transport_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FINISH: Final = {
    "stop": "stop",
    "length": "max-tokens",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
}
_BLOCKED: Final = {"content_filter", "content-filter"}
_REASONING: Final = ("reasoning_content", "reasoning")

Json = dict[str, Any]


DONE: Final = "[DONE]"


class ChatStream:
    """One answer. `feed` it the events' JSON; `close` it when the stream is over.

    `done` says whether the server itself declared the end; what it sends after that is passed over.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.done = False
        self._new_id = new_id
        self._blocks = 0
        self._open: tuple[str, int] | None = None  # the text or reasoning block that grows
        self._calls: list[_Call] = []
        self._finish: str | None = None
        self._usage: Usage | None = None

    def feed(self, event: Any) -> Iterator[Chunk]:
        """The chunks of one event.

        Raises:
            ModelError: the event says that the request failed.
        """
        self.done = self.done or event == DONE
        if self.done or not isinstance(event, dict):
            return
        event = cast("Json", event)
        if event.get("error") or event.get("object") == "error":
            raise failure_of(None, event)
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            choice = cast("Json", choices[0])
            # A server that does not stream answers with the whole message.
            delta = choice.get("delta") or choice.get("message")
            if isinstance(delta, dict):
                yield from self._delta(cast("Json", delta))
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self._finish = reason
        usage = usage_of(event.get("usage"))
        if usage is not None and usage != self._usage:
            self._usage = usage
            yield UsageChunk(usage)

    def close(self) -> Iterator[Chunk]:
        """The last chunks.

        Raises:
            TransportFailed: neither the server nor a reason said that the answer is complete.
            RequestRefused: a content filter cut the answer off.
        """
        if self._finish is None and not self.done:
            raise transport_failure("the stream ended before the answer was complete")
        if self._finish in _BLOCKED:
            message = "the provider's content filter cut the answer off"
            raise RequestRefused(Failure(message, "content-filter"))
        if self._finish == "insufficient_system_resource":
            raise failure_of(503, {"error": {"message": self._finish}})
        for call in self._calls:
            if not call.id:
                yield ToolCallDelta(call.block, self._new_id())
        kind = _FINISH.get(self._finish or "stop", "stop")
        if kind == "stop" and self._calls:
            kind = "tool-calls"
        yield Finish(FinishReason(kind))

    def _delta(self, delta: Json) -> Iterator[Chunk]:
        for key in _REASONING:
            if text := _text(delta.get(key)):
                yield ReasoningDelta(self._block("reasoning"), text)
                break
        for key in ("content", "refusal"):
            if text := _text(delta.get(key)):
                yield TextDelta(self._block("text"), text)
        calls = delta.get("tool_calls")
        for call in cast("list[Any]", calls) if isinstance(calls, list) else []:
            if isinstance(call, dict):
                yield from self._call(cast("Json", call))

    def _block(self, kind: str) -> int:
        if self._open is None or self._open[0] != kind:
            self._open = (kind, self._next_block())
        return self._open[1]

    def _next_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    def _call(self, delta: Json) -> Iterator[Chunk]:
        function = delta.get("function")
        function = cast("Json", function) if isinstance(function, dict) else {}
        index, call_id, name = delta.get("index"), _text(delta.get("id")), function.get("name")
        name = _text(name)
        call = self._find(index if isinstance(index, int) else None, call_id, name)
        call.id = call.id or call_id
        arguments = function.get("arguments")
        if isinstance(arguments, (dict, list)):
            arguments = jsontext.encode(arguments).decode()
        arguments = _text(arguments)
        new_name, call.name = (name if not call.name else ""), call.name or name
        if call_id or new_name or arguments:
            yield ToolCallDelta(call.block, call.id, new_name or None, arguments)

    def _find(self, index: int | None, call_id: str, name: str) -> _Call:
        """The call that a delta continues: by index, else by id, else the last one.

        A different id together with a name begins a new call, whatever the index: some servers
        send the same index for all.
        """
        if call_id and (known := [call for call in self._calls if call.id == call_id]):
            return known[0]
        candidates = [call for call in self._calls if index is None or call.index == index]
        if candidates:
            call = candidates[-1]
            another = call_id != call.id if call_id else index is None
            if not (name and call.name and another):
                return call
        call = _Call(index, self._next_block())
        self._calls.append(call)
        self._open = None
        return call


class _Call:
    __slots__ = ("block", "id", "index", "name")

    def __init__(self, index: int | None, block: int) -> None:
        self.index = index
        self.block = block
        self.id = ""
        self.name = ""


def usage_of(value: Any) -> Usage | None:
    """A provider's usage in disjoint buckets; None when it reported none."""
    if not isinstance(value, dict):
        return None
    usage = cast("Json", value)
    prompt = _count(usage.get("prompt_tokens"))
    details = _inner(usage, "prompt_tokens_details")
    read = _count(details.get("cached_tokens"))
    if read is None:
        read = _count(usage.get("prompt_cache_hit_tokens"))
    write = _count(details.get("cache_write_tokens"))
    fresh = prompt
    if prompt is not None and (cached := (read or 0) + (write or 0)) <= prompt:
        fresh = prompt - cached
    reasoning = _count(_inner(usage, "completion_tokens_details").get("reasoning_tokens"))
    found = Usage(fresh, _count(usage.get("completion_tokens")), read, write, reasoning)
    return None if found == Usage() else found


def _inner(usage: Json, key: str) -> Json:
    value = usage.get(key)
    return cast("Json", value) if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _text(value: Any) -> str:
    """Text, or the text of a list of text parts; anything else is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [cast("Json", p) for p in cast("list[Any]", value) if isinstance(p, dict)]
        return "".join([p["text"] for p in parts if isinstance(p.get("text"), str)])
    return ""
