"""Stores that somebody made to hang or to exhaust whoever reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.stores.jsonl_files import framed, line, plain, seqs, spans
from turnlog.codec import decode_line
from turnlog.stores.jsonl import lines as reading
from turnlog.stores.jsonl.scan import scan
from turnlog.testing.conformance.samples import notes


@pytest.mark.parametrize("junk", [b"\n", b"\n \n", b"x\n", b"{\n", b"\0\n\n"])
@pytest.mark.parametrize("make", [plain, framed])
def test_lines_that_are_no_records_cost_no_exception_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Path], junk: bytes
) -> None:
    """A megabyte of short lines is stepped over without looking for records in them."""
    asked: list[bytes] = []

    def decode(one: bytes) -> object:
        asked.append(one)
        return decode_line(one)

    monkeypatch.setattr(reading, "decode_line", decode)
    first, last = map(line, notes(0, 2, "kept"))
    count = (1 << 20) // len(junk)
    found = scan(make(tmp_path, first + junk * count + last), "a")
    assert len(asked) <= 4
    assert seqs(found)[0] == 0
    assert bool(found.damage) == bool(junk.strip())
    assert len(found.damage) <= 8  # one for each block that is read


def test_junk_lines_next_to_each_other_are_one_stretch(tmp_path: Path) -> None:
    """Empty lines between lines of junk belong to the stretch, those around it do not."""
    first, last = map(line, [notes(0, 1)[0], notes(3, 1)[0]])
    found = scan(plain(tmp_path, first, b"\n", b"x\n\n\0\0\ny\n", b"\n", last), "a")
    assert seqs(found) == [0, 3]
    ((offset, length),) = spans(found)
    content = (tmp_path / "a/1.jsonl").read_bytes()
    assert offset is not None
    assert content[offset:].startswith(b"x\n")
    assert length == len(b"x\n\n\0\0\ny\n")
