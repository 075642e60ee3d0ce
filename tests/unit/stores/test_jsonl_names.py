"""Ids as folder names, segments by token."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.stores.jsonl.names import folder_name, id_of, segments_in

HOSTILE = [
    *["a", "A", "a ", " a", "a.", "a..", ".", "..", "../a", "/a", "a/b", "a\\b", "C:", "~", "-rf"],
    *["con", "CON", "nul", "com1", "lpt9", "nul.txt", "a\0", "a\n", "a%41", "a%", "é", "e\u0301"],
    *["\ud800", "\udc00", "\ufffd", "x" * 180, "x" * 181, "x" * 182, "漢" * 300, "漢" * 301],
]


def test_no_two_ids_share_a_folder() -> None:
    """Hostile ids have folders of their own, also where case and trailing dots do not count."""
    names = {folder_name(session_id).lower().rstrip(". ") for session_id in HOSTILE}
    assert len(names) == len(HOSTILE)


@pytest.mark.parametrize("session_id", HOSTILE)
def test_a_folder_name_is_tame(session_id: str) -> None:
    """A folder's name is short, of few ASCII characters, and no device's."""
    name = folder_name(session_id)
    assert len(name) <= 180
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_%~")
    assert name not in {"con", "nul", "com1", "lpt9"}


@given(st.text(st.characters(), min_size=1, max_size=40))
def test_a_name_tells_its_id(session_id: str) -> None:
    """From a folder's name the id comes back, unless it was too long."""
    name = folder_name(session_id)
    assert ("~" in name) or id_of(name) == session_id


@given(st.text(st.characters(), min_size=1), st.text(st.characters(), min_size=1))
def test_names_differ_as_ids_do(one: str, other: str) -> None:
    """Two ids have the same folder only if they are the same."""
    assert (folder_name(one).lower() == folder_name(other).lower()) == (one == other)


def test_a_foreign_name_is_itself() -> None:
    """A folder's name that is no id of ours stands for itself."""
    assert id_of("%ff") == "%ff"


def test_segments_are_told_from_other_files(tmp_path: Path) -> None:
    """Only `TOKEN.jsonl` and `TOKEN.jsonl.zst` are segments, in the order of tokens."""
    for name in (
        *["10.jsonl", "2.jsonl.zst", "1.jsonl", "1.lock", "0.jsonl", "01.jsonl", "x.jsonl"],
        *["3.jsonl.new", "torn-1-20", "inbox.jsonl", "info.json", "1.jsonl.zst"],
    ):
        (tmp_path / name).touch()
    names = [segment.path.name for segment in segments_in(tmp_path)]
    assert names == ["1.jsonl", "2.jsonl.zst", "10.jsonl"]
    assert segments_in(tmp_path / "nowhere") == []
