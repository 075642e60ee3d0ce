"""What a payload must be when it is read: JSON within the limits under which it was admitted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnlog import jsontext

_skim = msgspec.json.Decoder(msgspec.Raw).decode
_NEVER_DEEP = 2 * jsontext.MAX_DEPTH  # bytes: each level takes a bracket on both sides


def check_json(raws: Sequence[bytes]) -> None:
    """Raise ValueError unless each is JSON, PayloadError if one is beyond the limits."""
    skim, never_deep = _skim, _NEVER_DEEP
    together = b"\n".join(raws)
    if not together.isascii():
        together.decode()  # skimming does not look into strings
    long_number = jsontext.has_long_number(together)
    for raw in raws:
        try:
            skim(raw)
        except (msgspec.DecodeError, RecursionError):
            jsontext.decode(raw)  # a lone surrogate is JSON, too
        if long_number or (len(raw) > never_deep and _may_be_beyond(raw)):
            jsontext.check_bytes(raw)


def _may_be_beyond(raw: bytes) -> bool:
    return raw.count(b"[") + raw.count(b"{") > jsontext.MAX_DEPTH or len(raw) > jsontext.MAX_BYTES
