"""The command line: `turnlog COMMAND … [--store URL] [--json]`.

One module for each group of commands; a command imports what it needs when it runs. `main` is what
the console script calls.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit status."""
    try:
        from turnlog.cli.run import run
        from turnlog.cli.signals import leave
    except KeyboardInterrupt:
        sys.exit(130)
    leave(run(sys.argv[1:] if arguments is None else arguments))


__all__ = ["main"]
