"""Prints the constraints file that pins what pip's resolution reports say.

Usage: `python .ci/constraints.py REPORT.json...`; each report comes from `pip install --report`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HEAD = """\
# What the project is developed and tested with; `make constraints` writes this file again.
"""


def main() -> None:
    """Write one `name==version` a line, sorted by name, to standard output."""
    pins: dict[str, str] = {}
    for report in sys.argv[1:]:
        for item in json.loads(Path(report).read_text(encoding="utf-8"))["install"]:
            metadata = item["metadata"]
            pins[metadata["name"].lower().replace("_", "-")] = metadata["version"]
    del pins["turnlog"]
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    sys.stdout.write(HEAD + "".join(lines))


main()
