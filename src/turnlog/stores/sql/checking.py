"""What a payload must be when it is read: JSON within the limits under which it was admitted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from turnlog import jsontext

_skim = msgspec.json.Decoder(msgspec.Raw).decode
_NEVER_DEEP = 2 * jsontext.MAX_DEPTH  # bytes: each level takes a bracket on both sides


def check_json(raws: Iterable[bytes]) -> None:
    """Raise ValueError unless each is JSON, PayloadError if one is beyond the limits."""
    skim, long_number = _skim, jsontext.has_long_number
    for raw in raws:
        try:
            skim(raw)
        except (msgspec.DecodeError, RecursionError):
            jsontext.decode(raw)  # a lone surrogate is JSON, too
        if not raw.isascii():
            raw.decode()  # what skims does not look into strings
        if len(raw) > _NEVER_DEEP or long_number(raw):
            jsontext.check_bytes(raw)
