"""Payloads as stored bytes, and back: each says by its first byte what it is.

    JSON as it is       begins as JSON does: never with a byte below 9
    PLAIN               what follows, as it is: bytes that need not be JSON
    PACKED              a zstd frame without its magic number; the dictionary is `dictionary.V1`
    PACKED_BY_MESSAGE   the same, the dictionary is `V1` with a message's payload behind it
    CUT                 a payload whose long stretches are blobs, see `blobs`

A frame always says how large its content is, which bounds what a hostile one may unpack to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import zstandard

from turnlog.errors import AdmissionError
from turnlog.stores.sql.dictionary import V1

PLAIN, PACKED, PACKED_BY_MESSAGE, CUT = b"\x00", b"\x01", b"\x02", b"\x03"
JSON = 9
"""What JSON begins with is not below this."""
MIN_PACKED = 32
"""Shorter payloads gain nothing: measured."""
UNPACKED_MAX = 96 << 20
WIDE = 0x80
"""From this first byte of a frame on, the size of its content has four bytes or eight."""
MAGIC = b"\x28\xb5\x2f\xfd"

LEVEL = 1  # with the entropy tables of the dictionary, higher ones cost time and save nothing


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
    struct.error,
    zstandard.ZstdError,
)
"""What unpacking a row raises that is not what was written."""


Coder = Callable[[bytes], bytes]


def compressor(words: bytes, level: int) -> Coder:
    """Bytes to a frame, with a dictionary; for one thread at a time."""
    made: Any = zstandard.ZstdCompressionDict(words, dict_type=zstandard.DICT_TYPE_FULLDICT)
    made.precompute_compress(level=level)
    return zstandard.ZstdCompressor(
        level=level,
        dict_data=made,
        write_checksum=False,
        write_content_size=True,
        write_dict_id=False,
    ).compress


def decompressor(words: bytes) -> Coder:
    """A frame to bytes, with a dictionary; `check_size` comes first. For one thread at a time."""
    made = zstandard.ZstdCompressionDict(words, dict_type=zstandard.DICT_TYPE_FULLDICT)
    return zstandard.ZstdDecompressor(dict_data=made).decompress


class Zstd(NamedTuple):
    """Both ways with dictionary V1."""

    compress: Coder
    decompress: Coder


_idle: list[Zstd] = []


def borrow() -> Zstd:
    """A `Zstd` that no other thread uses; give it back with `give_back`."""
    try:
        return _idle.pop()
    except IndexError:
        return Zstd(compressor(V1, LEVEL), decompressor(V1))


give_back = _idle.append


def check_size(stored: bytes) -> None:
    """Refuse a frame, behind a byte of prefix, that says it unpacks to more than `UNPACKED_MAX`.

    Raises:
        BadRow: it does.
        zstandard.ZstdError: it is no frame.
    """
    if len(stored) > 1 and stored[1] >= WIDE:
        size = zstandard.frame_content_size(MAGIC + stored[1:19])
        if size > UNPACKED_MAX:
            raise BadRow(f"it unpacks to {size} bytes, expected at most {UNPACKED_MAX}")


def pack(raw: bytes, compress: Coder) -> bytes:
    """JSON in its smaller form: as it is, or PACKED."""
    if len(raw) < MIN_PACKED:
        return raw
    frame = compress(raw)
    return PACKED + frame[4:] if len(frame) - 3 < len(raw) else raw


def pack_bytes(raw: bytes, compress: Coder, prefix: bytes = PACKED) -> bytes:
    """Any bytes in their smaller form: PLAIN, or packed under a prefix."""
    frame = compress(raw)
    return prefix + frame[4:] if len(frame) - 4 < len(raw) else PLAIN + raw


def pack_whole(raw: bytes) -> bytes:
    """Any bytes in their smaller form, on their own; `unpack_whole` undoes it."""
    zstd = borrow()
    try:
        return pack_bytes(raw, zstd.compress)
    finally:
        give_back(zstd)


def unpack_whole(stored: bytes) -> bytes:
    """What `pack_whole` was given; raises one of `UNREADABLE` for anything else."""
    zstd = borrow()
    try:
        return unpack_bytes(stored, zstd.decompress)
    finally:
        give_back(zstd)


def unpack_bytes(stored: bytes, decompress: Coder, prefix: bytes = PACKED) -> bytes:
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
    return decompress(MAGIC + stored[1:])
