"""Which image a provider's refusal is about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnlog.compaction.refused import blamed_images, is_about_media
from turnlog.content import Failure
from turnlog.errors import ContextOverflow, ModelError, RateLimited, RequestRefused

BODY = json.dumps(
    {
        "messages": [
            {"role": "user", "content": "text alone"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "data": "QUJD"}},
                    {"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,REVG"}},
                    {"type": "image_url", "image_url": {"url": "https://b.example/y.png"}},
                    {
                        "type": "tool_result",
                        "content": [
                            {"type": "text", "text": "shot"},
                            {"type": "image", "source": {"type": "base64", "data": "R0hJ"}},
                        ],
                    },
                ],
            },
        ]
    }
).encode()


@pytest.mark.parametrize(
    ("message", "param", "found"),
    [
        ("messages.1.content.1.image.source.base64: too large", None, ["QUJD"]),
        ("messages.1.content.2.image: cannot be read", None, ["https://a.example/x.png"]),
        ("Invalid image", "messages[1].content[3].image_url.url", ["REVG"]),
        ("Invalid 'messages[1].content[4].image_url': bad", None, ["https://b.example/y.png"]),
        ("messages.1.content.5.tool_result.content.1: image exceeds", None, ["R0hJ"]),
        ("the image in message 1, part 1 is too wide", None, ["QUJD"]),
        ("messages.1.content.0: text is no image", None, []),
        ("messages.0.content.1: no such block", None, []),
        ("messages.7.content.1: no such message", None, []),
        ("messages.1.content.9: no such block", None, []),
        ("an image is too large", None, []),
    ],
)
def test_the_image_at_the_place_that_is_named(
    message: str, param: str | None, found: list[str]
) -> None:
    """By its data or address, in every dialect; nothing when the place holds no image."""
    extra: dict[str, Any] | None = None if param is None else {"param": param}
    failure = Failure(message, "refused", extra=extra)
    assert list(blamed_images(failure, BODY)) == found


@pytest.mark.parametrize(
    ("error", "is_about"),
    [
        (ContextOverflow(Failure("too large", "overflow-media")), True),
        (ContextOverflow(Failure("an image too large", "overflow-tokens")), False),
        (ContextOverflow(Failure("too large", "overflow-bytes")), False),
        (RequestRefused(Failure("Could not process image", "refused")), True),
        (RequestRefused(Failure("unknown field imagery", "refused")), False),
        (RequestRefused(Failure("image models need a key", "auth")), False),
        (RateLimited(Failure("too many images a minute", "rate-limit")), False),
    ],
)
def test_what_is_about_media(error: ModelError, is_about: bool) -> None:  # noqa: FBT001
    """Too much of them, or a refusal that speaks of an image."""
    assert is_about_media(error) == is_about
