"""Long stretches of a payload, stored once per store under their hash.

A stretch is what stands between two quotes of the JSON: nearly always the inside of a string. They
are cut out and put back as bytes, so it does not matter what they mean. The form CUT is the
msgpack of [[where, hash], …] and of the stored form of what remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

import msgspec

from turnlog.stores.sql.packing import (
    CUT,
    PACKED,
    UNPACKED_MAX,
    BadRow,
    Coder,
    pack_bytes,
    unpack_bytes,
)

LONG = 32 << 10
"""Longer stretches are blobs."""
_HASH_SIZE = 16

_Cut = tuple[list[tuple[int, bytes]], bytes]
_decode = msgspec.msgpack.Decoder(_Cut).decode
_encode = msgspec.msgpack.Encoder().encode


def hash_of(stretch: bytes) -> bytes:
    """The key of a blob."""
    return sha256(stretch).digest()[:_HASH_SIZE]


def pack_long(raw: bytes, blobs: dict[bytes, bytes], compress: Coder) -> bytes:
    """A payload over `LONG` in stored form; what was cut out of it is added to `blobs`."""
    cuts: list[tuple[int, bytes]] = []
    rest: list[bytes] = []
    done = 0
    for start, end in _stretches(raw):
        stretch = raw[start:end]
        key = hash_of(stretch)
        if key not in blobs:
            blobs[key] = pack_bytes(stretch, compress)
        rest.append(raw[done:start])
        cuts.append((start, key))
        done = end
    rest.append(raw[done:])
    if not cuts:
        packed = pack_bytes(raw, compress)
        return packed if packed.startswith(PACKED) else raw
    return CUT + _encode((cuts, pack_bytes(b"".join(rest), compress)))


def unpack_long(stored: bytes, blob: Callable[[bytes], bytes], decompress: Coder) -> bytes:
    """The payload of the form CUT; `blob` gives the stored bytes of a hash or a LookupError.

    Raises:
        BadRow: a blob is missing or another, the cuts make no sense, or it is too large.
        msgspec.DecodeError, zstandard.ZstdError: not what was written.
    """
    cuts, rest = _decode(memoryview(stored)[1:])
    rest = unpack_bytes(rest, decompress)
    parts: list[bytes] = []
    size, used = 0, 0  # of the payload, and of the rest
    for start, key in cuts:
        if not size <= start <= size + len(rest) - used:
            raise BadRow(f"a blob is said to stand at {start}")
        parts.append(rest[used : used + start - size])
        used += start - size
        parts.append(_stretch(key, blob, decompress))
        size = start + len(parts[-1])
        if size > UNPACKED_MAX:
            raise BadRow(f"it unpacks to more than {UNPACKED_MAX} bytes")
    parts.append(rest[used:])
    return b"".join(parts)


def hashes_in(stored: bytes | None) -> list[bytes]:
    """The blobs that reading stored bytes will ask for; none of what was not written so."""
    if stored is None or not stored.startswith(CUT):
        return []
    try:
        cuts, _ = _decode(memoryview(stored)[1:])
    except msgspec.DecodeError:
        return []
    return [key for _, key in cuts]


def _stretch(key: bytes, blob: Callable[[bytes], bytes], decompress: Coder) -> bytes:
    try:
        stored = blob(key)
    except LookupError:
        raise BadRow(f"the blob {key.hex()} is missing") from None
    stretch = unpack_bytes(stored, decompress)
    if hash_of(stretch) != key:
        raise BadRow(f"the blob {key.hex()} holds something else")
    return stretch


def _stretches(raw: bytes) -> Iterator[tuple[int, int]]:
    """Where the stretches between quotes that are longer than `LONG` begin and end.

    From behind a quote it looks for the last quote that is no further than `LONG`: what is between
    the two is not long, and is passed over.
    """
    quotes = raw
    if b"\\" in raw:  # escaped quotes are none; pairs of backslashes escape nothing
        quotes = raw.replace(b"\\\\", b"..").replace(b'\\"', b"..")
    start = 0
    while len(raw) - start > LONG:
        last = quotes.rfind(b'"', start, start + LONG + 1)
        if last < 0:
            last = quotes.find(b'"', start + LONG)
            if last < 0:
                last = len(raw)
            yield start, last
        start = last + 1
