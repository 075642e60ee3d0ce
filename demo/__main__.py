"""`python -m demo [--model MODEL] [FOLDER]`: run the demo; exit 0 if each step did what it says."""

from __future__ import annotations

import argparse
import inspect
import shutil
import sys
import time
from pathlib import Path

import anyio

import turnlog
from demo.steps import Demo, StepFailed
from turnlog.agent.approval import printable

NEXT = """
What to try next (the sessions are in {folder}):

  . .venv/bin/activate
  export TURNLOG_STORE={store}
  turnlog ls
  turnlog show demo-chat --tools
  turnlog messages demo-chat --at {at}
  turnlog requests demo-chat --show 0
  turnlog compactions demo-chat
  turnlog verify --all
  turnlog run "And the mountains?" --session demo-chat
"""


async def run(demo: Demo) -> int:
    """Run every step; 0 when all did what they say."""
    started = time.monotonic()
    async with turnlog.open_store(demo.store_url) as store:
        for number, step in enumerate(demo.steps(), 1):
            headline = (inspect.getdoc(step) or "").splitlines()[0]
            _say(f"\n{number}. {headline}")
            try:
                await step(store)
            except (StepFailed, turnlog.TurnlogError) as error:
                _say(f"  ✗ FAILED: {error}")
                return 1
            except Exception as error:  # noqa: BLE001 - whatever goes wrong, this step failed
                _say(f"  ✗ FAILED: {type(error).__name__}: {error}")
                return 1
            _say("  ✓")
    _say(f"\nAll of it held ({time.monotonic() - started:.0f} s).")
    at = demo.earlier[0]
    _say(NEXT.format(folder=demo.folder, store=demo.store_url, at=at).rstrip())
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _piece(text: str) -> None:
    sys.stdout.write(text if text == "\n" else printable(text))
    sys.stdout.flush()


def main() -> int:
    """Read the command line and run the demo."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".demo"))
    parser.add_argument("--model", default="local:smollm2")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in folder.glob("sessions*"):  # of the run before: the file, and what lies beside it
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    return anyio.run(run, Demo(options.model, folder, _say, _piece))


if __name__ == "__main__":
    sys.exit(main())
