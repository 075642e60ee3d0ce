"""Payloads as stored bytes, and back: each says by its first byte what it is.

    JSON as it is       begins as JSON does: never with a byte below 9
    PLAIN               what follows, as it is: bytes that need not be JSON
    PACKED              a zstd frame without its magic number; the dictionary is `dictionary.V1`
    PACKED_BY_MESSAGE   the same, the dictionary is `V1` with a message's payload behind it
    CUT                 a payload whose long stretches are blobs, see `blobs`

A frame always says how large its content is, which bounds what a hostile one may unpack to.
"""

from __future__ import annotations

from typing import Any

import zstandard

from turnlog.errors import AdmissionError
from turnlog.stores.sql.dictionary import V1

PLAIN, PACKED, PACKED_BY_MESSAGE, CUT = b"\x00", b"\x01", b"\x02", b"\x03"
MIN_PACKED = 48
"""Shorter payloads gain nothing: measured."""
UNPACKED_MAX = 96 << 20
MAGIC = b"\x28\xb5\x2f\xfd"

_LEVEL = 1  # with the entropy tables of the dictionary, higher ones cost time and save nothing
_WIDE = 0x80  # of a frame's first byte: its content's size has four bytes or eight


class BadRow(ValueError):
    """A stored row that cannot be what was written; the message is one line for a person.

    Attributes:
        seq: of the event, or of the first one in the row; None when not known.
    """

    def __init__(self, reason: str, seq: int | None = None) -> None:
        super().__init__(reason)
        self.seq = seq


UNREADABLE = (
    ValueError,  # BadRow, what is not JSON or not msgpack
    AdmissionError,
    TypeError,  # a column of another type than it should have
    OverflowError,
    zstandard.ZstdError,
)
"""What unpacking a row raises that is not what was written."""


class Zstd:
    """A compressor and a decompressor with one dictionary; for one thread at a time.

    Attributes:
        compress: bytes to a frame.
        decompress: a frame to bytes; its size must have been looked at (`check_size`).
    """

    __slots__ = ("compress", "decompress")

    def __init__(self, content: bytes, *, digested: bool = False) -> None:
        words: Any = zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_FULLDICT)
        if digested:
            words.precompute_compress(level=_LEVEL)
        self.compress = zstandard.ZstdCompressor(
            level=_LEVEL,
            dict_data=words,
            write_checksum=False,
            write_content_size=True,
            write_dict_id=False,
        ).compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=words).decompress


_idle: list[Zstd] = []


def borrow() -> Zstd:
    """A `Zstd` of dictionary V1 that no one else uses; give it back with `give_back`."""
    try:
        return _idle.pop()
    except IndexError:
        return Zstd(V1, digested=True)


give_back = _idle.append


def check_size(stored: bytes) -> None:
    """Refuse a frame, behind a byte of prefix, that says it unpacks to more than `UNPACKED_MAX`.

    Raises:
        BadRow: it does.
        zstandard.ZstdError: it is no frame.
    """
    if len(stored) > 1 and stored[1] >= _WIDE:
        size = zstandard.frame_content_size(MAGIC + stored[1:19])
        if size > UNPACKED_MAX:
            raise BadRow(f"it unpacks to {size} bytes, expected at most {UNPACKED_MAX}")


def pack(raw: bytes, zstd: Zstd) -> bytes:
    """JSON in its smaller form: as it is, or PACKED."""
    if len(raw) < MIN_PACKED:
        return raw
    frame = zstd.compress(raw)
    return PACKED + frame[4:] if len(frame) - 3 < len(raw) else raw


def pack_bytes(raw: bytes, zstd: Zstd, prefix: bytes = PACKED) -> bytes:
    """Any bytes in their smaller form: PLAIN, or packed under a prefix."""
    frame = zstd.compress(raw)
    return prefix + frame[4:] if len(frame) - 4 < len(raw) else PLAIN + raw


def unpack_bytes(stored: bytes, zstd: Zstd, prefix: bytes = PACKED) -> bytes:
    """What `pack_bytes` was given.

    Raises:
        BadRow: another prefix, or too large.
        zstandard.ZstdError: no such frame.
    """
    if stored.startswith(PLAIN):
        return stored[1:]
    if not stored.startswith(prefix):
        raise BadRow(f"no such form of stored bytes: {stored[:1].hex() or 'none'}")
    check_size(stored)
    return zstd.decompress(MAGIC + stored[1:])
