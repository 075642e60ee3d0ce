"""Every encoder gives the bytes it always gave: a changed byte is a new version of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnlog.content import Message
from turnlog.dialects import ENCODERS, encoder
from turnlog.events import Header
from turnlog.records import Codec

GOLDEN = Path(__file__).parents[2] / "golden" / "dialects"
GIVEN: Any = json.loads((GOLDEN / "history.json").read_text(encoding="utf-8"))
MESSAGES = [Codec(Message).convert(message) for message in GIVEN["messages"]]


def requests(name: str) -> bytes:
    """The bodies of the golden requests, a line each."""
    lines: list[bytes] = []
    for wire in GIVEN["headers"][name.partition("@")[0]]:
        header = Codec(Header).convert(wire)
        lines.append(encoder(name).encode(header, MESSAGES))
        lines.append(encoder(name).encode(header, MESSAGES, instruction="Sum up.", stream=False))
    return b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_gives_the_bytes_it_always_gave(name: str) -> None:
    """Header, history and instruction of the golden input are encoded to the golden bodies."""
    assert requests(name) == (GOLDEN / f"{name}.jsonl").read_bytes()


def test_no_golden_file_is_without_encoder() -> None:
    """An encoder that had a golden file is still there."""
    assert {path.stem for path in GOLDEN.glob("*.jsonl")} == set(ENCODERS)
