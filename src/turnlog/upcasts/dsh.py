"""A source event read in the shapes of this project: one pure function per generation.

Ours are the shapes of version 4. Nothing is changed in place, what is not known is kept, and a
type or shape that is not recognised comes back as it is. The source's own bytes stay in the log, so
each of these functions may learn more later; none may ever read the same bytes differently without
a new name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable

Json: TypeAlias = Any
Object: TypeAlias = dict[str, Any]

_SYSTEM_PROMPT = "@deepseek-ai/dsh-system-prompt"
_WRAPPED = frozenset({"system/message", "developer/message", "assistant/message", "tool/result"})


class Upcast(Protocol):
    """How a generation is read."""

    def __call__(self, event_type: str, data: Json, *, session: str, seq: int) -> Json:
        """The data of a source event in our shape.

        `session` and `seq` name a message that has no id. A `tool/result` without id that replaces
        another has that one's id: pass the seq of the first of the chain.
        """
        ...


def upcast(version: int, event_type: str, data: Json, *, session: str, seq: int) -> Json:
    """Read `data` by the rules of its generation; 1 is read as 0, 2 as 3, neither confirmed.

    Raises:
        KeyError: a version that is not 0 to 4.
    """
    return _GENERATIONS[version](event_type, data, session=session, seq=seq)


def upcast_type(event_type: str) -> str:
    """Our name of a source event's type: two were renamed while the version stayed 0."""
    if event_type == "steering/message":
        return "user/message"
    if event_type.startswith("compact/"):
        return "compaction/" + event_type.removeprefix("compact/")
    return event_type


def upcast_v4(event_type: str, data: Json, *, session: str, seq: int) -> Json:
    """Version 4 has our shapes; only a message without id gets one."""
    name = f"legacy-message:{session}:{seq}"
    return _with_message(event_type, data, lambda message: {**message, "id": name}, _lacks_id)


def upcast_v3(event_type: str, data: Json, *, session: str, seq: int) -> Json:
    """Lift tool results out of their wrapper block; name plugin sources as version 4 does."""
    if event_type == "tool/result":
        data = _with_message(event_type, data, _lift_result)
    data = _with_message(event_type, data, _rename_source)
    return upcast_v4(event_type, data, session=session, seq=seq)


def upcast_v0(event_type: str, data: Json, *, session: str, seq: int) -> Json:
    """Also the shapes from before messages had ids, and from before turns said why they ended.

    `turn/start` keeps its `trigger` as a field we do not know.
    """
    if isinstance(data, dict) and event_type in _LEGACY:
        data = _LEGACY[event_type](cast("Object", data))
    return upcast_v3(upcast_type(event_type), data, session=session, seq=seq)


def _with_message(
    event_type: str,
    data: Json,
    change: Callable[[Object], Object],
    only_if: Callable[[Object], bool] = lambda _: True,
) -> Json:
    """The data with its message changed: `user/message` is the message, others hold one."""
    if not isinstance(data, dict):
        return data
    outer = cast("Object", data)
    if event_type == "user/message":
        return change(outer) if only_if(outer) else outer
    message = outer.get("message")
    if event_type not in _WRAPPED or not isinstance(message, dict):
        return outer
    inner = cast("Object", message)
    return {**outer, "message": change(inner)} if only_if(inner) else outer


def _lacks_id(message: Object) -> bool:
    """A message, by its content, whose id is missing or empty."""
    return "content" in message and not message.get("id")


def _lift_result(message: Object) -> Object:
    """The tool's message without the block around its content; as it is if that is malformed."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list) or len(content) != 1:  # pyright: ignore[reportUnknownArgumentType]
        return message
    block = cast("list[Any]", content)[0]
    if not isinstance(block, dict):
        return message
    wrapper = dict(cast("Object", block))
    kind, call = wrapper.pop("type", None), wrapper.pop("toolCallId", None)
    inner, failed = wrapper.pop("content", None), wrapper.pop("isError", False)
    well_formed = kind == "tool-result" and isinstance(call, str) and isinstance(inner, list)
    if not well_formed or not isinstance(failed, bool) or wrapper.keys() & message.keys():
        return message
    lifted: Object = {"role": "tool", "toolCallId": call, "isError": failed, "content": inner}
    return {**message, **wrapper, **lifted}


def _rename_source(message: Object) -> Object:
    """The producers whose new names real files show; any other plugin's source is kept as it is."""
    source = message.get("source")
    if not isinstance(source, dict):
        return message
    rest = dict(cast("Object", source))
    kind, plugin = rest.pop("kind", None), rest.pop("plugin", None)
    if kind != "plugin":
        return message
    if plugin == "compact":
        ours = "compact-checkpoint"
    elif plugin == _SYSTEM_PROMPT:
        ours = "system-prompt" if message.get("role") == "system" else "runtime-context"
    else:
        return message
    return {**message, "source": {"kind": ours, **rest}}


def _legacy_user(data: Object) -> Object:
    """{content, source} before messages had role and id."""
    if "role" in data or "content" not in data or "message" in data:
        return data
    return {**data, "role": "user"}


def _legacy_steering(data: Object) -> Object:
    """{turn, message}, or {turn, content, source}: a user message that named its turn."""
    message = data.get("message")
    if isinstance(message, dict):
        return _legacy_user(cast("Object", message))
    return _legacy_user({key: value for key, value in data.items() if key != "turn"})


def _legacy_assistant(data: Object) -> Object:
    """{…, content, provenance} before messages were wrapped."""
    if "message" in data or not {"content", "provenance"} <= data.keys():
        return data
    rest = dict(data)
    content, provenance = rest.pop("content"), rest.pop("provenance")
    if not isinstance(provenance, dict):
        return data
    source = {**cast("Object", provenance), "kind": "model"}
    return {**rest, "message": {"role": "assistant", "content": content, "source": source}}


def _legacy_result(data: Object) -> Object:
    """{…, callId, content, isError} before messages were wrapped."""
    if "message" in data or not {"callId", "content", "isError"} <= data.keys():
        return data
    rest = dict(data)
    call, content, failed = rest.pop("callId"), rest.pop("content"), rest.pop("isError")
    message = {"role": "tool", "toolCallId": call, "isError": failed, "content": content}
    return {**rest, "message": {**message, "source": {"kind": "tool", "callId": call}}}


def _legacy_end(data: Object) -> Object:
    """Reasons `aborted` without a cause, `disposed`, and `error` with its failure spelt out."""
    reason = data.get("reason")
    if not isinstance(reason, dict):
        return data
    rest = dict(cast("Object", reason))
    kind = rest.pop("kind", None)
    if kind == "aborted" and "reason" not in rest:
        ours = {"kind": kind, "reason": {"kind": "legacy"}, **rest}
    elif kind == "disposed" and "reason" not in rest:
        ours = {"kind": "aborted", "reason": {"kind": "disposed"}, **rest}
    elif kind == "error" and "error" not in rest and isinstance(rest.get("failure"), dict):
        ours = {"kind": kind, "error": rest.pop("failure"), **rest}
    elif kind == "error" and "error" not in rest and isinstance(rest.get("message"), str):
        failure = {"message": rest.pop("message"), "code": rest.pop("code", "UNKNOWN")}
        ours = {"kind": kind, "error": failure, **rest}
    else:
        return data
    return {**data, "reason": ours}


_LEGACY: dict[str, Callable[[Object], Object]] = {
    "user/message": _legacy_user,
    "steering/message": _legacy_steering,
    "assistant/message": _legacy_assistant,
    "tool/result": _legacy_result,
    "turn/end": _legacy_end,
}
_GENERATIONS: dict[int, Upcast] = {
    0: upcast_v0,
    1: upcast_v0,
    2: upcast_v3,
    3: upcast_v3,
    4: upcast_v4,
}
