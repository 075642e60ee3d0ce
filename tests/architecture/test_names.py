"""The names that people type are the ones that were promised."""

from __future__ import annotations

from pathlib import Path

import turnlog

PROMISED = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").splitlines()


def test_the_exported_names_are_the_promised_ones() -> None:
    """`turnlog.__all__` is the list of public_names.txt: a change of one is a change of both."""
    assert list(turnlog.__all__) == PROMISED


def test_the_names_are_sorted() -> None:
    """`turnlog.__all__` is in order and names nothing twice."""
    assert list(turnlog.__all__) == sorted(set(turnlog.__all__))


def test_every_name_is_there() -> None:
    """Each exported name can be had, with the dependencies of the package alone."""
    missing = [name for name in turnlog.__all__ if not hasattr(turnlog, name)]
    assert missing == []


def test_dir_lists_the_names() -> None:
    """`dir(turnlog)` shows each exported name before it was first asked for."""
    assert set(turnlog.__all__) <= set(dir(turnlog))
