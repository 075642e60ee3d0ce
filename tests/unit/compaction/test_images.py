"""What images cost, by their pixels."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from struct import pack

import pytest

from turnlog.compaction.images import LEAST, MOST, image_tokens, pixels
from turnlog.content import Image


def png(width: int, height: int) -> bytes:
    """The start of a PNG file."""
    return b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", width, height) + bytes(9)


def gif(width: int, height: int) -> bytes:
    """The start of a GIF file."""
    return b"GIF89a" + pack("<HH", width, height) + bytes(8)


def jpeg(width: int, height: int) -> bytes:
    """The start of a JPEG file whose size stands behind a large preview."""
    preview = b"\xff\xe1" + pack(">H", 60_000) + bytes(59_998)
    return b"\xff\xd8" + preview + b"\xff\xc0" + pack(">HBHH", 17, 8, height, width) + bytes(12)


def webp(width: int, height: int) -> bytes:
    """The start of an extended WebP file."""
    sides = b"".join((side - 1).to_bytes(3, "little") for side in (width, height))
    return b"RIFF\0\0\0\0WEBPVP8X" + pack("<I", 10) + bytes(4) + sides


def webp_lossless(width: int, height: int) -> bytes:
    """The start of a lossless WebP file."""
    bits = (width - 1) | (height - 1) << 14
    return b"RIFF\0\0\0\0WEBPVP8L" + pack("<IB", 5, 0x2F) + bits.to_bytes(4, "little") + bytes(8)


def webp_lossy(width: int, height: int) -> bytes:
    """The start of a lossy WebP file."""
    frame = bytes(3) + b"\x9d\x01\x2a" + pack("<HH", width, height)
    return b"RIFF\0\0\0\0WEBPVP8 " + pack("<I", 10) + frame + bytes(8)


@pytest.mark.parametrize("file", [png, gif, jpeg, webp, webp_lossless, webp_lossy])
def test_the_size_is_read_from_the_first_bytes(file: Callable[[int, int], bytes]) -> None:
    """Width and height are found in each format, without reading the picture."""
    assert pixels(b64encode(file(640, 480)).decode()) == (640, 480)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "!!!!",
        "data:image/png;base64,",
        "iVBORw0KGgo=",
        b64encode(png(0, 5)).decode(),
        b64encode(b"\xff\xd8\xff\xe1" + pack(">H", 60_000)).decode(),
        b64encode(b"\xff\xd8" + bytes(40)).decode(),
        b64encode(b"BM" + bytes(60)).decode(),
        b64encode(b"RIFF\0\0\0\0WEBPVP9 " + bytes(20)).decode(),
        "\u00e9" * 40,
    ],
)
def test_what_cannot_be_read_has_no_size(data: str) -> None:
    """Damaged, cut off or foreign data gives no size, and no error."""
    assert pixels(data) is None


def test_a_data_address_is_read_too() -> None:
    """Base64 behind `data:…,` is read like base64 alone."""
    assert pixels("data:image/gif;base64," + b64encode(gif(32, 16)).decode()) == (32, 16)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(10, 10, LEAST), (1000, 1000, 1333), (3136, 1568, 1600), (20_000, 2, LEAST), (750, 100, 100)],
)
def test_a_token_is_750_pixels(width: int, height: int, tokens: int) -> None:
    """An image costs its pixels once it is scaled down, within the least and the most."""
    data = b64encode(png(width, height)).decode()
    assert image_tokens(Image("image/png", data)) == tokens


def test_an_image_of_unknown_size_costs_the_most() -> None:
    """An address is never fetched, so what is behind it may be large."""
    assert image_tokens(Image(url="https://example.org/x.png")) == MOST
