r"""Lossless JSON: what a payload may hold, as bytes and back.

msgspec does the work at C speed and is checked rather than trusted: it turns NaN into null,
integer keys into strings, tuples into lists, and refuses lone surrogates. `admit` therefore
encodes, decodes and compares, and walks the value in Python only where the two differ, to name
the path. Lone surrogates are kept, escaped as `\ud800`, by the standard library's codec; two that
make a pair come out as the one character they are, since JSON cannot tell them apart.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, TypeGuard, cast

import msgspec

from turnlog.errors import NotJson, PayloadTooDeep, PayloadTooLarge

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 512
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
# A digit as a byte that UTF-8 never has: looking for nineteen skips nineteen at a time.
_DIGITS = bytes.maketrans(b"0123456789", b"\xff" * 10)
_NINETEEN = b"\xff" * 19
_BEFORE_NUMBER = (b"", b":", b"[", b",", b" ", b"\t", b"\r", b"\n")


def encode(value: Any) -> bytes:
    """Plain JSON (or a msgspec struct) as compact UTF-8, lone surrogates escaped."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value)
        return _escape_surrogates(json.dumps(plain, ensure_ascii=False, separators=(",", ":")))


def _escape_surrogates(text: str) -> bytes:
    return re.sub("[\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", text).encode()


def decode(raw: bytes | bytearray | memoryview) -> Any:
    """The plain JSON value of `raw`.

    Raises:
        ValueError: not JSON (`msgspec.DecodeError` and `json.JSONDecodeError` are ValueErrors).
    """
    try:
        return _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return decode_leniently(bytes(raw))


def decode_leniently(raw: bytes) -> Any:
    """As `decode`, by the slow road: lone surrogates pass, NaN and infinities do not.

    Raises:
        ValueError: not JSON, or nested too deeply to read.
    """
    try:
        return _lenient.decode(raw.decode("utf-8"))
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


def _refuse_constant(name: str) -> None:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        msg = f"{digits[:40]} is beyond every finite number"
        raise ValueError(msg)
    return number


_lenient = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def member(raw: bytes, name: str) -> bytes | None:
    """The bytes of a member of the JSON object `raw`, verbatim; the last one wins.

    For what msgspec cannot cut out, since a string holds a lone surrogate; `raw` is known to be
    JSON. None when it is no object or has no such member.
    """
    text = raw.decode("utf-8")
    found: bytes | None = None
    at = _blank(text, 0)
    if text[at : at + 1] != "{":
        return None
    at = _blank(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = _lenient.raw_decode(text, at)
        start = _blank(text, _blank(text, at) + 1)  # past the colon
        _, at = _lenient.raw_decode(text, start)
        if key == name:
            found = text[start:at].encode()
        at = _blank(text, _blank(text, at) + 1)  # past the comma or the brace
    return found


def elements(raw: bytes) -> list[bytes]:
    """The bytes of each element of the JSON array `raw`, verbatim; as `member`."""
    text = raw.decode("utf-8")
    found: list[bytes] = []
    at = _blank(text, _blank(text, 0) + 1)
    while at < len(text) and text[at] != "]":
        _, end = _lenient.raw_decode(text, at)
        found.append(text[at:end].encode())
        at = _blank(text, _blank(text, end) + 1)
    return found


def _blank(text: str, at: int) -> int:
    """The first place from `at` on that is no JSON blank."""
    while text[at : at + 1] in _BLANKS:
        at += 1
    return at


_BLANKS = frozenset(" \t\r\n")


def admit(value: Any, *, seq: int | None = None) -> bytes:
    """The bytes of a plain value, or the error that says where it is not JSON.

    Raises:
        NotJson: NaN, an infinity, bytes, a set, a tuple, a key that is no string, a cycle, an
            integer outside -2**63 … 2**63-1, or any other type, with the path to it.
        PayloadTooLarge, PayloadTooDeep: beyond `MAX_BYTES`, `MAX_DEPTH`.
    """
    try:
        raw = _encode(value)
        same = _decode(raw) == value
    except Exception:  # noqa: BLE001 - whatever the codec disliked, the walk names it
        raw, same = b"", False
    if not same or suspicious(raw):
        _walk(value, seq)
        raw = encode(value)
    check_size(raw, seq)
    return raw


def has_surrogates(value: Any) -> bool:
    """Whether a string of a plain value has surrogates, which JSON joins where they are pairs."""
    try:
        _encode(value)
    except UnicodeEncodeError:
        return True
    return False


def suspicious(raw: bytes) -> bool:
    """Whether `raw` may nest too deeply or hold an integer out of range, judged cheaply."""
    return raw.count(b"[") + raw.count(b"{") > MAX_DEPTH or has_long_number(raw)


def has_long_number(raw: bytes) -> bool:
    """Whether a number has enough digits for an integer out of range; not one inside a word."""
    digits = raw.translate(_DIGITS)
    at = digits.find(_NINETEEN)
    while at >= 0:
        before = raw[max(0, at - 2) : at].removesuffix(b"-")[-1:]
        if before in _BEFORE_NUMBER:
            return True
        at = digits.find(_NINETEEN, at + len(_NINETEEN))
    return False


def check_size(raw: bytes, seq: int | None) -> None:
    """Refuse more than `MAX_BYTES`."""
    if len(raw) > MAX_BYTES:
        msg = f"expected at most {MAX_BYTES} bytes of JSON, got {len(raw)}"
        raise PayloadTooLarge(msg, seq=seq, value=len(raw))


def check_bytes(raw: bytes, *, seq: int | None = None) -> None:
    """Apply the limits of `admit` to bytes that were loaded, not encoded here.

    Raises:
        NotJson, PayloadTooLarge, PayloadTooDeep: as `admit`.
    """
    check_size(raw, seq)
    if suspicious(raw):
        _walk(decode(raw), seq)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a plain value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a plain value is a JSON array."""
    return isinstance(value, list)


def _walk(root: Any, seq: int | None) -> None:
    """Find the first value that is not JSON, depth first, without recursion."""
    stack: list[tuple[Any, str, int, tuple[int, ...]]] = [(root, "$", 0, ())]
    while stack:
        value, path, depth, above = stack.pop()
        if value is None or isinstance(value, (bool, str)):
            continue
        if isinstance(value, int):
            if not INT_MIN <= value <= INT_MAX:
                detail = "expected an integer from -2^63 to 2^63-1"
                raise NotJson(detail, seq=seq, value=value, path=path)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise NotJson("expected a finite number", seq=seq, value=value, path=path)
        elif is_object(value) or is_array(value):
            if id(value) in above:
                raise NotJson("expected no cycle", seq=seq, value=type(value).__name__, path=path)
            if depth >= MAX_DEPTH:
                msg = f"expected at most {MAX_DEPTH} levels, more at {path[:60]}…"
                raise PayloadTooDeep(msg, seq=seq, value=depth + 1)
            inside = (*above, id(value))
            items: list[tuple[Any, str]] = []
            if is_object(value):
                for key, item in cast("Iterable[tuple[object, Any]]", value.items()):
                    if not isinstance(key, str):
                        raise NotJson("expected string keys", seq=seq, value=key, path=path)
                    items.append((item, f"{path}.{key}"))
            else:
                items = [(item, f"{path}[{i}]") for i, item in enumerate(value)]
            stack.extend((item, where, depth + 1, inside) for item, where in reversed(items))
        else:
            raise NotJson("expected JSON", seq=seq, value=value, path=path)  # pyright: ignore[reportUnknownArgumentType]


def join_surrogates(text: str) -> str:
    """The text with every pair of surrogates as the character they are; lone ones stay."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates as U+FFFD: for outgoing copies only, never for the log."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
