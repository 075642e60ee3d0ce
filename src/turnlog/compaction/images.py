"""What an image costs: its size in pixels decides, and that is read from its first bytes.

The rule: scaled down until its longer edge has at most 1,568 pixels, an image costs a token for
every 750 pixels, at least 85 and at most 1,600 tokens. That is how Anthropic counts; the tiles of
OpenAI come to less for large images and to 85 for the least. An image of unknown size (behind an
address, which is never fetched, or in a format not known here) costs the most.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from struct import error as StructError  # noqa: N812 - a class
from struct import unpack_from
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from turnlog.content import Image

MOST: Final = 1600
LEAST: Final = 85
_EDGE: Final = 1568
_PIXELS: Final = 750
_LOOKED_AT: Final = 1 << 17  # characters of base64: a JPEG has its size behind its preview
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # of JPEG, with a size


def image_tokens(image: Image) -> int:
    """About how many tokens an image is."""
    found = pixels(image.data) if image.data else None
    if found is None:
        return MOST
    width, height = found
    scale = min(1.0, _EDGE / max(width, height))
    return min(max(int(width * scale * height * scale / _PIXELS), LEAST), MOST)


def pixels(data: str) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF, WebP or JPEG in base64, or None when they cannot be read."""
    head = data[:_LOOKED_AT].partition(",")[2] if data.startswith("data:") else data[:_LOOKED_AT]
    try:
        raw = b64decode(head[: len(head) // 4 * 4])
        found = _read(raw)
    except (binascii.Error, ValueError, StructError):
        return None
    return found if found is not None and min(found) > 0 else None


def _read(raw: bytes) -> tuple[int, int] | None:
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        return unpack_from(">II", raw, 16)
    if raw.startswith((b"GIF87a", b"GIF89a")):
        return unpack_from("<HH", raw, 6)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return _webp(raw)
    return _jpeg(raw) if raw.startswith(b"\xff\xd8") else None


def _webp(raw: bytes) -> tuple[int, int] | None:
    match raw[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(raw[at : at + 3], "little") for at in (24, 27))
            return width + 1, height + 1
        case b"VP8L":
            bits = int.from_bytes(raw[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = unpack_from("<HH", raw, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    at = 2
    while True:
        mark, kind, length = unpack_from(">BBH", raw, at)
        if mark != 0xFF:
            return None
        if kind in _FRAMES:
            height, width = unpack_from(">HH", raw, at + 5)
            return width, height
        at += 2 + length
