"""What a type checker must refuse, and what it must accept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FILES = ("appends.py", "folds.py")
STRICT = "# pyright: strict, reportUnnecessaryTypeIgnoreComment=true"


def errors(*paths: Path) -> list[dict[str, Any]]:
    """What pyright has against some files of this folder."""
    command = [sys.executable, "-m", "pyright", "--outputjson", *map(str, paths)]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["generalDiagnostics"]


def test_refused_and_accepted() -> None:
    """Each line that is ignored is an error of just these rules, and no other line is one.

    An ignore that ignores nothing is an error in these files: so each of them is needed.
    """
    sources = [(HERE / name).read_text(encoding="utf-8") for name in FILES]
    assert all(STRICT in source for source in sources)
    assert sum(source.count("# pyright: ignore[") for source in sources) >= 15
    assert errors(*(HERE / name for name in FILES)) == []
