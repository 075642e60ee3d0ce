"""No committed file knows the machine that it was written on."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.architecture.rules import ROOT

# Written so that this file does not match itself.
FORBIDDEN = re.compile(
    r"""
      \bpypi\.org | \bpythonhosted\.org | \bnpmjs\.(?:org|com) | \bdeb\.debian\.org
    | --(?:extra-)?inde[x]-url | --find-link[s]\b
    | (?<![\w.])/wor[k]/ | (?<![\w.])/roo[t]/ | (?<![\w.])/home/\w+/
    | \.\./\.librar[y] | \.\./share[d]
    """,
    re.VERBOSE,
)


def _git(*arguments: str) -> str:
    git = shutil.which("git")
    assert git is not None
    return subprocess.run(
        [git, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def _faults(text: str) -> list[str]:
    here = str(ROOT)
    return [
        f"{number}: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), start=1)
        if FORBIDDEN.search(line) or here in line
    ]


def test_no_committed_file_names_a_machine_or_a_registry() -> None:
    """Committed files name no package index, no path of a machine, no folder beside it."""
    faults: list[str] = []
    names = [name for name in _git("ls-files", "-z").split("\0") if name]
    assert "pyproject.toml" in names
    for name in names:
        path = ROOT / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            faults += [f"{name}:{fault}" for fault in _faults(text)]
    assert faults == []


@pytest.mark.parametrize(
    "line",
    [
        "https://pypi" + ".org/simple",
        "cd /wor" + "k/main",
        "HOME=/roo" + "t/x",
        "cat .." + "/shared/README.md",
        "--index" + "-url=x",
        f"path = {ROOT}",
    ],
)
def test_a_trace_of_the_machine_is_noticed(line: str) -> None:
    """Each kind of trace is found in a line of text."""
    assert len(_faults(f"first\n{line}\nlast")) == 1


def test_the_project_leaves_only_caches() -> None:
    """What the tools write into the checkout is ignored by git."""
    made = [".venv/x", "build/x", ".pytest_cache/x", ".ruff_cache/x", ".hypothesis/x", ".coverage"]
    ignored = _git("check-ignore", *made, "src/turnlog/__pycache__/x").splitlines()
    assert ignored == [*made, "src/turnlog/__pycache__/x"]
