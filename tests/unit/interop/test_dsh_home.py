"""Finding sessions: files, folders, homes, and what is in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.interop.dsh_files import event, frames, header, line, saved, seqs
from turnlog.errors import ImportFailed
from turnlog.interop.dsh import discover, open_dsh

PLAIN = line(header()) + line(event(0))


def folder(path: Path) -> Path:
    """The folder, made."""
    path.mkdir(parents=True)
    return path


def test_home_with_a_bad_file(tmp_path: Path) -> None:
    """One bad file among many is an error value in its place, and hides no other."""
    project = folder(tmp_path / "sessions" / "--home-dev-app--")
    saved(folder(project / "a"), PLAIN)
    saved(folder(project / "b"), b"no session\n")
    saved(folder(project / "c"), frames(line(header(4)), line(event(0))), "session.v4.jsonl.zstd")
    (project / "c" / "session.lock").touch()
    found = list(discover(tmp_path))
    assert [item.path.parent.name for item in found] == ["a", "b", "c"]
    assert [item.session is None for item in found] == [False, True, False]
    assert isinstance(found[1].error, ImportFailed)
    assert [item.session.version for item in found if item.session] == [0, 4]


def test_newest_generation(tmp_path: Path) -> None:
    """The numerically highest generation is read, not the last by name."""
    for version in (2, 3):
        saved(tmp_path, line(header(version)), f"session.v{version}.jsonl")
    saved(tmp_path, PLAIN)
    assert open_dsh(tmp_path).version == 3
    saved(tmp_path, b"newer", "session.v10.jsonl.zstd")
    with pytest.raises(ImportFailed, match="v10"):
        open_dsh(tmp_path)


def test_same_generation_twice(tmp_path: Path) -> None:
    """Plain and packed files of one generation are a question, not a choice."""
    saved(tmp_path, PLAIN)
    saved(tmp_path, frames(PLAIN), "session.jsonl.zstd")
    with pytest.raises(ImportFailed, match="same generation"):
        open_dsh(tmp_path)


def test_a_file_of_any_name(tmp_path: Path) -> None:
    """A file that is named is read whatever its name; its first bytes tell how it is packed."""
    assert seqs(open_dsh(saved(tmp_path, frames(PLAIN), "x.txt")).events()) == [0]
    assert seqs(open_dsh(saved(tmp_path, PLAIN, "session.jsonl.zstd")).events()) == [0]


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link to a file or folder is named and not followed; the session beside it is there."""
    outside = folder(tmp_path / "outside")
    secret = saved(outside, PLAIN)
    home = folder(tmp_path / "home")
    folder(home / "a")
    (home / "a" / "session.jsonl").symlink_to(secret)
    (home / "b").symlink_to(outside)
    (home / "loop").symlink_to(home)
    saved(folder(home / "c"), PLAIN)
    found = list(discover(home))
    assert [item.path for item in found if item.session] == [home / "c" / "session.jsonl"]
    refused = [item.path.relative_to(home).as_posix() for item in found if item.error]
    assert sorted(refused) == ["a/session.jsonl", "b", "loop"]


def test_ids_are_no_paths(tmp_path: Path) -> None:
    """An id that looks like a path is a name and nothing is opened by it."""
    other = saved(folder(tmp_path / "other"), line(header(id="the other")))
    name = f"../other/{other.name}"
    source = open_dsh(saved(tmp_path, line(header(id=name)) + line(event(0))))
    assert source.id == name
    assert seqs(source.events()) == [0]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe where a session should be is refused, not waited for."""
    os.mkfifo(tmp_path / "session.jsonl")
    with pytest.raises(ImportFailed, match="regular file"):
        open_dsh(tmp_path)
    with pytest.raises(ImportFailed, match="regular file"):
        open_dsh(tmp_path / "session.jsonl")


def test_nothing_there(tmp_path: Path) -> None:
    """A path that does not exist, or a tree without sessions, gives one clear line."""
    with pytest.raises(ImportFailed, match="No such file"):
        open_dsh(tmp_path / "missing")
    with pytest.raises(ImportFailed, match="found 0"):
        open_dsh(tmp_path)
    assert list(discover(tmp_path)) == []


def test_more_than_one(tmp_path: Path) -> None:
    """A folder with several sessions is not one session."""
    for name in "ab":
        saved(folder(tmp_path / name), PLAIN)
    with pytest.raises(ImportFailed, match="found 2"):
        open_dsh(tmp_path)
