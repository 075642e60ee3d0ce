"""Torn tails and damage: what is read all the same, what is reported, where the next write goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.unit.stores.jsonl_files import (
    HEADER,
    batch,
    framed,
    line,
    lines,
    lost,
    plain,
    saved,
    seqs,
    spans,
    written_on,
)
from turnlog import jsontext
from turnlog.errors import InvalidHeader, NoSuchSession, UnsupportedVersion
from turnlog.events import AnyEvent
from turnlog.stores.jsonl import frames
from turnlog.stores.jsonl import lines as reading
from turnlog.stores.jsonl.scan import scan, scan_on
from turnlog.testing.conformance.samples import (
    assert_same,
    chunk,
    conversation,
    event,
    header,
    notes,
    prompt,
)

TAIL = 2048


def a_log() -> list[AnyEvent]:
    """Messages, chunks and records, enough for the tail that is cut."""
    events = conversation()
    events += [chunk(12 + i, f"word {i} ") for i in range(40)]
    events += [prompt(52 + i, "what a long question " * 5) for i in range(12)]
    return events


# -- torn tails --------------------------------------------------------------------------------


def test_a_log_cut_anywhere_keeps_what_was_complete(tmp_path: Path) -> None:
    """A plain log cut at any byte of its last 2 kB has every record whose LF is there."""
    events = a_log()
    content = HEADER + b"".join(lines(events))
    for cut in range(len(content) - TAIL, len(content) + 1):
        kept = content[:cut]
        folder = saved(tmp_path, kept)
        found = scan(folder, "a")
        whole = kept.rfind(b"\n") + 1
        assert_same(found.events, events[: kept.count(b"\n") - 1])
        assert found.damage == []
        torn = None if whole == cut else ("a/1.jsonl", whole, cut - whole)
        assert found.torn == torn


def test_a_packed_log_cut_anywhere_keeps_whole_frames(tmp_path: Path) -> None:
    """A packed log cut at any byte of its last 2 kB has every frame that is complete."""
    events = a_log()
    batches = [events[i : i + 3] for i in range(0, len(events), 3)]
    content = frames.pack(HEADER)
    ends = [(len(content), 0)]
    for events_of in batches:
        content += frames.pack(batch(events_of))
        ends.append((len(content), ends[-1][1] + len(events_of)))
    for cut in range(max(len(content) - TAIL, ends[0][0]), len(content) + 1):
        found = scan(saved(tmp_path, content[:cut], packed=True), "a")
        end, count = max(pair for pair in ends if pair[0] <= cut)
        assert_same(found.events, events[:count])
        assert found.damage == []
        assert found.torn == (None if end == cut else ("a/1.jsonl.zst", end, cut - end))


@pytest.mark.parametrize("packed", [False, True])
def test_a_torn_tail_is_set_aside_by_the_next_writer(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    """Wherever a log was cut, the next writer keeps the torn bytes in a file and writes on."""
    events = notes(0, 6)
    parts = [HEADER, *lines(events)]
    parts = [frames.pack(part) for part in parts] if packed else parts
    content = b"".join(parts)
    whole = len(content) - len(parts[-1])
    for cut in range(whole, len(content)):
        root = tmp_path / str(cut)
        root.mkdir()
        folder = saved(root, content[:cut], packed=packed)
        found = written_on(folder)
        assert_same(found.events, [*events[:5], *notes(5, 2, "later")])
        assert (found.damage, found.torn) == ([], None)
        aside = list(folder.glob("torn-*"))
        assert [path.read_bytes() for path in aside] == (
            [content[whole:cut]] if cut > whole else []
        )
        assert [path.name for path in aside] == ([f"torn-1-{whole}"] if cut > whole else [])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("count", [1, 7, 4096])
def test_a_tail_of_nuls_is_torn(tmp_path: Path, packed: bool, count: int) -> None:  # noqa: FBT001
    """NUL bytes after the last record are what a crash left, whatever their number."""
    parts = [HEADER, *lines(notes(0, 3))]
    content = b"".join(map(frames.pack, parts)) if packed else b"".join(parts)
    folder = saved(tmp_path, content + bytes(count), packed=packed)
    found = scan(folder, "a")
    assert_same(found.events, notes(0, 3))
    assert found.damage == []
    assert found.torn is not None
    assert found.torn[1:] == (len(content), count)
    assert seqs(written_on(folder)) == [0, 1, 2, 3, 4]


def test_a_frame_that_was_never_written_is_torn(tmp_path: Path) -> None:
    """A last frame of the right length whose end is NUL bytes is torn, not damage."""
    first = frames.pack(HEADER) + frames.pack(batch(notes(0, 3)))
    last = frames.pack(batch(notes(3, 3)))
    for nuls in range(4, len(last)):
        content = first + last[: len(last) - nuls] + bytes(nuls)
        found = scan(saved(tmp_path, content, packed=True), "a")
        assert_same(found.events, notes(0, 3))
        assert found.damage == []
        assert found.torn == ("a/1.jsonl.zst", len(first), len(last))


def test_a_second_torn_tail_at_the_same_place_is_kept_too(tmp_path: Path) -> None:
    """A torn tail never overwrites one that was set aside before."""
    whole = HEADER + b"".join(lines(notes(0, 2)))
    folder = saved(tmp_path, whole + b"second")
    (folder / f"torn-1-{len(whole)}").write_bytes(b"first")
    written_on(folder)
    kept = {path.name: path.read_bytes() for path in folder.glob("torn-*")}
    assert kept == {f"torn-1-{len(whole)}": b"first", f"torn-1-{len(whole)}-1": b"second"}


# -- damage ------------------------------------------------------------------------------------


def test_a_garbled_record_costs_itself(tmp_path: Path) -> None:
    """A record that is no JSON is damage with its bytes; all others are there."""
    records = lines(notes(0, 9))
    offset = len(HEADER) + sum(map(len, records[:4]))
    garbled = b"\xff" + records[4][1:]
    found = scan(plain(tmp_path, *records[:4], garbled, *records[5:]), "a")
    assert seqs(found) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert lost(found) == [(4, 4)]
    assert spans(found) == [(offset, len(garbled))]
    assert found.damage[0].place == "a/1.jsonl"
    assert found.mark.next_seq == 9


def test_every_byte_of_a_record_may_be_garbled(tmp_path: Path) -> None:
    """Whichever byte of a record is garbled, the records around it are there."""
    records = lines([event(i, {"n": i, "text": "grüße"}) for i in range(5)])
    for at in range(len(records[2])):
        for garbage in (b"\0", b"\xff", b'"'):
            garbled = records[2][:at] + garbage + records[2][at + 1 :]
            found = scan(plain(tmp_path, *records[:2], garbled, *records[3:]), "a")
            here = set(seqs(found))
            assert {0, 1, 4} <= here
            assert 3 in here or at == len(records[2]) - 1  # the LF: both records share a line
            assert found.mark.next_seq == 5 or garbled == records[2]
            assert all(one.data is not None for one in found.events)


def test_text_that_is_no_utf8_is_damage(tmp_path: Path) -> None:
    """A payload whose text is no UTF-8 is damage, though its JSON is well-formed."""
    records = lines([event(i, {"text": "abc"}) for i in range(3)])
    for garbage in (b"a\xffc", b"\xc3(c", b"ab\xe9"):
        garbled = records[1].replace(b"abc", garbage)
        found = scan(plain(tmp_path, records[0], garbled, records[2]), "a")
        assert (seqs(found), lost(found)) == ([0, 2], [(1, 1)])


def test_a_missing_record_is_damage_without_bytes(tmp_path: Path) -> None:
    """Seqs that are missing are reported where they should be; what follows is there."""
    records = lines(notes(0, 8))
    found = scan(plain(tmp_path, *records[:3], *records[5:]), "a")
    assert seqs(found) == [0, 1, 2, 5, 6, 7]
    assert lost(found) == [(3, 4)]
    assert spans(found) == [(len(HEADER) + sum(map(len, records[:3])), 0)]


def test_the_first_records_may_be_missing(tmp_path: Path) -> None:
    """A log that begins in the middle says what is missing before."""
    found = scan(plain(tmp_path, *lines(notes(2, 2))), "a")
    assert (seqs(found), lost(found)) == ([2, 3], [(0, 1)])


@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_doubled_record_counts_once(tmp_path: Path, at: int) -> None:
    """A record that is there twice is read once; its second bytes are damage without a seq."""
    records = lines(notes(0, 8))
    found = scan(plain(tmp_path, *records[: at + 1], records[at], *records[at + 1 :]), "a")
    assert_same(found.events, notes(0, 8))
    assert lost(found) == [(None, None)]
    assert spans(found) == [(len(HEADER) + sum(map(len, records[: at + 1])), len(records[at]))]
    assert found.mark.next_seq == 8


def test_a_doubled_stretch_counts_once(tmp_path: Path) -> None:
    """Records that were written a second time, overlapping, are read once, and in order."""
    records = lines(notes(0, 12))
    found = scan(plain(tmp_path, *records[:8], *records[5:]), "a")
    assert_same(found.events, notes(0, 12))
    assert lost(found) == [(None, None)]


def test_of_two_records_with_one_seq_the_first_counts(tmp_path: Path) -> None:
    """A second record with the same seq and another payload is damage."""
    records = lines(notes(0, 3))
    found = scan(plain(tmp_path, *records[:2], line(event(1, "other")), records[2]), "a")
    assert_same(found.events, notes(0, 3))
    assert lost(found) == [(None, None)]


@pytest.mark.parametrize("wrong", [1, 77, 2**60])
def test_a_garbled_seq_costs_one_record(tmp_path: Path, wrong: int) -> None:
    """A record whose seq is wrong, too high or too low, costs itself and none that follow."""
    records = lines(notes(0, 9))
    records[4] = line(event(wrong, {"n": 4}))
    found = scan(plain(tmp_path, *records), "a")
    assert seqs(found) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert lost(found) == [(4, 4)]
    assert found.mark.next_seq == 9


def test_glued_records_are_both_read(tmp_path: Path) -> None:
    """Two records on one line, the LF between them lost, are read and reported."""
    records = lines(conversation())
    for i in range(len(records) - 1):
        glued = [*records[:i], records[i][:-1] + records[i + 1], *records[i + 2 :]]
        found = scan(plain(tmp_path, *glued), "a")
        assert_same(found.events, conversation())
        assert lost(found) == [(None, None)]
        assert "on one line" in found.damage[0].reason


def test_three_glued_records_and_a_run_are_read(tmp_path: Path) -> None:
    """A packed run of chunks may be one of the records on a line."""
    run = [chunk(i, f"{i}") for i in range(1, 9)]
    glued = line(notes(0, 1)[0])[:-1] + batch(run)[:-1] + line(event(9, {}))
    found = scan(plain(tmp_path, glued), "a")
    assert_same(found.events, [*notes(0, 1), *run, event(9, {})])


def test_a_cut_off_record_glued_to_a_whole_one_costs_itself(tmp_path: Path) -> None:
    """The whole record on a line is read, whatever stands of a broken one before it."""
    records = lines(notes(0, 6))
    for cut in range(1, len(records[2]) - 2):
        glued = [*records[:2], records[2][:cut] + records[3], *records[4:]]
        found = scan(plain(tmp_path, *glued), "a")
        assert seqs(found) == [0, 1, 3, 4, 5]
        assert lost(found) == [(2, 2)]
        offset = len(HEADER) + sum(map(len, records[:2]))
        assert spans(found) == [(offset, cut)]


def test_nul_bytes_between_records_are_stepped_over(tmp_path: Path) -> None:
    """NUL bytes before, after and between records cost no record that is whole."""
    records = lines(notes(0, 5))
    for padded in (
        [*records[:2], bytes(512) + records[2], *records[3:]],
        [*records[:2], records[2][:-1] + bytes(512) + b"\n", *records[3:]],
        [*records[:2], records[2][:-1] + bytes(512) + records[3], *records[4:]],
    ):
        found = scan(plain(tmp_path, *padded), "a")
        assert_same(found.events, notes(0, 5))
        assert lost(found) == [(None, None)]
        assert found.damage[0].length == 512


def test_an_event_inside_a_broken_one_is_not_taken_for_one(tmp_path: Path) -> None:
    """A payload that looks like an event of ours is no event when its own record is broken."""
    inner: dict[str, Any] = {"type": "acme/x", "seq": 1, "time": 1, "data": {}}
    records = lines([*notes(0, 1), event(1, {"copied": inner}), *notes(2, 1)])
    garbled = b'{"tipe' + records[1][6:]
    found = scan(plain(tmp_path, records[0], garbled, records[2]), "a")
    assert (seqs(found), lost(found)) == ([0, 2], [(1, 1)])


def test_records_lost_at_the_end_keep_their_seqs(tmp_path: Path) -> None:
    """The next seq leaves room for each unreadable record after the greatest readable one."""
    folder = plain(tmp_path, *lines(notes(0, 3)), b"garbage\n", b"more\n", b"{}\n")
    found = scan(folder, "a")
    assert (seqs(found), found.mark.next_seq) == ([0, 1, 2], 6)
    assert lost(found) == [(3, 5)]
    again = written_on(folder)
    assert seqs(again) == [0, 1, 2, 6, 7]
    assert lost(again) == [(3, 5)]


def test_empty_lines_hold_nothing(tmp_path: Path) -> None:
    """Empty lines are neither records nor damage."""
    records = lines(notes(0, 2))
    found = scan(plain(tmp_path, b"\n", records[0], b"\n\n", records[1], b"\n"), "a")
    assert (seqs(found), found.damage, found.torn) == ([0, 1], [], None)


def test_lines_end_on_lf_only(tmp_path: Path) -> None:
    """No other separator ends a record, raw or escaped."""
    text = "a\u2028b\u2029c\x85d"
    folder = plain(tmp_path, line(event(0, text)), line(event(1, "\r\v\f\x1c")))
    found = scan(folder, "a")
    assert [one.data for one in found.events] == [text, "\r\v\f\x1c"]


def test_a_line_that_is_too_long_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the limit is stepped over without being held."""
    monkeypatch.setattr(reading, "LINE_MAX", 1000)
    monkeypatch.setattr(reading, "_BLOCK", 256)
    records = lines(notes(0, 3))
    long = line(event(1, "x" * 5000))
    folder = plain(tmp_path, records[0], long, records[2])
    found = scan(folder, "a")
    assert (seqs(found), lost(found)) == ([0, 2], [(1, 1)])
    assert spans(found) == [(len(HEADER) + len(records[0]), len(long))]
    endless = plain(tmp_path, records[0], b"x" * 5000)
    assert scan(endless, "a").torn == ("a/1.jsonl", len(HEADER) + len(records[0]), 5000)


def test_blocks_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a file is cut into blocks, the same is read."""
    events = a_log()
    content = batch(events)
    whole = scan(plain(tmp_path, content), "a")
    for size in (1, 2, 7, 64, 1000, len(content)):
        monkeypatch.setattr(reading, "_BLOCK", size)
        found = scan(plain(tmp_path, content), "a")
        assert_same(found.events, whole.events)
        assert (found.damage, found.torn, found.mark) == ([], None, whole.mark)


# -- damage in frames --------------------------------------------------------------------------


def packed_parts(count: int = 5) -> list[bytes]:
    """Frames of two events each, after the header's."""
    return [frames.pack(batch(notes(2 * i, 2))) for i in range(count)]


def test_a_garbled_frame_costs_itself(tmp_path: Path) -> None:
    """Whichever byte of a frame is garbled, the frames around it are read."""
    parts = packed_parts()
    head = frames.pack(HEADER)
    for at in range(len(parts[2])):
        garbled = bytearray(parts[2])
        garbled[at] ^= 0x55
        content = head + b"".join([*parts[:2], bytes(garbled), *parts[3:]])
        found = scan(saved(tmp_path, content, packed=True), "a")
        assert seqs(found) == [0, 1, 2, 3, 6, 7, 8, 9]
        assert lost(found) == [(4, 5)]
        offset = len(head + parts[0] + parts[1])
        assert spans(found) == [(offset, len(parts[2]))]


def test_a_garbled_last_frame_keeps_its_seqs(tmp_path: Path) -> None:
    """A last frame whose checksum is wrong leaves room for the records it held."""
    parts = packed_parts()
    garbled = bytearray(parts[-1])
    garbled[-1] ^= 0x55
    content = frames.pack(HEADER) + b"".join([*parts[:-1], bytes(garbled)])
    folder = saved(tmp_path, content, packed=True)
    found = scan(folder, "a")
    assert (lost(found), found.mark.next_seq, found.torn) == ([(8, 9)], 10, None)
    assert seqs(written_on(folder)) == [*range(8), 10, 11]


def test_missing_and_doubled_frames(tmp_path: Path) -> None:
    """A frame that is missing is a gap; one that is there twice counts once."""
    parts = packed_parts()
    head = frames.pack(HEADER)
    missing = scan(saved(tmp_path, head + b"".join(parts[:2] + parts[3:]), packed=True), "a")
    assert (seqs(missing), lost(missing)) == ([0, 1, 2, 3, 6, 7, 8, 9], [(4, 5)])
    doubled = [*parts[:3], parts[2], *parts[3:]]
    found = scan(saved(tmp_path, head + b"".join(doubled), packed=True), "a")
    assert_same(found.events, notes(0, 10))
    assert lost(found) == [(None, None)]


def test_a_frame_cut_off_and_glued_costs_itself(tmp_path: Path) -> None:
    """A part of a frame with a whole one behind it is damage; the whole one is read."""
    parts = packed_parts()
    for cut in range(1, len(parts[2])):
        content = frames.pack(HEADER) + b"".join([*parts[:2], parts[2][:cut], *parts[3:]])
        found = scan(saved(tmp_path, content, packed=True), "a")
        assert (seqs(found), lost(found)) == ([0, 1, 2, 3, 6, 7, 8, 9], [(4, 5)])


def test_nul_bytes_between_frames(tmp_path: Path) -> None:
    """NUL bytes between two frames are damage without a seq."""
    parts = packed_parts()
    content = frames.pack(HEADER) + b"".join([*parts[:2], bytes(700), *parts[2:]])
    found = scan(saved(tmp_path, content, packed=True), "a")
    assert_same(found.events, notes(0, 10))
    assert lost(found) == [(None, None)]


def test_a_garbled_line_in_a_whole_frame(tmp_path: Path) -> None:
    """A bad line costs itself, not the frame around it."""
    records = lines(notes(0, 3))
    found = scan(framed(tmp_path, records[0] + b"nonsense\n" + records[2]), "a")
    assert (seqs(found), lost(found)) == ([0, 2], [(1, 1)])


@pytest.mark.parametrize("says", [True, False])
def test_a_bomb_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bool) -> None:  # noqa: FBT001
    """A frame that unpacks beyond the limit is damage, whether or not it says how large it is."""
    monkeypatch.setattr(frames, "UNPACKED_MAX", 1 << 20)
    packer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=says)
    bomb = packer.compress(b"0" * (64 << 20))
    parts = packed_parts(2)
    content = frames.pack(HEADER) + parts[0] + bomb + parts[1]
    found = scan(saved(tmp_path, content, packed=True), "a")
    assert_same(found.events, notes(0, 4))
    assert [damage.length for damage in found.damage] == [len(bomb)]


def test_large_batches_are_cut_into_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch beyond a frame's size is packed as several, on whole lines."""
    monkeypatch.setattr(frames, "PACK_SIZE", 300)
    events = [event(i, "x" * (700 if i == 4 else 50)) for i in range(12)]
    assert frames.pack(batch(events)).count(frames.MAGIC) > 4
    assert_same(scan(framed(tmp_path, batch(events)), "a").events, events)


# -- headers and segments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b'{"format":"turnlog"', b"\0\0\0\0", b"nonsense\n", b"{}\n"]
)
def test_a_header_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    """A session without a readable header is refused, never read as an empty one."""
    with pytest.raises(InvalidHeader):
        scan(saved(tmp_path, content), "a")


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    """A log of a newer version says so."""
    content = HEADER.replace(b'"version":0', b'"version":99')
    with pytest.raises(UnsupportedVersion, match="99"):
        scan(saved(tmp_path, content), "a")


def test_a_folder_holds_its_own_session_only(tmp_path: Path) -> None:
    """A file that was copied into another session's folder is refused."""
    folder = plain(tmp_path, *lines(notes(0, 2)))
    folder.rename(tmp_path / "b")
    with pytest.raises(InvalidHeader, match="'a'"):
        scan(tmp_path / "b", "b")
    with pytest.raises(NoSuchSession, match="'a'"):
        scan(folder, "a")


def test_segments_form_a_chain(tmp_path: Path) -> None:
    """Of a segment that was taken over only the bytes count that its successor names."""
    folder = plain(tmp_path, *lines(notes(0, 4)))
    counted = len(HEADER) + sum(map(len, lines(notes(0, 3))))
    second = b'{"segment":2,"after":{"token":1,"bytes":%d}}\n' % counted
    saved(tmp_path, second + b"".join(lines(notes(3, 3, "second"))), token=2)
    found = scan(folder, "a")
    assert_same(found.events, [*notes(0, 3), *notes(3, 3, "second")])
    assert found.damage == []
    third = b'{"segment":4,"after":{"token":1,"bytes":%d}}\n' % counted
    saved(tmp_path, third + b"".join(lines(notes(3, 1, "fourth"))), token=4)
    assert_same(scan(folder, "a").events, [*notes(0, 3), *notes(3, 1, "fourth")])


def test_a_segment_that_is_shorter_than_it_was_is_damage(tmp_path: Path) -> None:
    """Bytes that a successor counted and that are gone are reported, and the gap they leave."""
    folder = plain(tmp_path, *lines(notes(0, 4)))
    size = (folder / "1.jsonl").stat().st_size
    second = b'{"segment":2,"after":{"token":1,"bytes":%d}}\n' % (size + 100)
    saved(tmp_path, second + b"".join(lines(notes(6, 2))), token=2)
    found = scan(folder, "a")
    assert seqs(found) == [0, 1, 2, 3, 6, 7]
    assert (4, 5) in lost(found)
    assert any("bytes of it count" in damage.reason for damage in found.damage)


@pytest.mark.parametrize("first", [b"nonsense\n", b'{"segment":2,"after":{"token":9,"bytes":1}}\n'])
def test_a_segment_with_a_garbled_first_line_still_counts(tmp_path: Path, first: bytes) -> None:
    """When it cannot be told what a segment follows, all that is there is read, and reported."""
    folder = plain(tmp_path, *lines(notes(0, 3)))
    saved(tmp_path, first + b"".join(lines(notes(3, 2))), token=2)
    found = scan(folder, "a")
    assert_same(found.events, notes(0, 5))
    assert lost(found) == [(None, None)]


def test_a_takeover_that_never_happened_counts_for_nothing(tmp_path: Path) -> None:
    """A higher segment without a complete first line is not read."""
    folder = plain(tmp_path, *lines(notes(0, 3)))
    for content in (b"", b'{"segment":2,"aft', bytes(512)):
        saved(tmp_path, content, token=2)
        assert_same(scan(folder, "a").events, notes(0, 3))


def test_a_later_header_takes_the_place_of_the_first(tmp_path: Path) -> None:
    """Of several headers in a log the last one counts, and takes no seq."""
    records = lines(notes(0, 4))
    grown = jsontext.encode(header("a", cwd="/later").to_dict()) + b"\n"
    found = scan(plain(tmp_path, *records[:2], grown, *records[2:]), "a")
    assert found.mark.header.cwd == "/later"
    assert_same(found.events, notes(0, 4))
    assert found.damage == []


# -- reading on --------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_reading_on_equals_reading_anew(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    """From any mark the rest of a log that grew is what reading all of it gives."""
    events = a_log()
    parts = [HEADER] + [batch(events[i : i + 5]) for i in range(0, len(events), 5)]
    parts = [frames.pack(part) for part in parts] if packed else parts
    folder = saved(tmp_path, parts[0], packed=packed)
    mark = scan(folder, "a").mark
    read: list[AnyEvent] = []
    for i in range(1, len(parts)):
        saved(tmp_path, b"".join(parts[: i + 1]), packed=packed)
        more = scan_on(mark)
        assert more is not None
        read += more.events
        mark = more.mark
        assert mark == scan(folder, "a").mark
    assert_same(read, events)


def test_reading_on_into_damage_gives_up(tmp_path: Path) -> None:
    """What cannot be read in order from a mark has to be read with what came before."""
    records = lines(notes(0, 4))
    mark = scan(plain(tmp_path, *records[:2]), "a").mark
    for rest in ([b"nonsense\n"], [records[1]], [records[2][:-1] + records[3]]):
        plain(tmp_path, *records[:2], *rest)
        assert scan_on(mark) is None
    plain(tmp_path, *records[:1])
    assert scan_on(mark) is None
