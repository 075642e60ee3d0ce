"""Lossless JSON: what goes in comes out, what cannot is refused with the path to it."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import jsontext
from turnlog.errors import NotJson, PayloadTooDeep, PayloadTooLarge


def nested(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -0.0,
        1.0,
        1e300,
        -(2**63),
        2**63 - 1,
        "",
        "\x00\u2028\u2029\u0085\x0b\x1c",
        "\ud800",
        "a\udfffb",
        {"": {"$tl.extra": 1}},
        {"\ud800": "\udc00"},
        [[], {}, [None]],
        nested(512),
    ],
)
def test_round_trip(value: object) -> None:
    """A value comes back equal and of the same type."""
    back = jsontext.decode(jsontext.admit(value))
    assert back == value
    assert type(back) is type(value)
    assert str(back) == str(value)


def test_surrogates_that_make_a_pair_are_joined() -> None:
    """JSON cannot tell two halves of a character from the character."""
    assert jsontext.decode(jsontext.admit("\ud83d\ude00")) == "\U0001f600"


def test_lines_stay_lines() -> None:
    """Encoded text has no line break, and lone surrogates are escaped."""
    assert jsontext.admit("a\r\n\x0b\ud800") == b'"a\\r\\n\\u000b\\ud800"'


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, float("nan")]}, "$.a[1]"),
        ({"a": float("-inf")}, "$.a"),
        (b"x", "$"),
        ({"s": {1}}, "$.s"),
        ({"t": (1,)}, "$.t"),
        ({"k": {1: 2}}, "$.k"),
        ({"k": {None: 2}}, "$.k"),
        ([2**63], "$[0]"),
        ([2**64], "$[0]"),
        ([-(2**63) - 1], "$[0]"),
        ([object()], "$[0]"),
        ({"a": [{"b": 1j}]}, "$.a[0].b"),
    ],
)
def test_names_the_path(value: object, path: str) -> None:
    """What is not JSON is refused, with the path to it."""
    with pytest.raises(NotJson) as caught:
        jsontext.admit(value, seq=4)
    assert (caught.value.path, caught.value.seq) == (path, 4)
    assert path in str(caught.value)


def test_cycles() -> None:
    """A cycle is refused; an object that occurs twice is not one."""
    loop: dict[str, Any] = {}
    loop["self"] = [loop]
    with pytest.raises(NotJson, match="cycle"):
        jsontext.admit(loop)
    shared = [1]
    assert jsontext.admit([shared, shared]) == b"[[1],[1]]"


@pytest.mark.parametrize("levels", [513, 5_000])
def test_depth(levels: int) -> None:
    """More than 512 levels are refused, going in and coming from a file."""
    with pytest.raises(PayloadTooDeep):
        jsontext.admit(nested(levels))
    with pytest.raises((PayloadTooDeep, ValueError)):
        jsontext.check_bytes(b"[" * levels + b"]" * levels)


def test_size() -> None:
    """More than 64 MiB are refused."""
    with pytest.raises(PayloadTooLarge):
        jsontext.admit("x" * jsontext.MAX_BYTES)
    assert len(jsontext.admit("x" * (jsontext.MAX_BYTES - 2))) == jsontext.MAX_BYTES


@pytest.mark.parametrize("raw", [b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"", b"{", b"\xff"])
def test_not_json(raw: bytes) -> None:
    """What is not JSON in a file is a ValueError, never a value."""
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec and json word it differently
        jsontext.decode(raw)


@pytest.mark.parametrize("raw", [b"[9223372036854775808]", b"[-9223372036854775809]"])
def test_integers_of_files(raw: bytes) -> None:
    """An integer out of range in a file is refused too."""
    with pytest.raises(NotJson):
        jsontext.check_bytes(raw)


def test_members_and_elements() -> None:
    """Members and elements are cut out verbatim, blanks, escapes and all."""
    raw = rb' { "a" : "\ud800" , "data": {"x" : [ "\u0041" ]} ,"data" : [1 , "\udfff,]"] } '
    assert jsontext.member(raw, "data") == rb'[1 , "\udfff,]"]'
    assert jsontext.member(raw, "a") == rb'"\ud800"'
    assert jsontext.member(raw, "b") is None
    assert jsontext.member(b"[1]", "a") is None
    assert jsontext.elements(rb' [1 , "\udfff,]",{"a": 2}] ') == [b"1", rb'"\udfff,]"', b'{"a": 2}']
    assert jsontext.elements(b"[]") == []


def test_outgoing_copies() -> None:
    """Only on an outgoing copy does a lone surrogate become the replacement character."""
    assert jsontext.replace_surrogates("a\ud800b\ud83d\ude00") == "a\ufffdb\U0001f600"
    assert jsontext.replace_surrogates("plain") == "plain"


def test_pairs_are_joined() -> None:
    """Two halves that follow each other are one character; lone ones stay."""
    assert jsontext.join_surrogates("a\ud83d\ude00\ud800") == "a\U0001f600\ud800"
    assert jsontext.join_surrogates("plain") == "plain"
