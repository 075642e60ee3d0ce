"""The suite's own switches do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT

USES_CORPUS = "def test_it(corpus):\n    assert corpus.name == 'corpus'\n"
COUNTS_EXAMPLES = """\
from hypothesis import given, settings, strategies as st
seen = []
@given(st.integers())
def test_property(number):
    seen.append(number)
def test_plain():
    pass
def teardown_module():
    print(f"examples: {len(seen)}, sum: {sum(seen)}")
"""


def _pytest(folder: Path, source: str, *options: str, **environment: str) -> tuple[int, str]:
    """Run one test file, in another process, under this suite's conftest."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q -s -p no:cacheprovider -rs\n")
    (folder / "test_it.py").write_text(source)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest"),
            *("-c", folder / "pytest.ini", *options, folder / "test_it.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "TURNLOG_REQUIRE_CORPUS": "", **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_missing_corpus_is_a_skip_with_a_reason(tmp_path: Path) -> None:
    """Where there is no corpus, a test that needs it says where it was looked for."""
    status, output = _pytest(tmp_path, USES_CORPUS, TURNLOG_SHARED=str(tmp_path))
    assert status == 0
    assert "1 skipped" in output
    assert f"no corpus at {tmp_path / 'corpus'}" in output


def test_a_missing_corpus_is_a_failure_where_it_is_required(tmp_path: Path) -> None:
    """In CI a missing corpus does not pass for a success."""
    shared = str(tmp_path)
    status, _ = _pytest(tmp_path, USES_CORPUS, TURNLOG_SHARED=shared, TURNLOG_REQUIRE_CORPUS="1")
    assert status == pytest.ExitCode.TESTS_FAILED


def test_the_corpus_is_found_where_the_environment_says(tmp_path: Path) -> None:
    """`TURNLOG_SHARED` names the folder that holds the corpus."""
    (tmp_path / "corpus").mkdir()
    status, output = _pytest(tmp_path, USES_CORPUS, TURNLOG_SHARED=str(tmp_path))
    assert (status, "1 passed" in output) == (0, True)


def test_property_tests_try_the_same_examples_each_time(tmp_path: Path) -> None:
    """Two runs of a property test see the same examples."""
    lines = [_examples(_pytest(tmp_path, COUNTS_EXAMPLES)[1]) for _ in range(2)]
    assert lines[0] == lines[1]


def test_the_long_profile_selects_property_tests_and_tries_more(tmp_path: Path) -> None:
    """`make test-long` gives a property test ten times the examples, and leaves the others out."""
    options = ("-m", "long or hypothesis", "--hypothesis-profile=long")
    status, output = _pytest(tmp_path, COUNTS_EXAMPLES, *options)
    assert status == 0
    assert "1 passed, 1 deselected" in output
    assert _examples(output).startswith("examples: 1000,")


def _examples(output: str) -> str:
    return next(line for line in output.splitlines() if "examples:" in line).lstrip(".")
