"""What is published works alone."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.architecture import rules

pytestmark = pytest.mark.long  # builds a wheel and installs it from the package index


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder]
    _run(*pip, rules.ROOT)
    return next(folder.glob("turnlog-*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel and its runtime dependencies only."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True)
    scripts = folder / ("Scripts" if sys.platform == "win32" else "bin")
    constraints = rules.ROOT / "constraints.txt"
    _run(scripts / "python", "-m", "pip", "install", "--quiet", "-c", constraints, wheel)
    return scripts


def test_the_wheel_is_typed_and_complete(wheel: Path) -> None:
    """The wheel holds every module, the marker of typed packages, and no test."""
    names = set(ZipFile(wheel).namelist())
    tree = rules.read_tree()
    modules = {module.path for module in tree.values()}
    assert {f"turnlog/{path}" for path in modules} | {"turnlog/py.typed"} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"turnlog"}


def test_it_runs_with_its_runtime_dependencies_alone(bare: Path) -> None:
    """Every module that no extra belongs to loads, and so does every exported name."""
    free = [
        f"turnlog.{name}".rstrip(".")
        for name in rules.read_tree()
        if not rules.extras_of(name) and name != "__main__"
    ]
    program = "import sys, importlib, turnlog; [importlib.import_module(m) for m in sys.argv[1:]]"
    _run(bare / "python", "-c", program, *free)
    _run(bare / "python", "-c", "import turnlog; [getattr(turnlog, n) for n in turnlog.__all__]")


def test_the_command_is_installed(bare: Path) -> None:
    """The command `turnlog` explains itself."""
    assert "Usage" in _run(bare / "turnlog", "--help")
