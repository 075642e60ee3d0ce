"""Which `ModelError` a provider's refusal is: from status, headers and body (pure).

Providers say the same thing in many ways; the phrases here are what their servers answer. Where a
status and a phrase disagree the phrase wins: a 413 may be about tokens, a 500 about the window, and
a 429 that asks for more than the quota of a whole minute will never succeed.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, cast

from turnlog import jsontext
from turnlog.content import Failure
from turnlog.errors import (
    ContextOverflow,
    ModelError,
    RateLimited,
    RequestRefused,
    ServerFailed,
    TransportFailed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKENS: Final = re.compile(
    r"context[_ ]length|context[_ ]window|context[_ ]size|context limit|maximum context|max context"
    r"|context the overflows|maximum model length|max_model_len|maximum prompt length"
    r"|prompt is too long|prompt too long|prompt contains \d+ tokens|too many (input )?tokens"
    r"|input token count|input is too long|reduce the length of the (messages|prompt|input)"
    r"|max_new_tokens` must be|request too large for .*tokens? per",
    re.IGNORECASE | re.DOTALL,
)
_MEDIA: Final = re.compile(
    r"\b(image|images|image\(s\)|media|video|audio|pdf)\b.*"
    r"\b(exceeds?|too (large|many|big)|at most|maximum|larger than|limit)\b"
    r"|\b(too many|at most \d+|maximum of \d+) (images?|image\(s\))"
    r"|image_too_large",
    re.IGNORECASE | re.DOTALL,
)
_BYTES: Final = re.compile(
    r"(entity|payload|body|request)([_ ]|\s+is\s+)too[_ ]large|request size|maximum request"
    r"|(string|array)_above_max_length|(string|array) too long",
    re.IGNORECASE,
)
_QUOTA: Final = re.compile(
    r"insufficient[_ ](quota|balance|credits?)|exceeded your current quota|billing", re.IGNORECASE
)
_TRY_AGAIN: Final = re.compile(r"try again in (?:(\d+)m(?!s))?(?:([\d.]+)(ms|s))?", re.IGNORECASE)

# What an error inside a stream, which has no status, is most like.
_STATUS_OF: Final = (
    (re.compile(r"rate.?limit|too_many_requests", re.IGNORECASE), 429),
    (re.compile(r"overloaded|server_error|internal|unavailable|timeout", re.IGNORECASE), 503),
    (re.compile(r"authentication|permission|api.?key", re.IGNORECASE), 401),
    (re.compile(r"invalid|not_found|unsupported|bad.?request", re.IGNORECASE), 400),
)
_LIMIT: Final = 500


def transport_failure(message: str) -> TransportFailed:
    """A connection that failed or was cut."""
    return TransportFailed(Failure(message, "transport"))


def failure_of(
    status: int | None,
    body: bytes | Any,
    headers: Mapping[str, str] | None = None,
    *,
    now: float | None = None,
) -> ModelError:
    """The error that an answer is.

    Args:
        status: the HTTP status, or None for an error inside a stream that began well.
        body: the answer's bytes, or its JSON value.
        headers: with lower-case names.
        now: epoch seconds, for a `retry-after` that is a date; else the answer's own `date`.
    """
    headers = headers or {}
    value = _json(body) if isinstance(body, bytes) else body
    said = _Said(value, body)
    status = status if status is not None else said.status
    delay = _retry_after(headers, said.message, now)
    details = {"type": said.type, "providerCode": said.code, "param": said.param}
    known = {key: value for key, value in details.items() if value}
    kind, code = _classify(status, said)
    shown = said.message[:_LIMIT] or "no reason given"
    return kind(
        Failure(
            f"HTTP {status}: {shown}" if status is not None else shown,
            code,
            status,
            delay,
            headers.get("x-request-id") or headers.get("request-id"),
            known or None,
        )
    )


class _Said:
    """What an error body says, whichever of the usual shapes it has."""

    def __init__(self, value: Any, raw: Any) -> None:
        outer = _dict(value)
        error = outer.get("error", value)
        inner = _dict(error)
        told = [inner.get("message"), inner.get("detail"), outer.get("message"), error, raw]
        message = next((text for text in told if isinstance(text, (str, bytes)) and text), "")
        if isinstance(message, bytes):
            message = message.decode(errors="replace")
        self.message = " ".join(message.split())
        self.type = _text(inner.get("type"))
        self.code = _text(inner.get("code"))
        self.param = _text(inner.get("param"))
        self.everything = f"{self.type} {self.code} {self.message}"
        code = inner.get("code", inner.get("status_code"))
        self.status: int | None = None
        if isinstance(code, int) and 400 <= code <= 599:
            self.status = code
        else:
            hint = f"{self.type} {self.code}"
            self.status = next((s for pattern, s in _STATUS_OF if pattern.search(hint)), None)


def _classify(  # noqa: PLR0911 - one line a rule, the first that fits
    status: int | None, said: _Said
) -> tuple[type[ModelError], str]:
    text = said.everything
    if status in {401, 403}:
        return RequestRefused, "auth"
    if status == 402 or _QUOTA.search(text):
        return RequestRefused, "quota"
    if _TOKENS.search(text):
        return ContextOverflow, "overflow-tokens"
    if status == 429:
        return RateLimited, "rate-limit"
    if status is None or status >= 500 or status in {408, 409, 425}:
        return ServerFailed, "server"
    if _MEDIA.search(text):
        return ContextOverflow, "overflow-media"
    if status == 413 or _BYTES.search(text):
        return ContextOverflow, "overflow-bytes"
    return RequestRefused, "not-found" if status == 404 else "refused"


def _retry_after(headers: Mapping[str, str], message: str, now: float | None) -> float | None:
    """Milliseconds, from `retry-after-ms`, `retry-after` in seconds or as a date, or the text."""
    if (value := _number(headers.get("retry-after-ms"))) is not None:
        return value
    after = headers.get("retry-after")
    if (value := _number(after)) is not None:
        return value * 1000
    if after and (then := _date(after)) is not None:
        base = _date(headers.get("date", "")) if now is None else now
        return None if base is None else max(0.0, (then - base) * 1000)
    if (found := _TRY_AGAIN.search(message)) and (found[1] or found[2]):
        unit = 1.0 if found[3] == "ms" else 1000.0
        return int(found[1] or 0) * 60_000 + (_number(found[2]) or 0) * unit
    return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


def _json(raw: bytes) -> Any:
    try:
        return jsontext.decode(raw)
    except ValueError:
        return None


def _dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return str(value) if isinstance(value, (str, int)) and value else ""


_ERRORS: Final[Mapping[str, type[ModelError]]] = {
    "overflow-tokens": ContextOverflow,
    "overflow-bytes": ContextOverflow,
    "overflow-media": ContextOverflow,
    "rate-limit": RateLimited,
    "server": ServerFailed,
    "transport": TransportFailed,
}


def error_of(failure: Failure) -> ModelError:
    """The error that a logged failure was; a code that is none of ours is a refusal."""
    return _ERRORS.get(failure.code, RequestRefused)(failure)
