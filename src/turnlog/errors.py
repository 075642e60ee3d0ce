"""Every error that turnlog raises on purpose, in one tree.

TurnlogError
├── AdmissionError                an event that may not enter the log (rule, seq, value)
│   ├── PayloadError              the payload is not what the log keeps
│   │   ├── NotJson               a value that JSON cannot carry, with the path to it
│   │   ├── PayloadTooLarge       more than 64 MiB
│   │   ├── PayloadTooDeep        more than 512 levels
│   │   ├── InvalidPayload        JSON, but not the shape of its event type
│   │   └── EmptyBlock            an empty text or reasoning block in a message of ours
│   ├── UnknownEventType          neither core nor registered
│   ├── InvalidEnvelope           a malformed envelope field of a loaded event
│   ├── SeqOutOfOrder             a loaded event whose seq is not the next one
│   ├── SurfaceError              how an event enters the surface
│   │   ├── MissingSurfaceOp      a message event without `surface_op`
│   │   ├── UnexpectedSurfaceOp   a log-only event with one
│   │   ├── InvalidSurfaceOp      neither "append" nor a replace of two seqs
│   │   ├── NotOnSurface          a replace names a node that is not there
│   │   ├── ReplaceOutOfOrder     its start lies after its end
│   │   ├── ResultReplacesRange   a tool result replaces more than one node
│   │   ├── ResultReplacesOther   a tool result replaces something else
│   │   └── ResultChangesMore     a replaced tool result differs in more than its content
│   └── ProvenanceError           what an event cites
│       ├── UnexpectedProvenance  a log-only event cites
│       ├── InvalidProvenance     not a list of integers
│       ├── EmptyProvenance       an empty list on anything but an assistant message
│       ├── DuplicateProvenance   a seq twice
│       ├── ProvenanceNotEarlier  a seq that is not earlier
│       ├── UnknownProvenance     a seq that the log does not have
│       ├── UncitedNodes          a replacement that does not cite every node it shadows
│       └── UncitedCall           an appended tool result that does not cite its tool call
├── ReentrantAppend               an append from inside an observer
├── QueueFull                     more than the bound waits to become durable
├── ReadOnly                      the session was opened for reading, or is damaged
├── NotLoaded                     an event that is not in memory
├── NoSuchEvent                   a seq outside the log
├── NoMessage                     an event without the message that is asked for
├── NoSuchPin                     an unknown pin id, or one that was taken off
├── ForkedProcess                 a session used after `fork()` of its process
├── InvalidHeader                 a header that does not say what the law asks for
├── UnsupportedVersion            a format or schema newer than this turnlog
├── InvalidContent                neither text nor content blocks
├── InvalidMessages               a message list that cannot be adopted
├── ConversionError               something that a target format cannot say
├── UnknownEncoder                an encoder that this turnlog does not have
├── ImportFailed                  a foreign session that cannot be read or taken
│   └── ImportConflict            the same id holds something else
├── StoreError                    the store could not do what was asked
│   ├── InvalidStoreUrl           a store URL that names no store
│   ├── InvalidSearch             a search text without a word to look for, or with too many
│   ├── NoSuchSession             an unknown session id
│   ├── SessionExists             the id is taken
│   ├── SessionInUse              another live writer owns the session
│   ├── StaleWriter               the expected seq or the fencing token is not the store's
│   ├── WriteFailed               a write or fsync failed; what it held is kept
│   ├── StoreClosed               used after `close()`
│   ├── DamagedSession            writing on a damaged log that nobody acknowledged
│   ├── CopyConflict              the target of a copy holds something else under the id
│   └── CopyFailed                some sessions were not copied
├── InvalidOption                 an option with a value that makes no sense (option, value)
├── InvalidModel                  a model that cannot be opened: no such name, no key, no script
├── ModelError                    a model could not answer (failure, retryable)
│   ├── ContextOverflow           the request is too large (kind: tokens, bytes, media)
│   ├── RateLimited               too many requests; retryable (retry_after_ms)
│   ├── ServerFailed              the provider's fault; retryable
│   ├── TransportFailed           the connection failed or was cut; retryable
│   └── RequestRefused            the provider does not take this request
├── CompactionFailed              nothing was compacted; the surface is as it was (code, failure)
│   └── CompactionBusy            another compaction of the session is running
└── MissingExtra                  a feature whose optional package is not installed
"""

from __future__ import annotations

from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.content import Failure


class TurnlogError(Exception):
    """Base of everything that turnlog raises on purpose."""


# -- admission ---------------------------------------------------------------------------------


def brief(value: object, limit: int = 120) -> str:
    """`repr(value)`, cut to `limit` characters, for one-line messages."""
    size = getattr(value, "__len__", int)()
    if size > 12 and not isinstance(value, (str, bytes)):
        return f"<{type(value).__name__} of {size}>"
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def why_unreadable(error: Exception) -> str:
    """What is wrong with bytes that could not be read as a record, in words for a person."""
    if isinstance(error, AdmissionError):
        return error.detail
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "not JSON" if isinstance(error, JSONDecodeError) else str(error)


class AdmissionError(TurnlogError):
    """An event that may not enter the log; nothing was changed.

    `rule` names the law that was broken, `seq` the seq the event would have had, `value` what
    broke it.
    """

    rule: ClassVar[str] = "admission"

    def __init__(self, detail: str, *, seq: int | None, value: object = None) -> None:
        self.seq = seq
        self.value = value
        self.detail = detail
        where = "" if seq is None else f" (seq {seq})"
        super().__init__(f"{self.rule}{where}: {detail}")


class PayloadError(AdmissionError):
    """The payload is not what the log keeps."""

    rule = "payload"


class NotJson(PayloadError):
    """A value that JSON cannot carry; `path` leads to it, as in `$.content[0].text`."""

    rule = "payload-is-json"

    def __init__(self, detail: str, *, seq: int | None, value: object, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: {detail}, got {brief(value)}", seq=seq, value=value)


class PayloadTooLarge(PayloadError):
    """More than 64 MiB of JSON."""

    rule = "payload-size"


class PayloadTooDeep(PayloadError):
    """More than 512 levels of nesting."""

    rule = "payload-depth"


class InvalidPayload(PayloadError):
    """JSON, but not the shape of its event type."""

    rule = "payload-shape"


class EmptyBlock(PayloadError):
    """An empty text or reasoning block in a message of ours."""

    rule = "no-empty-block"


class UnknownEventType(AdmissionError):
    """Neither a core event type nor a registered one."""

    rule = "known-event-type"


class InvalidEnvelope(AdmissionError):
    """A malformed envelope field of a loaded event."""

    rule = "envelope"


class SeqOutOfOrder(AdmissionError):
    """A loaded event whose seq is not the next one."""

    rule = "dense-seq"


class SurfaceError(AdmissionError):
    """How an event enters the surface."""

    rule = "surface"


class MissingSurfaceOp(SurfaceError):
    """A message event without `surface_op`."""

    rule = "message-has-surface-op"


class UnexpectedSurfaceOp(SurfaceError):
    """A log-only event with `surface_op`."""

    rule = "log-only-has-no-surface-op"


class InvalidSurfaceOp(SurfaceError):
    """Neither "append" nor {"op": "replace", "start": seq, "end": seq}."""

    rule = "surface-op-shape"


class NotOnSurface(SurfaceError):
    """A replace names a node that is not on the current surface."""

    rule = "replace-names-current-nodes"


class ReplaceOutOfOrder(SurfaceError):
    """A replace whose start lies after its end, by position."""

    rule = "replace-start-not-after-end"


class ResultReplacesRange(SurfaceError):
    """A tool result that replaces more than one node."""

    rule = "result-replaces-one-node"


class ResultReplacesOther(SurfaceError):
    """A tool result that replaces something that is no tool result."""

    rule = "result-replaces-a-result"


class ResultChangesMore(SurfaceError):
    """A replaced tool result that differs in more than its content."""

    rule = "result-changes-only-content"


class ProvenanceError(AdmissionError):
    """What an event cites."""

    rule = "provenance"


class UnexpectedProvenance(ProvenanceError):
    """A log-only event with `source_event_seqs`."""

    rule = "log-only-has-no-provenance"


class InvalidProvenance(ProvenanceError):
    """`source_event_seqs` that is not a list of non-negative integers."""

    rule = "provenance-shape"


class EmptyProvenance(ProvenanceError):
    """An empty list on anything but an assistant message."""

    rule = "provenance-not-empty"


class DuplicateProvenance(ProvenanceError):
    """A seq that is cited twice."""

    rule = "provenance-unique"


class ProvenanceNotEarlier(ProvenanceError):
    """A cited seq that is not earlier than the event."""

    rule = "provenance-earlier"


class UnknownProvenance(ProvenanceError):
    """A cited seq that the log does not have."""

    rule = "provenance-exists"


class UncitedNodes(ProvenanceError):
    """A replacement that does not cite every node it shadows; `value` lists the missing ones."""

    rule = "replacement-cites-shadowed"


class UncitedCall(ProvenanceError):
    """An appended tool result that does not cite its tool call (or its settled result)."""

    rule = "result-cites-its-call"


# -- sessions ----------------------------------------------------------------------------------


class ReentrantAppend(TurnlogError):
    """An append, or a wait for the store, from inside an observer of the same session."""


class QueueFull(TurnlogError):
    """More bytes wait to become durable than the bound allows; the append changed nothing."""


class ReadOnly(TurnlogError):
    """The session was opened for reading, or is damaged and not acknowledged."""


class NotLoaded(TurnlogError):
    """An event that is in the store but not in memory; an async read loads it."""


class NoSuchEvent(TurnlogError, IndexError):
    """A seq outside the log, or one that was lost to damage."""


class NoMessage(TurnlogError):
    """An event that holds no message, or none that says anything, where one is asked for."""


class NoSuchPin(TurnlogError):
    """A pin that was never there, was taken off, or came with an import and does not count."""


class ForkedProcess(TurnlogError):
    """A session used in a child of the process that opened it."""


class InvalidHeader(TurnlogError):
    """A session header that does not say what the law asks for."""


class UnsupportedVersion(TurnlogError):
    """A format or schema that is newer than this turnlog."""


class InvalidContent(TurnlogError, TypeError):
    """What was given as a message's content is neither text nor content blocks."""


class InvalidMessages(TurnlogError):
    """A message list that cannot be adopted; `index` is the place of the message at fault."""

    def __init__(self, message: str, *, index: int | None = None) -> None:
        self.index = index
        super().__init__(message)


class ConversionError(TurnlogError):
    """Something in a session that a target format cannot say."""


class UnknownEncoder(TurnlogError):
    """An encoder, `name@version`, that this turnlog does not have."""


class ImportFailed(TurnlogError):
    """A foreign session that cannot be read or taken."""


class ImportConflict(ImportFailed):
    """The session's id is taken by something that is not a prefix of the source."""


# -- stores ------------------------------------------------------------------------------------


class StoreError(TurnlogError):
    """The store could not do what was asked."""


class InvalidStoreUrl(StoreError):
    """A store URL that names no store."""


class InvalidSearch(StoreError):
    """A search text without a word to look for, or with too many."""


class NoSuchSession(StoreError):
    """An unknown session id."""


class SessionExists(StoreError):
    """The session id is taken."""


class SessionInUse(StoreError):
    """Another live writer owns the session; `owner` says which, as far as is known."""

    def __init__(self, message: str, *, owner: object = None) -> None:
        self.owner = owner
        super().__init__(message)


class StaleWriter(StoreError):
    """The expected seq or the fencing token is not the store's: nothing was stored."""

    def __init__(self, message: str, *, owner: object = None) -> None:
        self.owner = owner
        super().__init__(message)


class WriteFailed(StoreError):
    """A write or fsync failed; what it held is kept and tried again at the next flush."""


class StoreClosed(StoreError):
    """Used after `close()`."""


class DamagedSession(StoreError):
    """Writing on a damaged log whose damage nobody acknowledged."""


class CopyConflict(StoreError):
    """The session in the target is not the source's: neither equal to it nor its beginning."""


class CopyFailed(StoreError):
    """Some sessions were not copied; `copied` has a `turnlog.stores.copying.Copied` for each."""

    def __init__(self, message: str, *, copied: Sequence[Any]) -> None:
        self.copied = copied
        super().__init__(message)


# -- edges -------------------------------------------------------------------------------------


class InvalidOption(TurnlogError, ValueError):
    """An option with a value that makes no sense; `option` names it, `value` is what came."""

    def __init__(self, option: str, expected: str, value: object) -> None:
        self.option = option
        self.value = value
        super().__init__(f"{option}: expected {expected}, got {brief(value)}")


class InvalidModel(TurnlogError):
    """A model that cannot be opened: no such name, no key, an option or a script that is none."""


class ModelError(TurnlogError):
    """A model could not answer; `failure` is what goes into the log.

    `retryable` says whether the same bytes may succeed later.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class ContextOverflow(ModelError):
    """The request is larger than the provider takes; `kind` says in what.

    "tokens": more than the context window; "bytes": the body; "media": an image or their sum.
    """

    @property
    def kind(self) -> Literal["tokens", "bytes", "media"]:
        """What there is too much of."""
        match self.failure.code:
            case "overflow-bytes":
                return "bytes"
            case "overflow-media":
                return "media"
            case _:
                return "tokens"


class RateLimited(ModelError):
    """Too many requests, or tokens, in too short a time."""

    retryable = True

    @property
    def retry_after_ms(self) -> float | None:
        """How long the provider asks to wait, in milliseconds; None when it did not say."""
        return self.failure.provider_retry_after_ms


class ServerFailed(ModelError):
    """The provider's fault: a status of 5xx, overload, or an error in the middle of a stream."""

    retryable = True


class TransportFailed(ModelError):
    """The connection could not be made, timed out, or was cut before the answer was complete."""

    retryable = True


class RequestRefused(ModelError):
    """The provider does not take this request, and would not take it again."""


class CompactionFailed(TurnlogError):
    """Nothing was compacted, and the surface is as it was; `failure` is what the log says.

    Codes: nothing-to-gain, fixed-too-large (system text and tools alone fill the window),
    no-progress, exhausted (too many attempts failed one after the other), range-changed, cancelled,
    empty, runaway, echo, truncated, tool-calls, not-cheaper, too-long (of a summary), timeout,
    internal, or the model's own failure.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)

    @property
    def code(self) -> str:
        """What went wrong, one word."""
        return self.failure.code


class CompactionBusy(CompactionFailed):
    """Another compaction of the session is running; try again when it has ended."""


class MissingExtra(TurnlogError):
    """A feature whose optional package is not installed; the message says what to install."""
