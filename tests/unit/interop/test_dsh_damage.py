"""Torn, glued, garbled, padded, incomplete and hostile session files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import zstandard

from tests.unit.interop.dsh_files import (
    event,
    frame,
    frames,
    header,
    line,
    lines,
    opened,
    saved,
    seqs,
)
from turnlog.errors import ImportFailed
from turnlog.interop.dsh import Damage, Limits, open_dsh

HEAD = line(header())
SMALL = Limits(line=1 << 16, frame=1 << 20, ratio=10)


def test_torn_plain_at_every_byte(tmp_path: Path) -> None:
    """A plain file cut anywhere in its last record keeps the others and names the tail as torn."""
    whole = HEAD + lines(event(0), event(1))
    last = line(event(2, data="é\n🙂"))
    for cut in range(len(last) + 1):
        source, events = opened(tmp_path, whole + last[:cut])
        torn = None if cut in {0, len(last)} else (len(whole), cut)
        assert seqs(events) == ([0, 1, 2] if cut == len(last) else [0, 1])
        assert source.damage == []
        assert (source.torn and source.torn[:2]) == torn


def test_torn_zstd_at_every_byte(tmp_path: Path) -> None:
    """A file cut anywhere in its last frame keeps the others and names the frame as torn."""
    whole = frames(HEAD, lines(event(0), event(1)))
    last = frame(lines(event(2), event(3)))
    for cut in range(len(last) + 1):
        source, events = opened(tmp_path, whole + last[:cut])
        torn = None if cut in {0, len(last)} else (len(whole), cut)
        assert seqs(events)[:2] == [0, 1]
        assert cut < len(last) or seqs(events) == [0, 1, 2, 3]
        assert source.damage == []
        assert (source.torn and source.torn[:2]) == torn


def test_torn_frame_gives_its_whole_lines(tmp_path: Path) -> None:
    """Of a last frame that is cut off, the lines that can still be unpacked are there."""
    noise = "".join(chr(0x4E00 + (i * i * 7919 + i * 104729) % 20000) for i in range(100_000))
    last = frame(lines(event(0), event(1, data=noise), event(2)))
    source, events = opened(tmp_path, frame(HEAD) + last[:-10])
    assert seqs(events)[0] == 0
    assert 2 not in seqs(events)
    assert source.damage == []
    assert source.torn is not None


def test_nul_tail_is_torn(tmp_path: Path) -> None:
    """NUL bytes after the last record or frame are what a crash leaves, and no damage."""
    for whole in (HEAD + line(event(0)), frames(HEAD, line(event(0)))):
        source, events = opened(tmp_path, whole + bytes(5000))
        assert seqs(events) == [0]
        assert source.damage == []
        assert source.torn is not None
        assert source.torn[:2] == (len(whole), 5000)


def test_a_frame_that_ends_in_nul_is_torn(tmp_path: Path) -> None:
    """A last frame whose end was never written, only its length, is torn and not damaged."""
    whole = frames(HEAD, line(event(0)))
    last = frame(line(event(1)))
    for kept in range(len(last)):
        source, events = opened(tmp_path, whole + last[:kept] + bytes(300_000))
        assert seqs(events) in ([0], [0, 1])
        assert source.damage == []
        assert source.torn is not None
        assert source.torn[:2] == (len(whole), kept + 300_000)


def test_nul_before_a_record(tmp_path: Path) -> None:
    """NUL bytes before a record are damage of their own; the record is there."""
    source, events = opened(tmp_path, HEAD + line(event(0)) + bytes(7) + lines(event(1), event(2)))
    assert seqs(events) == [0, 1, 2]
    assert source.damage == [Damage(len(HEAD + line(event(0))), 7, "NUL bytes")]


def test_glued(tmp_path: Path) -> None:
    """Whole records that lost the newline between them are all there, and nothing is damaged."""
    content = HEAD + line(event(0)).rstrip() + line(event(1)).rstrip() + lines(event(2), event(3))
    source, events = opened(tmp_path, content)
    assert seqs(events) == [0, 1, 2, 3]
    assert source.damage == []


def test_glued_to_a_broken_record(tmp_path: Path) -> None:
    """A record written behind a torn one on the same line is there; the torn one is damage."""
    torn = line(event(1, data="long enough"))[:-9]
    before = HEAD + line(event(0))
    source, events = opened(tmp_path, before + torn + lines(event(2), event(3)))
    assert seqs(events) == [0, 2, 3]
    (damage,) = source.damage
    assert (damage.offset, damage.length) == (len(before), len(torn))
    assert (damage.first_seq, damage.last_seq) == (1, 1)
    assert source.read_bytes(damage) == torn


def test_no_record_is_made_of_a_part(tmp_path: Path) -> None:
    """What looks like a record inside a broken one is not taken for one."""
    inner = line(event(1)).rstrip()
    broken = b'{"type":"x","seq":1,"time":1,"data":{"a":' + inner + b'},"oops\n'
    source, events = opened(tmp_path, HEAD + line(event(0)) + broken + line(event(2)))
    assert seqs(events) == [0, 2]
    assert [(d.length, d.first_seq, d.last_seq) for d in source.damage] == [(len(broken) - 1, 1, 1)]


def test_garbled_middle(tmp_path: Path) -> None:
    """Garbled lines in a row are one range with the seqs that are lost; later events are there."""
    before = HEAD + lines(event(0), event(1))
    garbled = b"\xff\xfe" + line(event(2))[2:] + b"}{]\n"
    source, events = opened(tmp_path, before + garbled + lines(event(4), event(5)))
    assert seqs(events) == [0, 1, 4, 5]
    (damage,) = source.damage
    assert (damage.offset, damage.first_seq, damage.last_seq) == (len(before), 2, 3)
    assert source.read_bytes(damage) in garbled


def test_garbled_end(tmp_path: Path) -> None:
    """At the end of a file each unreadable record counts as one seq."""
    source, events = opened(tmp_path, HEAD + line(event(0)) + b"???\n!!!\n")
    assert seqs(events) == [0]
    assert [(d.first_seq, d.last_seq) for d in source.damage] == [(1, 2)]


def test_gap(tmp_path: Path) -> None:
    """Records that are missing without a trace are damage without bytes, where they should be."""
    before = HEAD + lines(event(0), event(1))
    source, events = opened(tmp_path, before + lines(event(5), event(6)))
    assert seqs(events) == [0, 1, 5, 6]
    assert source.damage == [Damage(len(before), 0, "missing records", 2, 4)]


def test_a_garbled_seq_hides_nothing(tmp_path: Path) -> None:
    """A record whose seq jumps ahead is the damaged one if the next one does not follow it."""
    content = HEAD + lines(event(0), event(91), event(2), event(3))
    source, events = opened(tmp_path, content)
    assert seqs(events) == [0, 2, 3]
    assert [(d.first_seq, d.last_seq) for d in source.damage] == [(1, 1)]


def test_a_repeated_record(tmp_path: Path) -> None:
    """A seq that was there already is damage, and nothing is missing."""
    source, events = opened(tmp_path, HEAD + lines(event(0), event(1), event(1), event(2)))
    assert seqs(events) == [0, 1, 2]
    assert [(d.first_seq, d.last_seq) for d in source.damage] == [(None, None)]


def test_corrupt_frame_at_every_byte(tmp_path: Path) -> None:
    """A middle frame with any byte changed costs at most itself: all other events are there."""
    first, last = frames(HEAD, line(event(0))), frames(line(event(2)), line(event(3)))
    middle = frame(line(event(1)))
    for at in range(len(middle)):
        bad = bytearray(middle)
        bad[at] ^= 0x55
        source, events = opened(tmp_path, first + bytes(bad) + last)
        assert seqs(events) == [0, 2, 3]
        (damage,) = source.damage
        assert (damage.offset, damage.length) == (len(first), len(middle))
        assert (damage.first_seq, damage.last_seq) == (1, 1)
        assert source.read_bytes(damage) == bytes(bad)


def test_a_frame_that_overreaches(tmp_path: Path) -> None:
    """A damaged length that reaches into the next frame does not take that one with it."""
    middle = bytearray(frame(line(event(1))))
    at = middle.index(line(event(1))[:20]) - 3
    middle[at : at + 3] = (int.from_bytes(middle[at : at + 3], "little") + (40 << 3)).to_bytes(
        3, "little"
    )
    source, events = opened(tmp_path, frame(HEAD + line(event(0))) + middle + frame(line(event(2))))
    assert seqs(events) == [0, 2]
    assert [(d.first_seq, d.last_seq, d.length) for d in source.damage] == [(1, 1, len(middle))]


def test_garbage_between_frames(tmp_path: Path) -> None:
    """Bytes between frames are damage; where no record lacks, none is said to be missing."""
    first = frames(HEAD, line(event(0)))
    source, events = opened(tmp_path, first + b"garbage" + frame(line(event(1))))
    assert seqs(events) == [0, 1]
    assert source.damage == [Damage(len(first), 7, "bytes that are no frame")]


def test_lines_across_frames(tmp_path: Path) -> None:
    """Frames cut without regard to lines, as another tool may have made them, read the same."""
    content = HEAD + lines(event(0), event(1), event(2))
    cut = [content[at : at + 7] for at in range(0, len(content), 7)]
    source, events = opened(tmp_path, frames(*cut))
    assert seqs(events) == [0, 1, 2]
    assert (source.damage, source.torn) == ([], None)


def test_a_damaged_line_inside_a_frame(tmp_path: Path) -> None:
    """A garbled line of a whole frame is found in what the frame unpacks to."""
    batch = line(event(0)) + b"?!\n" + line(event(2))
    source, events = opened(tmp_path, frames(HEAD, batch))
    assert seqs(events) == [0, 2]
    (damage,) = source.damage
    assert damage.within == (len(line(event(0))), 2)
    assert (damage.offset, damage.length) == (len(frame(HEAD)), len(frame(batch)))


def test_a_damaged_line_across_frames(tmp_path: Path) -> None:
    """Damage that began in one frame and ended in the next names both, and the next one its own."""
    second = line(event(0)) + b"?!"
    third = b"?!\n" + line(event(2)) + b"!!\n" + line(event(4))
    source, events = opened(tmp_path, frames(HEAD, second, third))
    assert seqs(events) == [0, 2, 4]
    start, middle = len(frame(HEAD)), len(frame(second))
    assert [(d.offset, d.length, d.within) for d in source.damage] == [
        (start, middle + len(frame(third)), (len(line(event(0))), 4)),
        (start + middle, len(frame(third)), (third.index(b"!!"), 2)),
    ]


def test_long_line(tmp_path: Path) -> None:
    """A line beyond the limit is stepped over without being held; the rest is there."""
    long = b'{"type":"' + b"x" * 8_000_000 + b'"}\n'
    for content in (
        HEAD + line(event(0)) + long + lines(event(2), event(3)),
        frames(HEAD, line(event(0)), long[:4_000_000], long[4_000_000:], lines(event(2), event(3))),
    ):
        source = open_dsh(saved(tmp_path, content), SMALL._replace(frame=1 << 26))
        tracemalloc.start()
        events = list(source.events())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seqs(events) == [0, 2, 3]
        assert [(d.first_seq, d.last_seq) for d in source.damage] == [(1, 1)]
        assert "longer than 65536 bytes" in source.damage[0].reason
        assert peak < 4_000_000


def test_limits_are_exact(tmp_path: Path) -> None:
    """A line of exactly the limit is read, one byte more is not."""
    long = line(event(1, data="x" * 200))
    path = saved(tmp_path, HEAD + line(event(0)) + long)
    assert seqs(open_dsh(path, Limits(line=len(long) - 1)).events()) == [0, 1]
    assert seqs(open_dsh(path, Limits(line=len(long) - 2)).events()) == [0]


def test_bomb(tmp_path: Path) -> None:
    """A frame that unpacks to far more than its size is damage; the frames around it are read."""
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    for packed in (bomb, bomb[:-4]):
        content = frames(HEAD, line(event(0))) + packed
        source = open_dsh(saved(tmp_path, content + frame(line(event(1)))), SMALL)
        tracemalloc.start()
        assert seqs(source.events()) == [0, 1]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(source.damage) == 1
        assert peak < 4_000_000
        torn = open_dsh(saved(tmp_path, content), SMALL)
        assert seqs(torn.events()) == [0]
        assert torn.damage or torn.torn


def test_torn_bomb(tmp_path: Path) -> None:
    """A last frame that is cut off is unpacked no further than a whole one would be."""
    blank = b" \n" * 5_000_000
    last = frame(line(event(1)) + blank + line(event(2)) + blank)[:-5]
    source = open_dsh(saved(tmp_path, frames(HEAD, line(event(0))) + last), SMALL)
    assert seqs(source.events()) == [0, 1]
    assert source.torn is not None


def test_many_false_starts(tmp_path: Path) -> None:
    """A file full of beginnings of frames is given up on, not searched for ever."""
    starts = b"\x28\xb5\x2f\xfd\x00\x00" * 50_000
    before = frames(HEAD, line(event(0)))
    source, events = opened(tmp_path, before + starts + frame(line(event(1))))
    assert seqs(events) == [0]
    assert [(d.offset, d.reason) for d in source.damage] == [
        (len(before), "a frame with an impossible block")
    ]


def test_blank_lines(tmp_path: Path) -> None:
    """A line of nothing but white space holds nothing that could be damaged."""
    source, events = opened(tmp_path, HEAD + line(event(0)) + b"\n \r\n" + line(event(1)))
    assert seqs(events) == [0, 1]
    assert source.damage == []


def test_other_separators_are_text(tmp_path: Path) -> None:
    """Lines end at LF alone: U+2028, NEL and a raw CR between tokens end none."""
    odd = '{"type":"x","seq":0,\r"time":1,"data":"\u2028\u0085"}'
    source, events = opened(tmp_path, HEAD + odd.encode() + b"\n" + line(event(1)))
    assert seqs(events) == [0, 1]
    assert source.damage == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "session header"),
        (b"[1]\n", "session header"),
        (line({"type": "other", "version": 0, "id": "a"}), "session header"),
        (HEAD[:-1], "cut off"),
        (frame(HEAD)[:-6], "cut off"),
        (line(header(version=5)), "version 0 to 4 of DeepSeek Harness, got 5"),
        (line(header(version=-1)), "got -1"),
        (line({**header(), "version": True}), "got True"),
        (line({**header(), "version": "0"}), "got '0'"),
        (line({"type": "session", "id": "a"}), "got None"),
        (line({**header(), "id": ""}), "session id"),
        (line({**header(), "id": 7}), "session id"),
    ],
)
def test_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """What is no session, or of no version we know, is refused in one line that names the file."""
    path = saved(tmp_path, content)
    with pytest.raises(ImportFailed) as caught:
        open_dsh(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_exchanged_file(tmp_path: Path) -> None:
    """A file that is another session by the time it is read is refused."""
    source = open_dsh(saved(tmp_path, HEAD + line(event(0))))
    saved(tmp_path, line(header(id="other")) + line(event(0)))
    with pytest.raises(ImportFailed, match="exchanged"):
        list(source.events())


def test_events_can_be_read_again(tmp_path: Path) -> None:
    """Each reading starts anew: the same events, the damage not counted twice."""
    source, events = opened(tmp_path, HEAD + line(event(0)) + b"?\n" + lines(event(2), event(3)))
    assert list(source.events()) == events
    assert len(source.damage) == 1
