"""Whatever happens to a log's bytes: it opens, and every seq is either there or reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.stores.jsonl_files import HEADER, batch, saved, written_on
from turnlog.codec import decode_line, decode_lines, encode_lines
from turnlog.errors import AdmissionError
from turnlog.events import AnyEvent
from turnlog.stores.jsonl.frames import pack
from turnlog.stores.jsonl.scan import Scan, scan
from turnlog.stores.loading import build_log
from turnlog.stores.port import Stored
from turnlog.testing.conformance.samples import chunk, conversation, event, prompt

EVENTS = [
    *conversation(),
    *[chunk(12 + i, f"w{i}") for i in range(6)],
    event(18, {"text": "grüße\u2028\ud800"}, extra={"k": 1}),
    *[prompt(19 + i, "question " * i) for i in range(6)],
]
PARTS = [EVENTS[i : i + 4] for i in range(0, len(EVENTS), 4)]


def mangled(content: bytes, seed: int, head: int) -> bytes:
    """The content after some accidents behind its header."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    body = bytearray(content[head:])
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(body))
        to = min(len(body), at + chance.choice([1, 1, 2, 40, 300]))
        match chance.randrange(7):
            case 0:
                body[at] ^= 1 << chance.randrange(8)
            case 1:
                body[at:to] = bytes(to - at)
            case 2:
                del body[at:to]
            case 3:
                body[at:at] = body[at:to]
            case 4:
                body[at:at] = chance.choice([b"\n", b"\0", b"{}\n", b"\xff" * 9, b"}\n{"])
            case 5:
                moved = bytes(body[at:to])
                del body[at:to]
                body += moved
            case _:
                del body[at:]
        if not body:
            break
    return content[:head] + bytes(body)


def check(found: Scan) -> None:
    """Seqs rise, what is missing is reported, and the log can be built."""
    here = [one.seq for one in found.events]
    assert here == sorted(set(here))
    gone: set[int] = set()
    for damage in found.damage:
        if damage.first_seq is not None and damage.last_seq is not None:
            if damage.last_seq - damage.first_seq > 10**6:
                return  # a garbled seq, somewhere far out
            ours = set(range(damage.first_seq, damage.last_seq + 1))
            assert not ours & gone
            gone |= ours
    assert set(here) | gone == set(range(found.mark.next_seq))
    assert not set(here) & gone
    log = build_log(Stored(found.mark.header, found.events, found.damage, found.torn))
    assert log.next_seq == found.mark.next_seq
    assert all(one.data is not None or one.raw == b"null" for one in log.events)


@pytest.mark.parametrize("packed", [False, True])
def test_a_mangled_log_opens_and_can_be_written_on(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    """After any accident behind the header each seq is read or reported, and the next write too."""
    parts = [HEADER, *map(batch, PARTS)]
    parts = [pack(part) for part in parts] if packed else parts
    content, head = b"".join(parts), len(parts[0])

    @settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
    @given(st.integers(0, 2**32))
    def play(seed: int) -> None:
        for path in (*tmp_path.glob("a/*.jsonl*"), *tmp_path.glob("a/torn-*")):
            path.unlink()
        folder = saved(tmp_path, mangled(content, seed, head), packed=packed)
        found = scan(folder, "a")
        check(found)
        if found.mark.next_seq < 2**40:
            again = written_on(folder)
            check(again)
            assert again.mark.next_seq == found.mark.next_seq + 2
            assert again.events[: len(found.events)] == found.events
            assert again.damage == found.damage

    play()


@given(st.integers(0, 2**32))
def test_lines_read_together_equal_lines_read_alone(seed: int) -> None:
    """`decode_lines` gives what `decode_line` gives for each line, or nothing."""
    usual = [one for one in EVENTS if not one.extra]
    assert decode_lines(encode_lines(usual)[:-1]) == usual
    lines = mangled(encode_lines(usual)[:-1], seed, 0)
    together = decode_lines(lines)
    alone: list[AnyEvent] | None = []
    for line in lines.split(b"\n"):
        try:
            line.decode()
            alone += decode_line(line)
        except (AdmissionError, ValueError):
            alone = None
            break
    assert together is None or together == alone
