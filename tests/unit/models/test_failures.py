"""What a provider's refusal is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnlog.content import Failure
from turnlog.errors import (
    ContextOverflow,
    ModelError,
    RateLimited,
    RequestRefused,
    ServerFailed,
    TransportFailed,
)
from turnlog.models.failures import error_of, failure_of


def said(message: str, **fields: Any) -> bytes:
    """An error body of the usual shape."""
    return msgspec.json.encode({"error": {"message": message, **fields}})


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000"),
        (400, "request (3031 tokens) exceeds the available context size (512 tokens)"),
        (400, "Your input exceeds the context window of this model."),
        (400, "The input token count (5) exceeds the maximum number of tokens allowed (4)."),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "Please reduce the length of the messages or completion."),
        (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6, Requested 7"),
        (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 3, Requested 4"),
        (500, "the request exceeds the available context size"),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096"),
    ],
)
def test_too_many_tokens(status: int, message: str) -> None:
    """Each provider's way to say that the window is too small is an overflow in tokens."""
    error = failure_of(status, said(message))
    assert isinstance(error, ContextOverflow)
    assert error.kind == "tokens"
    assert not error.retryable


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (413, b"<html>413 Request Entity Too Large</html>", "bytes"),
        (413, b"", "bytes"),
        (400, said("too long", code="string_above_max_length"), "bytes"),
        (400, said("Invalid 'messages': array too long. Maximum length 2048."), "bytes"),
        (400, said("messages.14.content.1.image: image exceeds 5 MB maximum"), "media"),
        (400, said("At most 1 image(s) may be provided in one request."), "media"),
        (400, said("image dimensions exceed max allowed size: 8000 pixels"), "media"),
        (413, said("Too many images: 21 > 20"), "media"),
    ],
)
def test_too_large(status: int, body: bytes, kind: str) -> None:
    """Bodies and images that are too large are overflows of their own kinds."""
    error = failure_of(status, body)
    assert isinstance(error, ContextOverflow)
    assert error.kind == kind
    assert error.failure.code == f"overflow-{kind}"


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, said("Invalid image."), RequestRefused, "refused"),
        (400, said("Unknown parameter: 'x'."), RequestRefused, "refused"),
        (401, said("Incorrect API key"), RequestRefused, "auth"),
        (403, b"", RequestRefused, "auth"),
        (402, said("Insufficient Balance"), RequestRefused, "quota"),
        (429, said("You exceeded your current quota"), RequestRefused, "quota"),
        (429, said("x", code="insufficient_quota"), RequestRefused, "quota"),
        (404, b'{"detail": "Not Found"}', RequestRefused, "not-found"),
        (307, b"", RequestRefused, "refused"),
        (429, b"slow down", RateLimited, "rate-limit"),
        (408, b"", ServerFailed, "server"),
        (500, b"", ServerFailed, "server"),
        (503, said("The image service is over its limit"), ServerFailed, "server"),
        (529, said("Overloaded"), ServerFailed, "server"),
    ],
)
def test_kinds(status: int, body: bytes, kind: type[ModelError], code: str) -> None:
    """Status and body say which error it is, and whether trying again can help."""
    error = failure_of(status, body)
    assert type(error) is kind
    assert error.failure.code == code
    assert error.failure.status == status
    assert error.retryable is (kind in {RateLimited, ServerFailed})
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("headers", "message", "expected"),
    [
        ({"retry-after": "2"}, "", 2000),
        ({"retry-after": "0.25"}, "", 250),
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1500),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, "", 7000),
        ({"retry-after": "Sun, 06 Nov 1994 08:00:00 GMT"}, "", 0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-1"}, "", None),
        ({"retry-after": "inf"}, "", None),
        ({}, "Please try again in 1.5s. Visit us.", 1500),
        ({}, "Please try again in 20ms.", 20),
        ({}, "Please try again in 6m0s.", 360_000),
        ({}, "Please try again in a while.", None),
        ({}, "", None),
    ],
)
def test_delays(headers: dict[str, str], message: str, expected: float | None) -> None:
    """The provider's delay is read from headers in seconds, milliseconds or as a date, or text."""
    error = failure_of(429, said(message), headers, now=784_111_770)
    assert isinstance(error, RateLimited)
    assert error.retry_after_ms == expected


def test_a_date_is_measured_by_the_answer_itself() -> None:
    """Without a clock the answer's own date is the base."""
    headers = {
        "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT",
        "date": "Sun, 06 Nov 1994 08:49:30 GMT",
    }
    assert failure_of(503, b"", headers).failure.provider_retry_after_ms == 7000


def test_details_are_kept() -> None:
    """The request's id and what the provider blames are in the failure."""
    body = said("bad", type="invalid_request_error", code="c", param="messages.[14].content.[1]")
    failure = failure_of(400, body, {"x-request-id": "req-1"}).failure
    assert failure.request_id == "req-1"
    assert failure.extra == {
        "type": "invalid_request_error",
        "providerCode": "c",
        "param": "messages.[14].content.[1]",
    }
    assert failure.message == "HTTP 400: bad"


@pytest.mark.parametrize("body", [b"null", b"[1]", b"{}", b"\xff", b'{"error": {"message": 7}}'])
def test_odd_bodies(body: bytes) -> None:
    """Whatever the body is, there is an error with a message."""
    assert failure_of(400, body).failure.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("overflow-bytes", ContextOverflow),
        ("rate-limit", RateLimited),
        ("server", ServerFailed),
        ("transport", TransportFailed),
        ("quota", RequestRefused),
    ],
)
def test_a_logged_failure_becomes_its_error(code: str, kind: type[ModelError]) -> None:
    """The code in the log names the error."""
    assert type(error_of(Failure("x", code))) is kind
